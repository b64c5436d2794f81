//! The oracle: compares the recovered events with the events that must be there.
//!
//! It knows the events that each writer was to record, the reports of the writers, and the events
//! recovered at every earlier stop. It judges each stop alone. No committed event is missing unless
//! the ring has overwritten it. Every event was recorded, and has its right bytes, id and clock.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Acquire;

use anyhow::{Result, bail, ensure};

use super::arena::{Progress, RESULT_LOST, RESULT_OK};
use super::naive::{Half, Verdict};
use super::scenario::{Event, MAX_WRITERS, Scenario};

/// One stop: what was recovered, and the circumstances.
#[derive(Debug)]
pub(crate) struct Stop<'a> {
    /// Halves of each stream, with the data that their offsets mean.
    pub(crate) streams: &'a [[Half; 2]],
    pub(crate) data: &'a [[&'a [u8]; 2]],
    /// The session's flip word.
    pub(crate) flip: u32,
    /// The clock now.
    pub(crate) now: u64,
    /// The first stop of a process that has recorded before: what the ring came round to since was
    /// never seen.
    pub(crate) is_first: bool,
    /// Sub-buffers of a half.
    pub(crate) places: u64,
}

/// Ticks by which two readings of the counter may be out of order where the child was not stepped.
const SLACK: u64 = 200;

/// An event of a half's history.
#[derive(Debug, Clone, Copy)]
struct Seen {
    position: u64,
    clock: u64,
    key: (usize, usize),
}

/// The history of one half since it was begun.
#[derive(Debug, Default)]
struct History {
    first: u64,
    events: VecDeque<Seen>,
}

#[derive(Debug, Default)]
struct Writer {
    plan: Vec<Event>,
    /// Events whose results were taken.
    resolved: usize,
    /// For each event: whether it was recovered once.
    seen: Vec<bool>,
    /// Generation of halves when the call began.
    born: Vec<u64>,
}

/// Figures of a round.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Events whose call returned `Ok`.
    pub(crate) committed: u64,
    /// Events that were refused.
    pub(crate) refused: u64,
    /// Most events in flight that were not recovered, at one stop.
    pub(crate) lost_in_flight: usize,
    /// Events in flight that were recovered, at one stop.
    pub(crate) saved_in_flight: usize,
    /// Events of rseq channels that went to the stream of no CPU.
    pub(crate) unbound: u64,
    /// Snapshots that were taken.
    pub(crate) swaps: u64,
    /// Holes of the dead that were reclaimed, and sub-buffers passed over, as the recorder counts
    /// them.
    pub(crate) reclaimed: u64,
    pub(crate) passed: u64,
}

impl Tally {
    /// Adds another round.
    pub(crate) fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.refused += other.refused;
        self.lost_in_flight = self.lost_in_flight.max(other.lost_in_flight);
        self.saved_in_flight = self.saved_in_flight.max(other.saved_in_flight);
        self.unbound += other.unbound;
        self.swaps += other.swaps;
        self.reclaimed += other.reclaimed;
        self.passed += other.passed;
    }
}

/// The oracle of one round.
#[derive(Debug)]
pub(crate) struct Oracle<'a> {
    scenario: &'a Scenario,
    writers: Vec<Writer>,
    histories: Vec<[History; 2]>,
    /// Flips so far.
    generation: u64,
    pub(crate) tally: Tally,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, streams: usize) -> Self {
        let writer = |w: usize| {
            let plan: Vec<Event> =
                (0..scenario.events()).map(|n| scenario.event(seed, w, n)).collect();
            Writer { resolved: 0, seen: vec![false; plan.len()], born: vec![0; plan.len()], plan }
        };
        let writers = (0..MAX_WRITERS).map(writer).collect();
        let histories = (0..streams).map(|_| [History::default(), History::default()]).collect();
        Self { scenario, writers, histories, generation: 0, tally: Tally::default() }
    }

    /// Judges one stop. Returns a bit for each writer that is inside a call.
    pub(crate) fn judge(&mut self, stop: &Stop<'_>, progress: &Progress) -> Result<u32> {
        if u64::from(stop.flip & 1) != self.generation & 1 {
            self.generation += 1;
            self.tally.swaps += 1;
        }
        for (index, halves) in stop.streams.iter().enumerate() {
            for (half, found) in halves.iter().enumerate() {
                self.check_half(stop, progress, index, half, found)
                    .map_err(|e| e.context(format!("stream {index}, half {half}")))?;
            }
        }
        if stop.is_first {
            self.pass_over(stop, progress);
        }
        self.check_writers(progress)
    }

    /// Takes as seen what was recorded and overwritten before the first stop: of each writer what
    /// is older than all that is there, where the ring came round.
    fn pass_over(&mut self, stop: &Stop<'_>, progress: &Progress) {
        let size = self.scenario.sub_buffer_size;
        if !stop
            .streams
            .iter()
            .flatten()
            .any(|h| h.lowest > h.first / size && h.consumed <= h.first)
        {
            return;
        }
        let there = self.histories.iter().flatten().flat_map(|h| &h.events);
        let mut oldest = vec![usize::MAX; self.writers.len()];
        there.for_each(|e| oldest[e.key.0] = oldest[e.key.0].min(e.key.1));
        for ((w, report), oldest) in self.writers.iter_mut().zip(&progress.writers).zip(oldest) {
            let begun = report.begun.load(Acquire) as usize;
            w.seen[..begun.min(oldest)].fill(true);
        }
    }

    fn check_half(
        &mut self,
        stop: &Stop<'_>,
        progress: &Progress,
        index: usize,
        half: usize,
        found: &Half,
    ) -> Result<()> {
        ensure!(found.faults.is_empty(), "{}", found.faults.join("; "));
        let swapping = progress.swaps[0].load(Acquire) != progress.swaps[1].load(Acquire);
        let spare = (stop.flip as usize & 1) ^ 1 == half;
        ensure!(
            !found.half_begun || (swapping && spare),
            "produced {} before first {}",
            found.produced,
            found.first
        );
        let history = &mut self.histories[index][half];
        let mut before = std::mem::take(&mut history.events);
        if history.first != found.first {
            ensure!(
                before.is_empty() || (swapping && spare),
                "the half was begun anew at {}",
                found.first
            );
            before.clear();
            history.first = found.first;
        }
        let mut merged = VecDeque::with_capacity(found.events.len() + 1);
        for event in &found.events {
            while let Some(gone) = pop_if(&mut before, |b| b.position < event.position) {
                self.check_gone(found, &gone)?;
            }
            let (at, len) = event.payload;
            let payload = &stop.data[index][half][at..at + len];
            let key = self.check_event(event.id, payload, progress)?;
            let seen = Seen { position: event.position, clock: event.clock, key };
            match pop_if(&mut before, |b| b.position == event.position) {
                Some(b) => {
                    ensure!(b.key == key && b.clock == event.clock, "was {b:?}, now it is {seen:?}")
                }
                None => {
                    self.tally.unbound +=
                        u64::from(index + 1 == stop.streams.len() && self.is_rseq());
                    self.check_new(stop, progress, half, &seen)?;
                }
            }
            check_order(merged.back(), &seen)?;
            merged.push_back(seen);
        }
        for gone in before {
            self.check_gone(found, &gone)?;
        }
        self.histories[index][half].events = merged;
        self.check_fill(found)
    }

    fn is_rseq(&self) -> bool {
        self.scenario.reservation == lastwords_abi::session::RESERVATION_RSEQ
    }

    /// An event that was there and is not any more: the ring must have come round to it.
    fn check_gone(&self, half: &Half, gone: &Seen) -> Result<()> {
        let number = gone.position / self.scenario.sub_buffer_size;
        ensure!(
            number < half.lowest,
            "LOST: {gone:?} was recovered before; produced {}",
            half.produced
        );
        if self.scenario.mode == lastwords_abi::session::MODE_DISCARD {
            ensure!(
                gone.position < half.consumed,
                "LOST: {gone:?} was overwritten in discard mode"
            );
        }
        Ok(())
    }

    /// The event is one that was recorded; returns its writer and number.
    pub(crate) fn check_event(
        &self,
        id: u16,
        payload: &[u8],
        progress: &Progress,
    ) -> Result<(usize, usize)> {
        ensure!(payload.len() >= 8, "TORN: a payload of {} bytes", payload.len());
        let key = super::naive::u32_at(payload, 4);
        let (writer, sequence) = ((key >> 16) as usize, (key & 0xffff) as usize);
        let known = self.writers.get(writer).and_then(|w| w.plan.get(sequence));
        let Some(event) = known else { bail!("INVENTED: key {key:#x}") };
        ensure!(
            event.payload == payload && event.id == id,
            "TORN: key {key:#x}, id {id}, payload {payload:02x?}"
        );
        let report = &progress.writers[writer];
        ensure!(
            (sequence as u64) < report.begun.load(Acquire),
            "INVENTED: key {key:#x} was not begun"
        );
        let result = report.results[sequence].load(Acquire);
        ensure!(result != RESULT_LOST, "INVENTED: key {key:#x} was refused");
        Ok((writer, sequence))
    }

    /// An event that was not there at the stop before.
    fn check_new(
        &mut self,
        stop: &Stop<'_>,
        progress: &Progress,
        half: usize,
        seen: &Seen,
    ) -> Result<()> {
        let (writer, sequence) = seen.key;
        let generation =
            self.generation.saturating_sub(u64::from(self.generation & 1 != half as u64 & 1));
        let w = &mut self.writers[writer];
        ensure!(!w.seen[sequence], "INVENTED: {seen:?} was recovered elsewhere before");
        w.seen[sequence] = true;
        ensure!(
            w.born[sequence] <= generation,
            "{seen:?} was recorded after the swap, into what was swapped out"
        );
        let settled = progress.swaps[0].load(Acquire) == progress.swaps[1].load(Acquire)
            && progress.restless.load(Acquire) == 0;
        ensure!(
            generation == self.generation || !settled,
            "{seen:?} came into the snapshot after it was taken"
        );
        let report = &progress.writers[writer];
        let before = report.before[sequence].load(Acquire);
        let after = match report.after[sequence].load(Acquire) {
            0 => stop.now,
            after => after,
        };
        let span = before.saturating_sub(SLACK)..=after + SLACK;
        ensure!(span.contains(&seen.clock), "{seen:?}: its clock is not in {before}..={after}");
        Ok(())
    }

    /// A sub-buffer is left only when the next event does not fit.
    fn check_fill(&self, half: &Half) -> Result<()> {
        let least = self.scenario.sub_buffer_size - 16 - self.scenario.largest();
        for &(number, verdict, content) in &half.sub_buffers {
            if verdict == Verdict::Committed && number > half.first / self.scenario.sub_buffer_size
            {
                ensure!(content >= least, "sub-buffer {number} was left at {content}");
            }
        }
        Ok(())
    }

    /// Every committed event was seen; counts what is in flight.
    fn check_writers(&mut self, progress: &Progress) -> Result<u32> {
        let (mut inside, mut lost, mut saved) = (0, 0, 0);
        for (index, (w, report)) in self.writers.iter_mut().zip(&progress.writers).enumerate() {
            let begun = report.begun.load(Acquire) as usize;
            while w.resolved < begun {
                match report.results[w.resolved].load(Acquire) {
                    RESULT_OK => {
                        ensure!(
                            w.seen[w.resolved],
                            "LOST: event {} of writer {index} is not there",
                            w.resolved
                        );
                        self.tally.committed += 1;
                    }
                    RESULT_LOST => self.tally.refused += 1,
                    _ => break,
                }
                w.resolved += 1;
            }
            ensure!(begun - w.resolved <= 1, "writer {index} has two events in flight");
            if let Some(born) = w.born.get_mut(begun) {
                *born = self.generation;
            }
            if w.resolved < begun {
                inside |= 1 << index;
                if w.seen[w.resolved] { saved += 1 } else { lost += 1 }
            }
        }
        self.tally.lost_in_flight = self.tally.lost_in_flight.max(lost);
        self.tally.saved_in_flight = self.tally.saved_in_flight.max(saved);
        Ok(inside)
    }
}

fn pop_if(events: &mut VecDeque<Seen>, wanted: impl Fn(&Seen) -> bool) -> Option<Seen> {
    if events.front().is_some_and(wanted) { events.pop_front() } else { None }
}

/// Clocks do not step back in a stream, and the events of one writer stand in their order.
fn check_order(last: Option<&Seen>, seen: &Seen) -> Result<()> {
    let Some(last) = last else { return Ok(()) };
    ensure!(last.clock <= seen.clock, "the clock steps back from {last:?} to {seen:?}");
    ensure!(
        last.key.0 != seen.key.0 || last.key.1 < seen.key.1,
        "out of order: {last:?}, {seen:?}"
    );
    Ok(())
}
