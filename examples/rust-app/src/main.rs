//! A shop that keeps its last words: threads sell, every sale is an event. Kill it whenever you
//! like, then `lastwords report rust-app`.
//!
//! Each thread numbers its events and prints how many recording calls have returned, so that
//! `examples/run.sh` can compare what was recovered with what was recorded.
#![forbid(unsafe_code)]

use lastwords::{Session, event, mark};
use std::io::{self, Write};
use std::time::Duration;

/// Threads that sell.
const THREADS: u64 = 3;
/// Events between two reports.
const BATCH: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A panic, too, leaves its last words.
    lastwords::crash::install_panic_hook();
    let session = Session::builder("rust-app").start()?;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || sell(thread));
        }
    });
    drop(session);
    Ok(())
}

/// Sells until standard output is closed.
fn sell(thread: u64) -> io::Result<()> {
    let mut sequence = 0u64;
    loop {
        for _ in 0..BATCH {
            sale(thread, sequence);
            sequence += 1;
        }
        let mut out = io::stdout().lock();
        writeln!(out, "committed {thread} {sequence}")?;
        out.flush()?;
        drop(out);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn sale(thread: u64, sequence: u64) {
    match sequence % 10 {
        0 => mark!(
            "sold out at thread={thread} sequence={sequence}",
            thread = thread,
            sequence = sequence
        ),
        1..=8 => {
            let customer = ["Ada", "Grace", "Edsger"][(sequence % 3) as usize];
            event!(
                shop,
                "sale",
                thread = thread,
                sequence = sequence,
                customer = customer,
                cents = 1999u32
            );
        }
        _ => {
            event!(shop, "refused", level: WARN, thread = thread, sequence = sequence, reason = "no credit")
        }
    }
}
