//! Tests of one flipped bit in a clock value that other data of the session can correct.
#![forbid(unsafe_code)]

use crate::support::{events, first, region};
use lastwords_session::Session;
use lastwords_testkit::image::Image;
use lastwords_testkit::layout::{packet as pk, session as se};
use lastwords_testkit::put::Order;
use lastwords_testkit::samples;
use lastwords_trace::source::Source;

/// Nanoseconds since the epoch of the events of the first stream.
fn times(session: &Session) -> Vec<i128> {
    let clocks = events(session, 0).into_iter().filter_map(|(_, event)| Some(event.ok()?.0));
    clocks.map(|clock| session.schema().clock.nanoseconds(clock)).collect()
}

/// Returns the offset of the samples of the clock in the session region.
fn samples_at(image: &Image) -> usize {
    let area = *region(&mut image.clone(), "session")[188..].first_chunk().expect("four bytes");
    u32::from_le_bytes(area) as usize + 64
}

#[test]
fn when_an_open_sub_buffer_was_begun_its_events_and_the_control_words_tell() {
    for reservation in [se::RSEQ, se::LOCKLESS, se::LOCKED] {
        let mut made = samples::one_stream(reservation, 2048, 4, 0);
        samples::record(&mut made.rings[0], 3_000_000, 2, &[]);
        let image = made.image();
        let right = times(&first(&image));
        let spot = image.spots.iter().find(|s| s.half == 0 && s.number == 0).expect("a sub-buffer");
        for bit in 0..64 {
            let mut bad = image.clone();
            bad.regions[spot.region].bytes[spot.at + pk::BEGIN_AT + bit / 8] ^= 1 << (bit % 8);
            let session = first(&bad);
            assert_eq!(times(&session), right, "{reservation}: bit {bit}");
        }
    }
}

#[test]
fn one_bit_of_the_newest_sample_moves_no_event() {
    let made = samples::small(Order::Little);
    let image = made.image();
    let right = times(&first(&image));
    // Index 1 is the newest; realtime is at 16 of a sample.
    let realtime = samples_at(&image) + 32 + 16;
    for bit in 31..63 {
        let mut bad = image.clone();
        region(&mut bad, "session")[realtime + bit / 8] ^= 1 << (bit % 8);
        let found = first(&bad);
        assert_eq!(times(&found), right, "bit {bit}");
        let notes = &found.evidence().notes;
        assert!(
            notes.iter().any(|n| n.contains("sample 1, offset 16 (realtime)")),
            "bit {bit}: {notes:?}"
        );
    }
}

#[test]
fn no_byte_of_the_samples_moves_an_event_by_more_than_they_are_exact() {
    let made = samples::small(Order::Little);
    let image = made.image();
    let right = times(&first(&image));
    let samples = samples_at(&image);
    for at in 0..96 {
        for flips in [0x01, 0x10, 0x80, 0xff] {
            let mut bad = image.clone();
            region(&mut bad, "session")[samples + at] ^= flips;
            let found = first(&bad);
            let moved = times(&found)
                .iter()
                .zip(&right)
                .map(|(is, was)| is.abs_diff(*was))
                .max()
                .expect("events");
            let notes = &found.evidence().notes;
            // What two samples of 50 ns may lie apart, with a microsecond for each.
            assert!(moved <= 2_100, "byte {at}: {flips:#x}: {moved} ns, {notes:?}");
        }
    }
}
