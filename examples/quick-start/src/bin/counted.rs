//! The program of the book's page on counters. It counts requests until it is killed.
#![forbid(unsafe_code)]

use lastwords::{counter, histogram};
use std::time::{Duration, Instant};

fn main() {
    lastwords::start("counted");
    for id in 1u64.. {
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        counter!("requests", method = "GET");
        counter!("bytes", 100 + id % 7);
        histogram!("latency_ns", begin.elapsed().as_nanos() as u64);
    }
}
