//! The application of the scenario `why`: records in persistent memory until its machine ends.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lastwords::{Memory, Session, event};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file of the session, on a DAX file system
    session: PathBuf,
}

/// Time between two events.
const PAUSE: Duration = Duration::from_millis(50);

/// Records. Returns only an error.
pub(crate) fn run(args: &Args) -> Result<()> {
    let memory = Memory::Dax { path: args.session.clone(), reuse: true };
    let session = Session::builder("shop").dir("/run/lastwords").backend(memory);
    let _session = session.start().context("the session")?;
    println!("WHY-RECORDS");
    for order in 0u64.. {
        event!(shop, "order", id = order);
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
