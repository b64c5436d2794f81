//! Tests the decoder: header forms, the 27-bit rule, and every kind of damage.
#![allow(missing_docs, reason = "a test")]

use lastwords_bytes::ByteOrder;
use lastwords_ctf::program;
use lastwords_ctf::session::{DecodeError, Decoder, Expected, RawEvent};
use lastwords_testkit::random::Random;
use lastwords_trace::clock::Clock;
use lastwords_trace::schema::{Channel, EventClass, Field, FieldClass, Schema};
use std::collections::BTreeMap;

fn field(name: &str, class: FieldClass) -> Field {
    Field { name: name.to_owned(), class }
}

fn integer(size: u8) -> FieldClass {
    FieldClass::Integer { size, signed: false, base: 10 }
}

fn class(id: u64, fields: Vec<FieldClass>) -> EventClass {
    let fields = fields.into_iter().map(|class| field("f", class)).collect();
    EventClass { id, name: format!("test:e{id}"), fields, ..EventClass::default() }
}

fn schema(byte_order: ByteOrder) -> Schema {
    let events = vec![
        class(0, vec![integer(4), integer(8)]),
        class(1, vec![integer(1), FieldClass::String, integer(2), integer(2)]),
        class(2, vec![FieldClass::Sequence(Box::new(integer(8))), FieldClass::Bytes]),
        class(3, vec![]),
        class(28, vec![FieldClass::Text { size: 16 }]),
        class(29, vec![FieldClass::Array { count: 3, element: Box::new(integer(2)) }]),
        class(40_000, vec![FieldClass::Bool]),
        class(7, vec![FieldClass::Sequence(Box::new(FieldClass::String))]),
    ];
    let channel =
        Channel { id: 0, name: String::new(), contexts: vec![field("vtid", integer(4))], events };
    let clock = Clock { name: "test".to_owned(), frequency: 1_000_000_000, ..Clock::default() };
    Schema {
        uuid: [0; 16],
        name: String::new(),
        byte_order,
        env: BTreeMap::new(),
        clock,
        channels: vec![channel],
    }
}

/// Writes numbers in one byte order.
struct Packet {
    bytes: Vec<u8>,
    little: bool,
}

impl Packet {
    fn put(&mut self, size: usize, value: u64) {
        let bytes = if self.little { value.to_le_bytes() } else { value.to_be_bytes() };
        let part = if self.little { &bytes[..size] } else { &bytes[8 - size..] };
        self.bytes.extend(part);
    }
    fn header(&mut self, tag: u64, clock: u64) {
        self.put(4, (clock & 0x7ff_ffff) << 5 | tag);
    }
}

/// Writes one event of each form. Returns the clocks that a reader must find.
fn forms(little: bool) -> (Vec<u8>, Vec<u64>) {
    let mut p = Packet { bytes: vec![0xEE; 8], little };
    p.header(0, 1000);
    [(4, 1), (4, 2), (8, 3)].into_iter().for_each(|(size, value)| p.put(size, value));
    p.header(1, 1000);
    p.put(4, 1);
    p.put(1, 9);
    p.bytes.extend(b"text\0");
    p.put(4, 5);
    p.header(29, (5 << 27) + 7);
    p.put(2, 2);
    p.put(4, 4 + 4 + 16 + 4 + 3);
    p.put(8, (5 << 27) + 7);
    [(4, 1), (4, 2), (8, 3), (8, 4), (4, 3), (3, 0)]
        .into_iter()
        .for_each(|(size, value)| p.put(size, value));
    p.header(30, 6);
    p.put(2, 28);
    p.put(4, 4 + 16);
    p.put(4, 1);
    p.bytes.extend([b'x'; 16]);
    p.header(31, 6);
    p.put(2, 40_000);
    p.put(4, 1);
    p.put(1, 1);
    p.header(29, 8 << 27);
    p.put(2, 29);
    p.put(4, 0xFFFF_FFFF);
    p.put(8, 8 << 27);
    p.put(4, 1);
    p.put(6, 0);
    p.header(3, 1);
    p.put(4, 1);
    let clocks =
        vec![1000, 1000, (5 << 27) + 7, (6 << 27) + 6, (6 << 27) + 6, 8 << 27, (8 << 27) + 1];
    (p.bytes, clocks)
}

#[test]
fn all_header_forms_in_both_byte_orders() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let (bytes, clocks) = forms(order == ByteOrder::Little);
        let decoder = Decoder::new(&schema(order));
        let events: Vec<RawEvent> =
            decoder.events(0, &bytes, 500, 8).collect::<Result<_, _>>().expect("a whole packet");
        assert_eq!(events.iter().map(|e| e.clock).collect::<Vec<_>>(), clocks);
        assert_eq!(events.iter().map(|e| e.id).collect::<Vec<_>>(), [0, 1, 2, 28, 40_000, 29, 3]);
        let mut end = 8;
        for event in &events {
            assert_eq!(event.start, end, "events follow each other");
            assert_eq!(event.context().len(), 4);
            end = event.end;
        }
        assert_eq!(end, bytes.len());
        assert_eq!(decoder.channel(0).expect("a channel").count(&bytes, 8), Ok(7));
    }
}

#[test]
fn every_truncation_gives_the_whole_events_before_it() {
    let (bytes, _) = forms(true);
    let decoder = Decoder::new(&schema(ByteOrder::Little));
    let ends: Vec<usize> =
        decoder.events(0, &bytes, 500, 8).map(|e| e.expect("whole").end).collect();
    for cut in 8..bytes.len() {
        let events: Vec<_> = decoder.events(0, &bytes[..cut], 500, 8).collect();
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let at_boundary = cut == 8 || ends.contains(&cut);
        assert_eq!(events.iter().filter(|e| e.is_ok()).count(), whole, "cut at {cut}");
        assert_eq!(events.last().is_some_and(Result::is_err), !at_boundary, "cut at {cut}");
        let counted = decoder.channel(0).expect("a channel").count(&bytes[..cut], 8);
        assert_eq!(counted.is_ok(), at_boundary, "cut at {cut}");
    }
}

fn error(bytes: &[u8]) -> DecodeError {
    let decoder = Decoder::new(&schema(ByteOrder::Little));
    decoder.events(0, bytes, 0, 0).find_map(Result::err).expect("an error")
}

#[test]
fn errors_say_where_what_and_why() {
    let event = |tag: u64, parts: &[(usize, u64)]| {
        let mut p = Packet { bytes: Vec::new(), little: true };
        p.header(tag, 0);
        parts.iter().for_each(|(size, value)| p.put(*size, *value));
        p.bytes
    };
    let at = |offset, value, expected| DecodeError { offset, value, expected };
    let class = |offset, value, expected| at(offset, value, Expected::Class(expected));
    use program::Expected::{Bits, EventClass, Length, Nul};
    // If a header is one word, the whole bytes do not even contain the id's five bits.
    assert_eq!(error(&[1, 2, 3]), class(0, 19, Bits(27)));
    assert_eq!(error(&event(5, &[])), class(0, 5, EventClass));
    assert_eq!(error(&event(31, &[(2, 65_535)])), class(0, 65_535, EventClass));
    assert_eq!(error(&event(0, &[(4, 1), (4, 1)])), class(4, 64, Bits(128)));
    assert_eq!(error(&event(1, &[(4, 1), (1, 1), (3, 0x41_4141)])), class(9, 24, Nul));
    assert_eq!(error(&event(2, &[(4, 1), (4, 0xFFFF_FFFF)])), class(12, 0xFFFF_FFFF, Length));
    assert_eq!(error(&event(2, &[(4, 1), (2, 1)])), class(8, 16, Bits(32)));
    assert_eq!(error(&event(30, &[(2, 3), (4, 1), (4, 1)])), at(0, 1, Expected::PayloadSize(4)));
    assert_eq!(
        error(&event(7, &[(4, 1), (4, 1)])),
        class(0, 7, EventClass),
        "CTF cannot express its field"
    );
    let decoder = Decoder::new(&schema(ByteOrder::Little));
    assert_eq!(decoder.events(3, &[0; 9], 0, 0).next(), Some(Err(at(0, 3, Expected::Channel))));
    assert_eq!(decoder.events(0, &[0; 9], 0, 10).next(), None, "an offset behind the end");
}

#[test]
fn the_full_reading_follows_the_one_before() {
    let decoder = Decoder::new(&schema(ByteOrder::Little));
    let full_clock = |previous: u64, low: u64| {
        let mut p = Packet { bytes: Vec::new(), little: true };
        p.header(3, low);
        p.put(4, 0);
        let event = decoder.events(0, &p.bytes, previous, 0).next().expect("an event");
        event.expect("a whole one").clock
    };
    let span = 1u64 << 27;
    assert_eq!(full_clock(5, 5), 5);
    assert_eq!(full_clock(5, 4), span + 4);
    assert_eq!(full_clock(3 * span - 1, 0), 3 * span);
    assert_eq!(full_clock(3 * span - 1, span - 1), 3 * span - 1);
    assert_eq!(full_clock(u64::MAX, 0), 0, "wraps");
    let mut previous = 12_345;
    let mut step = 1;
    for _ in 0..100_000 {
        step = (step * 48_271) % (span - 1);
        let next = previous + step;
        assert_eq!(full_clock(previous, next & (span - 1)), next);
        previous = next;
    }
}

#[test]
fn any_bytes_end_without_a_panic() {
    let decoder = Decoder::new(&schema(ByteOrder::Little));
    let channel = decoder.channel(0).expect("a channel");
    let (whole, _) = forms(true);
    let mut random = Random(1);
    for round in 0..30_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            let edge = *random.pick(&[0, 0xFF, 0x7F, 0x80]);
            bytes[at] = if round % 2 == 0 { random.bits() as u8 } else { edge };
        }
        bytes.truncate(bytes.len() - random.below(16) as usize);
        let mut events = decoder.events(0, &bytes, random.below(1 << 31), 8);
        let found: Vec<_> = events.by_ref().collect();
        assert!(found.len() <= bytes.len() / 4 + 1);
        let good = found.iter().filter(|e| e.is_ok()).count() as u64;
        match channel.count(&bytes, 8) {
            Ok(count) => assert_eq!(count, found.len() as u64),
            Err(e) => assert_eq!(found.last(), Some(&Err(e)), "after {good} events"),
        }
    }
}
