//! Sub-buffers that no region leads to: half-overwritten regions, regions whose pages lie anywhere
//! in raw memory.
#![forbid(unsafe_code)]

use crate::support;
use lastwords_bytes::Budget;
use lastwords_image::unwatched;
use lastwords_session::Options;
use lastwords_session::{self as session, Session};
use lastwords_testkit::image::Image;
use lastwords_testkit::put::Order;
use lastwords_testkit::random::Random;
use lastwords_testkit::ring::Form;
use lastwords_testkit::samples;
use lastwords_testkit::session::{ChannelSpec, Session as Truth};
use lastwords_trace::evidence::{Cause, Verdict};
use lastwords_trace::source::Source;
use std::collections::BTreeSet;

const PAGE: usize = 4096;

/// Stream, clock and bytes of an event.
type Event = (u64, u64, Vec<u8>);

fn carve(memory: &[u8]) -> session::Sessions {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), memory).expect("written");
    let budget = Budget::default();
    let image = lastwords_image::open(file.path(), &budget, &unwatched).expect("readable").image;
    session::carve(&image, &Options::default(), &budget, &unwatched).expect("within the budget")
}

/// The events of all streams, and of those of sub-buffers that were closed alone.
fn events(session: &Session) -> (Vec<Event>, BTreeSet<Event>) {
    let (mut all, mut closed) = (Vec::new(), BTreeSet::new());
    for (index, stream) in session.streams().iter().enumerate() {
        for (verdict, event) in support::events(session, index) {
            let (clock, bytes) = event.expect("an event");
            let event = (stream.instance, clock, bytes);
            closed.extend((verdict == Verdict::Committed).then(|| event.clone()));
            all.push(event);
        }
    }
    (all, closed)
}

fn truth(session: &Truth) -> BTreeSet<Event> {
    let all = session.live_events().into_iter().chain(session.snapshot_events());
    all.map(|(stream, event)| (u64::from(stream), event.clock, event.body)).collect()
}

/// Bytes that mean nothing.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..len).map(|_| random.bits() as u8).collect()
}

/// The first page of all regions whose name has this in it is overwritten.
fn overwritten(image: &Image, names: &[&str]) -> Vec<u8> {
    let mut memory = image.arena();
    for (n, region) in image.regions.iter().enumerate() {
        if names.iter().any(|name| region.name.contains(name)) {
            let at = image.offset_of(n);
            memory[at..at + PAGE].copy_from_slice(&noise(PAGE, n as u64 + 7));
        }
    }
    memory
}

#[test]
fn streams_without_their_heads() {
    for order in [Order::Little, Order::Big] {
        let session = samples::small(order);
        let found = carve(&overwritten(&session.image(), &["stream", "session"]));
        assert_eq!(found.sessions.len(), 1, "{:?}", found.notes);
        let found = &found.sessions[0];
        let (all, closed) = events(found);
        let truth = truth(&session);
        let invented: Vec<&Event> = all.iter().filter(|event| !truth.contains(*event)).collect();
        assert!(invented.is_empty(), "{invented:?} {:#?}", found.evidence());
        assert_eq!(all.len(), all.iter().collect::<BTreeSet<_>>().len(), "nothing comes twice");
        assert!(
            closed.len() * 10 > truth.len() * 6 && all.len() > closed.len(),
            "{} {} {}",
            closed.len(),
            all.len(),
            truth.len()
        );
        let evidence = found.evidence();
        assert!(
            evidence.has_losses() && evidence.gaps.iter().any(|gap| gap.cause == Cause::Missing)
        );
        assert!(
            evidence.notes.iter().any(|note| note.contains("proven by their checksums")),
            "{:?}",
            evidence.notes
        );
        assert!(
            evidence
                .sub_buffers
                .iter()
                .any(|row| row.verdict == Verdict::Open && !row.why.is_empty())
        );
    }
}

/// Steps of the clock tell nothing where memory behind the last event was never written.
#[test]
fn a_program_that_waited_long_in_its_first_lap() {
    for order in [Order::Little, Order::Big] {
        let mut session = Truth::new("waits", lastwords_testkit::layout::session::RSEQ);
        session.order = order;
        let channel = session.channel(ChannelSpec::new("main", 16384, 4));
        samples::describe(&mut session, channel);
        session.stream(channel, 0, lastwords_testkit::layout::session::RSEQ);
        let mut clock = 1000;
        for (n, step) in [10, 10, 100_000_000, 10, 1 << 40, 10].into_iter().enumerate() {
            clock += step;
            session.rings[0].push_as(&samples::event(order, n as u32, clock, &[]), Form::Auto);
        }
        let found = carve(&overwritten(&session.image(), &["stream"]));
        let (all, closed) = events(&found.sessions[0]);
        assert_eq!((all.into_iter().collect::<BTreeSet<_>>(), closed.len()), (truth(&session), 0));
    }
}

#[test]
fn whole_sessions_are_walked_as_ever() {
    let session = samples::small(Order::Little);
    let whole = support::recover(&session.image());
    let found = carve(&session.image().arena());
    assert_eq!(events(&whole.sessions[0]), events(&found.sessions[0]));
    assert_eq!(whole.sessions[0].evidence().gaps, found.sessions[0].evidence().gaps);
}

/// Memory of a machine: the pages of an arena anywhere in it, other bytes between them; page tables
/// where `tables` is set.
fn scattered(arena: &[u8], tables: bool) -> Vec<u8> {
    let pages = arena.len() / PAGE;
    // Odd multiples modulo a power of two are a permutation.
    let frames = (pages * 2).next_power_of_two();
    let frame = |page: usize| 16 + (page * 37 + 11) % frames;
    let mut memory = noise((16 + frames) * PAGE, 3);
    let mut put = |at: usize, entry: u64| memory[at..at + 8].copy_from_slice(&entry.to_le_bytes());
    // Two tables, so that a region lies in both; the second is named behind the first.
    let first = 512 - pages / 2;
    let of =
        |page: usize| if first + page < 512 { (1, first + page) } else { (5, first + page - 512) };
    for page in 0..pages {
        let (table, index) = of(page);
        let entry = 0x8000_0000_0000_0867 | (frame(page) * PAGE) as u64;
        put(table * PAGE + index * 8, if tables { entry } else { 0 });
    }
    for (n, table) in [1u64, 5].into_iter().enumerate() {
        put(9 * PAGE + 64 + n * 8, if tables { table << 12 | 0x67 } else { 0 });
    }
    for (page, bytes) in arena.chunks_exact(PAGE).enumerate() {
        let at = frame(page) * PAGE;
        memory[at..at + PAGE].copy_from_slice(bytes);
    }
    memory
}

#[test]
fn scattered_pages_are_put_together_by_page_tables() {
    // Sub-buffers of several pages.
    let session = samples::one_stream(1, 16384, 4, 6);
    let found = carve(&scattered(&session.image().arena(), true));
    assert_eq!(found.sessions.len(), 1);
    let (all, _) = events(&found.sessions[0]);
    let expected: BTreeSet<Event> = session
        .live_events()
        .into_iter()
        .map(|(stream, event)| (u64::from(stream), event.clock, event.body))
        .collect();
    assert_eq!(all.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(found.sessions[0].info().name, "one");
    // Without a head the same tables tell which pages a sub-buffer has.
    let found = carve(&scattered(&overwritten(&session.image(), &["stream"]), true));
    let (all, closed) = events(&found.sessions[0]);
    assert!(all.iter().all(|event| expected.contains(event)), "nothing is invented");
    assert!(closed.len() * 10 > expected.len() * 6, "{} of {}", closed.len(), expected.len());
}

#[test]
fn without_page_tables_what_fits_a_page_is_found() {
    let session = samples::small(Order::Little);
    let found = carve(&scattered(&session.image().arena(), false));
    assert_eq!(found.sessions.len(), 1);
    let (all, closed) = events(&found.sessions[0]);
    let truth = truth(&session);
    assert!(closed.iter().all(|event| truth.contains(event)), "nothing is invented");
    assert!(
        closed.len() * 10 > truth.len() * 3 && !all.is_empty(),
        "{} of {}",
        closed.len(),
        truth.len()
    );
}

#[test]
fn noise_is_no_session() {
    let found = carve(&noise(1 << 20, 99));
    assert!(found.sessions.is_empty());
    // A header alone proves nothing.
    let image = samples::one_stream(1, 4096, 4, 2).image();
    let spot = &image.spots[0];
    let mut memory = noise(16 * PAGE, 5);
    let header = &image.arena()[image.spot_in_arena(spot)..][..84];
    memory[PAGE..PAGE + 84].copy_from_slice(header);
    assert!(carve(&memory).sessions.is_empty());
}

/// A packet of LTTng with so many pages: header, and bytes that tell where they belong.
fn lttng_packet(sequence: u64, pages: usize, is_open: bool) -> Vec<u8> {
    let mut bytes = noise(pages * PAGE, sequence + 1);
    let mut put = |at: usize, raw: &[u8]| bytes[at..at + raw.len()].copy_from_slice(raw);
    put(0, &0xc1fc_1fc1u32.to_le_bytes());
    put(4, &[7; 16]);
    put(20, &3u32.to_le_bytes());
    let bits = if is_open { u64::MAX } else { (pages * PAGE) as u64 * 8 };
    let end = if is_open { 0 } else { 100 * sequence + 90 };
    for (n, value) in [0, 100 * sequence, end, bits, bits, sequence, 0].into_iter().enumerate() {
        put(24 + 8 * n, &value.to_le_bytes());
    }
    put(80, &1u32.to_le_bytes());
    bytes
}

#[test]
fn packets_of_programs_are_put_together_by_page_tables() {
    let packets = [
        lttng_packet(4, 4, false),
        lttng_packet(5, 4, false),
        lttng_packet(6, 4, true),
        lttng_packet(2, 1, false),
    ];
    let memory = scattered(&packets.concat(), true);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &memory).expect("written");
    let budget = Budget::default();
    let image = lastwords_image::open(file.path(), &budget, &unwatched).expect("readable").image;
    let mut sessions =
        lastwords_lttng::carve(&image, &budget, &unwatched).expect("within the budget");
    assert_eq!(sessions.len(), 1);
    let session = &mut sessions[0];
    assert_eq!(session.domain.word(), "ust");
    let stream = &session.streams[0];
    assert_eq!((stream.channel, stream.cpu), (3, Some(1)));
    let found: Vec<(u64, Verdict)> =
        stream.packets.iter().map(|p| (p.header.sequence, p.verdict)).collect();
    let closed = Verdict::Committed;
    assert_eq!(found, [(2, closed), (4, closed), (5, closed), (6, Verdict::Open)]);
    let mut bytes = Vec::new();
    for (n, packet) in [3, 0, 1].into_iter().enumerate() {
        assert!(session.packet(0, n, &mut bytes) && bytes == packets[packet], "packet {n}");
    }
    // The one that was being written ends where the next begins; its header is completed.
    assert!(session.packet(0, 3, &mut bytes));
    assert_eq!((bytes.len(), &bytes[84..]), (4 * PAGE, &packets[2][84..]));
    // Without a description of events nothing proves it.
    session.forget_doubtful();
    assert_eq!(session.streams[0].packets.len(), 3);
    assert!(session.evidence.has_losses());
}
