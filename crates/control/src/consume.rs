//! Consuming reads: events that one consumer has read are not given to another. The consumer is any
//! process that may open the session's folder.
//!
//! A consumer asks for the position up to which each ring can be read, so that no earlier event is
//! still to come. It reads up to there by any means, and then confirms the read. A consumer that
//! dies before it confirms has consumed nothing.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use lastwords_abi::session::{CHANNEL_ADDED, Channel, snapshot_has};
use lastwords_abi::sync::AtomicU64;
use lastwords_ring::ClockKind;

use lastwords::Error;
use lastwords::internals::dirs::{Folder, Lock};
use lastwords::internals::regions::{Regions, StreamRegion};
use lastwords::internals::snapshot::{self, SnapshotReader};

/// The range of a ring to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The half of the ring: 0 or 1.
    pub half: usize,
    /// Position before which nothing is still being written, in bytes since the start of the half.
    pub position: u64,
    /// Lost events by cause, as `lost` in docs/ABI.md, section 7.
    pub lost: [u64; 7],
    /// Losses that another consumer has reported or is reporting.
    pub told: [u64; 7],
    /// Of the first stream of a channel that was created while the session recorded: events that
    /// processes lost because they had not mapped the channel yet.
    pub unattached: u64,
    /// The part of `unattached` that another consumer has reported or is reporting.
    pub told_unattached: u64,
    /// Bytes of snapshots that were dropped before this half was recorded, and that no consumer
    /// has reported.
    pub dropped: u64,
}

/// Reads the rings of a session to consume them. If it is dropped, nothing changes.
#[derive(Debug)]
pub struct Consumer<'a> {
    regions: &'a Regions,
    /// The channels that are read; all if it is empty.
    channels: Vec<u32>,
    bounds: Vec<Option<Bound>>,
    /// The snapshot, if it is consumed. Without it, the live halves are.
    reader: Option<SnapshotReader<'a>>,
    /// Held while live halves are consumed, so that nobody else does the same.
    _lock: Option<Lock>,
    /// Number of snapshots at the time of the last look.
    snapshots: u32,
    clock: Option<u64>,
    /// Losses are counted for both halves of a ring, which two consumers may read at a time. The
    /// holder of this lock reports the losses.
    teller: Option<Lock>,
}

/// The result of a consuming read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Rings that a snapshot took while they were read. The snapshot has their events too.
    pub in_snapshot: usize,
}

impl<'a> Consumer<'a> {
    /// Makes a consumer. `reader` is the snapshot, if it is consumed. Without it, the live halves
    /// are.
    pub(crate) fn new(
        regions: &'a Regions,
        folder: &Folder,
        reader: Option<SnapshotReader<'a>>,
    ) -> Result<Self, Error> {
        let held = || Error::Busy { what: "the consuming of the session's events", owner: 0 };
        let _lock = if reader.is_some() { None } else { Some(folder.lock()?.ok_or_else(held)?) };
        let teller = folder.lock_losses()?;
        regions.attach(Some(folder))?;
        let (channels, bounds) = (Vec::new(), Vec::new());
        let mut consumer =
            Self { regions, channels, bounds, reader, _lock, snapshots: 0, clock: None, teller };
        consumer.look();
        Ok(consumer)
    }

    /// Reads only the rings of these channels; the events of others stay. All are read if it is
    /// empty.
    #[must_use]
    pub fn only_channels(mut self, channels: &[u32]) -> Self {
        if !channels.is_empty() {
            self.channels = channels.to_vec();
            self.look();
        }
        self
    }

    /// Sets the bounds and the clock to what is in the rings now. A reader must call this
    /// immediately before it copies the rings: in overwrite mode, events before older bounds may be
    /// overwritten by then.
    pub fn look(&mut self) {
        let regions = self.regions;
        // A channel that cannot be mapped now is not read, and so not consumed.
        drop(regions.attach(None));
        self.snapshots = regions.view.control().snapshots.load(Acquire);
        self.clock = clock_before(regions);
        let half = |index: usize, stream: &StreamRegion| match self.reader {
            _ if !self.channels.is_empty()
                && !self.channels.contains(&stream.stream.spec().channel) =>
            {
                None
            }
            None => Some(stream.spare(&regions.view) ^ 1),
            Some(_) => in_snapshot(regions, index, stream),
        };
        let tells = self.teller.is_some();
        let streams = regions.streams.iter().enumerate();
        self.bounds = streams
            .map(|(i, stream)| half(i, stream).map(|half| bound(regions, stream, half, tells)))
            .collect();
    }

    /// Returns the UUID of the session.
    #[must_use]
    pub fn session(&self) -> [u8; 16] {
        self.regions.view.uuid
    }

    /// Returns the bounds of each stream, in order of index; none for streams that are not to be
    /// read.
    #[must_use]
    pub fn bounds(&self) -> &[Option<Bound>] {
        &self.bounds
    }

    /// Returns the session's clock before the rings were looked at, in ticks. A reader that reads
    /// only the events up to this clock, and leaves later ones in each ring ([`Self::shorten`]),
    /// gets them in the order in which they were recorded, and the next read gets later ones.
    /// Returns none if the clock may step back.
    #[must_use]
    pub fn clock(&self) -> Option<u64> {
        self.clock
    }

    /// Notes that a stream was read only up to `position`.
    pub fn shorten(&mut self, stream: usize, position: u64) {
        if let Some(bound) = self.bounds.get_mut(stream).and_then(Option::as_mut) {
            bound.position = bound.position.min(position);
        }
    }

    /// Confirms that everything up to the bounds was read. No other reader gets it, and a ring in
    /// discard mode can reuse that room. If nothing is left of a snapshot, in rings of whichever
    /// channel, its rings become free.
    ///
    /// # Errors
    /// Another process is changing snapshots, or the snapshot now belongs to another reader.
    /// Nothing is consumed then.
    pub fn consume(self) -> Result<Consumed, Error> {
        let Self { regions, bounds, reader, _lock, snapshots, teller: _teller, .. } = self;
        let bounded = || {
            regions
                .streams
                .iter()
                .zip(&bounds)
                .filter_map(|(stream, bound)| Some((stream, bound.as_ref()?)))
        };
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
                if let Some(channel) = added_at(regions, stream) {
                    channel.told.fetch_max(bound.unattached, Relaxed);
                }
                for (told, lost) in stream.stream.control().told.iter().zip(bound.lost) {
                    told.fetch_max(lost, Relaxed);
                }
            }
            Ok(in_snapshot)
        })?;
        if let Some(reader) = reader
            && !is_snapshot_left(regions)
        {
            reader.release();
        }
        Ok(Consumed { in_snapshot })
    }
}

/// Returns the half of a stream that the snapshot has; none if the stream is not in it.
fn in_snapshot(regions: &Regions, index: usize, stream: &StreamRegion) -> Option<usize> {
    let word = regions.view.control().snapshot_stream.load(Acquire);
    snapshot_has(word, index as u32, stream.stream.spec().cpu).then(|| stream.spare(&regions.view))
}

/// Returns true if a ring of the snapshot has anything that was not consumed.
fn is_snapshot_left(regions: &Regions) -> bool {
    regions.streams.iter().enumerate().any(|(index, stream)| {
        in_snapshot(regions, index, stream).is_some_and(|half| stream.stream.has_rest(half))
    })
}

/// Returns the session's clock, if it never steps back. It is read before the first ring is looked
/// at, so an event that is not in its ring by then has a later time, unless its thread was
/// interrupted after it had taken the time and before it committed the event.
pub(crate) fn clock_before(regions: &Regions) -> Option<u64> {
    let kind = regions.view.clock_kind().filter(|kind| *kind != ClockKind::Realtime);
    kind.map(ClockKind::now_ordered)
}

/// Returns the bound of a stream. `tells`: this reader reports the losses.
pub(crate) fn bound(regions: &Regions, stream: &StreamRegion, half: usize, tells: bool) -> Bound {
    let control = stream.stream.control();
    let read = |counters: &[AtomicU64; 7]| counters.each_ref().map(|counter| counter.load(Relaxed));
    // The losses are read after the position, because they must include the losses that sub-buffers
    // before the position report.
    let position = stream.stream.settled(half, regions.view.parts());
    let told = read(&control.told);
    let lost = if tells { read(&control.lost) } else { told };
    let dropped = control.half[half & 1].dropped.load(Relaxed);
    let added = added_at(regions, stream);
    let told_unattached = added.map_or(0, |channel| channel.told.load(Relaxed));
    let unattached =
        added.filter(|_| tells).map_or(told_unattached, |channel| channel.unattached.load(Relaxed));
    Bound { half, position, lost, told, unattached, told_unattached, dropped }
}

/// Returns the channel that was created while the session recorded and begins with this stream.
pub(crate) fn added_at(regions: &Regions, stream: &StreamRegion) -> Option<&'static Channel> {
    let first = stream.stream.spec().index;
    let is_its =
        |channel: &&Channel| channel.first_stream == first && channel.flags & CHANNEL_ADDED != 0;
    regions.view.channels().map(|(_, channel)| channel).find(is_its)
}

/// Returns true if the half that was live during the read still is, and was not swapped out and
/// reset in between.
fn is_left(regions: &Regions, stream: &StreamRegion, bound: &Bound, swaps: u32) -> bool {
    stream.spare(&regions.view) != bound.half
        && (swaps == 0 || stream.stream.first(bound.half) <= bound.position)
}
