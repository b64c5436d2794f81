//! Events of many shapes, each timed beside the floor: a time stamp and a store of 32 bytes, in
//! this process, by turns.

use std::hint::black_box;

use lastwords::{ChannelConfig, Context, Reservation, Session};

use crate::Result;
use crate::job::{RING_BYTES, pin};
use crate::machine::{opaque, stored, ticks};

include!(concat!(env!("OUT_DIR"), "/shapes.rs"));

/// A form of events, and the loop that records them.
pub(crate) struct Shape {
    /// The floor that it belongs to; empty for a generated shape.
    row: &'static str,
    types: &'static str,
    bytes: usize,
    record: fn(u64),
}

/// Events of one sample.
const EVENTS: u64 = 1000;
const FLOOR_RECORDS: usize = 64 * 1024 / size_of::<FloorRecord>();

/// The bytes that the floor stores.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct FloorRecord([u64; 4]);

/// Texts of this length from different places.
fn texts(len: usize) -> [&'static str; 4] {
    const POOL: &str = "The quick brown fox jumps over the lazy dog while seven wizards quietly mix a large box of jugs, \
                        and then all of them rest; at dawn the river carries five small boats to the quiet northern sea.";
    black_box([0, 31, 64, 97].map(|at| &POOL[at..at + len]))
}

/// Times all shapes on one CPU, `rounds` samples of each. Prints an object of JSON.
pub(crate) fn run(cpu: &str, rounds: &str) -> Result<()> {
    let rounds: u32 = rounds.parse()?;
    pin(cpu.parse()?)?;
    let mut ring = vec![FloorRecord::default(); FLOOR_RECORDS];
    let mut rows = Vec::new();
    for (n, batch) in ALL.chunks(BATCH).enumerate() {
        // Ids are given to events that the session records.
        let _session = session(&format!("shapes{n}:*"))?;
        rows.extend(batch.iter().map(|shape| line(shape, rounds, &mut ring, false)));
    }
    // All in one session: few have an id that the compact header has room for.
    let _session = session("*")?;
    rows.extend(ALL.iter().map(|shape| line(shape, rounds, &mut ring, true)));
    println!(
        "{{\"seed\": {SEED}, \"events\": {EVENTS}, \"rounds\": {rounds}, \"shapes\": [\n{}\n]}}",
        rows.join(",\n")
    );
    Ok(())
}

fn session(events: &str) -> Result<Session> {
    let channel = ChannelConfig::new("shapes")
        .sub_buffers(4, u64::try_from(RING_BYTES / 4)?)
        .contexts(Context::NONE);
    Ok(Session::builder("shapes")
        .channel(channel)
        .events(events)
        .reservation(Reservation::Rseq)
        .start()?)
}

/// Times one shape and the floor by turns. The shortest sample of each counts: a longer one was
/// interrupted.
fn line(shape: &Shape, rounds: u32, ring: &mut [FloorRecord], is_wide: bool) -> String {
    (shape.record)(EVENTS);
    let (mut best, mut floor) = (u64::MAX, u64::MAX);
    for _ in 0..rounds.max(1) {
        floor = floor.min(timed(|| record_floor(ring, EVENTS)));
        best = best.min(timed(|| (shape.record)(EVENTS)));
    }
    format!(
        r#"{{"row": "{}", "types": "{}", "bytes": {}, "wide": {is_wide}, "ticks": {:.2}, "floor": {:.2}}}"#,
        shape.row,
        shape.types,
        shape.bytes,
        best as f64 / EVENTS as f64,
        floor as f64 / EVENTS as f64,
    )
}

fn timed(record: impl FnOnce()) -> u64 {
    let begin = ticks();
    record();
    ticks().wrapping_sub(begin)
}

/// The floor, as `bench/c/floor.c` has it.
#[inline(never)]
fn record_floor(ring: &mut [FloorRecord], events: u64) {
    for i in 0..events {
        let number = opaque(i);
        let place = &mut ring[i as usize % FLOOR_RECORDS];
        place.0 = [ticks(), u64::from(number as u32), number ^ 0x5555_5555_5555_5555, 0];
        stored(place);
    }
}
