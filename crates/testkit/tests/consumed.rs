//! Consuming reads: wherever one stops, it and the next have each event once, around what the dead left behind.
#![forbid(unsafe_code)]

mod common;

use std::sync::Arc;

use common::image::walk_as;
use common::{Bytes, Found};
use lastwords_image::Image;
use lastwords_testkit::layout::session as se;
use lastwords_testkit::ring::{DeadSwitch, Event};
use lastwords_testkit::samples;
use lastwords_testkit::session::Session;
use lastwords_walk::own::{End, Options, Upto};

/// Reads the live half of one stream up to a position.
fn read(session: &Session, stream: usize, position: u64) -> Found {
    let bytes = session.image().arena();
    let len = bytes.len();
    let image: Arc<dyn Image> = Arc::new(Bytes::new(bytes.into(), len, None));
    let mut streams = vec![None; session.rings.len()];
    streams[stream] = Some(End { half: session.rings[stream].live, position, ..End::default() });
    let upto = Some(Upto { session: session.uuid, streams });
    walk_as(&image, &Options { snapshot: false, upto }).expect("no error")
}

/// The clocks and bodies of what was found, in order of sub-buffer.
fn events(found: Found) -> Vec<Event> {
    found.subs.into_values().flat_map(|sub| sub.events).collect()
}

/// Reads a stream in two: up to each of its events, then from there. What is cut, and in flight, is the dead's.
fn in_two(name: &str, session: &Session, stream: usize) -> usize {
    let ring = &session.rings[stream];
    let half = &ring.halves[ring.live];
    let right: Vec<(u64, Event)> = ring.truth(ring.live).into_iter().flat_map(|sub| sub.events).collect();
    assert!(right.len() > 2, "{name}: {} events", right.len());
    let produced = half.position;
    for cut in right.iter().map(|(position, _)| *position).chain([produced]) {
        let before = read(session, stream, cut);
        assert!(!before.evidence.iter().any(|said| said.contains("invalid") || said.contains("Damaged")), "{before:?}");
        let mut rest = session.clone();
        let half = &mut rest.rings[stream].halves[ring.live];
        (half.first, half.consumed) = (cut, cut);
        let after = read(&rest, stream, produced);
        let consumed = right.iter().filter(|(position, _)| *position < cut).count();
        let (before, after) = (events(before), events(after));
        assert_eq!(before.len(), consumed, "{name}: up to {cut}");
        let both: Vec<&Event> = before.iter().chain(&after).collect();
        assert_eq!(both, right.iter().map(|(_, event)| event).collect::<Vec<_>>(), "{name}: cut at {cut}");
        assert!(events(read(&rest, stream, cut)).is_empty(), "{name}: {cut} again");
    }
    right.len()
}

#[test]
fn wherever_a_read_stops_the_next_goes_on() {
    let mut cuts = 0;
    for reservation in [se::RSEQ, se::LOCKED, se::LOCKLESS] {
        for closed in [0, 2, 9] {
            let session = samples::one_stream(reservation, 1024, 4, closed);
            cuts += in_two(&format!("reservation {reservation}, {closed} closed"), &session, 0);
        }
    }
    println!("{cuts} places");
}

#[test]
fn around_the_holes_of_the_dead() {
    for holes in 0..16 {
        in_two(&format!("holes {holes:04b}"), &samples::with_holes(1024, 4, 3, holes), 0);
    }
    for after in [0, 1, 30] {
        for how in [DeadSwitch::Reserved, DeadSwitch::HeaderWritten, DeadSwitch::Left] {
            in_two(&format!("{how:?}, {after} events later"), &samples::dead_switch(how, after), 0);
        }
    }
}
