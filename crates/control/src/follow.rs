//! Following reads: a reader gets the events of a living session in steps, each event once, and
//! consumes nothing. Several readers may follow a session, beside a consumer.
//!
//! In each step the reader looks at the rings ([`Follower::look`]), copies and reads them from the
//! begins to the bounds by any means, and says how far it came ([`Follower::done`]).

use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use lastwords_abi::session::{Control, SNAPSHOT_SWAPPING};

use crate::consume::{Bound, bound, clock_before};

use lastwords::Error;
use lastwords::internals::regions::{Regions, StreamRegion};

/// The range of a ring to read in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The half, the end, and the losses. `told` has the losses that earlier steps reported.
    pub bound: Bound,
    /// Position where the last step ended, or where the half begins; none in the first step, which
    /// begins where readers begin.
    pub begin: Option<u64>,
    /// Bytes between the end of the last step and `begin`: they were cleared, consumed, or
    /// replaced by a snapshot.
    pub skipped: u64,
    /// The live half and its first position, if this range is all that is left of a half that was
    /// swapped out.
    next: Option<(usize, u64)>,
}

/// The position in a stream up to which earlier steps have read.
#[derive(Debug, Clone, Copy)]
struct Progress {
    half: usize,
    position: u64,
    lost: [u64; 7],
    unattached: u64,
}

/// Reads a session in steps.
#[derive(Debug)]
pub struct Follower<'a> {
    regions: &'a Regions,
    /// By index of the stream; none before its first step.
    progress: Vec<Option<Progress>>,
    ranges: Vec<Range>,
    clock: Option<u64>,
    swapping: Swapping,
}

/// Longest time that a swap can take. If it takes longer, its process has died in it.
pub(crate) const LONGEST_SWAP: Duration = Duration::from_secs(5);

/// Since when each look has found that a snapshot was being taken.
#[derive(Debug, Default)]
pub(crate) struct Swapping(Option<Instant>);

impl Swapping {
    /// Returns true if no snapshot is being taken. The end of a half that was swapped out is only
    /// known when the swap is over: until then, recorders are leaving it. Who has read which half
    /// is live before this call either sees that the swap is over, or that it is not.
    pub(crate) fn is_over(&mut self, control: &Control) -> bool {
        let is_swapping = control.snapshot.load(Acquire) == SNAPSHOT_SWAPPING;
        let begun = self.0.filter(|_| is_swapping).unwrap_or_else(Instant::now);
        self.0 = is_swapping.then_some(begun);
        !is_swapping || begun.elapsed() > LONGEST_SWAP
    }
}

impl<'a> Follower<'a> {
    pub(crate) fn new(regions: &'a Regions) -> Self {
        Self {
            regions,
            progress: vec![None; regions.streams.len()],
            ranges: Vec::new(),
            clock: None,
            swapping: Swapping::default(),
        }
    }

    /// Returns the UUID of the session.
    #[must_use]
    pub fn session(&self) -> [u8; 16] {
        self.regions.view.uuid
    }

    /// Sets the ranges and the clock to what is in the rings now. A reader must call this
    /// immediately before it copies the rings: in overwrite mode, events before older bounds may be
    /// overwritten by then.
    ///
    /// # Errors
    /// A channel that was created since the last look cannot be mapped. The ranges of the others
    /// are set.
    pub fn look(&mut self) -> Result<(), Error> {
        let regions = self.regions;
        let attached = regions.attach(None);
        self.progress.resize(regions.streams.len(), None);
        self.clock = clock_before(regions);
        let live: Vec<usize> =
            regions.streams.iter().map(|stream| stream.spare(&regions.view) ^ 1).collect();
        let is_settled = self.swapping.is_over(regions.view.control());
        let streams = regions.streams.iter().zip(live).zip(&self.progress);
        let range = |((stream, live), before): ((_, usize), &Option<Progress>)| {
            range(regions, stream, live, before.as_ref(), is_settled)
        };
        self.ranges = streams.map(range).collect();
        attached
    }

    /// Returns the ranges of all streams, in order of index.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Returns true if there is anything to read or to report since the last step.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let is_new = |(range, before): (&Range, &Option<Progress>)| {
            before.is_none_or(|before| {
                let begin = range.begin.unwrap_or(before.position);
                let is_read =
                    range.bound.position <= begin && range.skipped == 0 && range.next.is_none();
                !is_read
                    || range.bound.lost != before.lost
                    || range.bound.unattached != before.unattached
            })
        };
        self.ranges.iter().zip(&self.progress).any(is_new)
    }

    /// Returns the session's clock before the rings were looked at, as
    /// [`super::consume::Consumer::clock`] does.
    #[must_use]
    pub fn clock(&self) -> Option<u64> {
        self.clock
    }

    /// Ends a step: everything in the ranges was read. `reached` returns, by index of the stream,
    /// an earlier position at which reading stopped.
    pub fn done(&mut self, reached: impl Fn(usize) -> Option<u64>) {
        for (index, (range, progress)) in self.ranges.iter().zip(&mut self.progress).enumerate() {
            let Bound { half, position, lost, unattached, .. } = range.bound;
            let stopped = reached(index).filter(|reached| *reached < position);
            let (half, position) = range
                .next
                .filter(|_| stopped.is_none())
                .unwrap_or((half, stopped.unwrap_or(position)));
            *progress = Some(Progress { half, position, lost, unattached });
        }
    }
}

/// Returns the range of a stream. A half that a snapshot has swapped out is read to its end before
/// the live half. `is_settled`: the swap that made `live` the live half is over.
fn range(
    regions: &Regions,
    stream: &StreamRegion,
    live: usize,
    before: Option<&Progress>,
    is_settled: bool,
) -> Range {
    let Some(before) = before else {
        let bound =
            Bound { told: [0; 7], told_unattached: 0, ..bound(regions, stream, live, true) };
        return Range { bound, begin: None, skipped: 0, next: None };
    };
    let half = before.half;
    let bound = Bound {
        told: before.lost,
        told_unattached: before.unattached,
        ..bound(regions, stream, half, true)
    };
    // After the swap, nothing is reserved in the other half any more; what is reserved in it may be
    // uncommitted.
    let is_all = is_settled && half != live && bound.position == stream.stream.position(half);
    let next = is_all.then(|| (live, stream.stream.first(live)));
    let first = stream.stream.first(half);
    Range {
        bound,
        begin: Some(before.position.max(first)),
        skipped: first.saturating_sub(before.position),
        next,
    }
}
