//! Takes snapshots while recording continues: each event is in the snapshot taken after it, and in
//! no other.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use crate::common::{Shape, channel_in, of_id, parts, payload, read_all, swap};
use lastwords_abi::session::{RESERVATION_LOCKED, RESERVATION_LOCKLESS, RESERVATION_RSEQ};
use lastwords_ring::Stream;
use lastwords_ring::swap::{Rest, Swap};

const ROUNDS: usize = 60;

/// Stops the recorders when the test ends, also where it fails: their scope waits for them.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn run(reservation: u32, is_alone: bool, paged: bool) {
    let parts = parts();
    let shape =
        Shape { reservation, paged, sub_buffer_size: 1 << 16, sub_buffers: 64, ..Shape::default() };
    let channel = channel_in(parts, &shape);
    let stop = AtomicBool::new(false);
    let done = [const { AtomicU32::new(0) }; 3];
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for (id, done) in done.iter().enumerate() {
            let (channel, stop) = (&channel, &stop);
            scope.spawn(move || {
                for n in 0u32.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    channel
                        .record_parts(id as u16, &[&payload(n, 8 + n as usize % 50)])
                        .expect("room");
                    done.store(n + 1, SeqCst);
                    if n % 8 == 0 {
                        std::thread::sleep(std::time::Duration::from_micros(20));
                    }
                }
            });
        }
        let mut next = [0u32; 3];
        let mut old_half = 0;
        for _ in 0..ROUNDS {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let before = [0, 1, 2].map(|t: usize| done[t].load(SeqCst));
            // SAFETY: all halves have memory, and only this thread swaps.
            let rest = unsafe { swap(parts, channel, is_alone) };
            assert_eq!(rest, Rest::default());
            let after = [0, 1, 2].map(|t: usize| done[t].load(SeqCst));
            let events = read_all(channel, old_half);
            for t in 0..3 {
                let got = of_id(&events, t as u16);
                let end = next[t] + got.len() as u32;
                assert_eq!(
                    got,
                    (next[t]..end).collect::<Vec<_>>(),
                    "gapless, from where the last one ended"
                );
                assert!(
                    end >= before[t],
                    "thread {t}: {end} of {} recorded before the swap",
                    before[t]
                );
                assert!(
                    end <= after[t] + 1,
                    "thread {t}: {end} though {} were recorded after it",
                    after[t]
                );
                next[t] = end;
            }
            old_half ^= 1;
        }
    });
}

#[test]
fn rseq_with_membarrier() {
    run(RESERVATION_RSEQ, true, false);
}

#[test]
fn rseq_by_visiting_cpus_and_paged() {
    run(RESERVATION_RSEQ, false, true);
}

#[test]
fn lockless() {
    run(RESERVATION_LOCKLESS, true, false);
}

#[test]
fn locked() {
    run(RESERVATION_LOCKED, true, false);
}

#[test]
fn one_stream_alone() {
    let parts = parts();
    let channel =
        channel_in(parts, &Shape { reservation: RESERVATION_LOCKLESS, ..Shape::default() });
    let streams: Vec<&Stream> = channel.streams().iter().collect();
    for n in 0..20 {
        channel.record_parts(0, &[&payload(n, 16)]).expect("room");
    }
    for only in 0..streams.len() {
        let swap = Swap {
            parts,
            streams: &streams[only..=only],
            are_all: false,
            is_alone: true,
            persists: false,
        };
        // SAFETY: all halves have memory, and only this thread swaps.
        unsafe { swap.run() }.expect("no locks");
    }
    assert_eq!(read_all(channel, 0).len(), 20);
    channel.record_parts(0, &[&payload(20, 16)]).expect("room");
    assert_eq!(read_all(channel, 1).len(), 1);
}
