//! Measures nanoseconds for each event of a u32 and a u64. It measures every reservation, or those
//! that the arguments name. This is a quick look and not the benchmark. The program prints the
//! minimum of many short runs, because a busy machine disturbs it least.
#[path = "../tests/ring/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{Shape, channel};
use lastwords_abi::session::{RESERVATION_LOCKED, RESERVATION_LOCKLESS, RESERVATION_RSEQ};
use lastwords_ring::Tail;

fn main() {
    const EVENTS: u64 = 20_000;
    const RUNS: u32 = 400;
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let mut ring = vec![0u64; 8192];
    let time = |name: &str, f: &mut dyn FnMut(u64)| {
        let run = |_| {
            let start = Instant::now();
            (0..EVENTS).for_each(&mut *f);
            start.elapsed()
        };
        let least = (0..RUNS).map(run).min().expect("there are runs");
        println!("{name}: {:.2} ns", least.as_nanos() as f64 / EVENTS as f64);
    };
    let mut at = 0;
    time("floor", &mut |n| {
        let c = lastwords_ring::clock::counter();
        ring[at..at + 4].copy_from_slice(&[c, n, n, n]);
        at = (at + 4) & 8191;
    });
    for (name, reservation) in [
        ("rseq", RESERVATION_RSEQ),
        ("lockless", RESERVATION_LOCKLESS),
        ("locked", RESERVATION_LOCKED),
    ] {
        if !asked.is_empty() && !asked.iter().any(|asked| asked == name) {
            continue;
        }
        let shape =
            Shape { reservation, sub_buffer_size: 1 << 16, sub_buffers: 8, ..Shape::default() };
        let channel = channel(&shape);
        time(name, &mut |n| {
            let words = [black_box(n) << 32 | 7, black_box(n) >> 32];
            let _ = channel.record_words::<2>(3, words, 12, None);
        });
        let other = common::channel(&shape);
        time("  two channels in turn", &mut |n| {
            let words = [black_box(n) << 32 | 7, black_box(n) >> 32];
            let _ = if n & 1 == 0 { channel } else { other }.record_words::<2>(3, words, 12, None);
        });
        let text = ["request-accepted", "request-rejected"];
        time("  with text", &mut |n| {
            let words = [black_box(n) << 32 | 7, black_box(n) >> 32];
            let _ = channel.record_words::<2>(
                3,
                words,
                12,
                Some(Tail::Text(text[(n & 1) as usize].as_bytes())),
            );
        });
    }
}
