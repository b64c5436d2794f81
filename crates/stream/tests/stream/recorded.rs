//! Sessions that record while they are sent. The death of a sender costs what was recorded since
//! the last flush, and no more; snapshots cost nothing that the sender has time for, and the rest
//! is told.
#![allow(missing_docs, reason = "a test")]

use crate::support::{LIMITS, Running};
use lastwords::snapshot::Rings;
use lastwords::{ChannelConfig, Reservation, Session, event};
use lastwords_control::stream_out::SentSession;
use lastwords_stream::session::Sent;
use lastwords_stream::wire::Hello;
use lastwords_stream::{Sender, Told, session};
use lastwords_testkit::naive;
use lastwords_testkit::random::Random;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Held by each test: a process records in one session at a time.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The values of all events in a session folder, sorted.
fn numbers(folder: &std::path::Path) -> Vec<u64> {
    let session = naive::read(folder).expect("readable").swap_remove(0);
    let all = session.streams.iter().flat_map(|stream| &stream.live).flat_map(|sub| &sub.events);
    // The context is before it.
    let number = |body: &[u8]| body.last_chunk::<8>().map(|bytes| u64::from_ne_bytes(*bytes));
    let mut found: Vec<u64> = all.filter_map(|(_, event)| number(&event.body)).collect();
    found.sort_unstable();
    found
}

/// A receiver, and a folder for sessions that are sent to it.
pub(crate) struct Place {
    pub(crate) running: Running,
    _folder: tempfile::TempDir,
    pub(crate) sessions: PathBuf,
    /// What the receiver has.
    pub(crate) received: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [received, sessions] = ["in", "s"].map(|name| folder.path().join(name));
        std::fs::create_dir(&received).unwrap();
        std::fs::create_dir(&sessions).unwrap();
        let running = Running::new(&received, LIMITS);
        Self { _folder: folder, sessions, received, running }
    }

    /// Begins to send a session. The sending ends with it, or when the socket is dropped.
    pub(crate) fn send(
        &self,
        recorded: &Session,
        from_begin: bool,
    ) -> (JoinHandle<Result<Sent, lastwords_stream::Error>>, UnixStream) {
        let from = recorded.folder().unwrap().to_owned();
        let address = format!("tcp:{}", self.running.address).parse().unwrap();
        let (ended, end) = UnixStream::pair().unwrap();
        let (opened, is_open) = std::sync::mpsc::channel();
        let sending = std::thread::spawn(move || {
            let sender = Sender::connect(address, &Hello::of_this_machine("sent")).unwrap();
            let source = SentSession::open(&from, from_begin).unwrap();
            opened.send(()).unwrap();
            session::send(&sender, source, Duration::from_millis(50), ended.as_fd())
        });
        is_open.recv().unwrap();
        (sending, end)
    }
}

#[test]
fn what_was_flushed_is_at_the_receiver() {
    let _alone = alone();
    for reservation in [Reservation::Rseq, Reservation::Lockless, Reservation::Locked] {
        let place = Place::new();
        let channel = ChannelConfig::new("main").sub_buffers(4, 4096);
        let builder = Session::builder("few").channel(channel).reservation(reservation);
        let recorded = builder.dir(&place.sessions).start().unwrap();
        (0..30u64).for_each(|n| event!(test, "few", n));
        let (sending, end) = place.send(&recorded, false);
        std::thread::sleep(Duration::from_millis(400));
        // More, of which the sub-buffers are closed and sent as a whole, and then a part again.
        (30..500u64).for_each(|n| event!(test, "few", n));
        std::thread::sleep(Duration::from_millis(400));
        // The receiver keeps what has arrived by now, as where a sender is killed.
        let told = place.running.stop();
        let saved = told.iter().find_map(|told| match told {
            Told::SavedSession(saved) => Some(saved),
            _ => None,
        });
        let saved = saved.expect("the session is saved");
        assert!(saved.ended_early.is_some());
        assert_eq!(numbers(&saved.path), (0..500).collect::<Vec<_>>(), "{reservation:?}");
        drop(end);
        assert!(sending.join().unwrap().is_err(), "the receiver has gone");
        recorded.remove();
    }
}

/// A session as its receiver has it.
struct Got {
    sent: Sent,
    /// The values of the events.
    numbers: Vec<u64>,
    /// Sub-buffers that the receiver knows to be lost.
    missing: u64,
}

/// Sends the session that `record` records in, whose rings discard or overwrite, and returns what
/// the receiver has.
fn stream(
    reservation: Reservation,
    discards: bool,
    from_begin: bool,
    record: impl FnOnce(&Session),
) -> Got {
    let place = Place::new();
    let channel = ChannelConfig::new("main").sub_buffers(8, 4096);
    let channel = if discards { channel.discard() } else { channel };
    let builder = Session::builder("swaps").channel(channel).reservation(reservation);
    let recorded = builder.dir(&place.sessions).snapshot(true).start().unwrap();
    let (sending, _end) = place.send(&recorded, from_begin);
    record(&recorded);
    recorded.close();
    let sent = sending.join().unwrap().unwrap();
    let Told::SavedSession(saved) = place.running.over() else { panic!("the session is saved") };
    assert_eq!(saved.ended_early, None);
    let session = naive::read(&saved.path).expect("readable").swap_remove(0);
    let mut numbers = Vec::new();
    for stream in &session.streams {
        assert!(stream.snapshot.is_empty(), "the copy has no snapshot");
        let events = stream.live.iter().flat_map(|sub| &sub.events);
        let number = |body: &[u8]| u64::from_ne_bytes(*body.last_chunk::<8>().unwrap());
        let of_ring: Vec<u64> = events.map(|(_, event)| number(&event.body)).collect();
        assert!(of_ring.is_sorted(), "a ring is in order: {of_ring:?}");
        numbers.extend(of_ring);
    }
    Got { sent, numbers, missing: saved.lost_sub_buffers }
}

#[test]
fn snapshots_cost_a_stream_nothing_that_it_has_time_for() {
    let _alone = alone();
    for (seed, reservation) in
        [Reservation::Rseq, Reservation::Lockless, Reservation::Locked].into_iter().enumerate()
    {
        let random = &mut Random(seed as u64 + 1);
        let mut count = 0;
        let got = stream(reservation, false, true, |session| {
            for _ in 0..12 {
                // None, a few, or more than a sub-buffer.
                for _ in 0..random.below(3) * random.below(120) {
                    event!(test, "swap", count);
                    count += 1;
                }
                if random.one_in(4) {
                    session.disable_snapshots().unwrap();
                    session.enable_snapshots().unwrap();
                }
                let rings = if random.one_in(3) { Rings::Stream(0) } else { Rings::All };
                session.snapshot(rings).unwrap();
                std::thread::sleep(Duration::from_millis(150));
            }
        });
        let Got { sent, mut numbers, missing } = got;
        assert_eq!((sent.overwritten, sent.unfinished, missing), (0, 0, 0), "{reservation:?}");
        numbers.sort_unstable();
        assert!(
            numbers.iter().copied().eq(0..count),
            "{reservation:?}: {} of {count}",
            numbers.len()
        );
    }
}

#[test]
fn snapshots_that_are_too_fast_are_told() {
    let _alone = alone();
    let (mut told, mut whole) = (0, 0);
    for seed in 0..24 {
        let random = &mut Random(seed);
        let reservation =
            [Reservation::Rseq, Reservation::Lockless, Reservation::Locked][seed as usize % 3];
        let mut count = 0;
        let got = stream(reservation, random.one_in(2), random.one_in(2), |session| {
            for _ in 0..random.below(40) {
                for _ in 0..random.below(3) * random.below(400) {
                    event!(test, "swap", count);
                    count += 1;
                }
                match random.below(8) {
                    0 => session
                        .disable_snapshots()
                        .and_then(|()| session.enable_snapshots())
                        .unwrap(),
                    1 => drop(session.snapshot(Rings::Stream(0)).unwrap()),
                    2..5 => std::thread::sleep(Duration::from_millis(random.below(60))),
                    _ => drop(session.snapshot(Rings::All).unwrap()),
                }
            }
        });
        let Got { sent, mut numbers, missing } = got;
        numbers.sort_unstable();
        let had = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), had, "seed {seed}: no event comes twice");
        assert!(numbers.last().is_none_or(|last| *last < count), "seed {seed}");
        // A ring that discards counts what it had no room for.
        let known = had as u64 + sent.lost_events;
        assert!(known <= count, "seed {seed}: {had} of {count}, {sent:?}");
        if known < count {
            assert!(
                sent.overwritten + sent.unfinished > 0 && missing > 0,
                "seed {seed}: {had} of {count}, {sent:?}"
            );
            told += 1;
        } else {
            whole += 1;
        }
    }
    assert!(told > 0, "{whole} streams without a loss");
}
