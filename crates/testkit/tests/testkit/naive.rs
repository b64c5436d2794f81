//! The naive reader finds what the synthetic writer wrote: both are written from docs/ABI.md, and
//! neither knows the other.

use lastwords_testkit::image::Image;
use lastwords_testkit::layout::session as se;
use lastwords_testkit::layout::stream::ANY_CPU;
use lastwords_testkit::naive;
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::ring::{DeadSwitch, Event, Form};
use lastwords_testkit::schema::Type;
use lastwords_testkit::session::{ChannelSpec, Session};

fn session(reservation: u32, order: Order) -> Session {
    let mut s = Session::new("naive", reservation);
    s.order = order;
    let c = s.channel(ChannelSpec::new("main", 1024, 4));
    s.event(c, 0, "number", &[("n", Type::U32), ("text", Type::String)]);
    s.event(c, 40, "wide", &[("n", Type::U64), ("list", Type::Sequence(Box::new(Type::U32)))]);
    s.stream(c, 0, reservation);
    s.stream(c, ANY_CPU, se::LOCKLESS);
    s
}

fn event(order: Order, n: u32, clock: u64) -> Event {
    if n % 3 == 2 {
        let body = Packed::new(order).u64(u64::from(n)).u32(2).u32(n).u32(!n).done();
        return Event { clock, id: 40, body };
    }
    Event {
        clock,
        id: 0,
        body: Packed::new(order).u32(n).string(&"x".repeat((n % 50) as usize)).done(),
    }
}

/// Checks that the naive reader finds the truth of the writer, sub-buffer by sub-buffer.
fn check(s: &Session) {
    let image = s.image();
    let found = naive::read_files(&[&image.arena()]);
    assert_eq!(found.len(), 1);
    for (ring, stream) in s.rings.iter().zip(&found[0].streams) {
        let truth = ring.truth(ring.live);
        assert_eq!(truth.len(), stream.live.len(), "sub-buffers of stream {}", stream.index);
        for (t, f) in truth.iter().zip(&stream.live) {
            assert_eq!((t.number, t.expect), (f.number, f.verdict), "stream {}", stream.index);
            assert_eq!(t.events, f.events, "stream {} sub-buffer {}", stream.index, t.number);
        }
    }
}

#[test]
fn laps_of_every_reservation_and_order() {
    for order in [Order::Little, Order::Big] {
        for reservation in [se::RSEQ, se::LOCKLESS, se::LOCKED] {
            for events in [0, 1, 5, 30, 300, 1000] {
                let mut s = session(reservation, order);
                for n in 0..events {
                    let clock = 1000
                        + u64::from(n) * 977
                        + if n % 40 == 0 { u64::from(n) << 28 } else { 0 };
                    s.rings[(n % 2) as usize].push(&event(
                        order,
                        n,
                        clock.max(u64::from(n / 40 * 40) << 28),
                    ));
                }
                check(&s);
            }
        }
    }
}

#[test]
fn deaths_at_every_place_of_a_lockless_stream() {
    for before in 0..80 {
        for after in [0, 1, 10, 40] {
            for kind in 0..7 {
                let mut s = session(se::LOCKLESS, Order::Little);
                let ring = &mut s.rings[0];
                (0..before).for_each(|n| {
                    assert!(ring.push(&event(Order::Little, n, 5000 + u64::from(n))))
                });
                let at = 6000;
                match kind {
                    0 => ring.die_with_hole(7, at, 60),
                    1 => ring.die_copied(7, &event(Order::Little, 500, at), false),
                    2 => ring.die_copied(7, &event(Order::Little, 500, at), true),
                    3 => ring.die_announced(7, 60),
                    4 => ring.die_switching(7, at, DeadSwitch::Reserved),
                    5 => ring.die_switching(7, at, DeadSwitch::HeaderWritten),
                    _ => ring.die_switching(7, at, DeadSwitch::Left),
                }
                (0..after).for_each(|n| {
                    assert!(ring.push(&event(Order::Little, n, 7000 + u64::from(n))))
                });
                check(&s);
            }
        }
    }
}

#[test]
fn deaths_of_exclusive_recorders() {
    for before in [1, 5, 20, 60] {
        let mut s = session(se::RSEQ, Order::Little);
        (0..before)
            .for_each(|n| assert!(s.rings[0].push(&event(Order::Little, n, 5000 + u64::from(n)))));
        let mut attempting = s.clone();
        attempting.rings[0].die_attempting(40);
        check(&attempting);
        for bytes in [41, 50, 60, 84] {
            let mut closing = s.clone();
            closing.rings[0].die_closing(9000, bytes);
            check(&closing);
        }
    }
}

#[test]
fn clears_snapshots_and_places_passed_over() {
    let mut s = session(se::LOCKLESS, Order::Little);
    for n in 0..200 {
        s.rings[0].push(&event(Order::Little, n, 5000 + u64::from(n)));
        if n == 190 {
            s.rings[0].clear();
        }
    }
    check(&s);
    s.snapshot();
    for n in 0..30 {
        s.rings[0].push_as(&event(Order::Little, n, 9000 + u64::from(n)), Form::Full);
    }
    check(&s);
    let image = s.image();
    let found = naive::read_files(&[&image.arena()]);
    assert_eq!(found[0].snapshot_events(), s.snapshot_events());
    assert!(!s.snapshot_events().is_empty());
    s.rings[0].die_with_hole(7, 9100, 60);
    (0..60).for_each(|n| assert!(s.rings[0].push(&event(Order::Little, n, 9200 + u64::from(n)))));
    s.rings[0].pass_over(9999);
    s.rings[0].push(&event(Order::Little, 1, 10_000));
    check(&s);
}

#[test]
fn discard_mode_keeps_the_oldest() {
    for reservation in [se::RSEQ, se::LOCKLESS] {
        let mut s = Session::new("discard", reservation);
        let mut spec = ChannelSpec::new("main", 512, 2);
        spec.mode = se::DISCARD;
        spec.flags = se::FLAG_PAYLOAD_SIZE;
        let c = s.channel(spec);
        s.event(c, 0, "number", &[("n", Type::U32), ("text", Type::String)]);
        s.event(c, 40, "wide", &[("n", Type::U64), ("list", Type::Sequence(Box::new(Type::U32)))]);
        s.stream(c, 0, reservation);
        let recorded = (0..200)
            .filter(|n| s.rings[0].push(&event(Order::Little, *n, 100 + u64::from(*n))))
            .count();
        assert!(recorded < 100);
        check(&s);
        assert_eq!(s.live_events().len(), recorded);
    }
}

#[test]
fn folders_arenas_and_paged_cores() {
    let mut s = Session::new("paged", se::RSEQ);
    let mut spec = ChannelSpec::new("main", 8192, 2);
    spec.paged = true;
    let c = s.channel(spec);
    s.event(c, 0, "number", &[("n", Type::U32), ("text", Type::String)]);
    s.event(c, 40, "wide", &[("n", Type::U64), ("list", Type::Sequence(Box::new(Type::U32)))]);
    s.stream(c, 0, se::RSEQ);
    (0..700).for_each(|n| assert!(s.rings[0].push(&event(Order::Little, n, 100 + u64::from(n)))));
    let image: Image = s.image();
    let arena = image.arena();
    let page = |at: u64, len: usize| {
        image.pages.iter().find(|p| p.0 == at && p.1.len() == len).map(|p| p.1.as_slice())
    };
    let found = naive::read_memory(&[&arena], &page);
    assert_eq!(found[0].events(), s.live_events());
    let folder = std::env::temp_dir().join(format!("testkit-naive-{}", std::process::id()));
    let s = session(se::LOCKED, Order::Little);
    s.image().write_folder(&folder).expect("a folder");
    let found = naive::read(&folder).expect("what was written");
    std::fs::remove_dir_all(&folder).expect("our own folder");
    assert_eq!((found.len(), found[0].name.as_str()), (1, "naive"));
}
