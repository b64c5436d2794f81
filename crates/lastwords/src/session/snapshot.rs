//! Snapshots: each ring has a spare half. Taking a snapshot swaps live and spare halves while
//! recording continues.
//!
//! [`lastwords_abi::session::Control::snapshot`] has the state: off, ready, swapping, taken,
//! reading. All changes are made under the session's snapshot lock, which dead processes do not
//! keep.

use std::borrow::Cow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::{
    Control, SNAPSHOT_CPU, SNAPSHOT_OFF, SNAPSHOT_READING, SNAPSHOT_READY, SNAPSHOT_SWAPPING,
    SNAPSHOT_TAKEN, snapshot_has,
};
use lastwords_abi::stream::ANY_CPU;
use lastwords_ring::swap::{LockHeld, Rest, Swap, close_spare};
use lastwords_ring::{ClockKind, Stream, os};

use crate::session::Error;
use crate::session::backends::is_persistent;
use crate::session::liveness::Identity;
use crate::session::processes;
use crate::session::regions::{Regions, StreamRegion};
use crate::session::session_region;
use crate::session::window::{self, Cut};

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Number of the snapshot, from 1.
    pub number: u32,
    /// The session's clock when the snapshot was taken, in ticks.
    pub clock: u64,
    /// Bytes of the previous snapshot that nobody had consumed. They are lost.
    pub dropped: u64,
    /// Recorders for which the swap could not confirm that they have left the old half.
    pub rest: Rest,
}

/// The rings of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rings {
    /// All rings, swapped by one store.
    All,
    /// The stream of this index: a channel's on a CPU.
    Stream(u32),
    /// The streams of all channels that are bound to this CPU, swapped one after the other.
    Cpu(u32),
}

impl Rings {
    /// Returns the value for [`Control::snapshot_stream`].
    fn word(self) -> u32 {
        match self {
            Self::All => 0,
            Self::Stream(index) => index + 1,
            Self::Cpu(cpu) => SNAPSHOT_CPU | cpu,
        }
    }

    /// Returns these streams.
    fn chosen(self, regions: &Regions) -> Result<Vec<&Stream>, Error> {
        let streams = regions.streams.iter().map(|region| &region.stream).enumerate();
        let (chosen, what): (Vec<_>, _) = match self {
            Self::All => return Ok(streams.map(|stream| stream.1).collect()),
            Self::Stream(only) => (
                streams.filter(|stream| stream.0 == only as usize).collect(),
                format!("stream {only}"),
            ),
            Self::Cpu(ANY_CPU) => (Vec::new(), format!("CPU {ANY_CPU}")),
            Self::Cpu(only) => (
                streams.filter(|stream| stream.1.spec().cpu == only).collect(),
                format!("CPU {only}"),
            ),
        };
        if chosen.is_empty() {
            let why = format!("no ring of the session is that of {what}");
            return Err(Error::unsupported("snapshot of a part", why, "name one that is there"));
        }
        Ok(chosen.into_iter().map(|stream| stream.1).collect())
    }
}

impl Regions {
    /// Allocates the spare of every ring, so that snapshots can be taken.
    ///
    /// # Errors
    /// There is no memory, or another process is changing snapshots.
    pub fn enable_snapshots(&self) -> Result<(), Error> {
        locked(self, |control| {
            if control.snapshot.load(Acquire) != SNAPSHOT_OFF {
                return Ok(());
            }
            let needs = self
                .streams
                .iter()
                .filter(|stream| stream.grows())
                .map(|stream| stream.stream.half_size())
                .sum();
            if let Some(stream) = self.streams.iter().next() {
                stream.mapping.check_room(needs)?;
            }
            for (given, stream) in self.streams.iter().enumerate() {
                if let Err(error) = stream.give(stream.spare(&self.view)) {
                    self.streams.iter().take(given).for_each(|stream| free_spare(self, stream));
                    return Err(error);
                }
            }
            control.snapshot.store(SNAPSHOT_READY, Release);
            Ok(())
        })
    }

    /// Frees the spares and their contents. It frees all of them, or none if a recorder is still in
    /// one.
    ///
    /// # Errors
    /// The snapshot is being read, or a thread is still recording in a spare.
    pub fn disable_snapshots(&self) -> Result<(), Error> {
        locked(self, |control| {
            if settled(self, control)? == SNAPSHOT_OFF {
                return Ok(());
            }
            // If a swap stopped waiting for a recorder, that recorder would write into pages that
            // belong to others by then.
            let parts = self.view.parts();
            let closed =
                self.streams.iter().try_for_each(|stream| close_spare(parts, &stream.stream));
            closed
                .map_err(|held| Error::Busy { what: "the spare of a ring", owner: held.owner })?;
            drop_snapshot(self, control);
            control.snapshot.store(SNAPSHOT_OFF, Release);
            self.streams.iter().for_each(|stream| free_spare(self, stream));
            Ok(())
        })
    }

    /// Takes a snapshot of the rings: swaps live and spare halves while recording continues.
    ///
    /// # Errors
    /// There are no such rings, snapshots are not enabled, or a snapshot is being read.
    pub fn snapshot(&self, rings: Rings) -> Result<Taken, Error> {
        self.swap(rings, true, &Cut::default())
    }

    /// Takes a snapshot of all rings for triggers, unless there is a snapshot already.
    pub(crate) fn snapshot_if_free(&self, cut: &Cut) -> Result<Taken, Error> {
        self.swap(Rings::All, false, cut)
    }

    fn swap(&self, rings: Rings, replaces: bool, cut: &Cut) -> Result<Taken, Error> {
        locked(self, |control| {
            let (streams, are_all) = (&*rings.chosen(self)?, rings == Rings::All);
            match settled(self, control)? {
                SNAPSHOT_OFF => {
                    let enable =
                        format!("lastwords snapshot enable --session {}", self.view.name());
                    return Err(missing(
                        self,
                        "it has no spare rings",
                        format!("enable snapshots first: `{enable}`"),
                    ));
                }
                SNAPSHOT_TAKEN | SNAPSHOT_READING if !replaces => {
                    return Err(missing(self, "it has a snapshot", "read it first"));
                }
                _ => {}
            }
            let dropped = drop_snapshot(self, control);
            control.snapshot.store(SNAPSHOT_SWAPPING, Release);
            let is_alone = processes::is_alone(self.view.table());
            let persists = is_persistent(self.view.info.backend);
            let swap = Swap { parts: self.view.parts(), streams, are_all, is_alone, persists };
            // SAFETY: the state shows that the spares have memory, and the snapshot lock is held,
            // so nobody else swaps.
            match unsafe { swap.run() } {
                Ok(rest) => Ok(note(self, control, (rings, cut), dropped, rest)),
                Err(LockHeld { owner }) => {
                    control.snapshot.store(SNAPSHOT_READY, Release);
                    Err(Error::Busy { what: "a ring", owner })
                }
            }
        })
    }

    /// Marks the snapshot as being read by this process, so that no other snapshot replaces it
    /// meanwhile.
    ///
    /// # Errors
    /// There is no snapshot, or another process reads it.
    pub fn read_snapshot(&self) -> Result<SnapshotReader<'_>, Error> {
        locked(self, |control| {
            if !matches!(settled(self, control)?, SNAPSHOT_TAKEN | SNAPSHOT_READING) {
                return Err(missing(self, "there is no snapshot", "take one first"));
            }
            let me = Identity::current();
            // The mark has the lower half of the start time, then the process id.
            let mark = (me.start << 32) | u64::from(me.pid);
            control.snapshot_reader.store(mark, Relaxed);
            control.snapshot.store(SNAPSHOT_READING, Release);
            Ok(SnapshotReader { regions: self, mark })
        })
    }

    /// Makes readers skip everything that was recorded until now.
    ///
    /// # Errors
    /// Another process is changing snapshots. The lock prevents a swap between reading which half
    /// is live and the store.
    pub fn clear(&self) -> Result<(), Error> {
        self.clear_rings(Rings::All, &[])
    }

    /// Makes readers skip everything that was recorded in some rings until now. `channels`: only in
    /// rings of these channels; in those of all if it is empty.
    ///
    /// # Errors
    /// There are no such rings; else the same as for [`Regions::clear`].
    pub fn clear_rings(&self, rings: Rings, channels: &[u32]) -> Result<(), Error> {
        locked(self, |_| {
            let mut chosen = rings.chosen(self)?;
            chosen
                .retain(|stream| channels.is_empty() || channels.contains(&stream.spec().channel));
            let is_chosen = |region: &&StreamRegion| {
                chosen.iter().any(|stream| std::ptr::eq(*stream, &region.stream))
            };
            let chosen = self.streams.iter().filter(is_chosen);
            chosen.for_each(|region| region.stream.clear(region.spare(&self.view) ^ 1));
            Ok(())
        })
    }
}

/// Frees the memory of a ring's spare. The caller holds the snapshot lock, and has ensured that no
/// recorder is in the spare.
fn free_spare(regions: &Regions, stream: &StreamRegion) {
    // SAFETY: nobody swaps or reads the spare, because the snapshot lock is held and no reader is
    // marked. Callers ensure that no recorder is in it.
    unsafe { stream.free(stream.spare(&regions.view)) }
}

/// Runs `change` under the snapshot lock, when this process has mapped the rings of all channels.
/// Channels are published under the same lock, so that none is created meanwhile.
pub fn locked<T>(
    regions: &Regions,
    change: impl FnOnce(&Control) -> Result<T, Error>,
) -> Result<T, Error> {
    let control = regions.view.control();
    let busy = |owner| Error::Busy { what: "the session's snapshot", owner };
    let change = || {
        let done = regions.attach(None).and_then(|()| change(control));
        regions.view.keep_control();
        done
    };
    session_region::locked(&control.snapshot_lock, &control.namespaces, change).map_err(busy)?
}

/// Returns the state of the snapshot, which the caller may change. Returns an error while a living
/// process reads it.
fn settled(regions: &Regions, control: &Control) -> Result<u32, Error> {
    match control.snapshot.load(Acquire) {
        // If the process that swapped has died, recorders may still be leaving the half that will
        // be emptied.
        SNAPSHOT_SWAPPING => drop(os::visit_cpus(0..regions.view.info.cpus)),
        SNAPSHOT_READING => {
            let mark = control.snapshot_reader.load(Acquire);
            let reader = mark as u32;
            if os::is_process_alive(reader, (mark >> 32) as u32) {
                return Err(Error::Busy { what: "the session's snapshot", owner: reader });
            }
        }
        _ => {}
    }
    // The reader may have released it meanwhile.
    Ok(control.snapshot.load(Acquire))
}

/// Prepares for dropping the unconsumed contents of a snapshot. The rings note the loss for the
/// next reader. Returns the size in bytes.
fn drop_snapshot(regions: &Regions, control: &Control) -> u64 {
    if !matches!(control.snapshot.load(Acquire), SNAPSHOT_TAKEN | SNAPSHOT_READING) {
        return 0;
    }
    let of = control.snapshot_stream.load(Relaxed);
    let streams = regions.streams.iter().enumerate();
    let held =
        streams.filter(|(index, stream)| snapshot_has(of, *index as u32, stream.stream.spec().cpu));
    held.map(|(_, stream)| stream.stream.drop_spare(stream.spare(&regions.view))).sum()
}

fn note(
    regions: &Regions,
    control: &Control,
    (rings, cut): (Rings, &Cut),
    dropped: u64,
    rest: Rest,
) -> Taken {
    let clock = regions.view.clock_kind().map_or(0, ClockKind::now_ordered);
    window::note(&regions.view, cut);
    control.snapshot_clock.store(clock, Relaxed);
    control.snapshot_stream.store(rings.word(), Relaxed);
    control.snapshot_reader.store(0, Relaxed);
    let number = control.snapshots.fetch_add(1, Relaxed) + 1;
    control.snapshot.store(SNAPSHOT_TAKEN, Release);
    Taken { number, clock, dropped, rest }
}

fn missing(regions: &Regions, what: &'static str, remedy: impl Into<Cow<'static, str>>) -> Error {
    Error::Snapshot { session: regions.view.name(), what, remedy: remedy.into() }
}

/// A snapshot that is being read. If it is dropped, the snapshot can be read again.
#[derive(Debug)]
pub struct SnapshotReader<'a> {
    regions: &'a Regions,
    mark: u64,
}

impl SnapshotReader<'_> {
    /// Releases a snapshot that was read and is not needed again.
    pub fn release(self) {
        self.end(SNAPSHOT_READY);
    }

    /// Checks that this process may still read the snapshot.
    pub fn check(&self) -> Result<(), Error> {
        let control = self.regions.view.control();
        let mark = control.snapshot_reader.load(Acquire);
        if control.snapshot.load(Acquire) == SNAPSHOT_READING && mark == self.mark {
            return Ok(());
        }
        Err(Error::Busy { what: "the session's snapshot", owner: mark as u32 })
    }

    /// Changes the state from `reading` to `state`, unless another process has taken the snapshot
    /// over.
    fn end(&self, state: u32) {
        let control = self.regions.view.control();
        if control.snapshot_reader.compare_exchange(self.mark, 0, Release, Relaxed).is_ok() {
            let _ = control.snapshot.compare_exchange(SNAPSHOT_READING, state, Release, Relaxed);
        }
    }
}

impl Drop for SnapshotReader<'_> {
    fn drop(&mut self) {
        self.end(SNAPSHOT_TAKEN);
    }
}
