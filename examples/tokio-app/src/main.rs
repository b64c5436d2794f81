//! A tokio program that keeps its last words through `tracing`: tasks serve requests, each in a
//! span. Kill it whenever you like, then `lastwords report tokio-app`: the spans that were open are
//! listed.
//!
//! Each task numbers its events and prints how many recording calls have returned, so that
//! `examples/run.sh` can compare what was recovered with what was recorded.
#![forbid(unsafe_code)]

use lastwords::Session;
use std::io::{self, Write};
use std::time::Duration;
use tracing::{Instrument, info, info_span, warn};

/// Tasks that serve.
const TASKS: u64 = 4;
/// Requests between two reports.
const BATCH: u64 = 100;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    lastwords::crash::install_panic_hook();
    // WARN and ERROR go to a small channel besides, where no flood of INFO evicts them.
    let session = Session::builder("tokio-app").start()?;
    lastwords::layer::init()?;
    warn!("the only warning, of the very start");
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(serve(task).instrument(info_span!("server", task))))
        .collect();
    for task in tasks {
        task.await??;
    }
    drop(session);
    Ok(())
}

/// Serves until standard output is closed.
async fn serve(task: u64) -> io::Result<()> {
    let mut sequence = 0u64;
    loop {
        let span = info_span!("batch", task, from = sequence);
        async {
            for _ in 0..BATCH {
                request(task, sequence).await;
                sequence += 1;
            }
        }
        .instrument(span)
        .await;
        report(task, sequence)?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn report(task: u64, committed: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "committed {task} {committed}")?;
    out.flush()
}

async fn request(thread: u64, sequence: u64) {
    if sequence.is_multiple_of(10) {
        tokio::task::yield_now().await;
    }
    info!(thread, sequence, path = "/index.html", "served");
}
