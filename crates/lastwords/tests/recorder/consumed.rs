//! Consumers of the live rings and of a snapshot work at the same time. The tests check the bounds
//! and the losses that each gets, and the effect of a swap.

use crate::common::{folder, plain, record, with_main};
use lastwords::{Memory, Session};
use lastwords_control::Handle;
use lastwords_control::consume::Consumer;

/// Returns the lost events that a consumer must report.
fn losses(consumer: &Consumer<'_>) -> u64 {
    consumer
        .bounds()
        .iter()
        .flatten()
        .flat_map(|bound| std::iter::zip(bound.lost, bound.told))
        .map(|(l, t)| l - t)
        .sum()
}

#[test]
fn of_two_consumers_one_tells_of_what_was_lost() {
    alone!();
    for memory in [Memory::Shm, Memory::Memfd] {
        let dir = tempfile::tempdir().expect("a folder");
        let channel = plain("main").sub_buffers(2, 4096).discard();
        let builder = Session::builder("lost")
            .dir(dir.path())
            .channel(channel)
            .snapshot(true)
            .backend(memory);
        let session = builder.start().expect("it starts");
        let handle = Handle::open(&folder(&session)).expect("it opens");
        record(0..10_000);
        session.snapshot(lastwords::snapshot::Rings::All).expect("taken");
        let live = handle.consume_live().expect("nobody does");
        let snapshot = handle.consume_snapshot().expect("it was taken");
        assert!(losses(&live) > 0);
        assert_eq!(losses(&snapshot), 0, "the other tells");
        live.consume().expect("it is locked by nobody");
        snapshot.consume().expect("it is locked by nobody");
        let live = handle.consume_live().expect("nobody does");
        assert_eq!(losses(&live), 0, "told once");
        drop(live);

        record(0..10_000);
        let live = handle.consume_live().expect("nobody does");
        let more = losses(&live);
        assert!(more > 0);
        drop(live);
        let live = handle.consume_live().expect("nobody does");
        assert_eq!(losses(&live), more, "who did not consume has not told");
        session.snapshot(lastwords::snapshot::Rings::All).expect("taken");
        assert!(live.consume().expect("it is locked by nobody").in_snapshot > 0);
        let live = handle.consume_live().expect("nobody does");
        assert_eq!(losses(&live), 0, "told, though the snapshot has the rings");
    }
}

#[test]
fn a_ring_that_was_swapped_twice_was_in_a_snapshot() {
    alone!(in dir);
    let builder = with_main("swapped", dir.path()).snapshot(true);
    let session = builder.start().expect("it starts");
    let handle = Handle::open(&folder(&session)).expect("it opens");
    record(0..100);
    let live = handle.consume_live().expect("nobody does");
    session.snapshot(lastwords::snapshot::Rings::All).expect("taken");
    session.snapshot(lastwords::snapshot::Rings::All).expect("taken");
    let rings = live.bounds().len();
    assert_eq!(live.consume().expect("it is locked by nobody").in_snapshot, rings);
    let live = handle.consume_live().expect("nobody does");
    session.clear().expect("nobody swaps");
    assert_eq!(live.consume().expect("it is locked by nobody").in_snapshot, 0);
}
