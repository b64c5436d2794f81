//! Implements `kernel show`: prints the kernel's own text of an instance.

use super::staying::Which;
use crate::exit::Outcome;
use crate::say;
use crate::stop::Stop;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Longest time between two looks at whether a signal came.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// The arguments of `kernel show`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,

    /// Print events as they come, until Ctrl-C, and take them out of the rings
    ///
    /// Without this option, the rings keep all that is shown.
    #[arg(long)]
    live: bool,
}

/// Prints what an instance has.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let file = if args.live { "trace_pipe" } else { "trace" };
    // Nobody has to wait until all is shown.
    let path = args.which.one()?.file(args.which.instance.as_deref(), file)?;
    let stop = Stop::on_signals()?;
    copy(&path, &stop).with_context(|| path.display().to_string())?;
    Ok(Outcome::Done)
}

/// Copies a file of the tracer to stdout, until its end, a signal, or the end of the reader.
fn copy(path: &Path, stop: &Stop) -> std::io::Result<()> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let mut file: File = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let mut bytes = vec![0; 1 << 16];
    while !stop.came() {
        match file.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                if !say::try_print(bytes.get(..read).unwrap_or_default()) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // An interrupted wait is repeated.
                let _ = poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&TICK));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
