//! Implements `lastwords watch-guest`: waits until a guest of QEMU panics, and recovers what it
//! recorded from its memory, without a crash kernel and without anything in the guest.

mod places;
mod qmp;

use crate::exit::Outcome;
use crate::input::Input;
use crate::output::{self, Format};
use crate::progress::human_bytes;
use crate::say;
use crate::stop::Stop;
use crate::table::plain;
use crate::verbs::{recover, why};
use anyhow::{Context, bail};
use lastwords_open::RawRun;
use places::Places;
use qmp::Qmp;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// The arguments of `watch-guest`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The socket of QEMU's machine protocol (QMP)
    ///
    /// QEMU serves one client at a time: give it a socket for this, with `-qmp
    /// unix:SOCKET,server=on,wait=off`. The guest needs the device pvpanic, which tells its end:
    /// `-device pvpanic-pci -action panic=pause`.
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,

    /// The folder to write into, a folder or file for each trace
    ///
    /// It is made if it does not exist.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// The format. Its help lists the formats that there are
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true, help = Format::words(), long_help = Format::help())]
    to: Option<Format>,

    /// Replace existing files and folders of CTF
    #[arg(long)]
    force: bool,

    /// Read the memory now; the guest stands still meanwhile
    #[arg(long)]
    now: bool,
}

/// Events of QMP that end the wait, and what they say.
const ENDS: [(&str, &str); 3] = [
    ("GUEST_PANICKED", "the guest panicked"),
    ("GUEST_CRASHLOADED", "the guest panicked, and starts its crash kernel"),
    ("WATCHDOG", "the guest's watchdog expired"),
];
/// The state of a guest that has panicked, and stands still.
const PANICKED: &str = "guest-panicked";

/// Runs `watch-guest`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let socket = plain(&args.socket.display().to_string());
    output::folder(&args.output)?;
    let mut qmp = Qmp::connect(&args.socket).with_context(|| socket.clone())?;
    let places = places::find(&mut qmp).with_context(|| socket.clone())?;
    let bytes = places.runs.iter().map(|run| run.len).fold(0, u64::saturating_add);
    let size = human_bytes(bytes);
    say::note(format_args!("{size} of memory are in {}", plain(&places.path)));
    let end = match wait(args, &mut qmp).with_context(|| socket.clone())? {
        Some(end) => end,
        None => return Ok(Outcome::Negative),
    };
    let begun = Instant::now();
    // A file outlives QEMU, which ends at a panic unless it is told to pause.
    let resumes = pause(&mut qmp).unwrap_or_default();
    let places = places::find(&mut qmp).unwrap_or(places);
    say::line(format_args!("{end}"));
    let done = recover_from(args, &places);
    if resumes && args.now {
        qmp.execute("cont", json!({})).with_context(|| socket.clone())?;
    }
    say::line(format_args!("read in {:.2} s", begun.elapsed().as_secs_f64()));
    done
}

/// Waits for the guest's end, and returns what happened; none if a signal ended the wait.
fn wait(args: &Args, qmp: &mut Qmp) -> anyhow::Result<Option<&'static str>> {
    if args.now {
        return Ok(Some("the guest stands still"));
    }
    let stop = Stop::on_signals()?;
    if qmp.execute("query-status", json!({}))?["status"] == PANICKED {
        return Ok(Some("the guest has panicked"));
    }
    while !stop.came() {
        let event = qmp.event().context(
            "the guest did not panic; if it did, let QEMU pause then (-action panic=pause)",
        )?;
        let end = event.and_then(|event| ENDS.iter().find(|(name, _)| *name == event));
        if let Some((_, words)) = end {
            return Ok(Some(words));
        }
    }
    Ok(None)
}

/// Makes the guest stand still. Returns true if it ran.
fn pause(qmp: &mut Qmp) -> anyhow::Result<bool> {
    let runs = qmp.execute("query-status", json!({}))?["running"] == json!(true);
    if runs {
        qmp.execute("stop", json!({}))?;
    }
    Ok(runs)
}

/// Writes the traces in the guest's memory, and prints why it ended.
fn recover_from(args: &Args, places: &Places) -> anyhow::Result<Outcome> {
    let input = Input::of_memory(&places.path, places.runs.clone());
    let done = recover::from(input.clone(), &args.output, args.to, args.force);
    if let Err(error) = &done {
        let runs: Vec<String> = places.runs.iter().map(RawRun::to_string).collect();
        bail!("{error:#}; the places of its memory: --raw={}", runs.join(","));
    }
    why::print(input)?;
    done
}
