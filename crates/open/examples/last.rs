//! Prints the last 100 events of an input, and reads no more of it than these need:
//!
//!     cargo run -p lastwords-open --example last -- INPUT

use lastwords_open::{Options, Order, Selection, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let input = std::env::args().nth(1).ok_or("usage: last INPUT")?;
    let opened = open(&[input], &Options { late: true, ..Options::default() })?;
    let last = Selection { last: Some(100), unread_before: true, ..Selection::default() };
    for event in opened.select(last)?.events(Order::Time) {
        println!("{}", event?);
    }
    Ok(())
}
