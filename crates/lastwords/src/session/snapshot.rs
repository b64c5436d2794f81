//! Snapshots: each ring has a spare half; taking a snapshot swaps live and spare while recording goes on.
//!
//! States of [`lastwords_abi::session::Control::snapshot`]: off, ready, swapping, taken, reading. All changes are made under
//! the session's snapshot lock, which the dead do not hold.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::{
    Control, SNAPSHOT_CPU, SNAPSHOT_OFF, SNAPSHOT_READING, SNAPSHOT_READY, SNAPSHOT_SWAPPING, SNAPSHOT_TAKEN,
    snapshot_has,
};
use lastwords_abi::stream::ANY_CPU;
use lastwords_ring::swap::{LockHeld, Rest, Swap, close_spare};
use lastwords_ring::{ClockKind, Stream, os};

use crate::session::Error;
use crate::session::processes::{self, Identity, Life};
use crate::session::regions::{Regions, StreamRegion};
use crate::session::session_region;

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Its number, from 1.
    pub number: u32,
    /// The session's clock when it was taken, ticks.
    pub clock: u64,
    /// Bytes of the snapshot before it that nobody had consumed: they are gone.
    pub dropped: u64,
    /// What could not be made sure of.
    pub rest: Rest,
}

/// Which rings a snapshot takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rings {
    /// All, by one store.
    All,
    /// The stream of that index: a channel's on a CPU.
    Stream(u32),
    /// The streams of all channels that are bound to that CPU, one after the other.
    Cpu(u32),
}

impl Rings {
    /// As [`Control::snapshot_stream`] has it.
    fn word(self) -> u32 {
        match self {
            Self::All => 0,
            Self::Stream(index) => index + 1,
            Self::Cpu(cpu) => SNAPSHOT_CPU | cpu,
        }
    }

    /// Those streams.
    fn of(self, regions: &Regions) -> Result<Vec<&Stream>, Error> {
        let streams = regions.streams.iter().map(|region| &region.stream).enumerate();
        let (chosen, what): (Vec<_>, _) = match self {
            Self::All => return Ok(streams.map(|stream| stream.1).collect()),
            Self::Stream(only) => {
                (streams.filter(|stream| stream.0 == only as usize).collect(), format!("stream {only}"))
            }
            Self::Cpu(ANY_CPU) => (Vec::new(), format!("CPU {ANY_CPU}")),
            Self::Cpu(only) => (streams.filter(|stream| stream.1.spec().cpu == only).collect(), format!("CPU {only}")),
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
    /// No memory, or someone else is changing snapshots.
    pub fn enable_snapshots(&self) -> Result<(), Error> {
        locked(self, |control| {
            if control.snapshot.load(Acquire) != SNAPSHOT_OFF {
                return Ok(());
            }
            for (given, stream) in self.streams.iter().enumerate() {
                if let Err(error) = stream.give(stream.spare(&self.view)) {
                    self.streams[..given].iter().for_each(|stream| free_spare(self, stream));
                    return Err(error);
                }
            }
            control.snapshot.store(SNAPSHOT_READY, Release);
            Ok(())
        })
    }

    /// Frees the spares and what is in them; all, or none where a recorder is still in one.
    ///
    /// # Errors
    /// The snapshot is being read, or a thread is still recording in a spare.
    pub fn disable_snapshots(&self) -> Result<(), Error> {
        locked(self, |control| {
            if settled(self, control)? == SNAPSHOT_OFF {
                return Ok(());
            }
            // A recorder that a swap gave up to wait for would write into pages that are somebody else's by then.
            let parts = self.view.parts();
            let closed = self.streams.iter().try_for_each(|stream| close_spare(parts, &stream.stream));
            closed.map_err(|held| Error::Busy { what: "the spare of a ring", owner: held.owner })?;
            drop_snapshot(self, control);
            control.snapshot.store(SNAPSHOT_OFF, Release);
            self.streams.iter().for_each(|stream| free_spare(self, stream));
            Ok(())
        })
    }

    /// Takes a snapshot of those rings: swaps live and spare while recording goes on.
    ///
    /// # Errors
    /// There are no such rings; snapshots are not enabled, or one is being read.
    pub fn snapshot(&self, rings: Rings) -> Result<Taken, Error> {
        let (streams, are_all) = (&*rings.of(self)?, rings == Rings::All);
        locked(self, |control| {
            if settled(self, control)? == SNAPSHOT_OFF {
                return Err(missing(self, "it has no spare buffers", "enable snapshots first"));
            }
            let dropped = drop_snapshot(self, control);
            control.snapshot.store(SNAPSHOT_SWAPPING, Release);
            let is_alone = processes::is_alone(self.view.processes());
            let swap = Swap { parts: self.view.parts(), streams, are_all, is_alone };
            // SAFETY: the state says that the spares have memory, and the snapshot lock is held, so that nobody else swaps.
            match unsafe { swap.run() } {
                Ok(rest) => Ok(note(self, control, rings, dropped, rest)),
                Err(LockHeld { owner }) => {
                    control.snapshot.store(SNAPSHOT_READY, Release);
                    Err(Error::Busy { what: "a ring", owner })
                }
            }
        })
    }

    /// Marks the snapshot as being read by this process, so that none replaces it meanwhile.
    ///
    /// # Errors
    /// There is no snapshot, or another process reads it.
    pub fn read_snapshot(&self) -> Result<SnapshotReader<'_>, Error> {
        locked(self, |control| {
            if !matches!(settled(self, control)?, SNAPSHOT_TAKEN | SNAPSHOT_READING) {
                return Err(missing(self, "there is no snapshot", "take one first"));
            }
            let me = Identity::current();
            // The lower half of the start time, then the process id.
            let mark = (me.start << 32) | u64::from(me.pid);
            control.snapshot_reader.store(mark, Relaxed);
            control.snapshot.store(SNAPSHOT_READING, Release);
            Ok(SnapshotReader { regions: self, mark })
        })
    }

    /// Makes a reader pass over all that was recorded until now.
    ///
    /// # Errors
    /// Someone else is changing snapshots: nobody swaps between the look at which half is live and the store.
    pub fn clear(&self) -> Result<(), Error> {
        locked(self, |_| {
            self.streams.iter().for_each(|stream| stream.stream.clear(stream.spare(&self.view) ^ 1));
            Ok(())
        })
    }
}

/// Frees the memory of a ring's spare. The caller holds the snapshot lock, and has made sure that no recorder is in the spare.
fn free_spare(regions: &Regions, stream: &StreamRegion) {
    // SAFETY: nobody swaps or reads it, as the snapshot lock is held and no reader is marked, and no recorder is in it: callers
    // see to that.
    unsafe { stream.free(stream.spare(&regions.view)) }
}

/// Runs `change` under the snapshot lock.
pub(crate) fn locked<T>(regions: &Regions, change: impl FnOnce(&Control) -> Result<T, Error>) -> Result<T, Error> {
    let control = regions.view.control();
    let busy = |owner| Error::Busy { what: "the session's snapshot", owner };
    session_region::locked(&control.snapshot_lock, &control.namespaces, || change(control)).map_err(busy)?
}

/// The state of the snapshot, which the caller may change. Refused while a living process reads it.
fn settled(regions: &Regions, control: &Control) -> Result<u32, Error> {
    match control.snapshot.load(Acquire) {
        // Where whoever swapped died, recorders may still be leaving the half that is to be emptied.
        SNAPSHOT_SWAPPING => drop(os::visit_cpus(0..regions.view.info.cpus)),
        SNAPSHOT_READING => {
            let mark = control.snapshot_reader.load(Acquire);
            let pidns = if regions.view.is_foreign() { 0 } else { os::pid_namespace() };
            let reader = Identity { pid: mark as u32, start: mark >> 32, pidns };
            if reader.life() != Life::Dead {
                return Err(Error::Busy { what: "the session's snapshot", owner: reader.pid });
            }
        }
        _ => {}
    }
    // Its reader may have left it meanwhile.
    Ok(control.snapshot.load(Acquire))
}

/// What a snapshot holds that nobody has consumed is about to be lost: rings say so, to whoever reads what follows. Bytes.
fn drop_snapshot(regions: &Regions, control: &Control) -> u64 {
    if !matches!(control.snapshot.load(Acquire), SNAPSHOT_TAKEN | SNAPSHOT_READING) {
        return 0;
    }
    let of = control.snapshot_stream.load(Relaxed);
    let streams = regions.streams.iter().enumerate();
    let held = streams.filter(|(index, stream)| snapshot_has(of, *index as u32, stream.stream.spec().cpu));
    held.map(|(_, stream)| stream.stream.drop_spare(stream.spare(&regions.view))).sum()
}

fn note(regions: &Regions, control: &Control, rings: Rings, dropped: u64, rest: Rest) -> Taken {
    let clock = regions.view.clock_kind().map_or(0, ClockKind::now_ordered);
    control.snapshot_clock.store(clock, Relaxed);
    control.snapshot_stream.store(rings.word(), Relaxed);
    control.snapshot_reader.store(0, Relaxed);
    let number = control.snapshots.fetch_add(1, Relaxed) + 1;
    control.snapshot.store(SNAPSHOT_TAKEN, Release);
    Taken { number, clock, dropped, rest }
}

fn missing(regions: &Regions, what: &'static str, remedy: &'static str) -> Error {
    Error::Snapshot { session: regions.view.name(), what, remedy }
}

/// A snapshot that is being read; dropping it leaves the snapshot to be read again.
#[derive(Debug)]
pub struct SnapshotReader<'a> {
    regions: &'a Regions,
    mark: u64,
}

impl SnapshotReader<'_> {
    /// The snapshot was read and is not needed again.
    pub fn release(self) {
        self.end(SNAPSHOT_READY);
    }

    /// The snapshot is still ours to read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let control = self.regions.view.control();
        let mark = control.snapshot_reader.load(Acquire);
        if control.snapshot.load(Acquire) == SNAPSHOT_READING && mark == self.mark {
            return Ok(());
        }
        Err(Error::Busy { what: "the session's snapshot", owner: mark as u32 })
    }

    /// Leaves `reading` for `state`, unless the snapshot is another's by now.
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
