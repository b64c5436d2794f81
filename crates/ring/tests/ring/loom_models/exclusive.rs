//! The locked reservation, restartable sections, and owner locks.

use std::sync::Arc;

use lastwords_abi::session::{RESERVATION_LOCKED, RESERVATION_RSEQ};
use lastwords_abi::sync::AtomicU64;
use lastwords_ring::model::Point::{self, Locked};
use lastwords_ring::model::{Fate, Shape, World, migrate, point_here, run_as, spawn};
use lastwords_ring::os;
use loom::cell::UnsafeCell;

use super::{LARGE, SMALL, model};

/// Makes a world with one event, after which no large one fits.
fn world(reservation: u32) -> Arc<World> {
    let world = World::new(Shape { reservation, ..Shape::default() });
    world.record(1, 0, 80).expect("room");
    world
}

/// Two recorders use the lock. All their events are there, complete and in order, and the
/// sub-buffer that one left is closed. Otherwise the lock could not be taken, and that was counted.
pub(crate) fn locked_two_recorders() {
    model("locked_two_recorders", || {
        let world = world(RESERVATION_LOCKED);
        let other = spawn(&world, 2, 0, Fate::Lives, |w| {
            let _ = w.record(2, 0, LARGE);
        });
        let mine = world.record(1, 1, LARGE).is_ok();
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!(found.thread(1), if mine { vec![0, 1] } else { vec![0] });
        let lost: u64 = world.lost(0).iter().sum();
        assert_eq!((found.events.len() as u64 + lost, lost), (3, world.lost(0)[4]), "{found:?}");
    });
}

/// The lock's owner dies at any point. The next recorder takes the lock, the published events are
/// there, and nothing is torn.
pub(crate) fn locked_death_at((point, times): (Point, usize)) {
    model(&format!("locked_death_at {point:?} {times}"), move || {
        let world = world(RESERVATION_LOCKED);
        let other = spawn(&world, 2, 0, Fate::Dies(point, times), |w| {
            let _ = w.record(2, 0, SMALL);
        });
        let first = world.record(1, 1, SMALL).is_ok();
        let survived = other.join().expect("no panic");
        world.record(1, 2, SMALL).expect("a dead owner does not hold the lock");
        let found = world.read(0, 0);
        assert_eq!(found.thread(1), if first { vec![0, 1, 2] } else { vec![0, 2] });
        let published =
            point == Point::Published || survived && world.lost(0)[4] == u64::from(!first);
        assert_eq!(found.thread(2).len(), usize::from(published), "{found:?}");
    });
}

/// The recorders cannot know whether an owner lives. An owner stops at any point, another recorder
/// takes its lock, and the owner continues. The events that either published are there and
/// complete, and unpublished ones were counted.
pub(crate) fn locked_usurped_at((point, times): (Point, usize)) {
    model(&format!("locked_usurped_at {point:?} {times}"), move || {
        let world = World::new(Shape {
            reservation: RESERVATION_LOCKED,
            foreign: true,
            ..Shape::default()
        });
        world.record(1, 0, 80).expect("room");
        let shared = Arc::clone(&world);
        let usurp = move |_: &World| {
            let usurper = spawn(&shared, 2, 0, Fate::Lives, |w| {
                w.record(2, 0, SMALL).expect("the lock is taken")
            });
            usurper.join().expect("no panic");
        };
        run_as(&world, 1, 0, Fate::Interrupted(point, times, Box::new(usurp)), |w| {
            let _ = w.record(1, 1, SMALL);
        });
        world.record(1, 2, SMALL).expect("nobody has the lock");
        let found = world.read(0, 0);
        let lost: u64 = world.lost(0).iter().sum();
        assert_eq!((found.thread(2), lost), (vec![0], world.lost(0)[4]), "{found:?}");
        assert_eq!(
            found.thread(1),
            if lost == 0 { vec![0, 1, 2] } else { vec![0, 2] },
            "{found:?}"
        );
    });
}

/// The value that a lock guards.
struct Guarded(UnsafeCell<i32>);
// SAFETY: the value is accessed under the lock that the model checks.
unsafe impl Send for Guarded {}
// SAFETY: as for Send.
unsafe impl Sync for Guarded {}

/// An owner lock lets one thread in at a time, also if the previous owner died inside.
pub(crate) fn owner_lock(dies: bool) {
    model(&format!("owner_lock {dies}"), move || {
        let world = world(RESERVATION_LOCKED);
        let lock = Arc::new(AtomicU64::new(0));
        let guarded = Arc::new(Guarded(UnsafeCell::new(0)));
        let enter = |lock: &AtomicU64, guarded: &Guarded, tid: u32| {
            let mine = os::lock_word(tid, 0);
            let had = os::lock(lock, mine, || false) == os::Lock::Held;
            if had {
                // SAFETY: the lock is held; the model fails if that is not enough.
                guarded.0.with_mut(|n| unsafe { *n += 1 });
                point_here(Locked);
                os::unlock(lock, mine);
            }
            had
        };
        let (their_lock, theirs) = (Arc::clone(&lock), Arc::clone(&guarded));
        let fate = if dies { Fate::Dies(Locked, 0) } else { Fate::Lives };
        let other = spawn(&world, 2, 0, fate, move |_| {
            enter(&their_lock, &theirs, 2);
        });
        enter(&lock, &guarded, 1);
        let survived = other.join().expect("no panic");
        assert!(enter(&lock, &guarded, 1), "nobody living has it");
        assert!(!dies || !survived || lock.load(std::sync::atomic::Ordering::Relaxed) == 0);
    });
}

/// Sections of two threads on one CPU exclude each other. Each event is there once and complete,
/// and the sub-buffer that one left is closed.
pub(crate) fn sections_of_two_threads() {
    model("sections_of_two_threads", || {
        let world = world(RESERVATION_RSEQ);
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record(2, 0, LARGE).expect("room"));
        world.record(1, 1, LARGE).expect("room");
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!(
            (found.thread(1), found.thread(2), found.closed),
            (vec![0, 1], vec![0], vec![0])
        );
    });
}

/// A signal handler records in the middle of a section, at any step, beside another thread of that
/// CPU.
pub(crate) fn section_interrupted_at(step: usize) {
    model(&format!("section_interrupted_at {step}"), move || {
        let world = world(RESERVATION_RSEQ);
        let handler = Fate::Interrupted(
            Point::Step,
            step,
            Box::new(|w: &World| w.record(3, 0, SMALL).expect("room")),
        );
        let other = spawn(&world, 2, 0, handler, |w| w.record(2, 0, LARGE).expect("room"));
        world.record(1, 1, SMALL).expect("room");
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!(
            (found.thread(1), found.thread(2), found.thread(3)),
            (vec![0, 1], vec![0], vec![0])
        );
    });
}

/// A thread is killed in the middle of a section, at any step. It leaves only bytes after the
/// produced position.
pub(crate) fn section_death_at(step: usize) {
    model(&format!("section_death_at {step}"), move || {
        let world = world(RESERVATION_RSEQ);
        let other = spawn(&world, 2, 0, Fate::Dies(Point::Step, step), |w| {
            let _ = w.record(2, 0, LARGE);
        });
        world.record(1, 1, SMALL).expect("room");
        let survived = other.join().expect("no panic");
        world.record(1, 2, SMALL).expect("room");
        let found = world.read(0, 0);
        assert_eq!(
            (found.thread(1), found.thread(2).len()),
            (vec![0, 1, 2], usize::from(survived))
        );
    });
}

/// A thread is moved to another CPU between any two steps. It never publishes on the CPU that it
/// left.
pub(crate) fn section_migrates_at(step: usize) {
    model(&format!("section_migrates_at {step}"), move || {
        let world =
            World::new(Shape { reservation: RESERVATION_RSEQ, cpus: 2, ..Shape::default() });
        let moves = Fate::Interrupted(Point::Step, step, Box::new(|_: &World| migrate(1)));
        let other = spawn(&world, 2, 0, moves, |w| w.record(2, 0, SMALL).expect("room"));
        world.record(1, 1, SMALL).expect("room");
        other.join().expect("no panic");
        let all = world.read_all(0);
        assert!(all.len() == 2 && all.contains(&(1, 1)) && all.contains(&(2, 0)), "{all:?}");
    });
}

/// A thread whose sections never end records in the stream that is bound to no CPU. This happens
/// when a debugger steps.
pub(crate) fn sections_that_never_end() {
    model("sections_that_never_end", || {
        let world = world(RESERVATION_RSEQ);
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record(2, 0, SMALL).expect("room"));
        run_as(&world, 1, 0, Fate::AlwaysAborted, |w| w.record(1, 1, SMALL).expect("room"));
        other.join().expect("no panic");
        assert_eq!((world.read(0, 0).thread(2), world.read(1, 0).thread(1)), (vec![0], vec![1]));
    });
}
