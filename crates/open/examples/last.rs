//! Prints the last 100 events of each trace in an input, and reads no more of it than these need:
//!
//!     cargo run -p lastwords-open --example last -- FOLDER

use lastwords_formats::select::Selection;
use lastwords_open::{Options, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let input = std::env::args().nth(1).ok_or("usage: last INPUT")?;
    let opened = open(&[input], &Options { late: true, ..Options::default() })?;
    let last = Selection { last: Some(100), unread_before: true, ..Selection::default() };
    for trace in &opened.traces {
        trace.each_line(&last, &mut |_, line| {
            print!("{}", String::from_utf8_lossy(line));
            true
        })?;
    }
    Ok(())
}
