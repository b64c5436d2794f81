//! The program of the book's chapter on cores: its session is in the memory of the process alone.
#![forbid(unsafe_code)]

use lastwords::{Memory, Session, event};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _session = Session::builder("in-heap").backend(Memory::Heap).start()?;
    for id in 1u64.. {
        event!(shop, "order", id = id);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
