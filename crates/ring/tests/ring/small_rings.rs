//! Records in rings that are so small that even Miri fills them several times. The events have
//! generated sizes; the test uses each way, reservation and mode, and memory of both kinds. Each
//! event that is read must have the bytes of its number. The newest events must all be there, and
//! the others must be counted. The thread stays on one CPU: if it moved, the newest events of each
//! CPU's ring would be there, and they are not the newest of all.

use std::collections::BTreeSet;

use crate::common::{
    RESERVATIONS, Shape, bind_to_this_cpu, channel, channel_on, lost, of_id, parts, payload, read,
    read_all, sequence, swap, words,
};
use lastwords_abi::session::{
    CHANNEL_PAYLOAD_SIZE, MODE_DISCARD, MODE_OVERWRITE, RESERVATION_LOCKED, RESERVATION_LOCKLESS,
};
use lastwords_ring::{Channel, ClockKind, Lost, Padded, Tail};
use lastwords_testkit::random::Random;

/// Miri is some thousand times slower.
const SEEDS: u64 = if cfg!(miri) { 2 } else { 200 };
const EVENTS: u32 = if cfg!(miri) { 24 } else { 300 };

/// Records event `n`, of a generated size, in one of the ways.
fn record(channel: &'static Channel, random: &mut Random, n: u32) -> Result<(), Lost> {
    let id = random.below(40) as u16;
    match random.below(4) {
        0 => {
            let event = payload(n, 8 + random.below(25) as usize);
            channel.record_words::<4>(id, words(&event), event.len(), None)
        }
        1 => {
            let event = payload(n, 9 + random.below(60) as usize);
            let (head, tail) =
                event.split_at(8 + random.below(9).min(event.len() as u64 - 8) as usize);
            channel.record_words::<4>(id, words(head), head.len(), Some(Tail::Bytes(tail)))
        }
        2 => {
            let event = payload(n, 8 + random.below(70) as usize);
            let padded = [&event[..], &[0; Padded::PADDING]].concat();
            channel.record_padded(id, Padded::new(&padded).expect("16 zeros"))
        }
        _ => {
            let event = payload(n, 8 + random.below(70) as usize);
            let (first, second) = event.split_at(random.below(event.len() as u64) as usize);
            channel.record_parts(id, &[first, second])
        }
    }
}

#[test]
fn each_way_and_shape() {
    bind_to_this_cpu();
    for reservation in RESERVATIONS {
        for seed in 0..SEEDS {
            let mut random = Random(seed << 8 | u64::from(reservation));
            let discard = random.below(2) == 0;
            let shape = Shape {
                reservation,
                mode: if discard { MODE_DISCARD } else { MODE_OVERWRITE },
                sub_buffer_size: 512,
                sub_buffers: 1 << (1 + random.below(2)),
                flags: if random.below(2) == 0 { CHANNEL_PAYLOAD_SIZE } else { 0 },
                clock: ClockKind::Monotonic,
                ..Shape::default()
            };
            let channel = channel(&shape);
            let kept: BTreeSet<u32> =
                (0..EVENTS).filter(|n| record(channel, &mut random, *n).is_ok()).collect();
            let found: BTreeSet<u32> = read_all(channel, 0).iter().map(sequence).collect();
            let shown = || format!("reservation {reservation}, seed {seed}, found {found:?}");
            if discard {
                assert_eq!(found, kept, "{}", shown());
            } else {
                assert_eq!(kept.len(), EVENTS as usize, "{}", shown());
                let oldest = *found.first().expect("events");
                assert_eq!(found, (oldest..EVENTS).collect(), "{}", shown());
            }
            assert_eq!(lost(channel), u64::from(EVENTS) - kept.len() as u64, "{}", shown());
        }
    }
}

#[test]
fn pages_apart() {
    bind_to_this_cpu();
    for reservation in RESERVATIONS {
        let shape = Shape {
            reservation,
            paged: true,
            sub_buffers: 2,
            clock: ClockKind::Monotonic,
            ..Shape::default()
        };
        let channel = channel(&shape);
        let mut random = Random(u64::from(reservation));
        for n in 0..EVENTS {
            record(channel, &mut random, n).expect("overwrite mode has room");
        }
        let found = read_all(channel, 0);
        assert_eq!(found.last().map(sequence), Some(EVENTS - 1), "reservation {reservation}");
    }
}

#[test]
fn two_threads_and_a_swap() {
    for reservation in [RESERVATION_LOCKLESS, RESERVATION_LOCKED] {
        let parts = parts();
        let shape = Shape {
            reservation,
            sub_buffer_size: 4096,
            sub_buffers: 32,
            clock: ClockKind::Monotonic,
            ..Shape::default()
        };
        let channel = channel_on(1, parts, &shape);
        std::thread::scope(|scope| {
            for thread in 0..2u32 {
                scope.spawn(move || {
                    for n in 0..EVENTS {
                        channel
                            .record_parts(thread as u16, &[&payload(n, 8 + n as usize % 30)])
                            .expect("room");
                    }
                });
            }
            // SAFETY: both halves have memory, and only this thread swaps.
            unsafe { swap(parts, channel, false) };
        });
        let events = [0, 1].map(|half| read(&channel.streams()[0], half)).concat();
        for thread in 0..2u16 {
            assert_eq!(
                of_id(&events, thread),
                (0..EVENTS).collect::<Vec<_>>(),
                "thread {thread}, reservation {reservation}"
            );
        }
    }
}
