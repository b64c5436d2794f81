//! Consuming reads: wherever one stops, it and the next have each event once, around what the dead
//! left behind.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::image::walk_as;
use crate::common::{Bytes, Found};
use lastwords_image::{Hole, Image, Range};
use lastwords_session::{Begin, End, Options, ReadLimit};
use lastwords_testkit::layout::session as se;
use lastwords_testkit::ring::{DeadSwitch, Event};
use lastwords_testkit::samples;
use lastwords_testkit::schema::Record;
use lastwords_testkit::session::Session;

/// Reads the live half of one stream up to a position.
fn read(session: &Session, stream: usize, position: u64) -> Found {
    read_upto(session, stream, End { half: session.rings[stream].live, position, ..End::default() })
}

fn read_upto(session: &Session, stream: usize, end: End) -> Found {
    let bytes = session.image().arena();
    let len = bytes.len();
    let image: Arc<dyn Image> = Arc::new(Bytes::new(bytes.into(), len, None));
    let mut streams = vec![None; session.rings.len()];
    streams[stream] = Some(end);
    let look = || streams.clone();
    let limit = Some(ReadLimit { session: session.uuid, look: &look });
    walk_as(&image, &Options { limit, ..Options::default() }).expect("no error")
}

/// Memory in which writers go on while it is read: after so many reads of sub-buffers it is as
/// `later` has it.
struct Moving {
    now: Bytes,
    later: Bytes,
    reads_left: AtomicUsize,
}

impl Image for Moving {
    fn name(&self) -> &str {
        "image"
    }

    fn ranges(&self) -> &[Range] {
        self.now.ranges()
    }

    fn is_virtual(&self) -> bool {
        false
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let left = self.reads_left.load(Ordering::Relaxed);
        if buf.len() == 1024 {
            self.reads_left.store(left.saturating_sub(1), Ordering::Relaxed);
        }
        if left == 0 { self.later.read(address, buf) } else { self.now.read(address, buf) }
    }
}

/// Bytes of events that it tells were overwritten before they were consumed.
fn unread(found: &Found) -> u64 {
    let unread = found.evidence.iter().filter(|said| said.contains("Unread"));
    let bytes =
        |said: &String| said.split_once("bytes: Some(")?.1.split_once(')')?.0.parse::<u64>().ok();
    unread.map(|said| bytes(said).unwrap_or_else(|| panic!("{said}"))).sum()
}

/// How many reservations it tells of that never came about.
fn in_flight(found: &Found) -> usize {
    found.evidence.iter().filter(|said| said.contains("InFlight")).count()
}

/// The clocks and bodies of what was found, in order of sub-buffer.
fn events(found: Found) -> Vec<Event> {
    found.subs.into_values().flat_map(|sub| sub.events).collect()
}

/// Reads a stream in two: up to each of its events, then from there. What is cut, and in flight, is
/// the dead's.
fn in_two(name: &str, session: &Session, stream: usize) -> usize {
    let ring = &session.rings[stream];
    let half = &ring.halves[ring.live];
    let right: Vec<(u64, Event)> =
        ring.truth(ring.live).into_iter().flat_map(|sub| sub.events).collect();
    assert!(right.len() > 2, "{name}: {} events", right.len());
    let produced = half.position;
    let holes = in_flight(&read(session, stream, produced));
    for cut in right.iter().map(|(position, _)| *position).chain([produced]) {
        let before = read(session, stream, cut);
        assert!(
            !before
                .evidence
                .iter()
                .any(|said| said.contains("invalid") || said.contains("Damaged")),
            "{before:?}"
        );
        let mut rest = session.clone();
        let half = &mut rest.rings[stream].halves[ring.live];
        (half.first, half.consumed) = (cut, cut);
        let after = read(&rest, stream, produced);
        let consumed = right.iter().filter(|(position, _)| *position < cut).count();
        assert_eq!(
            in_flight(&before) + in_flight(&after),
            holes,
            "{name}: told once, cut at {cut}"
        );
        let begin = Some(Begin { position: cut, skipped: 0 });
        let followed = read_upto(
            session,
            stream,
            End { half: ring.live, position: produced, begin, ..End::default() },
        );
        assert_eq!(in_flight(&followed), in_flight(&after), "{name}: followed from {cut}");
        let (before, after) = (events(before), events(after));
        assert_eq!(events(followed), after, "{name}: followed from {cut}");
        assert_eq!(before.len(), consumed, "{name}: up to {cut}");
        let both: Vec<&Event> = before.iter().chain(&after).collect();
        assert_eq!(
            both,
            right.iter().map(|(_, event)| event).collect::<Vec<_>>(),
            "{name}: cut at {cut}"
        );
        assert!(events(read(&rest, stream, cut)).is_empty(), "{name}: {cut} again");
    }
    right.len()
}

/// Reads a stream in two: up to the clock of each of its events, then from where that ended.
fn in_two_by_clock(name: &str, session: &Session, stream: usize) {
    let ring = &session.rings[stream];
    let (half, position) = (ring.live, ring.halves[ring.live].position);
    let right: Vec<(u64, Event)> =
        ring.truth(half).into_iter().flat_map(|sub| sub.events).collect();
    let holes = in_flight(&read(session, stream, position));
    for (at, pair) in right.windows(2).enumerate() {
        let clock = Some(pair[0].1.clock);
        let before = read_upto(session, stream, End { half, position, clock, ..End::default() });
        assert_eq!(before.reached, [pair[1].0], "{name}: up to event {at}");
        let mut rest = session.clone();
        let words = &mut rest.rings[stream].halves[half];
        (words.first, words.consumed) = (pair[1].0, pair[1].0);
        let after = read(&rest, stream, position);
        assert_eq!(
            in_flight(&before) + in_flight(&after),
            holes,
            "{name}: told once, up to event {at}"
        );
        let (before, after) = (events(before), events(after));
        assert_eq!(before.len(), at + 1, "{name}: up to event {at}");
        let both: Vec<&Event> = before.iter().chain(&after).collect();
        assert_eq!(
            both,
            right.iter().map(|(_, event)| event).collect::<Vec<_>>(),
            "{name}: up to event {at}"
        );
    }
    let clock = Some(0);
    let none = read_upto(session, stream, End { half, position, clock, ..End::default() });
    assert_eq!(none.reached, [right[0].0], "{name}: all is later");
    assert!(events(none).is_empty(), "{name}: all is later");
}

#[test]
fn wherever_a_read_stops_the_next_goes_on() {
    let mut cuts = 0;
    for reservation in [se::RSEQ, se::LOCKED, se::LOCKLESS] {
        for closed in [0, 2, 9] {
            let session = samples::one_stream(reservation, 1024, 4, closed);
            let name = format!("reservation {reservation}, {closed} closed");
            cuts += in_two(&name, &session, 0);
            in_two_by_clock(&name, &session, 0);
        }
    }
    println!("{cuts} places");
}

#[test]
fn around_the_holes_of_the_dead() {
    for holes in 0..16 {
        let session = samples::with_holes(1024, 4, 3, holes);
        in_two(&format!("holes {holes:04b}"), &session, 0);
        in_two_by_clock(&format!("holes {holes:04b}"), &session, 0);
    }
    for after in [0, 1, 30] {
        for how in [DeadSwitch::Reserved, DeadSwitch::HeaderWritten, DeadSwitch::Left] {
            in_two(&format!("{how:?}, {after} events later"), &samples::dead_switch(how, after), 0);
        }
    }
}

#[test]
fn what_was_told_and_had_does_not_come_back_from_a_place_that_was_passed_over() {
    for passed in 1..3 {
        let mut session = samples::one_stream(se::LOCKLESS, 1024, 4, 6);
        let ring = &mut session.rings[0];
        let consumed = ring.halves[ring.live].position;
        let clock = ring
            .truth(ring.live)
            .last()
            .and_then(|sub| sub.events.last())
            .expect("an event")
            .1
            .clock;
        for n in 0..passed {
            ring.pass_over(clock + n + 1);
            samples::record(ring, 2000 + 100 * u32::try_from(n).unwrap(), 3, &[]);
        }
        let half = &mut ring.halves[ring.live];
        (half.first, half.consumed) = (consumed, consumed);
        let (live, position, lost) = (ring.live, ring.halves[ring.live].position, ring.lost);
        let lost = lost.map(u64::from);
        let right: Vec<Event> =
            ring.truth(live).into_iter().flat_map(|s| s.events).map(|(_, event)| event).collect();
        let found = read_upto(
            &session,
            0,
            End { half: live, position, lost, told: lost, ..End::default() },
        );
        assert!(
            !found.evidence.iter().any(|said| said.contains("Invalid")),
            "{passed}: {:?}",
            found.evidence
        );
        assert_eq!(events(found), right, "{passed} passed over");
    }
}

#[test]
fn what_is_being_written_is_lost_only_when_nobody_records_any_more() {
    for reservation in [se::RSEQ, se::LOCKED] {
        let mut session = samples::one_stream(reservation, 1024, 4, 2);
        let ring = &mut session.rings[0];
        ring.die_attempting(40);
        let (half, position) = (ring.live, ring.halves[ring.live].position);
        for is_over in [false, true] {
            let found = read_upto(&session, 0, End { half, position, is_over, ..End::default() });
            assert_eq!(in_flight(&found), usize::from(is_over), "{:?}", found.evidence);
        }
    }
}

/// A session and the same some sub-buffers later, as images.
fn before_and_after(reservation: u32, more: u32) -> (Session, [Bytes; 2]) {
    let session = samples::one_stream(reservation, 1024, 4, 6);
    let mut later = session.clone();
    samples::record(&mut later.rings[0], 5000, more, &[]);
    let image = |session: &Session| {
        let bytes = session.image().arena();
        let len = bytes.len();
        Bytes::new(bytes.into(), len, None)
    };
    let images = [image(&session), image(&later)];
    (session, images)
}

/// Reads a session whose memory is as the second image has it from the moment when the reader looks
/// at the end. It must find what `after` has.
fn check_end_at_look(after: &Session, [now, later]: [Bytes; 2]) {
    let ring = &after.rings[0];
    let (half, position) = (ring.live, ring.halves[ring.live].position);
    let moving = Arc::new(Moving { now, later, reads_left: AtomicUsize::new(usize::MAX) });
    let look = || {
        moving.reads_left.store(0, Ordering::Relaxed);
        vec![Some(End { half, position, ..End::default() })]
    };
    let image: Arc<dyn Image> = moving.clone();
    let limit = Some(ReadLimit { session: after.uuid, look: &look });
    let found = walk_as(&image, &Options { limit, ..Options::default() }).expect("no error");
    let right: Vec<Event> =
        ring.truth(half).into_iter().flat_map(|s| s.events).map(|(_, event)| event).collect();
    assert_eq!(events(found), right, "reservation {}", after.reservation);
}

#[test]
fn bounds_are_those_of_when_the_rings_are_copied() {
    for reservation in [se::RSEQ, se::LOCKED, se::LOCKLESS] {
        let (before, [now, later]) = before_and_after(reservation, 200);
        let mut after = before.clone();
        samples::record(&mut after.rings[0], 5000, 200, &[]);
        check_end_at_look(&after, [now, later]);
    }
}

/// An event may be described after the reader has opened the session, and be recorded before the
/// reader looks at the end.
#[test]
fn descriptions_are_read_after_the_end_is_set() {
    for reservation in [se::RSEQ, se::LOCKED, se::LOCKLESS] {
        let (mut before, [_, later]) = before_and_after(reservation, 200);
        let mut after = before.clone();
        samples::record(&mut after.rings[0], 5000, 200, &[]);
        before.records.retain(|record| !matches!(record, Record::Event { .. }));
        let bytes = before.image().arena();
        let len = bytes.len();
        assert_eq!(len, after.image().arena().len(), "the same places");
        let now = Bytes::new(bytes.into(), len, None);
        check_end_at_look(&after, [now, later]);
    }
}

/// A follower that was overtaken, or whose events were cleared, gets a gap of exactly the bytes
/// that it lacks.
#[test]
fn what_a_follower_missed_is_told_to_the_byte() {
    for reservation in [se::RSEQ, se::LOCKED, se::LOCKLESS] {
        let session = samples::one_stream(reservation, 1024, 4, 9);
        let ring = &session.rings[0];
        let (half, position) = (ring.live, ring.halves[ring.live].position);
        let truth = ring.truth(half);
        let oldest = truth.first().map(|sub| sub.number * 1024).expect("a sub-buffer");
        for begin in [500, 1024, oldest - 1, oldest, oldest + 300, position] {
            let at = Begin { position: begin, skipped: 0 };
            let found =
                read_upto(&session, 0, End { half, position, begin: Some(at), ..End::default() });
            assert_eq!(
                unread(&found),
                oldest.saturating_sub(begin),
                "{reservation}, from {begin}: {found:?}"
            );
            let wanted =
                truth.iter().flat_map(|sub| &sub.events).filter(|(place, _)| *place >= begin);
            assert_eq!(
                events(found),
                wanted.map(|(_, event)| event.clone()).collect::<Vec<_>>(),
                "from {begin}"
            );
        }
        let cut = truth
            .last()
            .and_then(|sub| sub.events.first())
            .map(|(place, _)| *place)
            .expect("an event");
        let mut cleared = session.clone();
        cleared.rings[0].halves[half].first = cut;
        for skipped in [0, 77] {
            let at = Begin { position: oldest + 300, skipped };
            let found =
                read_upto(&cleared, 0, End { half, position, begin: Some(at), ..End::default() });
            let gap = format!(
                "cause: Cleared, events: None, bytes: Some({})",
                cut - at.position + skipped
            );
            assert_eq!(
                found.evidence.iter().filter(|said| said.contains(&gap)).count(),
                1,
                "{found:?}"
            );
        }
    }
}

#[test]
fn what_writers_overwrite_meanwhile_is_told_to_the_byte() {
    for (reservation, more) in
        [se::RSEQ, se::LOCKED, se::LOCKLESS].into_iter().flat_map(|r| [(r, 40), (r, 400)])
    {
        for reads in 0..6 {
            let (session, [now, later]) = before_and_after(reservation, more);
            let ring = &session.rings[0];
            let (half, position) = (ring.live, ring.halves[ring.live].position);
            let moving = Moving { now, later, reads_left: AtomicUsize::new(reads) };
            let image: Arc<dyn Image> = Arc::new(moving);
            let look = || vec![Some(End { half, position, ..End::default() })];
            let limit = Some(ReadLimit { session: session.uuid, look: &look });
            let found =
                walk_as(&image, &Options { limit, ..Options::default() }).expect("no error");
            let name = format!("reservation {reservation}, {more} more after {reads} reads");
            assert!(
                !found.evidence.iter().any(|s| s.contains("Missing") || s.contains("Stale")),
                "{name}: {found:?}"
            );
            // Sub-buffers that were had, and what was lost, are all that was recorded.
            let had: Vec<u64> = found.subs.keys().map(|(_, number)| *number).collect();
            let bytes: u64 =
                had.iter().map(|number| position.min((number + 1) * 1024) - number * 1024).sum();
            assert_eq!(bytes + unread(&found), position, "{name}: {had:?} {:?}", found.evidence);
            let truth =
                ring.truth(half).into_iter().flat_map(|sub| sub.events).map(|(_, event)| event);
            let right: Vec<Event> = truth.collect();
            let (got, lost) = (events(found), unread_events(&right, &had, ring.truth(half)));
            assert_eq!(got.len() + lost, right.len(), "{name}");
            assert!(got.iter().all(|event| right.contains(event)), "{name}");
        }
    }
}

/// Events of sub-buffers that are not among those that were had.
fn unread_events(right: &[Event], had: &[u64], truth: Vec<lastwords_testkit::ring::Sub>) -> usize {
    let kept: usize =
        truth.iter().filter(|sub| had.contains(&sub.number)).map(|sub| sub.events.len()).sum();
    right.len() - kept
}
