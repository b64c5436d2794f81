//! The options of `record` about the snapshots that triggers take, and what is done for each.

use super::tell;
use crate::say;
use crate::verbs::trigger::{execute, limit};
use anyhow::bail;
use lastwords_tracefs::{News, Rule, Snapshots, Tell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Options about snapshots.
#[derive(Debug, clap::Args)]
pub(super) struct SnapshotOptions {
    /// Save the events of this time before a snapshot's trigger
    ///
    /// This is for `--trigger snapshot`. By default, all events that the rings have are shown.
    #[arg(long, help_heading = "Snapshots", value_name = "TIME", value_parser = crate::moment::length)]
    before: Option<Duration>,

    /// Save also the events of this time after the trigger
    ///
    /// The snapshot is saved when this time has passed.
    #[arg(long, help_heading = "Snapshots", value_name = "TIME", value_parser = crate::moment::length)]
    after: Option<Duration>,

    /// At most N snapshots in any TIME: 4/60s; off
    ///
    /// While the limit holds, no trigger is set. By default, it is 4/60s.
    #[arg(long, help_heading = "Snapshots", value_name = "N/TIME", value_parser = snapshot_limit)]
    limit: Option<Limit>,

    /// Run this command for each snapshot that is saved
    ///
    /// `sh -c` runs it. Its variable LASTWORDS_SNAPSHOT is the folder of the snapshot,
    /// LASTWORDS_SESSION the name of the instance.
    #[arg(long, help_heading = "Snapshots", value_name = "COMMAND")]
    exec: Option<String>,
}

/// The limit of snapshots; none for no limit.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<(u32, Duration)>);

/// Reads the limit of snapshots.
fn snapshot_limit(text: &str) -> Result<Limit, String> {
    if text == "off" { Ok(Limit(None)) } else { limit(text).map(|limit| Limit(Some(limit))) }
}

impl SnapshotOptions {
    /// Checks that the options have something to do.
    pub(super) fn check(&self, rules: &[Rule]) -> anyhow::Result<()> {
        let given = [
            ("--before", self.before.is_some()),
            ("--after", self.after.is_some()),
            ("--limit", self.limit.is_some()),
            ("--exec", self.exec.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) if !rules.iter().any(Rule::takes_snapshots) => {
                bail!(
                    "{option}: it is for snapshots, and no --trigger takes one: `-e EVENT -R snapshot`"
                )
            }
            _ => Ok(()),
        }
    }

    /// Returns which events snapshots have.
    pub(super) fn plan(&self) -> Snapshots {
        let default = Snapshots::default();
        let limit = self.limit.map_or(default.limit, |limit| limit.0);
        Snapshots { before: self.before, after: self.after.unwrap_or(default.after), limit }
    }

    /// Returns what tells the news of snapshots, and runs the command for each. `failed` is set if
    /// a command fails.
    pub(super) fn tell(&self, instance: &str, failed: Arc<AtomicBool>) -> Tell {
        let (instance, command) = (instance.to_owned(), self.exec.clone());
        Box::new(move |news: &News| match news {
            News::Saved(saved) => {
                tell(saved);
                let ran = command.as_ref().map(|command| execute(command, &saved.path, &instance));
                match ran {
                    Some(Ok(false)) => failed.store(true, Relaxed),
                    Some(Err(error)) => {
                        failed.store(true, Relaxed);
                        say::error(lastwords_open::chain(&error));
                    }
                    _ => {}
                }
            }
            News::Removed(path) => say::note(format_args!(
                "{}: removed, because 16 newer snapshots are there",
                path.display()
            )),
            News::Limited(time) => say::warning(format_args!(
                "the limit of snapshots is reached: no trigger is set for {}",
                lastwords_open::duration(time.as_secs_f64())
            )),
            News::Failed(why) => {
                say::error(format_args!("a snapshot is not saved, and no more are taken: {why}"))
            }
        })
    }
}
