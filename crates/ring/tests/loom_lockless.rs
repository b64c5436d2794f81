//! The lockless reservation under the C11 memory model. Run by `cargo xtask loom`.
#![cfg(loom)]

use std::sync::Arc;

use lastwords_ring::model::{Fate, Shape, World, check, spawn};

/// Events of two recorders are all there, each thread's in order, whole, and nothing is in flight.
#[test]
fn two_recorders() {
    check(|| {
        let world = World::new(Shape::default());
        let other = spawn(&world, 2, 0, Fate::Lives, |w| w.record(2, 0, 6).expect("room"));
        world.record(1, 0, 6).expect("room");
        assert!(other.join().expect("no panic"));
        let found = world.read(0, 0);
        assert_eq!((found.of(1), found.of(2), found.holes), (vec![0], vec![0], 0));
        assert_eq!(world.lost(0), [0; 7]);
        drop(Arc::clone(&world));
    });
}
