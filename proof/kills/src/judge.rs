//! Judges what is recovered after a kill: no committed event may be missing.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use lastwords_ctf::session::Decoder;
use lastwords_session::Options;
use lastwords_trace::evidence::{Cause, Verdict};
use lastwords_trace::source::Source as _;

use super::child::{LEVELS, Reports, WRITERS, check, filler};

/// Figures of kills.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sum {
    pub(super) rounds: u64,
    /// Calls that had returned.
    pub(super) committed: u64,
    pub(super) recovered: u64,
    /// Calls that had not returned.
    pub(super) in_flight: u64,
    /// Events by signal handlers.
    pub(super) nested: u64,
    /// Events that the recorder counts as refused.
    pub(super) refused: u64,
}

impl Sum {
    pub(super) fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.committed += other.committed;
        self.recovered += other.recovered;
        self.in_flight += other.in_flight;
        self.nested += other.nested;
        self.refused += other.refused;
    }
}

/// An event that was recovered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    clock: u64,
    writer: usize,
    sequence: u64,
    /// CPU whose ring has it; none for the ring of threads without restartable sequences.
    cpu: Option<u32>,
}

/// The recovered part of a session.
#[derive(Debug)]
pub(super) struct Recovered {
    /// All streams, each in its order.
    events: Vec<Event>,
    /// Everything from this clock on is still in the rings.
    since: u64,
    /// Events that the recorder says it refused.
    refused: u64,
}

impl Recovered {
    /// No ring came round: all that was committed must be there.
    pub(super) fn has_all(&self) -> bool {
        self.since == 0
    }

    /// How many of the events are in rings of `cpus`, a bit for each.
    pub(super) fn on(&self, cpus: u64) -> u64 {
        self.events.iter().filter(|e| e.cpu.is_some_and(|cpu| cpus >> cpu & 1 == 1)).count() as u64
    }
}

/// Recovers the session in a folder; an error where the evidence is of damage, or an event is not
/// as it was recorded.
pub(super) fn recover(folder: &Path) -> Result<Recovered> {
    let found = lastwords_session::open(folder, &Options::default())?;
    ensure!(found.sessions.len() == 1, "{} sessions in {}", found.sessions.len(), folder.display());
    let session = found.sessions.first().context("a session")?;
    let evidence = session.evidence();
    let bad = evidence
        .sub_buffers
        .iter()
        .find(|s| matches!(s.verdict, Verdict::Invalid | Verdict::Missing));
    ensure!(bad.is_none(), "{bad:?}");
    let bad = evidence.gaps.iter().find(|g| matches!(g.cause, Cause::Damaged | Cause::Missing));
    ensure!(bad.is_none(), "{bad:?}");
    let decoder = Decoder::new(session.schema());
    let mut recovered = Recovered { events: Vec::new(), since: 0, refused: 0 };
    for (index, stream) in session.streams().iter().enumerate() {
        let (mut packets, mut bytes) = (session.packets(index), Vec::new());
        let (mut next, mut last) = (0, 0);
        while let Some(packet) = packets.next_packet(&mut bytes) {
            let begin = recovered.events.len();
            for raw in decoder.events(stream.channel, &bytes, packet.begin, packet.events_at) {
                let raw =
                    raw.with_context(|| format!("stream {index}, packet {}", packet.sequence))?;
                let event = event((raw.clock, stream.cpu), &bytes[raw.payload()])?;
                ensure!(
                    last <= event.clock,
                    "stream {index}: the clock steps back from {last} to {event:?}"
                );
                last = event.clock;
                recovered.events.push(event);
            }
            // Sub-buffers before this one are gone: of what is older than its events, some may be.
            if let Some(first) = recovered.events.get(begin).filter(|_| packet.sequence != next) {
                recovered.since = recovered.since.max(first.clock);
            }
            next = packet.sequence + 1;
        }
    }
    recovered.refused =
        session.info().streams.iter().map(|s| s.lost[..5].iter().sum::<u64>()).sum();
    Ok(recovered)
}

/// Takes a payload apart and checks every byte: writer u32, sequence u64, check u64, filler.
fn event((clock, cpu): (u64, Option<u32>), payload: &[u8]) -> Result<Event> {
    let word = |at: usize| {
        payload.get(at..at + 8).map(|b| u64::from_ne_bytes(b.try_into().expect("8 bytes")))
    };
    let half = |at: usize| {
        payload.get(at..at + 4).map(|b| u32::from_ne_bytes(b.try_into().expect("4 bytes")))
    };
    let (Some(writer), Some(sequence), Some(said), Some(len)) =
        (half(0), word(4), word(12), half(20))
    else {
        bail!("TORN: a payload of {} bytes", payload.len());
    };
    let writer = writer as usize;
    let (bytes, right) = filler(said);
    let is_whole = writer < WRITERS
        && said == check(writer, sequence)
        && len as usize == right
        && payload.get(24..) == Some(&bytes[..right]);
    ensure!(is_whole, "TORN: writer {writer}, sequence {sequence}, payload {payload:02x?}");
    Ok(Event { clock, writer, sequence, cpu })
}

/// Compares with what the children reported. `killed`: events of writer 0 that were in flight when
/// it was killed; the next process in its place went on behind them.
pub(super) fn judge(
    recovered: &Recovered,
    reports: &Reports,
    killed: &HashSet<u64>,
) -> Result<Sum> {
    let mut sum = Sum {
        rounds: 1,
        recovered: recovered.events.len() as u64,
        refused: recovered.refused,
        ..Sum::default()
    };
    let mut by_writer: HashMap<usize, Vec<Event>> = HashMap::new();
    for event in &recovered.events {
        by_writer.entry(event.writer).or_default().push(*event);
    }
    let mut missing = 0;
    for (writer, report) in reports.writers.iter().enumerate() {
        let (returned, begun) = (report.returned(), report.begun());
        let mut events = by_writer.remove(&writer).unwrap_or_default();
        events.sort_by_key(|e| e.sequence);
        sum.committed += returned;
        sum.in_flight += begun - returned;
        sum.nested += if writer % LEVELS == 0 { 0 } else { events.len() as u64 };
        let excused = if writer == 0 { Some(killed) } else { None };
        missing += missing_between(&events, recovered.since, excused)?;
        let newest = events.last().map_or(0, |e| e.sequence + 1);
        ensure!(
            newest <= begun,
            "INVENTED: event {} of writer {writer}, which began {begun}",
            newest.saturating_sub(1)
        );
        // The newest that returned is there, unless the rings came round since.
        if newest < returned && report.newest() >= recovered.since {
            missing += (newest..returned)
                .filter(|n| !excused.is_some_and(|killed| killed.contains(n)))
                .count() as u64;
        }
    }
    ensure!(
        missing <= recovered.refused,
        "LOST: {missing} committed events are not there, the recorder refused {}",
        recovered.refused
    );
    Ok(sum)
}

/// Events of one writer that are missing though they are newer than all that was overwritten.
fn missing_between(events: &[Event], since: u64, killed: Option<&HashSet<u64>>) -> Result<u64> {
    let excused = |n: &u64| killed.is_some_and(|killed| killed.contains(n));
    let mut missing = 0;
    for pair in events.windows(2) {
        let [older, newer] = pair else { continue };
        ensure!(older.sequence < newer.sequence, "INVENTED: {newer:?} is there twice");
        ensure!(older.clock <= newer.clock, "OUT OF ORDER: {older:?} is later than {newer:?}");
        if older.clock >= since {
            missing += (older.sequence + 1..newer.sequence).filter(|n| !excused(n)).count() as u64;
        }
    }
    Ok(missing)
}

/// The newest `count` events of `writer` up to `end` are all there.
pub(super) fn has_newest(recovered: &Recovered, writer: usize, end: u64, count: u64) -> Result<()> {
    let mut there = vec![false; count as usize];
    for event in recovered.events.iter().filter(|e| e.writer == writer && e.sequence < end) {
        if let Some(place) = (event.sequence + count).checked_sub(end) {
            there[place as usize] = true;
        }
    }
    let absent = there.iter().filter(|t| !**t).count();
    ensure!(
        absent == 0,
        "LOST: {absent} of the {count} events that another process recorded behind the kill"
    );
    Ok(())
}
