//! Models of the ring. Each function checks one property in all executions. `loom.rs` runs them
//! without changes, `loom_faults.rs` with mistakes put into the ring.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod exclusive;
pub(crate) mod fast;
pub(crate) mod lockless;
pub(crate) mod swap;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use lastwords_ring::model::{Fate, Point, World, check, run_as, spawn};

/// Size of an event that fills an empty sub-buffer so far that no second of its size fits.
pub(crate) const LARGE: usize = 70;
/// Size of an event that fits after a large one.
pub(crate) const SMALL: usize = 6;

/// Checks a model and prints how many executions there were.
pub(crate) fn model(name: &str, body: impl Fn() + Send + Sync + 'static) {
    let begin = Instant::now();
    let executions = check(body);
    println!("{name}: {executions} executions, {:.1} s", begin.elapsed().as_secs_f64());
}

/// Runs `body` in a thread of its own from the moment when this thread reaches that point of
/// `record`.
pub(crate) fn beside_point(
    world: &Arc<World>,
    point: Point,
    body: impl FnOnce(&World) + Send + 'static,
    record: impl FnOnce(&World),
) {
    let running = Arc::new(Mutex::new(None));
    let (begun, shared) = (Arc::clone(&running), Arc::clone(world));
    let start = move |_: &World| {
        *begun.lock().expect("one thread") = Some(spawn(&shared, 2, 0, Fate::Lives, body))
    };
    run_as(world, 1, 0, Fate::Interrupted(point, 0, Box::new(start)), record);
    let other = running.lock().expect("one thread").take().expect("the point was passed");
    other.join().expect("no panic");
}
