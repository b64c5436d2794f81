//! Snapshots: each ring has a spare half; taking a snapshot swaps live and spare while recording goes on.
//!
//! States of [`lastwords_abi::session::Control::snapshot`]: off, ready, swapping, taken, reading. All changes are made under
//! the session's snapshot lock, which the dead do not hold.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::{
    Control, SNAPSHOT_CPU, SNAPSHOT_OFF, SNAPSHOT_READING, SNAPSHOT_READY, SNAPSHOT_SWAPPING, SNAPSHOT_TAKEN,
    snapshot_has,
};
use lastwords_abi::stream::{ANY_CPU, StreamInfo};
use lastwords_ring::swap::{LockHeld, Quiesce, Rest, Swap, close_spare};
use lastwords_ring::{ClockKind, Stream, os};

use crate::session::Error;
use crate::session::processes::{self, Identity, Life};
use crate::session::regions::{Regions, StreamRegion};

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

    /// Indices of those streams; none for all.
    fn indices(self, regions: &Regions) -> Result<Option<Vec<usize>>, Error> {
        let of = |wanted: &dyn Fn(usize, u32) -> bool| {
            let cpus = regions.streams.iter().map(|stream| stream.stream.info().cpu);
            cpus.enumerate().filter(|(index, cpu)| wanted(*index, *cpu)).map(|stream| stream.0).collect::<Vec<_>>()
        };
        let (chosen, what) = match self {
            Self::All => return Ok(None),
            Self::Stream(only) => (of(&|index, _| index == only as usize), format!("stream {only}")),
            Self::Cpu(only) => (of(&|_, cpu| cpu == only && cpu != ANY_CPU), format!("CPU {only}")),
        };
        if !chosen.is_empty() {
            return Ok(Some(chosen));
        }
        let why = format!("no ring of the session is that of {what}");
        Err(Error::Unsupported { what: "snapshot of a part", why, remedy: "name one that is there" })
    }
}

/// Runs `change` under the snapshot lock.
pub(crate) fn locked<T>(regions: &Regions, change: impl FnOnce(&Control) -> Result<T, Error>) -> Result<T, Error> {
    let view = &regions.view;
    let control = view.control();
    let mine = lastwords_ring::lock_word();
    if !os::lock(&control.snapshot_lock, mine, || view.is_foreign()) {
        let owner = (control.snapshot_lock.load(Relaxed) >> 32) as u32;
        return Err(Error::Busy { what: "the session's snapshot", owner });
    }
    let done = change(control);
    os::unlock(&control.snapshot_lock, mine);
    done
}

/// `start_low << 32 | pid` of this process, for the reader's mark.
fn reader_mark(identity: &Identity) -> u64 {
    (identity.start << 32) | u64::from(identity.pid)
}

/// Refuses while a living process reads the snapshot.
fn check_reader(regions: &Regions, control: &Control) -> Result<(), Error> {
    if control.snapshot.load(Acquire) != SNAPSHOT_READING {
        return Ok(());
    }
    let mark = control.snapshot_reader.load(Acquire);
    let owner = mark as u32;
    let pidns = if regions.view.is_foreign() { 0 } else { os::pid_namespace() };
    let reader = Identity { pid: owner, start: mark >> 32, pidns };
    match reader.life() {
        Life::Dead => Ok(()),
        Life::Alive | Life::Unknown => Err(Error::Busy { what: "the session's snapshot", owner }),
    }
}

/// Gives every ring its spare.
pub(crate) fn enable(regions: &Regions) -> Result<(), Error> {
    locked(regions, |control| {
        if control.snapshot.load(Acquire) != SNAPSHOT_OFF {
            return Ok(());
        }
        for (given, stream) in regions.streams.iter().enumerate() {
            if let Err(error) = give_spare(stream, stream.spare(&regions.view)) {
                regions.streams[..given].iter().for_each(|stream| {
                    // The error that is told is the first.
                    drop(free_spare(stream, stream.spare(&regions.view)));
                });
                return Err(error);
            }
        }
        control.snapshot.store(SNAPSHOT_READY, Release);
        Ok(())
    })
}

/// Frees the spares and what is in them; all, or none where a recorder is still in one.
pub(crate) fn disable(regions: &Regions) -> Result<(), Error> {
    locked(regions, |control| {
        check_reader(regions, control)?;
        match control.snapshot.load(Acquire) {
            SNAPSHOT_OFF => return Ok(()),
            state => leave_swap(regions, state),
        }
        // A recorder that a swap gave up to wait for would write into pages that are somebody else's by then.
        let parts = regions.view.parts();
        let closed = regions.streams.iter().try_for_each(|stream| close_spare(parts, &stream.stream));
        closed.map_err(|held| Error::Busy { what: "the spare of a ring", owner: held.owner })?;
        drop_snapshot(regions, control);
        control.snapshot.store(SNAPSHOT_OFF, Release);
        regions.streams.iter().try_for_each(|stream| free_spare(stream, stream.spare(&regions.view)))
    })
}

/// Where whoever swapped died, recorders may still be leaving the half that is to be emptied.
fn leave_swap(regions: &Regions, state: u32) {
    if state == SNAPSHOT_SWAPPING {
        drop(os::visit_cpus(0..regions.view.info.cpus));
    }
}

/// What a snapshot holds that nobody has consumed is about to be lost: rings say so, to whoever reads what follows. Bytes.
fn drop_snapshot(regions: &Regions, control: &Control) -> u64 {
    if !matches!(control.snapshot.load(Acquire), SNAPSHOT_TAKEN | SNAPSHOT_READING) {
        return 0;
    }
    let of = control.snapshot_stream.load(Relaxed);
    let streams = regions.streams.iter().enumerate();
    let held = streams.filter(|(index, stream)| snapshot_has(of, *index as u32, stream.stream.info().cpu));
    held.map(|(_, stream)| stream.stream.drop_spare(stream.spare(&regions.view))).sum()
}

/// Swaps all rings, or some.
pub(crate) fn take(regions: &Regions, rings: Rings) -> Result<Taken, Error> {
    let only = rings.indices(regions)?;
    locked(regions, |control| {
        check_reader(regions, control)?;
        match control.snapshot.load(Acquire) {
            SNAPSHOT_OFF => return Err(missing(regions, "it has no spare buffers", "enable snapshots first")),
            state => leave_swap(regions, state),
        }
        let dropped = drop_snapshot(regions, control);
        control.snapshot.store(SNAPSHOT_SWAPPING, Release);
        let streams: Vec<&Stream> = regions.streams.iter().map(|stream| &stream.stream).collect();
        let quiesce = if processes::is_alone(regions.view.processes()) && is_inside(regions) {
            Quiesce::Membarrier
        } else {
            Quiesce::VisitCpus
        };
        let swap = Swap { parts: regions.view.parts(), streams: &streams, only: only.as_deref(), quiesce };
        // SAFETY: the state says that the spares have memory, and the snapshot lock is held, so that nobody else swaps.
        match unsafe { swap.run() } {
            Ok(rest) => Ok(note(regions, control, rings, dropped, rest)),
            Err(LockHeld { owner }) => {
                control.snapshot.store(SNAPSHOT_READY, Release);
                Err(Error::Busy { what: "a ring", owner })
            }
        }
    })
}

/// This process is the one that joined.
fn is_inside(regions: &Regions) -> bool {
    processes::joined(regions.view.processes()).contains(&Identity::current())
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

/// Marks the snapshot as being read by this process.
pub(crate) fn read(regions: &Regions) -> Result<SnapshotReader<'_>, Error> {
    locked(regions, |control| {
        check_reader(regions, control)?;
        match control.snapshot.load(Acquire) {
            SNAPSHOT_TAKEN | SNAPSHOT_READING => {}
            _ => return Err(missing(regions, "there is no snapshot", "take one first")),
        }
        let mark = reader_mark(&Identity::current());
        control.snapshot_reader.store(mark, Relaxed);
        control.snapshot.store(SNAPSHOT_READING, Release);
        Ok(SnapshotReader { regions, mark })
    })
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

/// Passes over all that is in the live halves now. Nobody swaps between the look at which half is live and the store.
pub(crate) fn clear(regions: &Regions) -> Result<(), Error> {
    locked(regions, |_| {
        regions.streams.iter().for_each(|stream| stream.stream.clear(stream.spare(&regions.view) ^ 1));
        Ok(())
    })
}

/// Where a half's data, or page table, lies in its region.
fn range_of(info: &StreamInfo, half: usize, half_size: u64) -> Range<u64> {
    let start = info.data_off[half & 1];
    start..start + half_size.next_multiple_of(4096)
}

fn pages_of(stream: &StreamRegion) -> usize {
    (stream.stream.half_size() / u64::from(stream.stream.info().page_size.max(1))) as usize
}

fn give_spare(stream: &StreamRegion, half: usize) -> Result<(), Error> {
    let info = stream.stream.info();
    if info.page_size != 0 {
        return Ok(stream.mapping.fill_pages(info.data_off[half], pages_of(stream), info.page_size)?);
    }
    Ok(stream.mapping.populate(range_of(info, half, stream.stream.half_size()))?)
}

fn free_spare(stream: &StreamRegion, half: usize) -> Result<(), Error> {
    let info = stream.stream.info();
    // SAFETY: this is the spare, and no recorder is in it: callers see to that.
    unsafe { stream.stream.reset_half(half) };
    if info.page_size != 0 {
        // SAFETY: the table that `give_spare` filled; no recorder is in the spare, and nobody reads it: callers see to that.
        unsafe { stream.mapping.free_pages(info.data_off[half], pages_of(stream), info.page_size) };
        return Ok(());
    }
    Ok(stream.mapping.release(range_of(info, half, stream.stream.half_size()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Session, shared};

    #[test]
    fn nothing_is_cleared_while_rings_may_be_swapped() {
        let dir = tempfile::tempdir().expect("a folder");
        let session = Session::builder("clear").dir(dir.path()).listen(false).start().expect("it starts");
        let shared = shared::all().find(|shared| shared.view().name() == "clear").expect("listed");
        let lock = &shared.view().control().snapshot_lock;
        lock.store(os::lock_word(1, 0), Relaxed);
        assert!(matches!(session.clear(), Err(Error::Busy { owner: 1, .. })));
        lock.store(0, Relaxed);
        session.clear().expect("nobody swaps");
    }
}
