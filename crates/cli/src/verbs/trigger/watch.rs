//! Implements `lastwords trigger watch`: waits for the snapshots that triggers save, and runs a
//! command for each. The command is run by this process and not by the program that is recorded,
//! which must not find child processes that it did not start.

mod recording;

use crate::control::SessionChoice;
use crate::exit::Outcome;
use crate::say;
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords::Triggered;
use lastwords_control::{self, Handle, State};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time between two looks at the session.
const INTERVAL: Duration = Duration::from_millis(50);

/// The arguments of `trigger watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: SessionChoice,

    /// Run this command for each snapshot
    ///
    /// `sh -c` runs it. Its variable LASTWORDS_SNAPSHOT is the folder of the snapshot,
    /// LASTWORDS_SESSION the name of the session or of the kernel's instance.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,

    /// End after this number of snapshots
    #[arg(long, value_name = "N", value_parser = crate::value::within(1_u64..))]
    count: Option<u64>,
}

/// A session or an instance whose snapshots are watched.
trait Watched {
    /// The name of the session or the instance.
    fn name(&self) -> String;

    /// Returns true if nothing more is recorded. What was saved before is found by the next call of
    /// [`Watched::saved`].
    fn is_over(&self) -> bool;

    /// Prints warnings about snapshots that were not taken, and returns those that are saved, oldest
    /// first; none if nothing has changed since the last call.
    fn saved(&mut self, is_over: bool) -> Option<Vec<PathBuf>>;

    /// Prints what there is to say of a snapshot besides its folder.
    fn tell(&self, _: &Path) {}
}

/// Runs `trigger watch`.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match recording::find(args.which.word())? {
        Some(recording) => watch(args, recording),
        None => watch(args, Session::new(args.which.open()?)),
    }
}

fn watch(args: &Args, mut watched: impl Watched) -> anyhow::Result<Outcome> {
    let name = watched.name();
    let mut seen: BTreeSet<PathBuf> = watched.saved(true).unwrap_or_default().into_iter().collect();
    say::note(format_args!("watching {}", plain(&name)));
    let (mut found, mut failed) = (0u64, 0u64);
    loop {
        let is_over = watched.is_over();
        let mut new = watched.saved(is_over).unwrap_or_default();
        new.retain(|folder| seen.insert(folder.clone()));
        for folder in new {
            say::line(plain(&folder.to_string_lossy()));
            watched.tell(&folder);
            failed += u64::from(
                !args
                    .exec
                    .as_deref()
                    .map_or(Ok(true), |command| execute(command, &folder, &name))?,
            );
            found += 1;
            if args.count == Some(found) {
                return outcome(failed, found);
            }
        }
        if is_over {
            return outcome(failed, found);
        }
        std::thread::sleep(INTERVAL);
    }
}

/// A session of an application, with its counts of the last look.
struct Session {
    handle: Handle,
    counts: Triggered,
}

impl Session {
    fn new(handle: Handle) -> Self {
        Self { counts: handle.triggered(), handle }
    }
}

impl Watched for Session {
    fn name(&self) -> String {
        self.handle.name()
    }

    fn is_over(&self) -> bool {
        is_over(&self.handle)
    }

    fn saved(&mut self, is_over: bool) -> Option<Vec<PathBuf>> {
        let now = self.handle.triggered();
        let before = std::mem::replace(&mut self.counts, now);
        if self.counts.limited > before.limited {
            say::warning(format_args!(
                "{}: {} triggers took no snapshot, because of the limit",
                plain(&self.name()),
                self.counts.limited - before.limited
            ));
        }
        (is_over || self.counts.saved != before.saved).then(|| snapshots(&self.handle))
    }
}

fn outcome(failed: u64, found: u64) -> anyhow::Result<Outcome> {
    if failed > 0 {
        bail!("the command failed for {failed} of {found} snapshots");
    }
    Ok(Outcome::Done)
}

/// Returns true if no process records in the session any more.
fn is_over(session: &Handle) -> bool {
    session.summary().details.is_ok_and(|details| {
        matches!(details.state, State::Finished | State::LeftOver | State::Copied)
    })
}

/// Returns the saved snapshots of the session, oldest first: beside the session, and in the folders
/// of its conditions.
fn snapshots(session: &Handle) -> Vec<PathBuf> {
    let summary = session.summary();
    let Ok(uuid) = summary.details.as_ref().map(|details| details.uuid) else { return Vec::new() };
    let folders: BTreeSet<PathBuf> =
        session.conditions().into_iter().filter_map(|condition| condition.folder).collect();
    let beside = summary.folder.parent().unwrap_or(&summary.folder).to_owned();
    let listed = folders
        .into_iter()
        .chain([beside])
        .flat_map(|folder| lastwords_control::list(Some(&folder)).unwrap_or_default());
    let is_ours = |other: &lastwords_control::Summary| {
        other.folder != summary.folder
            && other.details.as_ref().is_ok_and(|details| details.uuid == uuid)
    };
    let number = |path: &Path| {
        let name = path.file_name()?.to_str()?.rsplit_once(".snapshot-")?.1;
        name.split('-').next()?.parse::<u32>().ok()
    };
    let mut found: Vec<PathBuf> = listed.filter(is_ours).map(|other| other.folder).collect();
    found.sort_by_key(|path| number(path));
    found
}

/// Runs the command for a snapshot. Returns false, after a warning, if it fails.
pub(in crate::verbs) fn execute(command: &str, folder: &Path, name: &str) -> anyhow::Result<bool> {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(command)
        .env("LASTWORDS_SNAPSHOT", folder)
        .env("LASTWORDS_SESSION", name)
        .stdin(Stdio::null());
    let status = shell.status().context("sh cannot be run")?;
    if !status.success() {
        say::warning(format_args!("the command for {} ended with {status}", folder.display()));
    }
    Ok(status.success())
}
