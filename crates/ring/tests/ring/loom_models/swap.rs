//! Snapshots.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use lastwords_abi::session::{RESERVATION_LOCKED, RESERVATION_LOCKLESS, RESERVATION_RSEQ};
use lastwords_ring::Stream;
use lastwords_ring::model::Point::{Chosen, Reserved, Swapping};
use lastwords_ring::model::{Fate, Shape, World, run_as, spawn};
use lastwords_ring::swap::{LockHeld, Rest, Swap};
use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};

use super::{SMALL, model};

fn world(reservation: u32) -> Arc<World> {
    World::new(Shape { reservation, spare: true, ..Shape::default() })
}

/// Takes a snapshot of all streams.
pub(crate) fn swap(world: &World) -> Result<Rest, LockHeld> {
    let streams: Vec<&Stream> = world.channel.streams().iter().collect();
    // SAFETY: all halves have memory, and only one thread of the model swaps.
    unsafe {
        Swap {
            parts: world.parts,
            streams: &streams,
            are_all: true,
            is_alone: true,
            persists: false,
        }
        .run()
    }
}

/// An event recorded before the swap is in the snapshot, one recorded after it is not, and one
/// recorded meanwhile is in exactly one half. Once the swap has returned, the snapshot does not
/// change.
fn recorder_beside_a_swap(reservation: u32) {
    let world = world(reservation);
    let begun = Arc::new(AtomicU32::new(0));
    let ended = Arc::new(AtomicU32::new(0));
    world.record(1, 0, SMALL).expect("room");
    let (before, after) = (Arc::clone(&begun), Arc::clone(&ended));
    let other = spawn(&world, 2, 0, Fate::Lives, move |w| {
        // The value 1 means that this event begins after the swap.
        let sequence = u16::from(after.load(SeqCst) == 1);
        if w.record(2, sequence, SMALL).is_ok() {
            before.store(1, SeqCst);
        }
    });
    let done = begun.load(SeqCst) == 1;
    let swapped = swap(&world);
    ended.store(1, SeqCst);
    let Ok(rest) = swapped else {
        other.join().expect("no panic");
        return;
    };
    let settled = rest == Rest::default();
    let snapshot = if settled { world.read_all(0) } else { Vec::new() };
    other.join().expect("no panic");
    let (old, new) = (world.read_all(0), world.read_all(1));
    assert!(!settled || snapshot == old, "the snapshot changed: {snapshot:?} {old:?}");
    let of =
        |events: &[(u16, u16)], sequence| events.iter().filter(|e| **e == (2, sequence)).count();
    assert!(old.contains(&(1, 0)) && !new.contains(&(1, 0)));
    assert!(!done || of(&old, 0) == 1, "recorded before the swap: {old:?} {new:?}");
    assert!(of(&old, 1) == 0, "recorded after the swap: {old:?}");
    let lost: u64 =
        (0..world.channel.streams().len()).map(|s| world.lost(s)[..5].iter().sum::<u64>()).sum();
    let all: Vec<_> = old.iter().chain(&new).filter(|e| e.0 == 2).collect();
    assert_eq!(all.len() as u64 + lost, 1, "each in one half: {old:?} {new:?}");
}

/// Runs [`recorder_beside_a_swap`] with the lockless reservation.
pub(crate) fn swap_lockless() {
    model("swap_lockless", || recorder_beside_a_swap(RESERVATION_LOCKLESS));
}

/// Runs [`recorder_beside_a_swap`] with the lock.
pub(crate) fn swap_locked() {
    model("swap_locked", || recorder_beside_a_swap(RESERVATION_LOCKED));
}

/// Runs [`recorder_beside_a_swap`] with restartable sections.
pub(crate) fn swap_sections() {
    model("swap_sections", || recorder_beside_a_swap(RESERVATION_RSEQ));
}

/// A recorder reads which half is live before one swap, and continues while the next swap is being
/// prepared. It must not record in the spare that will be live. An event that it recorded before
/// the second swap is in that snapshot. Two recorders do this, one in a signal handler of the
/// other: the first begins the sub-buffer, and the second would find it begun.
pub(crate) fn two_swaps() {
    model("two_swaps", || {
        let world = world(RESERVATION_LOCKLESS);
        let done = Arc::new(AtomicU32::new(0));
        let known = Arc::new(AtomicBool::new(false));
        let (recorded, seen) = (Arc::clone(&done), Arc::clone(&known));
        let shared = Arc::clone(&world);
        let running = Arc::new(Mutex::new(None));
        let begun = Arc::clone(&running);
        let swaps = move |w: &World| {
            swap(w).expect("nobody is in the spare");
            let look = move |_: &World| seen.store(recorded.load(SeqCst) == 1, Relaxed);
            let second =
                spawn(&shared, 2, 0, Fate::Interrupted(Swapping, 0, Box::new(look)), |w| {
                    swap(w).expect("nobody is in the spare");
                });
            *begun.lock().expect("one thread") = Some(second);
        };
        let handler = |w: &World| {
            run_as(w, 1, 0, Fate::Interrupted(Chosen, 0, Box::new(swaps)), |w| {
                w.record(3, 0, SMALL).expect("room")
            });
        };
        run_as(&world, 1, 0, Fate::Interrupted(Chosen, 0, Box::new(handler)), |w| {
            w.record(1, 0, SMALL).expect("there is a half that is not closed");
            done.store(1, SeqCst);
        });
        running.lock().expect("one thread").take().expect("a swap").join().expect("no panic");
        if known.load(Relaxed) {
            assert!(
                world.read_all(1).contains(&(1, 0)),
                "recorded before the second swap, and not in its snapshot"
            );
        }
    });
}

/// A swap must leave the spare alone if a recorder is still at work in it, because the last swap
/// stopped waiting for that recorder. Here a signal handler takes two snapshots in the middle of a
/// record.
pub(crate) fn spare_in_use() {
    model("spare_in_use", || {
        let world = world(RESERVATION_LOCKLESS);
        world.record(1, 0, SMALL).expect("room");
        let handler = |w: &World| {
            assert_eq!(swap(w), Ok(Rest { in_flight: 1, ..Rest::default() }));
            if swap(w).is_ok() {
                w.record(3, 0, SMALL).expect("room");
            }
        };
        run_as(&world, 1, 0, Fate::Interrupted(Reserved, 0, Box::new(handler)), |w| {
            w.record(1, 1, SMALL).expect("reserved before the swap");
        });
        world.record(1, 2, SMALL).expect("room");
        assert_eq!((world.read_all(0), world.read_all(1)), (vec![(1, 0), (1, 1)], vec![(1, 2)]));
    });
}
