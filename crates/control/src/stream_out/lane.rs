//! The place of a ring's sub-buffers in its file, and the numbers under which they are sent.
//!
//! A run is what was recorded in one half between two swaps. The halves' numbers are far apart, so
//! that a swap leaves a jump that is no loss. A sent stream has none: a run goes on with the number
//! after the last one of the run before. Where a run was replaced before all of it was sent, one
//! number is left out, which the receiver takes for a loss of unknown size.

use std::collections::VecDeque;
use std::fs::File;
use std::time::{Duration, Instant};

use lastwords_ring::Stream;

/// Sub-buffers that were recorded in one half between two swaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    half: usize,
    /// Number of its first sub-buffer in the half.
    number: u64,
    /// The number under which that is sent. It is 0 until the run before was sent.
    sent: u64,
    /// The produced position at the newest look.
    seen: u64,
}

impl Run {
    fn new(stream: &Stream, half: usize) -> Self {
        let size = stream.spec().sub_buffer_size;
        Self { half, number: stream.first(half) / size, sent: 0, seen: stream.position(half) }
    }

    /// Returns true if the half was emptied since the newest look: it then begins more than two
    /// laps beyond all positions that it had.
    fn is_gone(&self, stream: &Stream) -> bool {
        stream.first(self.half) > self.seen.saturating_add(2 * stream.half_size())
    }
}

/// Where a sub-buffer is that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) half: usize,
    /// Its number in the half.
    pub(super) number: u64,
}

/// A ring whose sub-buffers are sent.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) file: File,
    /// Offset of the region in the file.
    pub(super) offset: u64,
    /// Position where the sent stream begins.
    pub(super) first: u64,
    /// The run before, whose packets may not all be confirmed.
    before: Option<Run>,
    now: Run,
    /// Runs that were begun since.
    then: VecDeque<Run>,
    /// When the first of them was seen.
    swapped: Instant,
    /// A part of the run `now`, or a run before `then`, was replaced before it was sent.
    is_replaced: bool,
}

impl Lane {
    /// Begins with the oldest run that is there if `from_begin`: a run that is gone is a loss.
    /// Otherwise with what the live half has.
    pub(super) fn new(
        (file, offset): (File, u64),
        stream: &Stream,
        live: usize,
        from_begin: bool,
    ) -> Self {
        let runs = [live ^ 1, live].into_iter().filter(|half| from_begin && stream.has_rest(*half));
        let mut then: VecDeque<Run> = runs.map(|half| Run::new(stream, half)).collect();
        let mut now = then.pop_front().unwrap_or_else(|| Run::new(stream, live));
        let size = stream.spec().sub_buffer_size;
        let mut first = stream.first(now.half);
        if from_begin {
            // The first run of a ring begins at 0, and is there or was empty where a half still
            // begins there.
            let is_later = first > 0 && stream.first(now.half ^ 1) > 0;
            first = first.saturating_sub(if is_later { size } else { 0 });
        } else {
            first = first.max(oldest(stream, now.half) * size);
            now.number = first / size;
        }
        now.sent = now.number;
        Self {
            file,
            offset,
            first,
            before: None,
            now,
            then,
            swapped: Instant::now(),
            is_replaced: false,
        }
    }

    /// Looks at the halves, of which `live` is the one that recorders use.
    pub(super) fn look(&mut self, stream: &Stream, live: usize) {
        let position = stream.position(self.now.half);
        // The position was read first, so that one of a later run is not taken for this run's.
        if self.now.is_gone(stream) {
            self.is_replaced = true;
        } else {
            self.now.seen = position;
        }
        let count = self.then.len();
        self.then.retain(|run| !run.is_gone(stream));
        self.is_replaced |= self.then.len() < count;
        self.then.iter_mut().for_each(|run| run.seen = stream.position(run.half));
        let last = *self.then.back().unwrap_or(&self.now);
        if last.half != live || last.is_gone(stream) {
            let is_later = |half: &usize| stream.first(*half) > last.seen;
            let is_there = |half: &usize| *half == live || stream.has_rest(*half);
            let later = [live ^ 1, live].into_iter().filter(is_later).filter(is_there);
            if self.then.is_empty() {
                self.swapped = Instant::now();
            }
            self.then.extend(later.map(|half| Run::new(stream, half)));
        }
    }

    /// Returns the half that is sent.
    pub(super) fn half(&self) -> usize {
        self.now.half
    }

    /// Returns how long ago a later run was seen; none if there is none. The run that is sent grows
    /// no more once its recorders have left it.
    pub(super) fn swapped(&self) -> Option<Duration> {
        (!self.then.is_empty()).then(|| self.swapped.elapsed())
    }

    /// Returns true if the rest of the run was replaced.
    pub(super) fn is_gone(&self, stream: &Stream) -> bool {
        self.now.is_gone(stream)
    }

    /// Goes on with the next run. Its first sub-buffer gets the number `next`, or the one after
    /// that if something was replaced before it was sent. Returns its number, and true if something
    /// was replaced.
    pub(super) fn turn(&mut self, next: u64) -> (u64, bool) {
        let Some(mut run) = self.then.pop_front() else { return (next, false) };
        let is_replaced = std::mem::take(&mut self.is_replaced);
        run.sent = next.saturating_add(u64::from(is_replaced));
        self.before = Some(std::mem::replace(&mut self.now, run));
        self.swapped = Instant::now();
        (run.sent, is_replaced)
    }

    /// Returns the number under which a sub-buffer of the run that is sent now is sent.
    pub(super) fn sent(&self, number: u64) -> u64 {
        self.now.sent.saturating_add(number.saturating_sub(self.now.number))
    }

    /// Returns where the sub-buffer is that is sent under a number; none if it is of a run before
    /// the last two, of which nothing is left.
    pub(super) fn place(&self, sent: u64) -> Option<Place> {
        let mut runs = [Some(self.now), self.before].into_iter().flatten();
        let run = runs.find(|run| sent >= run.sent)?;
        Some(Place { half: run.half, number: run.number.saturating_add(sent - run.sent) })
    }
}

/// Returns the number of the oldest sub-buffer that the recorder cannot have begun to overwrite
/// (docs/ABI.md, section 8). A ring in discard mode overwrites none before its reader has consumed
/// it.
pub(super) fn oldest(stream: &Stream, half: usize) -> u64 {
    let spec = stream.spec();
    let produced = stream.position(half);
    let begun = match spec.mode {
        lastwords_abi::session::MODE_DISCARD => produced.div_ceil(spec.sub_buffer_size),
        _ => produced / spec.sub_buffer_size + 1,
    };
    begun.saturating_sub(u64::from(spec.sub_buffers))
}
