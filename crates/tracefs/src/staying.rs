//! Recordings that go on when the program that began them has ended: they are stopped, read, saved
//! and removed by later programs.
//!
//! The journal leads to them ([`crate::journal`]). It says that the recording stays, so that
//! [`crate::restore`] leaves it alone. While one program works on a recording, it holds a lock of
//! the folder of journals, for which others wait.

use crate::changes::Changes;
use crate::check::check_output;
use crate::error::{Error, Result};
use crate::histograms;
use crate::journal::{self, Journal, Owner, Stay};
use crate::recording::Recording;
use crate::save::{self, Saved};
use anyhow::{Context, bail};
use lastwords_trace::evidence::Cause;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

impl Recording {
    /// Lets the recording go on when this program has ended. [`Staying`] finds it.
    ///
    /// # Errors
    /// The journal cannot be written. Then all that was added is removed.
    pub fn leave(mut self) -> Result<()> {
        self.changes.journal.stay = Stay::Yes;
        let written = self.changes.journal.replace(&self.changes.journals);
        written.map_err(|why| Error::journal(&self.changes.journals, &why))?;
        self.is_over = true;
        Ok(())
    }
}

/// A recording that stays.
#[derive(Debug)]
pub struct Staying {
    changes: Changes,
    /// The folder of the journal, locked.
    _lock: File,
}

impl Staying {
    /// Finds all recordings that stay, by the journals in a folder. One whose program was killed
    /// before it was set up is among them, so that it can be removed. Other programs that look for
    /// them wait until what is returned is dropped.
    ///
    /// # Errors
    /// tracefs is not mounted, or a journal cannot be read.
    pub fn find(journals: &Path) -> Result<Vec<Self>> {
        // A folder that is not there has no journals.
        let Ok(folder) = File::open(journals) else { return Ok(Vec::new()) };
        let locked = flock(&folder, FlockOperation::LockExclusive)
            .with_context(|| journals.display().to_string());
        locked.map_err(|why| Error::journal(journals, &why))?;
        let is_left = |journal: &Journal| match journal.stay {
            Stay::No => false,
            Stay::Planned => journal.owner() == Owner::Dead,
            Stay::Yes => journal.owner() != Owner::OfAnotherBoot,
        };
        let found: Vec<Journal> = journal::list(journals)?.into_iter().filter(is_left).collect();
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let tracefs = lastwords_open::tracefs_folder()?;
        let of = |journal: Journal| {
            let changes =
                Changes { tracefs: tracefs.to_owned(), journals: journals.to_owned(), journal };
            let lock = folder.try_clone().with_context(|| journals.display().to_string());
            Ok(Self { changes, _lock: lock.map_err(|why| Error::journal(journals, &why))? })
        };
        found.into_iter().map(of).collect()
    }

    /// The name of the instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.changes.journal.instance
    }

    /// The names of all instances: the main one, then its buffers.
    pub fn instances(&self) -> impl Iterator<Item = &str> {
        let journal = &self.changes.journal;
        [journal].into_iter().chain(&journal.buffers).map(|own| own.instance.as_str())
    }

    /// Switches tracing on or off. What is in the rings stays.
    ///
    /// # Errors
    /// The instance is gone, or the kernel refuses.
    pub fn switch(&self, on: bool) -> Result<()> {
        let text = if on { "1" } else { "0" };
        let written = || {
            self.check_there()?;
            let mut each = self.changes.each().into_iter();
            each.try_for_each(|changes| changes.instance().write("tracing_on", text))
        };
        written().map_err(|error| Error::instance(self.instance(), error))
    }

    /// Returns the path of a file of one of the instances; none stands for the main one.
    ///
    /// # Errors
    /// The instance is gone, or is none of the recording's.
    pub fn file(&self, instance: Option<&str>, file: &str) -> Result<PathBuf> {
        let name = instance.unwrap_or(self.instance());
        let found = || {
            self.check_there()?;
            let each = self.changes.each();
            let own = each.iter().find(|changes| changes.journal.instance == name);
            let names: Vec<&str> = self.instances().collect();
            let own = own.with_context(|| {
                format!(
                    "instance {name}: it is none of the recording, which has {}",
                    names.join(", ")
                )
            })?;
            Ok(own.instance().path().join(file))
        };
        found().map_err(|error| Error::instance(self.instance(), error))
    }

    fn check_there(&self) -> anyhow::Result<()> {
        match self.changes.each().iter().find(|changes| !changes.has_instance()) {
            Some(gone) => bail!(
                "instance {}: somebody has removed it; `lastwords kernel reset` removes what is left",
                gone.journal.instance
            ),
            None => Ok(()),
        }
    }

    /// Stops tracing, and moves what the rings have into a trace.dat file. Histograms go into a
    /// file beside it, and go on. The second value is true if tracing was on.
    ///
    /// # Errors
    /// The instance is gone, the file exists and `force` is not set, or the trace cannot be saved.
    /// What was moved by then is kept beside the file: another call with the same file goes on.
    pub fn extract(&mut self, output: &Path, force: bool) -> Result<(Saved, bool)> {
        let done = self.move_to(output, force);
        done.map_err(|error| Error::unsaved(self.instance(), &error))
    }

    fn move_to(&mut self, output: &Path, force: bool) -> anyhow::Result<(Saved, bool)> {
        self.check_there()?;
        self.choose_output(output, force)?;
        let (mut was_on, mut enabled) = (false, BTreeSet::new());
        for changes in self.changes.each() {
            let instance = changes.instance();
            was_on |= instance.read("tracing_on")?.trim() == "1";
            enabled.extend(instance.enabled()?);
        }
        self.switch(false)?;
        let histograms = histograms::save(&mut self.changes)?;
        let drains = save::open_drains(&self.changes)?;
        let saved = save::save(&self.changes, drains, Some(&enabled))?;
        self.remove_parts()?;
        if !saved.all().any(|saved| saved.gaps.iter().any(|gap| gap.cause == Cause::Missing)) {
            self.clear()?;
        }
        let journal = &mut self.changes.journal;
        (journal.finished, journal.histograms_saved) = (None, None);
        journal.replace(&self.changes.journals)?;
        Ok((Saved { histograms, ..saved }, was_on))
    }

    /// Notes the file in the journal, which leads to what was moved if this program is killed.
    fn choose_output(&mut self, output: &Path, force: bool) -> anyhow::Result<()> {
        let output = std::path::absolute(output).with_context(|| output.display().to_string())?;
        if self.changes.journal.is_saved() {
            // An earlier one was killed when all was saved.
            self.remove_parts()?;
        }
        let parts = self.changes.each().iter().find_map(|changes| changes.parts().pop());
        let before = &self.changes.journal.output;
        match parts {
            Some((_, part)) if *before != output => bail!(
                "{}: it is left of an `extract` to {} that was killed: repeat that first",
                part.display(),
                before.display()
            ),
            Some(_) => {}
            None => {
                check_output(&output, force)?;
                check_output(&histograms::path(&output), force)?;
            }
        }
        let journal = &mut self.changes.journal;
        for own in [&mut journal.output]
            .into_iter()
            .chain(journal.buffers.iter_mut().map(|own| &mut own.output))
        {
            output.clone_into(own);
        }
        journal.force = force;
        journal.replace(&self.changes.journals)
    }

    /// Removes what was moved out of the rings and is in the file.
    fn remove_parts(&self) -> anyhow::Result<()> {
        let each = self.changes.each();
        let mut parts = each.iter().flat_map(Changes::parts);
        parts.try_for_each(|(_, path)| {
            std::fs::remove_file(&path).with_context(|| path.display().to_string())
        })
    }

    /// Makes the counters of the empty rings zero, so that they count for the next file.
    fn clear(&mut self) -> anyhow::Result<()> {
        for changes in self.changes.each() {
            changes.instance().set("trace", "")?;
        }
        let tracefs = self.changes.tracefs.clone();
        let journal = &mut self.changes.journal;
        let (main, buffers) = (&mut journal.adopted, &mut journal.buffers);
        let main = (main, &journal.instance);
        let others = buffers.iter_mut().map(|own| (&mut own.adopted, &own.instance));
        for (adopted, name) in [main].into_iter().chain(others) {
            if let Some(adopted) = adopted {
                adopted.count(&crate::instance::Instance::named(&tracefs, name))?;
            }
        }
        Ok(())
    }

    /// Removes all that the recording has added, and restores the settings. What the rings have is
    /// lost. Returns what was removed and what could not be; then a second call tries again.
    #[must_use]
    pub fn reset(self) -> (Vec<String>, Vec<Error>) {
        self.changes.undo()
    }
}
