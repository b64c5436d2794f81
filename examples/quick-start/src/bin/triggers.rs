//! The program of the book's chapter on triggers: it fires one when a request is slow.
#![forbid(unsafe_code)]

use lastwords::{Session, event};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _session = Session::builder("requests").snapshot(true).start()?;
    for id in 1u64..=400 {
        let millis = if id == 200 { 900u32 } else { 3 };
        event!(requests, "answered", id = id, millis = millis);
        if millis > 500 {
            lastwords::trigger("slow request");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
