//! Counts the events of an input by name. Nothing is merged, and no field is decoded:
//!
//!     cargo run --release -p lastwords-open --example kinds -- INPUT

use lastwords_open::{Options, Order, Selection, open};
use std::collections::BTreeMap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let input = std::env::args().nth(1).ok_or("usage: kinds INPUT")?;
    let opened = open(&[input], &Options { late: true, ..Options::default() })?;
    let selected = opened.select(Selection::default())?;
    let (mut events, mut counts) = (selected.events(Order::Stream), BTreeMap::new());
    while let Some(event) = events.advance() {
        match counts.get_mut(&**event.kind()) {
            Some(count) => *count += 1u64,
            None => drop(counts.insert((**event.kind()).clone(), 1)),
        }
    }
    if let Some(fault) = events.fault() {
        return Err(fault.into());
    }
    counts.iter().for_each(|(kind, count)| println!("{count:>10} {}", kind.whole_name()));
    Ok(())
}
