//! Consuming reads: what one has had, no other is given. The reader is any process that may open the session's folder.
//!
//! A consumer learns how far each ring can be read so that nothing before that place is still to come, reads up to there by
//! whatever means, and then says that it did. One that dies before has consumed nothing.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use lastwords_abi::session::snapshot_has;
use lastwords_abi::sync::AtomicU64;
use lastwords_ring::ClockKind;

use crate::session::Error;
use crate::session::dirs::Lock;
use crate::session::regions::{Regions, StreamRegion};
use crate::session::remote_control::Handle;
use crate::session::snapshot::{self, SnapshotReader};

/// How far a ring is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Which half of the ring: 0 or 1.
    pub half: usize,
    /// Position before which nothing is still being written, bytes since the half was begun.
    pub position: u64,
    /// Lost events by cause, as `lost` in docs/ABI.md, section 7.
    pub lost: [u64; 7],
    /// How many of these others tell of: earlier consumers, or the one that is at work beside this.
    pub told: [u64; 7],
    /// Bytes of snapshots that were dropped before this half was recorded, and that none was told of.
    pub dropped: u64,
}

/// Reads the rings of a session to consume them. Dropped, it leaves all as it was.
#[derive(Debug)]
pub struct Consumer<'a> {
    regions: &'a Regions,
    bounds: Vec<Option<Bound>>,
    /// The snapshot, where that is consumed. Without it, the live halves are.
    reader: Option<SnapshotReader<'a>>,
    /// Held while live halves are consumed, so that nobody else does the same.
    _lock: Option<Lock>,
    /// Snapshots that were taken before the last look.
    snapshots: u32,
    clock: Option<u64>,
    /// Losses are counted for both halves of a ring, which two consumers may read at a time: one of them tells of the losses.
    teller: Option<Lock>,
}

/// What became of a consuming read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Rings that a snapshot took while they were read: it has their events too.
    pub in_snapshot: usize,
}

impl<'a> Consumer<'a> {
    /// `reader` is the snapshot, where that is consumed. Without it, the live halves are.
    pub(crate) fn new(session: &'a Handle, reader: Option<SnapshotReader<'a>>) -> Result<Self, Error> {
        let Handle { regions, folder } = session;
        let held = || Error::Busy { what: "the consuming of the session's events", owner: 0 };
        let _lock = if reader.is_some() { None } else { Some(folder.lock()?.ok_or_else(held)?) };
        let teller = folder.lock_losses()?;
        let mut consumer = Self { regions, bounds: Vec::new(), reader, _lock, snapshots: 0, clock: None, teller };
        consumer.look();
        Ok(consumer)
    }

    /// Sets the bounds and the clock anew, to what is in the rings now. A reader looks right before it copies the rings: in
    /// overwrite mode, what lies before older bounds may be overwritten by then.
    pub fn look(&mut self) {
        let regions = self.regions;
        self.snapshots = regions.view.control().snapshots.load(Acquire);
        // Before the first ring is looked at: an event that is not in its ring by then is later.
        let kind = regions.view.clock_kind().filter(|kind| *kind != ClockKind::Realtime);
        self.clock = kind.map(ClockKind::now_ordered);
        let word = regions.view.control().snapshot_stream.load(Acquire);
        let half = |index: usize, stream: &StreamRegion| match self.reader {
            None => Some(stream.spare(&regions.view) ^ 1),
            Some(_) => snapshot_has(word, index as u32, stream.stream.spec().cpu).then(|| stream.spare(&regions.view)),
        };
        let tells = self.teller.is_some();
        let streams = regions.streams.iter().enumerate();
        self.bounds =
            streams.map(|(i, stream)| half(i, stream).map(|half| bound(regions, stream, half, tells))).collect();
    }

    /// UUID of the session.
    #[must_use]
    pub fn session(&self) -> [u8; 16] {
        self.regions.view.uuid
    }

    /// How far each stream is to be read, in order of index; none of those that are not to be read.
    #[must_use]
    pub fn bounds(&self) -> &[Option<Bound>] {
        &self.bounds
    }

    /// The session's clock before the rings were looked at, ticks. Who reads the events up to it, and leaves later ones in each
    /// ring ([`Self::shorten`]), has them in the order in which they were recorded, and has the next read's behind them. None
    /// where the clock may step back.
    #[must_use]
    pub fn clock(&self) -> Option<u64> {
        self.clock
    }

    /// A stream was read up to `position` only.
    pub fn shorten(&mut self, stream: usize, position: u64) {
        if let Some(bound) = self.bounds.get_mut(stream).and_then(Option::as_mut) {
            bound.position = bound.position.min(position);
        }
    }

    /// All up to the bounds was read: no reader is given it again, and a ring that discards has that room. A snapshot of which
    /// nothing is left gives its rings back.
    ///
    /// # Errors
    /// Someone else is changing snapshots; the snapshot is another's by now. Nothing is consumed then.
    pub fn consume(self) -> Result<Consumed, Error> {
        let Self { regions, bounds, reader, _lock, snapshots, teller: _teller, .. } = self;
        let bounded =
            || regions.streams.iter().zip(&bounds).filter_map(|(stream, bound)| Some((stream, bound.as_ref()?)));
        let in_snapshot = snapshot::locked(regions, |control| {
            reader.as_ref().map_or(Ok(()), SnapshotReader::check)?;
            let swaps = control.snapshots.load(Acquire).wrapping_sub(snapshots);
            let mut in_snapshot = 0;
            for (stream, bound) in bounded() {
                if reader.is_some() || is_left(regions, stream, bound, swaps) {
                    stream.stream.consume(bound.half, bound.position);
                } else {
                    in_snapshot += 1;
                }
                stream.stream.told_of_dropped(bound.half, bound.dropped);
                for (told, lost) in stream.stream.control().told.iter().zip(bound.lost) {
                    told.fetch_max(lost, Relaxed);
                }
            }
            Ok(in_snapshot)
        })?;
        if let Some(reader) = reader
            && bounded().all(|(stream, bound)| stream.stream.position(bound.half) <= bound.position)
        {
            reader.release();
        }
        Ok(Consumed { in_snapshot })
    }
}

/// `tells`: this consumer tells of what was lost.
fn bound(regions: &Regions, stream: &StreamRegion, half: usize, tells: bool) -> Bound {
    let control = stream.stream.control();
    let read = |counters: &[AtomicU64; 7]| counters.each_ref().map(|counter| counter.load(Relaxed));
    // What sub-buffers before the position say of losses is counted when it was read.
    let position = stream.stream.settled(half, regions.view.parts());
    let told = read(&control.told);
    let lost = if tells { read(&control.lost) } else { told };
    let dropped = control.half[half & 1].dropped.load(Relaxed);
    Bound { half, position, lost, told, dropped }
}

/// The half that was live when it was read is so now, and was not swapped out and begun anew in between.
fn is_left(regions: &Regions, stream: &StreamRegion, bound: &Bound, swaps: u32) -> bool {
    let first = || stream.stream.control().half[bound.half & 1].first.load(Acquire);
    stream.spare(&regions.view) != bound.half && (swaps == 0 || first() <= bound.position)
}
