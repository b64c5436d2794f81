//! The additions of a recording to the machine's tracing, and their removal.

use crate::error::Error;
use crate::instance::Instance;
use crate::journal::Journal;
use lastwords_ftrace::Stats;
use std::path::{Path, PathBuf};

/// The changes of a recording, by its journal.
#[derive(Debug, Clone)]
pub(crate) struct Changes {
    pub(crate) tracefs: PathBuf,
    /// The folder of journals.
    pub(crate) journals: PathBuf,
    pub(crate) journal: Journal,
}

impl Changes {
    pub(crate) fn top(&self) -> Instance {
        Instance::top(&self.tracefs)
    }

    /// Returns the changes of each instance: those of the main one, and those of its buffers.
    pub(crate) fn each(&self) -> Vec<Self> {
        let of = |journal: &Journal| Self { journal: journal.clone(), ..self.clone() };
        [&self.journal].into_iter().chain(&self.journal.buffers).map(of).collect()
    }

    /// Returns the changes of each instance that exists.
    pub(crate) fn existing(&self) -> Vec<Self> {
        self.each().into_iter().filter(Self::has_instance).collect()
    }

    pub(crate) fn instance(&self) -> Instance {
        Instance::named(&self.tracefs, &self.journal.instance)
    }

    /// Returns what the counters of a CPU's ring counted since the recording began.
    pub(crate) fn stats(&self, cpu: u32) -> anyhow::Result<Stats> {
        let now = self.instance().stats(cpu)?;
        Ok(self.journal.adopted.as_ref().map_or(now, |adopted| adopted.since(cpu, now)))
    }

    /// Returns true if the instance exists and is the one in which the recording records.
    pub(crate) fn has_instance(&self) -> bool {
        let found = self.instance().inode();
        found.is_some() && (self.journal.inode.is_none() || self.journal.inode == found)
    }

    /// Returns the file that the sub-buffers of a CPU go to until the trace is saved.
    pub(crate) fn part(&self, cpu: u32) -> PathBuf {
        beside(&self.journal.output, &format!(".{}.cpu{cpu}", self.journal.instance))
    }

    /// Returns the files that [`Changes::part`] names and that exist, by CPU.
    pub(crate) fn parts(&self) -> Vec<(u32, PathBuf)> {
        numbered_beside(&self.journal.output, &format!(".{}.cpu", self.journal.instance))
    }

    /// Removes all that was added, and the journal if all of it could be removed. Returns what was
    /// removed and what could not be. Parts that no longer exist are skipped, so the function can
    /// be called again.
    pub(crate) fn undo(&self) -> (Vec<String>, Vec<Error>) {
        let (mut done, mut errors) = (Vec::new(), Vec::new());
        let mut note = |what: String, result: anyhow::Result<bool>| match result {
            Ok(true) => done.push(what),
            Ok(false) => {}
            Err(why) => errors.push(Error::left(&self.journal.instance, &why)),
        };
        let Journal { definitions, shared, .. } = &self.journal;
        let each = self.each();
        for changes in self.existing() {
            let (instance, name) = (changes.instance(), &changes.journal.instance);
            match &changes.journal.adopted {
                Some(adopted) => note(
                    format!("restored the settings of the instance {name}"),
                    adopted.restore(&instance).map(|()| true),
                ),
                None => {
                    note(format!("removed the instance {name}"), instance.remove().map(|()| true))
                }
            }
        }
        // The tracer of the instance is gone now; one in use refuses to change its options.
        for setting in shared {
            let what = format!("restored {} of the machine's tracing", setting.file);
            note(what, setting.restore(&self.top()));
        }
        for definition in definitions.iter().rev() {
            let what = format!("removed the event {}:{}", definition.system, definition.name);
            note(what, definition.remove(&self.top()));
        }
        for (_, path) in each.iter().flat_map(Self::parts) {
            let removed = std::fs::remove_file(&path).map(|()| true);
            note(
                format!("removed the file {}", path.display()),
                removed.map_err(|error| named(&path, error)),
            );
        }
        if errors.is_empty()
            && self.journal.path(&self.journals).exists()
            && let Err(why) = self.journal.remove(&self.journals)
        {
            errors.push(Error::left(&self.journal.instance, &why));
        }
        (done, errors)
    }
}

fn named(path: &Path, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("{}: cannot be removed", path.display()))
}

/// Returns the path with something appended to its name.
pub(crate) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    PathBuf::from(name)
}

/// Returns the files beside `path` that have this and a number appended to its name, by the number.
pub(crate) fn numbered_beside(path: &Path, more: &str) -> Vec<(u32, PathBuf)> {
    let prefix = beside(path, more);
    let (Some(folder), Some(name)) =
        (prefix.parent(), prefix.file_name().and_then(|name| name.to_str()))
    else {
        return Vec::new();
    };
    let number = |of: std::ffi::OsString| of.to_str()?.strip_prefix(name)?.parse::<u32>().ok();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries.filter_map(|entry| number(entry.file_name())).collect();
    found.sort_unstable();
    found.into_iter().map(|number| (number, beside(&prefix, &number.to_string()))).collect()
}
