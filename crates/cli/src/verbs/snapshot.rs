//! Implements `lastwords snapshot`: swaps live rings for spare ones while recording goes on, and
//! keeps the events in them.

use crate::control::SessionChoice;
use crate::exit::Outcome;
use crate::progress::human_bytes;
use crate::say;
use crate::verbs::recover;
use anyhow::Context;
use clap::Subcommand;
use lastwords::snapshot::{Rings, Taken};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Allocate the spare rings
    Enable(SessionChoice),
    /// Free the spare rings and the events in them
    Disable(SessionChoice),
    /// Swap live and spare rings: the events until now become the snapshot
    ///
    /// It replaces the previous snapshot. `report --snapshot` shows it.
    Take(Take),
    /// Take a snapshot and write it: `take`, then `recover --snapshot`
    Record(Record),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Take {
    #[command(flatten)]
    session: SessionChoice,

    /// Only the streams of this CPU, in all channels
    ///
    /// By default, the snapshot has all streams.
    #[arg(long, value_name = "N", conflicts_with = "stream", value_parser = crate::value::number::<u32>)]
    cpu: Option<u32>,

    /// Only the stream with this index
    ///
    /// A stream is the ring of one channel on one CPU. `lastwords inspect --verbose` lists them.
    #[arg(long, value_name = "N", value_parser = crate::value::number::<u32>)]
    stream: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Record {
    /// The folder to write into; it is made if it does not exist
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[command(flatten)]
    session: SessionChoice,
}

/// Runs a verb of `snapshot`.
pub(crate) fn run(verb: &Verb) -> anyhow::Result<Outcome> {
    match verb {
        Verb::Enable(session) => session.open()?.enable_snapshots()?,
        Verb::Disable(session) => session.open()?.disable_snapshots()?,
        Verb::Take(take) => {
            let rings =
                take.cpu.map(Rings::Cpu).or(take.stream.map(Rings::Stream)).unwrap_or(Rings::All);
            let taken = take.session.open()?.snapshot(rings)?;
            say::line(format_args!("snapshot {}", taken.number));
            warn(&taken);
        }
        Verb::Record(record) => return record_one(record),
    }
    Ok(Outcome::Done)
}

/// Takes a snapshot, writes it, and frees its rings for the next one.
fn record_one(record: &Record) -> anyhow::Result<Outcome> {
    let session = record.session.open()?;
    // Taking a snapshot discards the previous one. The folder is checked first, so that the new one
    // can be kept.
    recover::check_snapshot(&session.name(), &record.output)?;
    warn(&session.snapshot(Rings::All)?);
    let reader = session.read_snapshot()?;
    let folder = session.summary().folder;
    let outcome = recover::snapshot_of(&folder, &record.output)
        .with_context(|| folder.display().to_string())?;
    reader.release();
    Ok(outcome)
}

/// Prints what the snapshot could not ensure.
fn warn(taken: &Taken) {
    let Taken { number, dropped, .. } = taken;
    if *dropped > 0 {
        say::note(format_args!(
            "snapshot {} is replaced, of which nobody had consumed {}: they are gone",
            number.wrapping_sub(1),
            human_bytes(*dropped)
        ));
    }
    let (unvisited, in_flight) = (&taken.rest.unvisited, &taken.rest.in_flight);
    if !unvisited.is_empty() {
        say::note(format_args!(
            "this process may not run on CPUs {unvisited:?}: what they were recording was waited for"
        ));
    }
    if *in_flight > 0 {
        say::note(format_args!(
            "{in_flight} events were still being written when the snapshot was taken"
        ));
    }
}
