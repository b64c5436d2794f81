//! Implements the child of the demo, which records numbered events through the public interface
//! until it is killed.

use crate::exit::Outcome;
use anyhow::{Context, bail};
use lastwords::ClockKind;
use lastwords::{ChannelConfig, Reservation, Session, event, hex, mark};
use std::io;
use std::time::Duration;

/// The arguments of `demo-child`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of its session
    session: String,
    /// Threads that record
    threads: u64,
    /// The way in which space in the rings is reserved
    #[arg(long, value_enum)]
    reservation: Option<ReservationChoice>,
}

/// The way in which space in the rings is reserved.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum ReservationChoice {
    /// Restartable sequences
    Rseq,
    /// Compare-and-swap
    Lockless,
    /// A lock
    Locked,
}

impl From<ReservationChoice> for Reservation {
    fn from(how: ReservationChoice) -> Self {
        match how {
            ReservationChoice::Rseq => Self::Rseq,
            ReservationChoice::Lockless => Self::Lockless,
            ReservationChoice::Locked => Self::Locked,
        }
    }
}

/// Events that a thread records between two reports.
pub(super) const BATCH: u64 = 64;
/// Bytes of a report on the pipe.
pub(super) const REPORT_LEN: usize = 24;

/// A report that a thread writes after recording calls have returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    /// The number of recorded events: 0 to `committed - 1`.
    pub(super) committed: u64,
    /// The session's clock just before the last of them was recorded.
    pub(super) clock: u64,
}

impl Report {
    fn to_bytes(self, thread: u64) -> [u8; REPORT_LEN] {
        let mut bytes = [0; REPORT_LEN];
        for (place, word) in bytes.chunks_exact_mut(8).zip([thread, self.committed, self.clock]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses the number of the thread and its report.
    pub(super) fn from_bytes(bytes: &[u8]) -> (u64, Self) {
        let word = |i: usize| {
            bytes.get(8 * i..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
        };
        (word(0), Self { committed: word(1), clock: word(2) })
    }
}

/// Returns a check sum of a thread and a number. Their event contains it, so that a torn or
/// invented event is detected.
pub(super) fn check(thread: u64, sequence: u64) -> u64 {
    let mut x = (thread << 48 ^ sequence).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 27)
}

/// Returns true if the channel has copies of events in another channel.
pub(super) fn is_copy(channel: &str) -> bool {
    channel == "errors"
}

/// Returns true if the event is numbered. Spans of `tracing` are not.
pub(super) fn is_numbered(event: &str) -> bool {
    !event.starts_with("span:")
}

/// Records events until the process is killed.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let main = ChannelConfig::new("main")
        .sub_buffers(8, 64 << 10)
        .contexts(lastwords::Context::TID | lastwords::Context::THREAD_NAME);
    let mut builder = Session::builder(&args.session).channel(main).errors_channel();
    if let Some(how) = args.reservation {
        builder = builder.reservation(how.into());
    }
    let session = builder
        .start()
        .context("cannot begin the demo's session; `lastwords doctor` says what is missing")?;
    if let Err(error) = lastwords::layer::init() {
        bail!("cannot install the tracing layer: {error}");
    }
    say(&[1])?;
    let threads: Vec<_> = (0..args.threads)
        .map(|thread| {
            let name = format!("worker-{thread}");
            std::thread::Builder::new().name(name).spawn(move || record(thread))
        })
        .collect::<io::Result<_>>()
        .context("cannot start a thread")?;
    for thread in threads {
        // The thread ends if the pipe is closed, because the parent died.
        let _ = thread.join();
    }
    drop(session);
    Ok(Outcome::Done)
}

/// Writes to the pipe in one write, which the system does not mix with those of other threads.
fn say(bytes: &[u8]) -> io::Result<()> {
    match rustix::io::write(rustix::stdio::stdout(), bytes) {
        Ok(n) if n == bytes.len() => Ok(()),
        Ok(n) => Err(io::Error::other(format!("{n} of {} bytes were written", bytes.len()))),
        Err(error) => Err(error.into()),
    }
}

/// Records batches of events, and writes a report after each batch.
fn record(thread: u64) -> io::Result<()> {
    let kind = lastwords::clock::best();
    let mut committed = 0;
    let _worker = tracing::info_span!("worker", number = thread).entered();
    loop {
        let clock = batch(thread, &mut committed, kind);
        say(&Report { committed, clock }.to_bytes(thread))?;
        let pause = check(thread, committed) % 300;
        std::thread::sleep(Duration::from_micros(pause));
    }
}

/// Records a batch. Returns the clock just before its last event.
fn batch(thread: u64, committed: &mut u64, kind: ClockKind) -> u64 {
    let _batch = tracing::info_span!("batch", from = *committed).entered();
    for _ in 1..BATCH {
        one(thread, *committed);
        *committed += 1;
    }
    let clock = kind.now();
    one(thread, *committed);
    *committed += 1;
    clock
}

/// Records one event. Its kind follows from its number.
fn one(thread: u64, sequence: u64) {
    let sum = check(thread, sequence);
    match sequence % 8 {
        0 => mark!(
            "worker {thread} did step {sequence}, sum {sum}",
            thread = thread,
            sequence = sequence,
            sum = sum
        ),
        1 => event!(
            demo,
            "read",
            thread = thread,
            sequence = sequence,
            sum = hex(sum),
            path = "/etc/hosts",
            bytes = 4096u32
        ),
        2 => event!(
            demo,
            "load",
            thread = thread,
            sequence = sequence,
            sum = hex(sum),
            share = 0.5f64,
            busy = true
        ),
        3 => {
            let parts = [sequence as u32, 2, 3];
            event!(
                demo,
                "parts",
                thread = thread,
                sequence = sequence,
                sum = hex(sum),
                parts = parts
            );
        }
        4 if sequence % 1024 == 4 => {
            event!(demo, "failed", level: ERROR, thread = thread, sequence = sequence, sum = hex(sum), code = -5i32);
        }
        5 => tracing::info!(thread, sequence, sum, "stepped"),
        _ => event!(demo, "tick", thread = thread, sequence = sequence, sum = hex(sum)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back() {
        let report = Report { committed: 7, clock: u64::MAX - 1 };
        assert_eq!(Report::from_bytes(&report.to_bytes(3)), (3, report));
    }
}
