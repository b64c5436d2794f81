//! Consuming reads: what one has had, no other is given. The reader is any process that may open the session's folder.
//!
//! A consumer learns how far each ring can be read so that nothing before that place is still to come, reads up to there by
//! whatever means, and then says that it did. One that dies before has consumed nothing.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use lastwords_abi::sync::AtomicU64;

use crate::dirs::Folder;
use crate::session::Error;
use crate::session::regions::{Regions, StreamRegion};
use crate::snapshot::{self, SnapshotReader};

/// How far a ring is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Which half of the ring: 0 or 1.
    pub half: usize,
    /// Position before which nothing is still being written, bytes since the half was begun.
    pub position: u64,
    /// Lost events by cause, as `lost` in docs/ABI.md, section 7.
    pub lost: [u64; 7],
    /// How many of these earlier consumers told of.
    pub told: [u64; 7],
}

/// Reads the rings of a session to consume them. Dropped, it leaves all as it was.
#[derive(Debug)]
pub struct Consumer<'a> {
    regions: &'a Regions,
    bounds: Vec<Option<Bound>>,
    rings: Rings<'a>,
}

/// Which rings are consumed, and what keeps others from doing the same.
#[derive(Debug)]
enum Rings<'a> {
    Live { _lock: OwnedFd },
    Snapshot(SnapshotReader<'a>),
}

/// What became of a consuming read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consumed {
    /// Rings that a snapshot took while they were read: it has their events too.
    pub in_snapshot: usize,
}

impl<'a> Consumer<'a> {
    pub(crate) fn live(regions: &'a Regions, folder: &Folder) -> Result<Self, Error> {
        let lock = folder.lock()?.ok_or(Error::Busy { what: "the consuming of the session's events", owner: 0 })?;
        let bound = |stream: &StreamRegion| Some(bound(regions, stream, stream.spare(&regions.view) ^ 1));
        let bounds = regions.streams.iter().map(bound).collect();
        Ok(Self { regions, bounds, rings: Rings::Live { _lock: lock } })
    }

    pub(crate) fn snapshot(regions: &'a Regions) -> Result<Self, Error> {
        let reader = snapshot::read(regions)?;
        let only = regions.view.control().snapshot_stream.load(Acquire).checked_sub(1);
        let is_in = |index: usize| only.is_none_or(|only| only as usize == index);
        let bound = |(index, stream): (usize, &StreamRegion)| {
            is_in(index).then(|| bound(regions, stream, stream.spare(&regions.view)))
        };
        let bounds = regions.streams.iter().enumerate().map(bound).collect();
        Ok(Self { regions, bounds, rings: Rings::Snapshot(reader) })
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

    /// All up to the bounds was read: no reader is given it again, and a ring that discards has that room. A snapshot of which
    /// nothing is left gives its rings back.
    ///
    /// # Errors
    /// Someone else is changing snapshots; the snapshot is another's by now. Nothing is consumed then.
    pub fn consume(self) -> Result<Consumed, Error> {
        let Self { regions, bounds, rings } = self;
        let bounded =
            || regions.streams.iter().zip(&bounds).filter_map(|(stream, bound)| Some((stream, bound.as_ref()?)));
        match rings {
            Rings::Live { _lock } => snapshot::locked(regions, |_| {
                let is_live = |stream: &StreamRegion, bound: &Bound| stream.spare(&regions.view) != bound.half;
                bounded()
                    .filter(|(stream, bound)| is_live(stream, bound))
                    .for_each(|(stream, bound)| take(stream, bound));
                let in_snapshot = bounded().filter(|(stream, bound)| !is_live(stream, bound)).count();
                Ok(Consumed { in_snapshot })
            }),
            Rings::Snapshot(reader) => {
                snapshot::locked(regions, |_| {
                    reader.check()?;
                    bounded().for_each(|(stream, bound)| take(stream, bound));
                    Ok(())
                })?;
                if bounded().all(|(stream, bound)| stream.stream.position(bound.half) <= bound.position) {
                    reader.release();
                }
                Ok(Consumed::default())
            }
        }
    }
}

fn bound(regions: &Regions, stream: &StreamRegion, half: usize) -> Bound {
    let control = stream.stream.control();
    let read = |counters: &[AtomicU64; 7]| counters.each_ref().map(|counter| counter.load(Relaxed));
    let (told, lost) = (read(&control.told), read(&control.lost));
    Bound { half, position: stream.stream.settled(half, regions.view.parts()), lost, told }
}

fn take(stream: &StreamRegion, bound: &Bound) {
    stream.stream.consume(bound.half, bound.position);
    for (told, lost) in stream.stream.control().told.iter().zip(bound.lost) {
        told.fetch_max(lost, Relaxed);
    }
}
