//! Contains one module for each verb.

mod bundle;
mod channel;
mod clear;
mod completions;
pub(crate) mod core_helper;
pub(crate) mod counters;
mod demo;
mod destroy;
mod diff;
mod doctor;
mod elsewhere;
#[cfg(feature = "arrow")]
mod ingest;
mod inspect;
mod kernel;
pub(crate) mod level;
pub(crate) mod list;
mod man;
mod mount;
mod receive;
mod record;
mod recording;
mod recover;
mod report;
mod restore;
mod rule;
mod snapshot;
mod top;
mod trigger;
mod view;
#[cfg(feature = "guests")]
mod watch_guest;
mod why;

use crate::exit::Outcome;
use crate::say;
use anyhow::{Context, bail};
use clap::Subcommand;
use lastwords_control::Handle;

/// The verbs of the command line.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Record in a child, kill it with SIGKILL, recover its events, compare and show them
    Demo(demo::Args),
    /// Write every trace of the inputs as a folder or file of its own
    Recover(recover::Args),
    /// Write all traces as one output: one file, merged by time
    Convert(recover::Convert),
    /// Add the crashes in folders to a data set of many, as Parquet files
    ///
    /// An input that is in the data set already, and has not changed since, is not read again. What
    /// cannot be read is listed in DATASET/dead-letters.jsonl, and tried again by the next run. What
    /// holds nothing to recover is counted and passed over.
    #[cfg(feature = "arrow")]
    Ingest(ingest::Args),
    /// Query inputs and data sets by SQL, by the program lastwords-sql (Python package)
    #[command(override_usage = "lastwords sql [OPTIONS] <INPUT|DATASET>...")]
    Sql(elsewhere::Args),
    /// Serve crashes to assistants, by the program lastwords-mcp (Python package)
    ///
    /// The server speaks the Model Context Protocol on stdin and stdout. It reads only the paths
    /// that are named.
    #[command(override_usage = "lastwords mcp [OPTIONS] <PATH>...")]
    Mcp(elsewhere::Args),
    /// Print events as text, those of several sessions merged by time
    Report(report::Args),
    /// Write all traces as one HTML page to look at, and open it
    View(view::Args),
    /// Print what an input holds: its time, events by name, losses, rings
    ///
    /// Options that select events, such as `--event` and `--since`, select those that are counted.
    /// Losses and rings are those of all events.
    Inspect(inspect::Args),
    /// Print the counters and histograms of sessions
    Counters(counters::Args),
    /// Print on one page what died, when, why, and with which evidence
    ///
    /// A cause is named only if something proves it: the exit record in the session, a crash that
    /// was recorded and not survived, the signal in a core, or a line of the kernel's log that
    /// names the process at the time of its end. Otherwise the cause is unknown.
    Why(why::Args),
    /// Compare a run that ended well with one that did not
    Diff(diff::Args),
    /// Record with the kernel's own tracer, and the applications that a command runs
    Record(record::Args),
    /// Receive the streams of `record -o tcp:HOST:PORT` from many hosts
    ///
    /// Each stream becomes a trace.dat file, or the folder of a session.
    Receive(receive::Args),
    /// Recover the traces of a guest of QEMU when it panics, from its memory
    ///
    /// Nothing is needed in the guest: no crash kernel, no agent. The memory is read from the file
    /// that QEMU shares (memory-backend-file), or else from QEMU's own memory, which needs the
    /// rights to trace it.
    #[cfg(feature = "guests")]
    WatchGuest(watch_guest::Args),
    /// Save the trace of a `record` that was killed, and clean up the kernel's tracer
    Restore(restore::Args),
    /// Start, stop, show and save the kernel's tracer as trace-cmd does; histograms
    Kernel(kernel::Args),
    /// List sessions, live and left over
    List(list::Args),
    /// Show what a session records now: rates by event, rings, losses, open spans
    Top(top::Args),
    /// Record events that match, from now on
    Enable(rule::EnableArgs),
    /// Do not record events that match, from now on
    Disable(rule::Args),
    /// Create a channel while the session records
    #[command(subcommand)]
    Channel(channel::Verb),
    /// Record again after `stop`
    Start(recording::Args),
    /// Stop recording; what was recorded stays
    Stop(recording::Args),
    /// Keep what was recorded until now while recording goes on
    #[command(subcommand)]
    Snapshot(snapshot::Verb),
    /// Keep the moments before an error, each in a session of its own
    #[command(subcommand)]
    Trigger(trigger::Verb),
    /// Make readers skip what was recorded until now
    Clear(clear::Args),
    /// End sessions and remove what they held
    Destroy(destroy::Args),
    /// Show live sessions as files to read and write, as the kernel's tracefs does
    Mount(mount::Args),
    /// End a mount
    Umount(mount::Umount),
    /// Keep the sessions of processes that a signal kills
    ///
    /// The kernel starts the helper by its core_pattern.
    CoreHelper(core_helper::Args),
    /// Save what describes a kernel's events, for a ring buffer that outlives it
    #[command(subcommand)]
    Bundle(bundle::Verb),
    /// Check whether sessions and traces outlive a crash on this machine, and print remedies
    Doctor(doctor::Args),
    /// Print a shell's completions
    Completions(completions::Args),
    /// Write the manual pages, one for each verb, into a folder
    Man(man::Args),
    /// The child of `demo`
    #[command(hide = true)]
    DemoChild(demo::child::Args),
    /// The command of `record -F` before it begins
    #[command(hide = true)]
    RecordCommand(record::CommandArgs),
    /// The process that records for `mount`
    #[command(hide = true)]
    MountRecorder(mount::Recorder),
    /// The process that unmounts when `mount` has died
    #[command(hide = true)]
    MountGuard(mount::Guard),
}

/// Runs a verb.
pub(crate) fn run(verb: Verb) -> anyhow::Result<Outcome> {
    match verb {
        Verb::Demo(args) => demo::run(&args),
        Verb::Recover(args) => recover::run(&args),
        Verb::Convert(args) => recover::convert(&args),
        #[cfg(feature = "arrow")]
        Verb::Ingest(args) => ingest::run(&args),
        Verb::Sql(args) => elsewhere::run("sql", &args),
        Verb::Mcp(args) => elsewhere::run("mcp", &args),
        Verb::Report(args) => report::run(&args),
        Verb::View(args) => view::run(&args),
        Verb::Inspect(args) => inspect::run(&args),
        Verb::Counters(args) => counters::run(&args),
        Verb::Why(args) => why::run(&args),
        Verb::Diff(args) => diff::run(&args),
        Verb::Record(args) => record::run(&args),
        Verb::Receive(args) => receive::run(&args),
        #[cfg(feature = "guests")]
        Verb::WatchGuest(args) => watch_guest::run(&args),
        Verb::Restore(args) => restore::run(&args),
        Verb::Kernel(args) => kernel::run(&args),
        Verb::List(args) => list::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Enable(args) => rule::enable(&args),
        Verb::Disable(args) => rule::disable(&args),
        Verb::Channel(verb) => channel::run(&verb),
        Verb::Start(args) => recording::run(&args, true),
        Verb::Stop(args) => recording::run(&args, false),
        Verb::Snapshot(verb) => snapshot::run(&verb),
        Verb::Trigger(verb) => trigger::run(&verb),
        Verb::Clear(args) => clear::run(&args),
        Verb::Destroy(args) => destroy::run(&args),
        Verb::Mount(args) => mount::run(&args),
        Verb::Umount(args) => mount::unmount(&args),
        Verb::CoreHelper(args) => core_helper::run(&args),
        Verb::Bundle(verb) => bundle::run(&verb),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man(args) => man::run(&args),
        Verb::DemoChild(args) => demo::child::run(&args),
        Verb::RecordCommand(args) => record::run_command(&args),
        Verb::MountRecorder(args) => mount::recorder(&args),
        Verb::MountGuard(args) => mount::guard(&args),
    }
}

/// Reports a consuming read, and returns its result. Without `consumed`, not all events were
/// written.
fn finish_consuming(
    (outcome, consumed): (Outcome, Option<lastwords_live::Consumed>),
) -> anyhow::Result<Outcome> {
    let Some(consumed) = consumed else {
        say::note("not all of it was written: nothing is consumed");
        return Ok(Outcome::Negative);
    };
    consumed.notes.iter().for_each(say::note);
    consumed.failed.iter().for_each(say::error);
    Ok(if consumed.failed.is_empty() { outcome } else { Outcome::Negative })
}

/// Returns the ID of a channel of a session.
fn channel(session: &Handle, name: &str) -> anyhow::Result<u32> {
    if let Some(id) = session.channel(name) {
        return Ok(id);
    }
    let summary = session.summary();
    let details =
        summary.details.map_err(anyhow::Error::msg).context("the session cannot be read")?;
    let names: Vec<String> = details.channels.into_iter().map(|c| c.name).collect();
    bail!("session {} has no channel {name}; it has {}", summary.name, names.join(", "));
}
