//! The Rust program of the README and the book. It records an event for each order until it is
//! killed.
#![forbid(unsafe_code)]

use lastwords::{event, mark};
use std::time::Duration;

fn main() {
    lastwords::start("shop");
    for id in 1u64.. {
        event!(shop, "order", id = id, items = 3u32, customer = "Ada");
        if id % 50 == 0 {
            event!(shop, "slow_payment", level: WARN, id = id, millis = 740u32);
            mark!("the cache has {} entries", id / 2);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
