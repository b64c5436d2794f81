//! The slices of the timeline: what began, ended, and was nested.

use serde::Serialize;
use std::collections::HashMap;

/// A row of slices that do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Track {
    pub(crate) of: Of,
    /// Number of the CPU or thread; the thread of a span is one of its process.
    pub(crate) owner: u32,
    /// Nesting, from 0.
    pub(crate) depth: u32,
}

/// What a track's slices are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Of {
    /// The threads that run on a CPU.
    Running,
    /// The interrupts on a CPU.
    Interrupts,
    /// What a thread is in: system calls and spans.
    Thread,
    /// The spans of a process, from their opening to their end.
    Spans,
}

/// The beginning is not recorded.
pub(crate) const NO_BEGIN: u8 = 1;
/// The end is not recorded: it was open when recording ended.
pub(crate) const NO_END: u8 = 2;

/// A slice. Times are nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) track: u32,
    pub(crate) begin: i64,
    pub(crate) end: i64,
    /// Number of its text.
    pub(crate) label: u32,
    /// Number of the thread that ran or was in it.
    pub(crate) thread: u32,
    /// Number of the event that began it, among all that were read; `u64::MAX` if there is none.
    pub(crate) event: u64,
    /// [`NO_BEGIN`], [`NO_END`].
    pub(crate) flags: u8,
}

/// A slice that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) begin: i64,
    pub(crate) label: u32,
    pub(crate) thread: u32,
    pub(crate) event: u64,
    pub(crate) flags: u8,
}

/// All slices.
#[derive(Default)]
pub(crate) struct Slices {
    pub(crate) all: Vec<Slice>,
    pub(crate) tracks: Vec<Track>,
    by_track: HashMap<Track, u32>,
}

impl Slices {
    /// Ends a slice at a time. A slice does not end before it begins.
    pub(crate) fn add(&mut self, track: Track, begun: Begun, end: i64, flags: u8) {
        let next = u32::try_from(self.tracks.len()).unwrap_or(u32::MAX);
        let at = *self.by_track.entry(track).or_insert(next);
        if at == next {
            self.tracks.push(track);
        }
        let Begun { begin, label, thread, event, flags: own } = begun;
        let flags = own | flags;
        self.all.push(Slice { track: at, begin, end: end.max(begin), label, thread, event, flags });
    }

    /// Drops the slices that end before a time.
    pub(crate) fn drop_before(&mut self, time: i64) {
        self.all.retain(|slice| slice.end >= time);
    }
}
