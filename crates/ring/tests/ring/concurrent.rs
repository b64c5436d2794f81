//! Recorders, readers and snapshots run at the same time. The test is made for ThreadSanitizer
//! (`cargo xtask test --step tsan`), which reports accesses to the same bytes without an order
//! between them. The test also checks the recorded events.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::common;
use crate::common::{RESERVATIONS, Shape, channel_on, of_id, parts, payload, read, read_all};
use lastwords_abi::session::{
    MODE_DISCARD, RESERVATION_LOCKED, RESERVATION_LOCKLESS, RESERVATION_RSEQ,
};
use lastwords_abi::stream::RECLAIMED;
use lastwords_ring::SessionParts;
use lastwords_ring::{Channel, Lost};

const THREADS: u32 = 4;
const EVENTS: u32 = 4000;
const ROUNDS: usize = 20;

/// Makes a channel with one stream, or with one for each CPU if the reservation is bound to CPUs.
fn channel(shape: &Shape) -> &'static Channel {
    channel_in(parts(), shape)
}

fn channel_in(parts: SessionParts, shape: &Shape) -> &'static Channel {
    let cpus = if shape.reservation == RESERVATION_RSEQ { 64 } else { 1 };
    Box::leak(Box::new(channel_on(cpus, parts, shape)))
}

/// Runs these functions at the same time, each in a thread. The threads are joined by functions of
/// the system, because ThreadSanitizer sees those.
fn together<T: Send + 'static>(bodies: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<T> {
    let threads: Vec<_> = bodies.into_iter().map(std::thread::spawn).collect();
    threads.into_iter().map(|t| t.join().expect("no panic")).collect()
}

/// Each of `THREADS` threads records its sequence. Returns how many of those events were lost.
fn record_all(channel: &'static Channel) -> u64 {
    let body = |thread: u32| -> Box<dyn FnOnce() -> u64 + Send> {
        Box::new(move || {
            let lost = (0..EVENTS).filter(|&n| {
                let p = payload(thread << 24 | n, 8 + (n as usize * 7) % 60);
                channel.record_parts(thread as u16, &[&p[..3], &p[3..]]).is_err()
            });
            lost.count() as u64
        })
    };
    together((0..THREADS).map(body).collect()).iter().sum()
}

/// Returns the clock from which all streams still have their events: a thread that came to another
/// CPU left older ones behind.
fn kept_since(channel: &Channel) -> u64 {
    let came_round = channel.streams().iter().filter(|s| s.position(0) > s.half_size());
    came_round.filter_map(|s| read(s, 0).first().map(|e| e.clock)).max().unwrap_or(0)
}

/// Checks that each thread's events follow each other without a gap up to its last, except for
/// `lost`.
fn check_newest(channel: &Channel, lost: u64) {
    let since = kept_since(channel);
    let events: Vec<_> = read_all(channel, 0).into_iter().filter(|e| e.clock >= since).collect();
    let mut gaps = 0;
    for thread in 0..THREADS {
        let of = of_id(&events, thread as u16);
        assert!(of.is_sorted_by(|a, b| a < b), "thread {thread} out of order");
        if let (Some(first), Some(last)) = (of.first(), of.last()) {
            gaps += u64::from(last - first + 1) - of.len() as u64;
        }
    }
    assert!(gaps <= lost, "{gaps} events are missing, {lost} were lost");
}

#[test]
fn recorders_come_round_to_each_other() {
    for reservation in RESERVATIONS {
        for sub_buffers in [2, 8] {
            let channel = channel(&Shape {
                reservation,
                sub_buffer_size: 1024,
                sub_buffers,
                ..Shape::default()
            });
            let lost = record_all(channel);
            assert_eq!(lost, common::lost(channel), "reservation {reservation}");
            let reclaimed: u64 =
                channel.streams().iter().map(|s| s.control().lost[RECLAIMED].load(SeqCst)).sum();
            assert_eq!(reclaimed, 0, "nobody died");
            check_newest(channel, lost);
        }
    }
}

#[test]
fn recorders_that_all_fit_lose_nothing() {
    for reservation in RESERVATIONS {
        for paged in [false, true] {
            let channel = channel(&Shape {
                reservation,
                paged,
                sub_buffer_size: 1 << 14,
                sub_buffers: 128,
                ..Shape::default()
            });
            assert_eq!(record_all(channel), 0, "reservation {reservation}");
            assert_eq!(
                read_all(channel, 0).len() as u32,
                THREADS * EVENTS,
                "reservation {reservation}"
            );
        }
    }
}

/// Takes snapshots and counts the events in them.
fn snapshots(parts: SessionParts, channel: &'static Channel) -> u32 {
    let mut taken = 0;
    for round in 0..ROUNDS {
        std::thread::yield_now();
        // SAFETY: all halves have memory, and only this thread swaps.
        let rest = unsafe { common::swap(parts, channel, true) };
        assert_eq!(rest.in_flight, 0);
        taken += read_all(channel, round % 2).len() as u32;
    }
    taken
}

#[test]
fn snapshots_beside_recorders() {
    for reservation in RESERVATIONS {
        let parts = parts();
        let shape =
            Shape { reservation, sub_buffer_size: 1 << 14, sub_buffers: 128, ..Shape::default() };
        let channel = channel_in(parts, &shape);
        let recorder = |thread: u16| -> Box<dyn FnOnce() -> u32 + Send> {
            Box::new(move || {
                for n in 0..EVENTS {
                    channel
                        .record_parts(thread, &[&payload(n, 8 + n as usize % 40)])
                        .expect("room");
                }
                0
            })
        };
        let taken =
            together(vec![recorder(0), recorder(1), Box::new(move || snapshots(parts, channel))])
                [2];
        let left = read_all(channel, ROUNDS % 2).len() as u32;
        assert_eq!(taken + left, 2 * EVENTS, "reservation {reservation}");
    }
}

#[test]
fn threads_that_come_and_go_share_the_table() {
    let channel = channel(&Shape {
        reservation: RESERVATION_LOCKLESS,
        sub_buffer_size: 1 << 14,
        ..Shape::default()
    });
    let rounds = 2 * common::THREADS as u32;
    for round in 0..rounds {
        let body = |thread: u32| -> Box<dyn FnOnce() + Send> {
            let sequence = round * THREADS + thread;
            Box::new(move || channel.record_parts(1, &[&payload(sequence, 16)]).expect("an entry"))
        };
        together((0..THREADS).map(body).collect());
    }
    assert_eq!(read_all(channel, 0).len() as u32, rounds * THREADS);
}

/// Records `EVENTS` events. Returns how many found no room.
fn record_into_room(channel: &'static Channel) -> usize {
    let results: Vec<_> =
        (0..EVENTS).map(|n| channel.record_parts(1, &[&payload(n, 40)])).collect();
    assert!(results.iter().all(|r| matches!(r, Ok(()) | Err(Lost::Full))));
    results.iter().filter(|r| r.is_err()).count()
}

#[test]
fn discard_mode_beside_a_consumer() {
    for reservation in [RESERVATION_LOCKLESS, RESERVATION_LOCKED] {
        let shape = Shape {
            reservation,
            mode: MODE_DISCARD,
            sub_buffer_size: 1024,
            sub_buffers: 4,
            ..Shape::default()
        };
        let channel = channel(&shape);
        let stream = &channel.streams()[0];
        let stop: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let consume = move || {
            let mut consumed = 0;
            while !stop.load(SeqCst) {
                consumed += common::consume(stream, 0);
                std::thread::yield_now();
            }
            consumed
        };
        let record = move || {
            let full = record_into_room(channel);
            stop.store(true, SeqCst);
            full
        };
        let counts = together(vec![Box::new(consume), Box::new(record)]);
        let left: usize =
            std::iter::repeat_with(|| common::consume(stream, 0)).take_while(|&n| n > 0).sum();
        let open = common::read_open(stream, 0).len();
        assert_eq!(counts[1] as u64, common::lost(channel), "reservation {reservation}");
        assert_eq!(
            counts[0] + left + open,
            EVENTS as usize - counts[1],
            "reservation {reservation}"
        );
    }
}

/// Makes a race that ThreadSanitizer must find. `cargo xtask tsan` runs it, the ordinary tests do
/// not.
#[test]
fn seeded_race() {
    if std::env::var_os("LASTWORDS_SEEDED_RACE").is_none() {
        return;
    }
    let channel = channel(&Shape { reservation: RESERVATION_LOCKLESS, ..Shape::default() });
    // These are relaxed, so they make no order. Each thread continues until the other has done
    // something in between, ROUNDS times.
    let recorded: &AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let copied: &AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    let read = move || {
        for round in 1..=ROUNDS {
            let before = recorded.load(Relaxed);
            while recorded.load(Relaxed) == before {
                std::thread::yield_now();
            }
            // SAFETY: there is none; the test is to find the race.
            let bytes = unsafe {
                common::copy(&channel.streams()[0], 0, 0, channel.streams()[0].half_size())
            };
            assert_ne!(bytes.len(), 0);
            copied.store(round, Relaxed);
        }
    };
    let record = move || {
        for n in 1.. {
            channel.record_parts(1, &[&payload(n, 40)]).expect("room");
            recorded.store(n as usize, Relaxed);
            if copied.load(Relaxed) == ROUNDS {
                break;
            }
        }
    };
    together(vec![Box::new(read) as Box<dyn FnOnce() + Send>, Box::new(record)]);
}
