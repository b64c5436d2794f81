//! Ready-made sessions with a variety of contents.

use crate::layout::{session as se, stream as st};
use crate::put::{Order, Packed};
use crate::ring::{DeadSwitch, Event, Form, Ring};
use crate::schema::{Record, Type};
use crate::session::{ChannelSpec, Session, Span};

/// Event with a number and a text. Every channel of [`small`] and [`describe`] has the three ids
/// below.
pub const NUMBERED: u16 = 0;
/// Event with text, bytes, a sequence and other types.
pub const VARIED: u16 = 1;
/// Event whose id does not fit into the first word of a header.
pub const WIDE: u16 = 300;

/// Describes three events in a channel: a number and a text; varied fields; an event with an id
/// above 28.
pub fn describe(session: &mut Session, channel: u32) {
    let labels = vec![(-1, "below".to_owned()), (0, "zero".to_owned()), (7, "seven".to_owned())];
    let scalars = Type::Array { count: 3, element: Box::new(Type::Signed { size: 2, base: 10 }) };
    session.event(channel, NUMBERED, "numbered", &[("n", Type::U32), ("text", Type::String)]);
    session.event(
        channel,
        VARIED,
        "varied",
        &[
            ("n", Type::U64),
            ("kind", Type::Enum { size: 1, signed: true, labels }),
            ("ratio", Type::Float { size: 8 }),
            ("yes", Type::Bool),
            ("three", scalars),
            ("list", Type::Sequence(Box::new(Type::Unsigned { size: 4, base: 16 }))),
            ("raw", Type::Bytes),
            ("fixed", Type::Text { size: 8 }),
        ],
    );
    session.event(channel, WIDE, "wide", &[("n", Type::U64)]);
}

/// Event number `n` of a stream, with the given context bytes. Forms and lengths vary with `n`.
pub fn event(order: Order, n: u32, clock: u64, contexts: &[u8]) -> Event {
    let body = Packed::new(order).raw(contexts);
    match n % 5 {
        0 => {
            let body = body
                .u64(u64::from(n))
                .u8(if n.is_multiple_of(2) { 7 } else { 0xff })
                .u64(f64::from(n).to_bits())
                .u8(1);
            let body = body
                .u16(1)
                .u16(0xffff)
                .u16(3)
                .u32(2)
                .u32(n)
                .u32(!n)
                .counted(&[1, 2, 3])
                .text("fix", 8);
            Event { clock, id: VARIED, body: body.done() }
        }
        1 => Event { clock, id: WIDE, body: body.u64(u64::from(n)).done() },
        _ => Event {
            clock,
            id: NUMBERED,
            body: body.u32(n).string(&"x".repeat((n * 7 % 40) as usize)).done(),
        },
    }
}

/// Records `count` events, numbered from `from` on, 1000 ticks apart, with occasional leaps beyond
/// the 27 bits of clock.
pub fn record(ring: &mut Ring, from: u32, count: u32, contexts: &[u8]) {
    let order = ring.spec.order;
    for n in from..from + count {
        let clock = u64::from(n) * 1000 + ((u64::from(n) / 37) << 28) + 10_000;
        let form = if n % 11 == 3 { Form::Full } else { Form::Auto };
        ring.push_as(&event(order, n, clock, contexts), form);
    }
}

/// A session of exactly 72 KiB: an exclusive stream with a snapshot, a lockless stream with dead
/// recorders, open spans.
pub fn small(order: Order) -> Session {
    numbered(order, 0)
}

/// The same session with another UUID for each number.
pub fn numbered(order: Order, number: u8) -> Session {
    let mut s = Session::new("small", se::RSEQ);
    s.uuid[15] ^= number;
    s.order = order;
    s.threads = 9;
    s.span_capacity = 15;
    s.spans = vec![span(1, 0, "outer"), span(2, 1, "inner")];
    let main = s.channel(ChannelSpec::new("main", 2048, 4));
    describe(&mut s, main);
    let mut with_contexts = ChannelSpec::new("errors", 2048, 2);
    with_contexts.contexts = se::CONTEXT_PID | se::CONTEXT_USER;
    with_contexts.flags = se::FLAG_PAYLOAD_SIZE;
    let errors = s.channel(with_contexts);
    describe(&mut s, errors);
    s.records.push(Record::Context { channel: 1, index: 0, name: "shard".into(), ty: Type::U32 });
    let build_id = vec![0xab; 20];
    s.records.push(Record::Module {
        pid: 4242,
        addresses: [0x1000, 0x2000, 0x3000],
        build_id,
        path: "/bin/x".into(),
    });
    s.stream(main, 0, se::RSEQ);
    s.stream(errors, st::ANY_CPU, se::LOCKLESS);
    let contexts = Packed::new(order).u32(4242).u32(7).done();
    record(&mut s.rings[0], 0, 300, &[]);
    record(&mut s.rings[1], 0, 40, &contexts);
    s.snapshot();
    record(&mut s.rings[0], 300, 350, &[]);
    let ring = &mut s.rings[1];
    record(ring, 100, 80, &contexts);
    ring.die_with_hole(6, 1 << 40, 70);
    record(ring, 6000, 8, &contexts);
    ring.die_copied(11, &event(order, 6100, 6 << 40, &contexts), false);
    record(ring, 230_000, 6, &contexts);
    s
}

fn span(id: u64, parent: u64, name: &str) -> Span {
    let text = ["testkit::samples".to_owned(), name.to_owned(), "key=value".to_owned()];
    Span { id, parent, opened: 12_345, opener: 4242 << 32 | 4243, entered: 0, level: 3, text }
}

/// A session with one stream of `count` places of `size` bytes; `closed` sub-buffers are closed and
/// one is open.
pub fn one_stream(reservation: u32, size: u64, count: u64, closed: u64) -> Session {
    filled(Session::new("one", reservation), [size, count, closed], 0)
}

/// Same as [`one_stream`], lockless, with a dead recorder's hole in each sub-buffer whose bit in
/// `holes` is set.
pub fn with_holes(size: u64, count: u64, closed: u64, holes: u32) -> Session {
    filled(Session::new("holes", se::LOCKLESS), [size, count, closed], holes)
}

fn filled(mut s: Session, [size, count, closed]: [u64; 3], holes: u32) -> Session {
    s.threads = 16;
    let channel = s.channel(ChannelSpec::new("main", size, count));
    describe(&mut s, channel);
    let reservation = s.reservation;
    s.stream(channel, 0, reservation);
    let ring = &mut s.rings[0];
    let (mut n, mut made) = (0, 0u32);
    while ring.halves[0].position < closed * size + 200 {
        record(ring, n, 1, &[]);
        let number = ring.halves[0].position / size;
        let inside = ring.halves[0].position % size;
        if number < 32 && holes & !made & 1 << number != 0 && inside > 200 {
            ring.die_with_hole(2 + number, ring.halves[0].last_clock + 5, 20 + (n % 50) as usize);
            made |= 1 << number;
        }
        n += 1;
    }
    s
}

/// A lockless session whose recorder died while it switched to the next sub-buffer.
pub fn dead_switch(how: DeadSwitch, after: u32) -> Session {
    let mut s = one_stream(se::LOCKLESS, 1024, 4, 2);
    let clock = s.rings[0].halves[0].last_clock + 10;
    s.rings[0].die_switching(6, clock, how);
    record(&mut s.rings[0], 500, after, &[]);
    s
}

/// A session whose streams have their data in pages on the heap, for [`crate::image::Image::core`].
pub fn paged() -> Session {
    let mut s = Session::new("paged", se::LOCKED);
    let mut spec = ChannelSpec::new("main", 4096, 4);
    spec.paged = true;
    let channel = s.channel(spec);
    describe(&mut s, channel);
    s.stream(channel, 0, se::LOCKED);
    s.stream(channel, 1, se::LOCKED);
    record(&mut s.rings[0], 0, 500, &[]);
    record(&mut s.rings[1], 0, 77, &[]);
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive;

    #[test]
    fn the_small_session_has_72_kib_and_its_truth_is_what_the_naive_reader_finds() {
        for order in [Order::Little, Order::Big] {
            let s = small(order);
            let arena = s.image().arena();
            assert_eq!(arena.len(), 73_728);
            let found = naive::read_files(&[&arena]);
            assert_eq!(found[0].events(), s.live_events());
            assert_eq!(found[0].snapshot_events(), s.snapshot_events());
        }
    }

    #[test]
    fn holes_and_dead_switches_are_read() {
        for holes in [0, 1, 0b1010, 0xfff] {
            let s = with_holes(1024, 16, 12, holes);
            assert_eq!(naive::read_files(&[&s.image().arena()])[0].events(), s.live_events());
            assert_eq!(s.rings[0].in_flight.len(), holes.count_ones() as usize);
        }
        for how in [DeadSwitch::Reserved, DeadSwitch::HeaderWritten, DeadSwitch::Left] {
            let s = dead_switch(how, 9);
            assert_eq!(naive::read_files(&[&s.image().arena()])[0].events(), s.live_events());
        }
    }
}
