//! Tests the session's clock: its frequency, and the samples that relate it to CLOCK_MONOTONIC.

use std::mem::offset_of;
use std::path::Path;
use std::time::Duration;

use crate::common::{Areas, areas, folder, plain, record};
use lastwords::{ClockKind, Session, clock};
use lastwords_abi::session::{ClockArea, ClockSample};

const SECOND: u64 = 1_000_000_000;

/// Starts a session without a listening thread. A recorder that begins a sub-buffer then refreshes
/// the samples.
fn start(dir: &Path, kind: ClockKind) -> (Session, Areas) {
    let channel = plain("main").sub_buffers(2, 4096);
    let session =
        Session::builder("clock").dir(dir).channel(channel).clock(kind).listen(false).start();
    let session = session.expect("it starts");
    let areas = areas(&folder(&session));
    (session, areas)
}

/// Returns the offset of a field of a sample in the session region.
fn sample(areas: &Areas, index: usize, field: usize) -> u64 {
    areas.clock + (offset_of!(ClockArea, samples) + index * size_of::<ClockSample>() + field) as u64
}

#[test]
fn the_counter_keeps_pace_with_monotonic_time() {
    alone!(in dir);
    let reading = || {
        let (session, areas) = start(dir.path(), clock::best());
        let of_sample = |field| areas.get::<8>(sample(&areas, 0, field));
        let clocks = (
            of_sample(offset_of!(ClockSample, clock)),
            of_sample(offset_of!(ClockSample, monotonic)),
        );
        session.remove();
        (areas.get::<8>(areas.clock + offset_of!(ClockArea, frequency) as u64), clocks)
    };
    let (hz, first) = reading();
    std::thread::sleep(Duration::from_millis(30));
    let (_, last) = reading();
    let by_counter = (last.0 - first.0) as f64 / hz as f64;
    let by_clock = (last.1 - first.1) as f64 / SECOND as f64;
    assert!(
        (by_counter / by_clock - 1.0).abs() < 0.001,
        "{by_counter} s against {by_clock} s at {hz} Hz"
    );
}

#[test]
fn samples_are_refreshed_and_a_dead_refresher_does_not_stop_it() {
    alone!(in dir);
    let (session, areas) = start(dir.path(), ClockKind::Monotonic);
    let begin_sub_buffers = || record(0..1000);
    let newest = || areas.get::<4>(areas.clock + offset_of!(ClockArea, newest) as u64);
    let clock_of = |index| sample(&areas, index, offset_of!(ClockSample, clock));
    let busy = areas.clock + offset_of!(ClockArea, busy) as u64;
    let first = areas.get::<8>(clock_of(0));
    areas.put::<8>(clock_of(1), ClockKind::Monotonic.now());
    begin_sub_buffers();
    assert_eq!(newest(), 1, "too soon");
    // The test makes the newest sample old.
    areas.put::<8>(clock_of(1), first - SECOND);
    begin_sub_buffers();
    assert_eq!(newest(), 2);
    assert!(areas.get::<8>(clock_of(2)) > first);
    areas.put::<8>(clock_of(2), first - SECOND);
    let now = ClockKind::Monotonic.now();
    areas.put::<8>(busy, now);
    begin_sub_buffers();
    assert_eq!(newest(), 2, "another is at it");
    areas.put::<8>(busy, now - 3 * SECOND);
    begin_sub_buffers();
    assert_eq!(newest(), 1);
    assert_eq!(areas.get::<8>(busy), 0);
    assert_eq!(areas.get::<8>(clock_of(0)), first, "the first stays");
    session.remove();
}
