//! Compares what was recovered with what the child had reported: nothing committed is missing,
//! nothing is invented.
//!
//! The child's threads number their events. Each thread counts from 0, and reports over a pipe how
//! many recording calls have returned. Rings overwrite their oldest sub-buffers. "Nothing missing"
//! therefore holds only from the time at which every ring is complete. That is the latest first
//! event of all rings that have overwritten something.

use super::child::{self, Report};
use lastwords_ctf::read::{Trace, unwatched};
use lastwords_render::iter::{Event, Events, Order};
use lastwords_render::select::Selection;
use lastwords_trace::evidence::Cause;
use lastwords_trace::source::Source;
use std::collections::BTreeMap;

/// The fields of an event that the comparison needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeenEvent {
    /// The number among all events, in order of time.
    pub(super) line: u64,
    /// The time in ticks.
    pub(super) clock: u64,
    /// The number that the thread gave the event.
    pub(super) sequence: u64,
}

/// The recovered events of each thread. Copies in other channels are left out.
pub(super) type Threads = BTreeMap<u64, Vec<SeenEvent>>;

/// The recovered events of the session.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    /// The number of all events.
    pub(super) events: u64,
    /// The events of each thread in order of time.
    pub(super) threads: Threads,
    /// Faults of single events: their content does not follow from thread and number.
    pub(super) wrong: Vec<String>,
    /// From this time on, in ticks, the rings have all events.
    pub(super) whole_from: u64,
}

/// Reads all events of the session.
pub(super) fn read(source: &dyn Source, trace: &Trace) -> Recovered {
    let mut recovered = Recovered { whole_from: whole_from(source), ..Recovered::default() };
    let selection = Selection::default();
    for event in Events::new(std::slice::from_ref(trace), &selection, Order::Time, &unwatched) {
        match event {
            Ok(event) => {
                recovered.events += 1;
                take(&event, &mut recovered);
            }
            Err(fault) => recovered.wrong.push(fault.to_string()),
        }
    }
    recovered
}

fn take(event: &Event, recovered: &mut Recovered) {
    let (line, name) = (recovered.events - 1, event.kind.whole_name());
    if !child::is_numbered(&name) {
        return;
    }
    let Some([thread, sequence, check]) = numbers(event) else {
        recovered.wrong.push(format!("event {line}, `{name}`, has no number"));
        return;
    };
    if check != child::check(thread, sequence) {
        recovered
            .wrong
            .push(format!("event {line}, `{name}`: {sequence} of thread {thread} has a wrong sum"));
        return;
    }
    if !child::is_copy(&event.kind.channel) {
        let seen = SeenEvent { line, clock: event.ticks, sequence };
        recovered.threads.entry(thread).or_default().push(seen);
    }
}

/// Returns the numbers that every event has: thread, sequence, sum.
fn numbers(event: &Event) -> Option<[u64; 3]> {
    let number = |name: &str| event.field(name)?.number();
    Some([number("thread")?, number("sequence")?, number("sum")?])
}

/// Returns the latest first time of the streams that have overwritten events.
fn whole_from(source: &dyn Source) -> u64 {
    let schema = source.schema();
    let is_copy = |stream: usize| {
        let channel = source.streams().get(stream).and_then(|s| schema.channels.get(s.channel));
        channel.is_some_and(|c| child::is_copy(&c.name))
    };
    let overwritten = |stream: usize| {
        let gaps = &source.evidence().gaps;
        gaps.iter().any(|g| g.stream == Some(stream) && g.cause == Cause::Overwritten)
    };
    let first =
        |stream: usize| source.packets(stream).next_packet(&mut Vec::new()).map(|p| p.begin);
    (0..source.streams().len())
        .filter(|s| overwritten(*s) && !is_copy(*s))
        .filter_map(first)
        .max()
        .unwrap_or(0)
}

/// The result of the comparison.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Events that were reported as committed and are recovered.
    pub(super) committed: u64,
    /// Events after the last report: they were recorded, but the child died before it reported
    /// them.
    pub(super) unreported: u64,
    /// Committed events that newer ones have overwritten.
    pub(super) overwritten: u64,
    /// Faults: events that are missing, invented or out of order.
    pub(super) faults: Vec<String>,
}

/// Compares the recovered events with the reports. `reports` has the last report of each thread.
pub(super) fn compare(recovered: &Recovered, reports: &BTreeMap<u64, Report>) -> Verdict {
    let mut verdict = Verdict { faults: recovered.wrong.clone(), ..Verdict::default() };
    for thread in recovered.threads.keys().filter(|t| !reports.contains_key(t)) {
        let events = recovered.threads[thread].len() as u64;
        // The thread may have died before it reported its first batch.
        if events > child::BATCH {
            verdict.faults.push(format!(
                "invented: {events} events of thread {thread}, which never reported"
            ));
        }
    }
    for (thread, report) in reports {
        let seen = recovered.threads.get(thread).map(Vec::as_slice).unwrap_or_default();
        one_thread(*thread, report, seen, recovered.whole_from, &mut verdict);
    }
    verdict
}

fn one_thread(
    thread: u64,
    report: &Report,
    seen: &[SeenEvent],
    whole_from: u64,
    verdict: &mut Verdict,
) {
    let faults = &mut verdict.faults;
    for pair in seen.windows(2) {
        let [a, b] = pair else { continue };
        if b.sequence <= a.sequence {
            faults.push(format!("thread {thread}: {} stands behind {}", b.sequence, a.sequence));
        } else if b.sequence > a.sequence + 1 && a.clock >= whole_from {
            faults.push(format!(
                "thread {thread}: {} to {} are missing",
                a.sequence + 1,
                b.sequence - 1
            ));
        }
    }
    let newest = seen.last().map(|s| s.sequence + 1).unwrap_or(0);
    if newest < report.committed && report.clock >= whole_from {
        faults.push(format!(
            "thread {thread}: {newest} to {} were committed and are missing",
            report.committed - 1
        ));
    }
    if newest > report.committed + child::BATCH {
        faults.push(format!("thread {thread}: {} was never recorded", newest - 1));
    }
    if whole_from == 0 && newest != seen.len() as u64 {
        faults.push(format!(
            "thread {thread}: {} of {newest} events, and nothing was overwritten",
            seen.len()
        ));
    }
    let committed = seen.iter().filter(|s| s.sequence < report.committed).count() as u64;
    verdict.committed += committed;
    verdict.unreported += seen.len() as u64 - committed;
    verdict.overwritten += report.committed.saturating_sub(committed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(whole_from: u64, sequences: &[u64]) -> Recovered {
        let seen = sequences
            .iter()
            .map(|&s| SeenEvent { line: s, clock: 1000 + s, sequence: s })
            .collect();
        Recovered { whole_from, threads: BTreeMap::from([(0, seen)]), ..Recovered::default() }
    }

    fn faults(whole_from: u64, sequences: &[u64], committed: u64) -> usize {
        let report = Report { committed, clock: 1000 + committed.saturating_sub(1) };
        compare(&recovered(whole_from, sequences), &BTreeMap::from([(0, report)])).faults.len()
    }

    #[test]
    fn whole_runs_pass() {
        assert_eq!(faults(0, &[0, 1, 2, 3], 4), 0);
        assert_eq!(faults(0, &[0, 1, 2, 3, 4], 4), 0);
        assert_eq!(faults(1003, &[3, 4, 5], 6), 0);
        // Before the rings are complete, events that another ring has overwritten may be missing.
        assert_eq!(faults(1005, &[1, 3, 5, 6], 7), 0);
    }

    #[test]
    fn what_must_not_be_is_found() {
        assert_eq!(faults(0, &[0, 1, 3], 4), 2, "a hole, and fewer than there were");
        assert_eq!(faults(0, &[0, 1, 2], 4), 1, "the last is missing");
        assert_eq!(faults(1003, &[3, 4], 6), 1, "the last is missing");
        assert_eq!(faults(1003, &[3, 4, 4, 5], 6), 1, "twice");
        assert_eq!(faults(1003, &[3, 5], 6), 1, "a hole");
        let many: Vec<u64> = (0..child::BATCH + 10).collect();
        assert_eq!(faults(0, &many, 5), 1, "more than can have been in flight");
    }

    #[test]
    fn a_thread_that_never_reported() {
        let verdict = compare(&recovered(0, &[0, 1]), &BTreeMap::new());
        assert_eq!(verdict.faults, Vec::<String>::new());
        let many: Vec<u64> = (0..=child::BATCH).collect();
        assert_eq!(compare(&recovered(0, &many), &BTreeMap::new()).faults.len(), 1);
    }
}
