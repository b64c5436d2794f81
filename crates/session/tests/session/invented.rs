//! Damage costs events, and makes none: whatever is wrong, each event that is found was recorded.
#![forbid(unsafe_code)]

use crate::support::{self, first, open};
use lastwords_ctf::session::Decoder;
use lastwords_session::Session;
use lastwords_testkit::image::Image;
use lastwords_testkit::layout::{packet as pk, session as se, stream as st};
use lastwords_testkit::put::Packed;
use lastwords_testkit::ring::Event;
use lastwords_testkit::samples;
use lastwords_testkit::schema::Type;
use lastwords_testkit::session::{ChannelSpec, Session as Made};
use lastwords_trace::evidence::Cause;
use lastwords_trace::source::Source;
use std::collections::HashSet;
use std::os::unix::fs::FileExt;

/// Bytes of a sub-buffer.
const SIZE: usize = 2048;

/// Clock and bytes of all events of the first stream.
fn events(session: &Session) -> Vec<support::Event> {
    support::events(session, 0).into_iter().filter_map(|(_, event)| event.ok()).collect()
}

fn truth(made: &Made) -> Vec<support::Event> {
    made.live_events().into_iter().map(|(_, event)| (event.clock, event.body)).collect()
}

/// Index of the stream's region, and offset in it of a sub-buffer of the live half.
fn place(image: &Image, number: u64) -> (usize, usize) {
    let spot =
        image.spots.iter().find(|s| s.half == 0 && s.number == number).expect("a sub-buffer");
    (spot.region, spot.at)
}

fn bytes_lost(session: &Session, cause: Cause) -> u64 {
    session.evidence().gaps.iter().filter(|g| g.cause == cause).filter_map(|g| g.bytes).sum()
}

#[test]
fn erased_memory_holds_no_events() {
    for reservation in [se::RSEQ, se::LOCKLESS, se::LOCKED] {
        let made = samples::one_stream(reservation, SIZE as u64, 4, 6);
        let (right, image) = (truth(&made), made.image());
        // A closed sub-buffer and the open one; from the header on, and behind some events.
        let nth = |number: u64, n: usize| {
            let subs = made.rings[0].truth(0);
            let sub = subs.iter().find(|s| s.number == number).expect("a sub-buffer");
            usize::try_from(sub.events[n].0).expect("a position") % SIZE
        };
        for (number, from) in [(4, 0), (4, nth(4, 9)), (6, 0), (6, nth(6, 1))] {
            let mut bad = image.clone();
            let (region, at) = place(&bad, number);
            bad.regions[region].bytes[at + from..at + SIZE].fill(0);
            let session = first(&bad);
            let found = events(&session);
            assert!(
                found.iter().all(|e| right.contains(e)),
                "{reservation}: sub-buffer {number} from {from}"
            );
            assert!(
                session.evidence().has_losses(),
                "{reservation}: sub-buffer {number} from {from}"
            );
            assert!(
                bytes_lost(&session, Cause::Damaged) > 0,
                "{reservation}: sub-buffer {number} from {from}"
            );
        }
    }
}

#[test]
fn a_stream_cut_behind_its_last_event_has_lost_nothing() {
    for (reservation, closed) in [(se::LOCKLESS, 1), (se::RSEQ, 1), (se::LOCKLESS, 5)] {
        let made = samples::one_stream(reservation, SIZE as u64, 4, closed);
        let (right, image) = (truth(&made), made.image());
        let (region, at) = place(&image, closed);
        let end = usize::try_from(made.rings[0].halves[0].position).expect("a size") % SIZE;
        for cut in [end + 300, end, end - 1, end - 60] {
            let mut bad = image.clone();
            bad.regions[region].bytes.truncate(at + cut);
            let session = first(&bad);
            let found = events(&session);
            assert!(
                found.iter().all(|e| right.contains(e)),
                "{reservation}, {closed} closed, cut at {cut}"
            );
            if closed == 1 {
                assert_eq!(
                    found.len() == right.len(),
                    cut >= end,
                    "{reservation}: cut at {cut} of {end}"
                );
                assert_eq!(
                    session.evidence().has_losses(),
                    cut < end,
                    "{reservation}: cut at {cut} of {end}"
                );
            }
        }
    }
}

#[test]
fn a_wrong_number_of_the_only_sub_buffer_costs_nothing() {
    for reservation in [se::RSEQ, se::LOCKLESS] {
        let made = samples::one_stream(reservation, SIZE as u64, 8, 0);
        let (right, image) = (truth(&made), made.image());
        for bit in [0, 3, 12, 24, 39, 63] {
            let mut bad = image.clone();
            let (region, at) = place(&bad, 0);
            bad.regions[region].bytes[at + pk::SEQ_NUM_AT + bit / 8] ^= 1 << (bit % 8);
            let session = first(&bad);
            assert_eq!(events(&session), right, "{reservation}: bit {bit}");
            assert_eq!(session.evidence().sub_buffers.len(), 1, "{reservation}: bit {bit}");
            assert!(session.evidence().has_losses(), "{reservation}: bit {bit}");
        }
    }
}

/// Each bit of the control words and the slots, and of the header and the trailer of a closed and
/// of the open sub-buffer.
#[test]
fn no_bit_invents_an_event() {
    for (reservation, closed) in
        [(se::RSEQ, 6), (se::LOCKLESS, 6), (se::LOCKLESS, 1), (se::RSEQ, 0)]
    {
        let made = samples::one_stream(reservation, SIZE as u64, 4, closed);
        let (right, image) = (truth(&made), made.image());
        let known: HashSet<_> = right.iter().collect();
        let region = place(&image, closed).0;
        let control = st::CONTROL_AT..st::CONTROL_AT + st::CONTROL_LEN + 4 * st::SLOT_LEN;
        let header = |number: u64| {
            let at = place(&image, number).1;
            // The clock that a header begins with has a test of its own.
            (at..at + pk::BEGIN_AT)
                .chain(at + pk::END_AT..at + pk::HEADER_LEN)
                .chain(at + SIZE - 16..at + SIZE)
        };
        let bytes = control.chain(header(closed)).chain(header(closed.saturating_sub(1)));
        let folder = tempfile::tempdir().expect("a folder");
        image.write_folder(folder.path()).expect("files");
        let file = std::fs::File::options()
            .write(true)
            .open(folder.path().join(&image.regions[region].name));
        let file = file.expect("the stream's file");
        for bit in bytes.flat_map(|byte| byte * 8..byte * 8 + 8) {
            let byte = image.regions[region].bytes[bit / 8];
            file.write_all_at(&[byte ^ 1 << (bit % 8)], bit as u64 / 8).expect("written");
            let found = events(&open(folder.path()).sessions[0]);
            file.write_all_at(&[byte], bit as u64 / 8).expect("written");
            let new = found.iter().filter(|e| !known.contains(e)).count();
            assert_eq!(
                new,
                0,
                "{reservation}, {closed} closed: offset {} bit {}",
                bit / 8,
                bit % 8
            );
        }
    }
}

/// Orders with contexts. The fields are such that other contexts may fit too: a number whose bytes
/// are 0 but for one, and texts in which an event header and a number find room.
fn orders(contexts: u32, count: u64, customer: usize, closed: u64) -> Made {
    let mut made = Made::new("shop", se::LOCKLESS);
    let channel = made.channel(ChannelSpec { contexts, ..ChannelSpec::new("main", 1024, 4) });
    made.event(channel, 0, "order", &[("id", Type::U64), ("customer", Type::String)]);
    made.event(channel, 1, "name", &[("name", Type::String)]);
    made.stream(channel, 0, se::LOCKLESS);
    let mut n = 0;
    while n < count || made.rings[0].halves[0].position < closed * 1024 + 100 {
        n += 1;
        let body =
            (0..contexts.count_ones()).fold(Packed::new(made.order), |body, _| body.u32(20_190));
        let body = if n % 3 == 2 { body } else { body.u64(n) }.string(&"y".repeat(customer));
        let event = Event {
            clock: 1_000_000_000 + n * 3_000,
            id: u16::from(n % 3 == 2),
            body: body.done(),
        };
        made.rings[0].push(&event);
    }
    made
}

/// The clock and the payload of each event that is shown must be those of an event that was
/// recorded.
#[test]
fn without_the_contexts_no_field_is_shifted() {
    let mut shown = 0;
    for contexts in [0, se::CONTEXT_TID, se::CONTEXT_PID | se::CONTEXT_TID] {
        for (count, closed, customer) in [(1, 0), (2, 0), (9, 0), (9, 1), (9, 3), (9, 6)]
            .into_iter()
            .flat_map(|(n, c)| [0, 3, 5, 14, 30].map(|len| (n, c, len)))
        {
            let made = orders(contexts, count, customer, closed);
            let skip = contexts.count_ones() as usize * 4;
            let right: HashSet<_> = truth(&made)
                .into_iter()
                .map(|(clock, body)| (clock, body[skip..].to_vec()))
                .collect();
            let image = made.image();
            let (region, at) = place(&image, closed);
            for cut in [usize::MAX, at + 700, at + 160, at + 90] {
                let mut bad = image.clone();
                bad.regions[region].bytes.truncate(cut);
                bad.regions.retain(|region| !region.name.contains("session"));
                let session = first(&bad);
                let decoder = Decoder::new(session.schema());
                let (mut packets, mut bytes) = (session.packets(0), Vec::new());
                let case = format!(
                    "contexts {contexts:#x}, {count}, {closed} closed, text of {customer}, cut at {cut}"
                );
                while let Some(info) = packets.next_packet(&mut bytes) {
                    for event in
                        decoder.events(0, &bytes, info.begin, info.events_at).map_while(Result::ok)
                    {
                        let found = (event.clock, bytes[event.payload_at..event.end].to_vec());
                        assert!(right.contains(&found), "{case}: {found:?}");
                        shown += 1;
                    }
                }
                assert!(session.evidence().has_losses(), "{case}");
                let is_hidden = session
                    .evidence()
                    .gaps
                    .iter()
                    .any(|gap| gap.place.contains("its events are not shown"));
                assert_eq!(is_hidden, session.schema().channels[0].events.is_empty(), "{case}");
            }
        }
    }
    assert!(shown > 1000, "{shown}");
}
