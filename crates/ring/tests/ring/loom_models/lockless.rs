//! The lockless reservation.

use std::sync::{Arc, Mutex};

use lastwords_abi::session::MODE_DISCARD;
use lastwords_abi::stream as abi;
use lastwords_ring::Lost;
use lastwords_ring::model::Point::{
    Announced, Begun, Chosen, Closed, Closing, Committed, Reserved, Switched,
};
use lastwords_ring::model::{Fate, Point, Shape, World, run_as, spawn};

use super::{LARGE, SMALL, beside_point, model};

const FOUR: u32 = 4;

/// The events of two recorders are all there and complete, each thread's in order; nothing is lost
/// or in flight.
pub(crate) fn two_recorders() {
    model("two_recorders", || {
        let world = World::new(Shape::default());
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record(2, 0, SMALL).expect("room"));
        world.record(1, 0, SMALL).expect("room");
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!((found.thread(1), found.thread(2), found.holes), (vec![0], vec![0], 0));
        assert_eq!(world.lost(0), [0; 7]);
    });
}

/// One recorder records events that still fit while the other leaves the sub-buffer. The sub-buffer
/// is closed once, with all events that were reserved in it.
pub(crate) fn recorder_and_switch() {
    model("recorder_and_switch", || {
        let world = World::new(Shape { sub_buffers: FOUR, ..Shape::default() });
        world.record(1, 0, LARGE).expect("room");
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record(2, 0, SMALL).expect("room"));
        world.record(1, 1, LARGE).expect("room");
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!((found.thread(1), found.thread(2), found.holes), (vec![0, 1], vec![0], 0));
        assert_eq!(found.closed, [0]);
        assert_eq!(world.lost(0), [0; 7]);
    });
}

/// Two recorders leave the same sub-buffer at once. Each sub-buffer is begun once and closed once.
pub(crate) fn two_switches() {
    model("two_switches", || {
        let world = World::new(Shape { sub_buffers: FOUR, ..Shape::default() });
        world.record(1, 0, LARGE).expect("room");
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record(2, 0, LARGE).expect("room"));
        world.record(1, 1, LARGE).expect("room");
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!(
            (found.thread(1), found.thread(2), found.closed),
            (vec![0, 1], vec![0], vec![0, 1])
        );
        assert_eq!(world.lost(0), [0; 7]);
    });
}

/// Other recorders fill and leave a sub-buffer before the recorder that began it has written its
/// header. The sub-buffer is closed all the same, and the closed header is not overwritten. The
/// others record from a handler at each point of the first recorder's way.
pub(crate) fn late_header() {
    for point in [Chosen, Announced, Switched, Begun, Closing, Closed, Reserved, Committed] {
        model(&format!("late_header {point:?}"), move || {
            let world = World::new(Shape { sub_buffers: FOUR, ..Shape::default() });
            world.record(1, 0, LARGE).expect("room");
            let handler = |w: &World| (0..2).for_each(|n| w.record(3, n, 110).expect("room"));
            run_as(&world, 1, 0, Fate::Interrupted(point, 0, Box::new(handler)), |w| {
                w.record(1, 1, LARGE).expect("room");
            });
            let found = world.read(0, 0);
            assert_eq!(
                (found.thread(1), found.thread(3), found.closed.len()),
                (vec![0, 1], vec![0, 1], 3),
                "{found:?}"
            );
        });
    }
}

/// The ring comes round to a sub-buffer in which a living recorder is not done. Its bytes are not
/// changed, and events that find no place are counted exactly.
pub(crate) fn wrap_onto_the_living() {
    model("wrap_onto_the_living", || {
        let world = World::new(Shape::default());
        world.record(1, 0, SMALL).expect("room");
        let done = Arc::new(Mutex::new(Vec::new()));
        let results = Arc::clone(&done);
        let others = move |w: &World| {
            let all = (0..2).map(|n| w.record(2, n, 120)).collect();
            *results.lock().expect("one thread") = all;
        };
        beside_point(&world, Reserved, others, |w| w.record(1, 1, SMALL).expect("room"));
        let done = done.lock().expect("one thread").clone();
        assert!(done[0].is_ok() && matches!(done[1], Ok(()) | Err(Lost::Busy)), "{done:?}");
        let mut expected = [0; 7];
        expected[abi::LOST_BUSY] = u64::from(done[1].is_err());
        assert_eq!(world.lost(0), expected);
        let found = world.read(0, 0);
        let right = if done[1].is_ok() { (vec![], vec![0, 1]) } else { (vec![0, 1], vec![0]) };
        assert_eq!(((found.thread(1), found.thread(2)), found.holes), (right, 0));
    });
}

/// With more places, the place of the living recorder is skipped, lap after lap. Nothing is lost,
/// the ring continues, and the place is used again when it is free.
pub(crate) fn pass_over_the_living() {
    model("pass_over_the_living", || {
        let world = World::new(Shape { sub_buffers: FOUR, ..Shape::default() });
        world.record(1, 0, SMALL).expect("room");
        let others =
            |w: &World| (0..9).for_each(|n| w.record(2, n, 120).expect("the next place is free"));
        beside_point(&world, Reserved, others, |w| w.record(1, 1, SMALL).expect("room"));
        (9..14).for_each(|n| world.record(2, n, 120).expect("nobody is in flight"));
        let found = world.read(0, 0);
        assert_eq!((found.thread(2), found.holes), (vec![10, 11, 12, 13], 0));
        let lost = world.lost(0);
        assert!(
            lost[..=abi::RECLAIMED] == [0; 6] && lost[abi::SKIPPED] <= 3,
            "nobody died: {lost:?}"
        );
    });
}

/// A recorder dies at any point beside another. The other's event is there, and the dead one's is
/// there if all its bytes were. Bytes that the dead one announced without reserving are never taken
/// for a hole.
pub(crate) fn death_at(point: Point) {
    death("death_at", SMALL, point);
}

/// A recorder dies at any point while it is leaving a sub-buffer for the next.
pub(crate) fn death_in_switch_at(point: Point) {
    death("death_in_switch_at", LARGE, point);
}

fn death(name: &str, size: usize, point: Point) {
    model(&format!("{name} {point:?}"), move || {
        let world = World::new(Shape { sub_buffers: FOUR, ..Shape::default() });
        world.record(1, 0, size).expect("room");
        let other = spawn(&world, 2, 0, Fate::Dies(point, 0), move |w| {
            let _ = w.record(2, 0, size);
        });
        world.record(1, 1, size).expect("room");
        let survived = other.join().expect("no panic");
        world.record(1, 2, size).expect("room");
        let found = world.read(0, 0);
        assert_eq!(found.thread(1), [0, 1, 2]);
        assert!(found.holes <= 1 && found.thread(2).len() + found.holes <= 1, "{found:?}");
        assert!(!survived || found.thread(2) == [0]);
    });
}

/// A dead recorder's hole does not stop others: the ring comes round to it and takes the place, and
/// counts it once.
pub(crate) fn wrap_onto_the_dead() {
    model("wrap_onto_the_dead", || {
        let world = World::new(Shape::default());
        world.record(1, 9, SMALL).expect("room");
        let other = spawn(&world, 2, 0, Fate::Dies(Reserved, 0), |w| {
            let _ = w.record(2, 0, SMALL);
        });
        let mut done = vec![world.record(1, 0, 120).is_ok()];
        other.join().expect("no panic");
        done.extend((1..4).map(|n| world.record(1, n, 120).is_ok()));
        assert!(done.iter().all(|ok| *ok), "nobody living is in flight: {done:?}");
        let found = world.read(0, 0);
        assert_eq!((found.thread(1), found.holes), (vec![2, 3], 0));
        assert!(world.lost(0)[abi::RECLAIMED] <= 1);
    });
}

/// Two recorders come round to a dead recorder's hole at once. One takes the place, it is counted
/// once, and both have room.
pub(crate) fn two_reclaimers() {
    model("two_reclaimers", || {
        let world = World::new(Shape { threads: 3, ..Shape::default() });
        let dying =
            spawn(&world, 3, 0, Fate::Dies(Reserved, 0), |w| w.record(3, 0, SMALL).expect("room"));
        assert!(!dying.join().expect("no panic"));
        world.record(1, 0, 130).expect("room");
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record(2, 0, 60).expect("room"));
        world.record(1, 1, 60).expect("room");
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!(world.lost(0), [0, 0, 0, 0, 0, 1, 0]);
        assert_eq!((found.thread(1), found.thread(2), found.holes), (vec![0, 1], vec![0], 0));
    });
}

/// A signal handler records in the middle of a record, beside another recorder: all three events
/// are there.
pub(crate) fn nested_at(point: Point) {
    model(&format!("nested_at {point:?}"), move || {
        let world = World::new(Shape { sub_buffers: FOUR, ..Shape::default() });
        world.record(1, 9, SMALL).expect("room");
        let handler =
            Fate::Interrupted(point, 0, Box::new(|w: &World| w.record(3, 0, SMALL).expect("room")));
        let other = spawn(&world, 2, 0, handler, |w| w.record(2, 0, SMALL).expect("room"));
        world.record(1, 0, SMALL).expect("room");
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!(
            (found.thread(1), found.thread(2), found.thread(3)),
            (vec![9, 0], vec![0], vec![0])
        );
    });
}

/// In discard mode, a consuming reader and the recorder together lose nothing. The consumed, the
/// remaining and the lost events are all events, in order, and nobody writes the reader's bytes
/// meanwhile.
pub(crate) fn discard_and_consumer() {
    model("discard_and_consumer", || {
        let world = World::new(Shape { mode: MODE_DISCARD, ..Shape::default() });
        world.record(1, 0, 120).expect("room");
        world.record(1, 1, 120).expect("room");
        let consumer = spawn(&world, 2, 0, Fate::Lives, |w| {
            let got = w.consume(0, 0, 0);
            assert!(got.is_empty() || got == [(1, 0)], "{got:?}");
        });
        let done: Vec<_> = (2..4).map(|n| world.record(1, n, 120)).collect();
        consumer.join().expect("no panic");
        let full = done.iter().filter(|r| **r == Err(Lost::Full)).count();
        assert!(done.iter().all(|r| matches!(r, Ok(()) | Err(Lost::Full))), "{done:?}");
        assert_eq!(world.lost(0), [full as u64, 0, 0, 0, 0, 0, 0]);
        let rest = world.read(0, 0).thread(1);
        let recorded: Vec<u16> = (2..4).filter(|&n| done[usize::from(n) - 2].is_ok()).collect();
        assert!(rest.ends_with(&recorded) && rest.contains(&1), "{rest:?}, recorded {recorded:?}");
    });
}

/// Runs a reader that consumes settled events beside `record`. Returns its events and those of the
/// next reader, in order of thread.
fn consumed_beside(world: &Arc<World>, record: impl FnOnce(&Arc<World>)) -> Vec<(u16, u16)> {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&taken);
    let reader =
        spawn(world, 3, 0, Fate::Lives, move |w| *into.lock().expect("one thread") = w.take(0, 0));
    record(world);
    reader.join().expect("no panic");
    let mut events = taken.lock().expect("one thread").clone();
    events.extend(world.take(0, 0));
    events.sort_unstable();
    events
}

/// A reader that consumes settled events, and the next reader, get each event of a recorder once
/// and complete, also if the recorder moves on to the next sub-buffer.
pub(crate) fn settled_reader() {
    model("settled_reader", || {
        let world = World::new(Shape { sub_buffers: FOUR, threads: 3, ..Shape::default() });
        world.record(1, 9, SMALL).expect("room");
        let events =
            consumed_beside(&world, |w| (0..2).for_each(|n| w.record(1, n, LARGE).expect("room")));
        assert_eq!(events, [(1, 0), (1, 1), (1, 9)]);
    });
}

/// This is [`settled_reader`] with two recorders: one may have reserved before the other and commit
/// after it.
pub(crate) fn settled_among_two() {
    model("settled_among_two", || {
        let world = World::new(Shape { threads: 3, ..Shape::default() });
        world.record(1, 9, SMALL).expect("room");
        let events = consumed_beside(&world, |world| {
            let other = spawn(world, 2, 0, Fate::Lives, |w| w.record(2, 0, SMALL).expect("room"));
            world.record(1, 0, SMALL).expect("room");
            other.join().expect("no panic");
        });
        assert_eq!(events, [(1, 0), (1, 9), (2, 0)]);
    });
}

/// The unfinished bytes of a dead recorder do not keep a consumer from later events.
pub(crate) fn settled_over_the_dead() {
    model("settled_over_the_dead", || {
        let world = World::new(Shape { sub_buffers: FOUR, ..Shape::default() });
        world.record(1, 0, SMALL).expect("room");
        let dying =
            spawn(&world, 2, 0, Fate::Dies(Reserved, 0), |w| w.record(2, 0, SMALL).expect("room"));
        world.record(1, 1, SMALL).expect("room");
        assert!(!dying.join().expect("no panic"));
        let stream = &world.channel.streams()[0];
        assert_eq!(stream.settled(0, world.parts), stream.position(0));
    });
}

/// Nothing is settled after a living recorder that has not committed, until the ring has come round
/// to it and skipped it.
pub(crate) fn settled_behind_the_living() {
    model("settled_behind_the_living", || {
        let world = World::new(Shape { sub_buffers: FOUR, ..Shape::default() });
        world.record(1, 0, SMALL).expect("room");
        let handler = |w: &World| {
            let stream = &w.channel.streams()[0];
            let held = stream.settled(0, w.parts);
            w.record(1, 1, SMALL).expect("room");
            assert!(stream.settled(0, w.parts) == held && held < stream.position(0));
            (2..8).for_each(|n| w.record(1, n, LARGE).expect("room"));
            assert_eq!(stream.settled(0, w.parts), stream.position(0));
        };
        run_as(&world, 1, 0, Fate::Interrupted(Reserved, 0, Box::new(handler)), |w| {
            w.record(1, 9, SMALL).expect("room")
        });
    });
}

/// A reader that copies while the ring continues uses nothing that was overwritten meanwhile, and
/// misses nothing else.
pub(crate) fn live_reader() {
    model("live_reader", || {
        let world = World::new(Shape::default());
        world.record(1, 0, 120).expect("room");
        world.record(1, 1, 120).expect("room");
        let reader = spawn(&world, 2, 0, Fate::Lives, |w| {
            let events = w.read_live(0, 0);
            let right = [&[0, 1][..], &[1], &[1, 2], &[2]];
            assert!(right.contains(&&events[..]), "{events:?}");
        });
        world.record(1, 2, 120).expect("room");
        reader.join().expect("no panic");
    });
}

/// There are more threads than entries: one records, and the other's loss is counted exactly.
pub(crate) fn table_full() {
    model("table_full", || {
        let world = World::new(Shape { threads: 1, claimed: false, ..Shape::default() });
        let other = spawn(&world, 2, 0, Fate::Lives, |w| {
            let _ = w.record(2, 0, SMALL);
        });
        let _ = world.record(1, 0, SMALL);
        other.join().expect("no panic");
        assert_eq!(world.read(0, 0).events.len(), 1);
        assert_eq!(world.lost(0), [0, 0, 1, 0, 0, 0, 0]);
    });
}

/// Two threads try to take the entry of a dead one. One gets it, and no third takes it from the one
/// that has just got it.
pub(crate) fn two_claim_the_dead() {
    model("two_claim_the_dead", || {
        let world = World::new(Shape { threads: 1, claimed: false, ..Shape::default() });
        let dying = spawn(&world, 3, 0, Fate::Dies(Announced, 2), |w| {
            (0..2).for_each(|n| w.record(3, n, SMALL).expect("room"))
        });
        assert!(!dying.join().expect("no panic"));
        let other = spawn(&world, 2, 0, Fate::Lives, |w| {
            let _ = w.record(2, 0, SMALL);
        });
        let _ = world.record(1, 0, SMALL);
        other.join().expect("no panic");
        let found = world.read(0, 0);
        assert_eq!(
            found.thread(1).len()
                + found.thread(2).len()
                + world.lost(0)[abi::LOST_NO_ENTRY] as usize,
            2,
            "{found:?}"
        );
        assert_eq!(found.thread(1).len() + found.thread(2).len(), 1, "{found:?}");
    });
}
