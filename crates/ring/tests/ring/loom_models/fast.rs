//! The fast path of `rseq`: lanes that threads cache, and what happens to them when the thread
//! moves or a half is swapped.

use std::sync::Arc;

use lastwords_abi::session::RESERVATION_RSEQ;
use lastwords_ring::model::{Fate, Point, Shape, World, migrate, run_as, spawn};
use loom::sync::Mutex;

use super::model;
use super::swap::swap;

/// Makes a world with an event of this thread, which has cached the lane of CPU 0.
fn world(cpus: u32) -> Arc<World> {
    let world =
        World::new(Shape { reservation: RESERVATION_RSEQ, cpus, spare: true, ..Shape::default() });
    world.record_fast(1, 0, false).expect("room");
    world
}

/// Two threads run on one CPU, with and without a tail. Each event is there once and complete.
pub(crate) fn fast_of_two_threads(with_tail: bool) {
    model(&format!("fast_of_two_threads {with_tail}"), move || {
        let world = world(1);
        let other = spawn(&world, 2, 0, Fate::Lives, move |w| {
            w.record_fast(2, 0, with_tail).expect("room")
        });
        world.record_fast(1, 1, with_tail).expect("room");
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!((found.thread(1), found.thread(2)), (vec![0, 1], vec![0]), "{found:?}");
    });
}

/// A signal handler takes the fast path in the middle of another event's, at any step.
pub(crate) fn fast_interrupted_at(step: usize) {
    model(&format!("fast_interrupted_at {step}"), move || {
        let world = world(1);
        let handler = Box::new(|w: &World| w.record_fast(3, 0, false).expect("room"));
        run_as(&world, 1, 0, Fate::Interrupted(Point::Step, step, handler), |w| {
            w.record_fast(1, 1, true).expect("room");
        });
        let found = world.read(0, 0);
        assert_eq!((found.thread(1), found.thread(3)), (vec![0, 1], vec![0]), "{found:?}");
    });
}

/// A thread is killed at any step of the fast path. It leaves only bytes after the produced
/// position.
pub(crate) fn fast_death_at(step: usize) {
    model(&format!("fast_death_at {step}"), move || {
        let world = world(1);
        let survived = run_as(&world, 1, 0, Fate::Dies(Point::Step, step), |w| {
            let _ = w.record_fast(1, 1, true);
        });
        assert!(!survived);
        run_as(&world, 2, 0, Fate::Lives, |w| w.record_fast(2, 0, false).expect("room"));
        let found = world.read(0, 0);
        assert_eq!((found.thread(1), found.thread(2)), (vec![0], vec![0]), "{found:?}");
    });
}

/// A thread is moved at any step of the fast path, beside another that stays. It records on one of
/// the two CPUs.
pub(crate) fn fast_migrates_at(step: usize) {
    model(&format!("fast_migrates_at {step}"), move || {
        let world = world(2);
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record_fast(2, 0, false).expect("room"));
        let moves = Fate::Interrupted(Point::Step, step, Box::new(|_: &World| migrate(1)));
        run_as(&world, 1, 0, moves, |w| w.record_fast(1, 1, false).expect("room"));
        other.join().expect("no panic");
        let mut all = world.read_all(0);
        all.sort_unstable();
        assert_eq!(all, [(1, 0), (1, 1), (2, 0)]);
    });
}

/// A thread that was moved between two events has a stale lane. It records on its new CPU, and
/// finds the lane of that CPU.
pub(crate) fn stale_lane() {
    model("stale_lane", || {
        let world = world(2);
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record_fast(2, 0, false).expect("room"));
        migrate(1);
        (1..3).for_each(|n| world.record_fast(1, n, false).expect("room"));
        other.join().expect("no panic");
        assert_eq!((world.read(0, 0).thread(2), world.read(1, 0).thread(1)), (vec![0], vec![1, 2]));
    });
}

/// A snapshot is taken while a thread has a cached lane. Each event is in one half, in the new one
/// if it began after the swap, and the snapshot does not change.
pub(crate) fn fast_beside_a_swap() {
    model("fast_beside_a_swap", || {
        let world = world(1);
        let snapshot = Arc::new(Mutex::new(None));
        let taken = Arc::clone(&snapshot);
        let other = spawn(&world, 2, 0, Fate::Lives, move |w| {
            swap(w).expect("no lock is held");
            let events = w.read_all(0);
            *taken.lock().expect("no panics") = Some(events);
        });
        let before = snapshot.lock().expect("no panics").clone();
        world.record_fast(1, 1, false).expect("room");
        other.join().expect("no panic");
        let (old, new) = (world.read_all(0), world.read_all(1));
        assert_eq!(
            snapshot.lock().expect("no panics").as_ref(),
            Some(&old),
            "the snapshot changed"
        );
        let right = [vec![(1, 0)], vec![(1, 0), (1, 1)]].contains(&old)
            && [old.clone(), new.clone()].concat().len() == 2;
        assert!(right && (before.is_none() || new == [(1, 1)]), "{old:?} {new:?}");
    });
}

/// Two snapshots are taken while a thread has a cached lane, whose half is live again but was
/// reset. The event is found once.
pub(crate) fn fast_beside_two_swaps() {
    model("fast_beside_two_swaps", || {
        let world = world(1);
        let snapshots = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&snapshots);
        let other = spawn(&world, 2, 0, Fate::Lives, move |w| {
            for half in [0, 1] {
                swap(w).expect("no lock is held");
                let events = w.read_all(half);
                taken.lock().expect("no panics").extend(events);
            }
        });
        world.record_fast(1, 1, false).expect("room");
        other.join().expect("no panic");
        let mut all = snapshots.lock().expect("no panics").clone();
        all.extend(world.read_all(0));
        assert_eq!(all, [(1, 0), (1, 1)]);
    });
}

/// A thread records in two channels alternately. It never uses the cached lane of one for the
/// other.
pub(crate) fn lane_of_another_channel() {
    model("lane_of_another_channel", || {
        let world = world(2);
        let other = world.leak_channel(&[1, 2]);
        for n in 1..3 {
            World::record_fast_in(other, 2, n, false).expect("room");
            world.record_fast(1, n, false).expect("room");
        }
        assert_eq!(
            (world.read(0, 0).thread(1), world.read(1, 0).thread(2)),
            (vec![0, 1, 2], vec![1, 2])
        );
    });
}

/// Events that the fast path does not record go into the stream that is bound to no CPU. This
/// happens when a debugger steps.
pub(crate) fn fast_that_never_ends() {
    model("fast_that_never_ends", || {
        let world = world(1);
        run_as(&world, 1, 0, Fate::AlwaysAborted, |w| w.record_fast(1, 1, true).expect("room"));
        assert_eq!((world.read(0, 0).thread(1), world.read(1, 0).thread(1)), (vec![0], vec![1]));
    });
}
