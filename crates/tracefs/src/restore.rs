//! Cleans up after recorders that were killed.

use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::histograms;
use crate::journal::{self, Owner, Stay};
use crate::save::{self, Saved};
use crate::snapshot;
use anyhow::Context;
use std::path::{Path, PathBuf};

/// The work that was done for one journal.
#[derive(Debug)]
pub struct Restored {
    /// The name of the instance.
    pub instance: String,
    /// Process ID of the recorder.
    pub pid: u32,
    /// The trace that the recorder did not save, if the instance still had one.
    pub saved: Option<Saved>,
    /// The snapshot that a trigger took, if it was not saved.
    pub snapshot: Option<Saved>,
    /// The file with the histograms of triggers, if there are any.
    pub histograms: Option<PathBuf>,
    /// The removed parts, in words.
    pub done: Vec<String>,
    /// The errors. If there are any, the journal is kept, so that the work can be tried again.
    pub errors: Vec<Error>,
}

/// Saves the traces of killed recorders and removes what they added, by the journals in a folder.
/// With `discard`, nothing is saved. Without journals there is nothing to do, so a second call does
/// nothing.
///
/// A recording that stays ([`crate::Staying`]) is left alone.
///
/// A recorder that still runs is an error of its row, and what it added is not touched. If a trace
/// cannot be saved, what has it is kept.
///
/// # Errors
/// tracefs is not mounted, or a journal cannot be read.
pub fn restore(journals: &Path, discard: bool) -> Result<Vec<Restored>> {
    let mut found = journal::list(journals)?;
    found.retain(|journal| journal.stay != Stay::Yes || journal.owner() == Owner::OfAnotherBoot);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let tracefs = lastwords_open::tracefs_folder()?;
    let changes = found.into_iter().map(|journal| Changes {
        tracefs: tracefs.to_owned(),
        journals: journals.to_owned(),
        journal,
    });
    Ok(changes.map(|changes| one(changes, discard)).collect())
}

fn one(mut changes: Changes, discard: bool) -> Restored {
    let (instance, pid) = (changes.journal.instance.clone(), changes.journal.pid);
    let mut restored = Restored {
        instance,
        pid,
        saved: None,
        snapshot: None,
        histograms: None,
        done: Vec::new(),
        errors: Vec::new(),
    };
    match changes.journal.owner() {
        Owner::Alive => {
            let instance = restored.instance.clone();
            restored.errors.push(Error::Running { instance, pid });
            return restored;
        }
        // tracefs is empty after a boot.
        Owner::OfAnotherBoot => {
            restored
                .done
                .push("the machine was booted since; removed the journal alone".to_owned());
            let removed = changes.journal.remove(&changes.journals);
            restored
                .errors
                .extend(removed.err().map(|why| Error::left(&changes.journal.instance, &why)));
            return restored;
        }
        Owner::Dead => {}
    }
    // One that was to stay has no file yet.
    let discard = discard || changes.journal.stay == Stay::Planned;
    if !discard && let Err(error) = save_histograms(&mut changes, &mut restored) {
        restored.errors.push(error);
        return restored;
    }
    let journal = &changes.journal;
    if changes.has_instance() && !discard && !journal.is_saved() {
        match save_rest(&changes) {
            Ok(Rest::Saved(saved)) => restored.saved = Some(*saved),
            Ok(Rest::Nothing { taken }) => {
                if let (Some(receiver), 1..) = (&journal.receiver, taken) {
                    let what = format!(
                        "all of its {taken} events were taken from the ring before, and sent to {receiver}"
                    );
                    restored.done.push(what);
                }
            }
            Err(error) => {
                let why = format!(
                    "instance {}: its trace cannot be saved; --discard removes it unsaved",
                    journal.instance
                );
                restored
                    .errors
                    .push(Error::unsaved(&changes.journal.instance, &error.context(why)));
                return restored;
            }
        }
    }
    if changes.has_instance() && !discard && journal.snapshots {
        match snapshot::save_left(&changes) {
            Ok(saved) => restored.snapshot = saved,
            Err(error) => {
                let why = format!(
                    "instance {}: its snapshot cannot be saved; --discard removes it unsaved",
                    journal.instance
                );
                restored
                    .errors
                    .push(Error::snapshot(&changes.journal.instance, &error.context(why)));
                return restored;
            }
        }
    }
    let (done, errors) = changes.undo();
    restored.done.extend(done);
    restored.errors.extend(errors);
    restored
}

/// Saves the histograms of triggers.
fn save_histograms(changes: &mut Changes, restored: &mut Restored) -> Result<()> {
    histograms::pause(changes);
    let saved = histograms::save(changes).with_context(|| {
        let instance = &restored.instance;
        format!(
            "instance {instance}: its histograms cannot be saved; --discard removes them unsaved"
        )
    });
    restored.histograms = saved.map_err(|why| Error::histograms(&restored.instance, &why))?;
    Ok(())
}

/// The part of a recording that its killed recorder left.
enum Rest {
    Saved(Box<Saved>),
    /// The rings are empty, and there are no files.
    Nothing {
        /// Events that the recorder took out of the rings.
        taken: u64,
    },
}

/// Saves what the killed recorder had moved to files and what is left in the rings.
fn save_rest(changes: &Changes) -> anyhow::Result<Rest> {
    let (mut any, mut taken) = (false, 0_u64);
    for changes in changes.existing() {
        let instance = changes.instance();
        instance.write("tracing_on", "0")?;
        any |= !changes.parts().is_empty();
        for cpu in instance.cpus()? {
            let stats = changes.stats(cpu)?;
            any |= stats.entries > 0;
            taken = taken.saturating_add(stats.read);
        }
    }
    if !any {
        return Ok(Rest::Nothing { taken });
    }
    let drains = save::open_drains(changes)?;
    save::save(changes, drains, None)
        .map(|saved| Rest::Saved(Box::new(saved)))
        .context("the rings cannot be saved")
}
