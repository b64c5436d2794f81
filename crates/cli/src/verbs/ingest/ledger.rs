//! The list of the inputs of a data set that were tried.

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The file in a data set with a line for each input that was tried.
pub(super) const LEDGER: &str = "ingest.jsonl";
/// The file in a data set with the inputs that cannot be read.
pub(super) const DEAD_LETTERS: &str = "dead-letters.jsonl";
/// Most files of a folder whose sizes and times are taken.
const MOST_FILES: usize = 1 << 16;

/// A line of the ledger.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) modified_ns: i128,
    /// The ids of its crashes.
    pub(super) crashes: Vec<String>,
    pub(super) events: u64,
    /// Why it cannot be read; null if it is in the data set.
    pub(super) error: Option<String>,
    /// Why it holds nothing to recover; null if it does.
    #[serde(default)]
    pub(super) nothing: Option<String>,
    pub(super) tries: u32,
}

impl Entry {
    /// Makes the entry of an input that was not tried yet.
    pub(super) fn new(path: &Path, measure: Measure) -> Self {
        Self {
            path: path.display().to_string(),
            bytes: measure.bytes,
            modified_ns: measure.modified,
            crashes: Vec::new(),
            events: 0,
            error: None,
            nothing: None,
            tries: 0,
        }
    }

    /// Returns true if the input has not changed since.
    pub(super) fn is_of(&self, measure: Measure) -> bool {
        (self.bytes, self.modified_ns) == (measure.bytes, measure.modified)
    }
}

/// The size of an input, and the time at which it was changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Measure {
    pub(super) bytes: u64,
    pub(super) modified: i128,
}

impl Measure {
    /// Measures a file, or the files in a folder.
    pub(super) fn of_path(path: &Path) -> Self {
        let (mut measure, mut left) = (Self::default(), vec![path.to_owned()]);
        for _ in 0..MOST_FILES {
            let Some(path) = left.pop() else { break };
            let Ok(meta) = path.metadata() else { continue };
            let modified = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
            measure.modified = measure.modified.max(modified);
            if meta.is_dir() {
                let entries = path.read_dir().into_iter().flatten();
                left.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
            } else {
                measure.bytes += meta.len();
            }
        }
        measure
    }
}

/// The list of inputs that were tried. Holding it locks the data set against other runs.
pub(super) struct Ledger {
    folder: PathBuf,
    file: File,
    /// The newest entry of each path.
    pub(super) entries: BTreeMap<String, Entry>,
}

impl Ledger {
    /// Reads the list of a data set, and locks it.
    ///
    /// # Errors
    /// The list cannot be read, or another run holds its lock.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(LEDGER);
        let shown = || path.display().to_string();
        let open = File::options().read(true).append(true).create(true).open(&path);
        let mut file = open.with_context(shown)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("{}: another `lastwords ingest` writes into this data set", shown());
        }
        let (mut entries, mut is_torn) = (BTreeMap::new(), false);
        for line in BufReader::new(&file).split(b'\n') {
            let line = line.with_context(shown)?;
            // The last line of a run that was killed may be torn. Its input is read again.
            is_torn = false;
            match serde_json::from_slice::<Entry>(&line) {
                Ok(entry) => _ = entries.insert(entry.path.clone(), entry),
                Err(_) => is_torn = !line.is_empty(),
            }
        }
        if is_torn {
            file.write_all(b"\n").with_context(shown)?;
        }
        Ok(Self { folder: folder.to_owned(), file, entries })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, entry: Entry) -> anyhow::Result<()> {
        let line = format!("{}\n", serde_json::to_string(&entry)?);
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| self.folder.join(LEDGER).display().to_string())?;
        self.entries.insert(entry.path.clone(), entry);
        Ok(())
    }

    /// Writes the list of the inputs that cannot be read. Returns their number.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write_dead(&self) -> anyhow::Result<usize> {
        let dead: Vec<&Entry> =
            self.entries.values().filter(|entry| entry.error.is_some()).collect();
        let path = self.folder.join(DEAD_LETTERS);
        let shown = || path.display().to_string();
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).with_context(shown)?;
        for entry in &dead {
            writeln!(file, "{}", serde_json::to_string(entry)?).with_context(shown)?;
        }
        file.persist(&path).map_err(|error| error.error).with_context(shown)?;
        Ok(dead.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, error: Option<&str>) -> Entry {
        Entry {
            path: path.to_owned(),
            bytes: 7,
            modified_ns: 8,
            crashes: vec!["id".to_owned()],
            events: 9,
            error: error.map(str::to_owned),
            nothing: None,
            tries: 1,
        }
    }

    #[test]
    fn a_ledger_whose_last_line_is_torn_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(place.path()).unwrap();
        ledger.add(entry("a", None)).unwrap();
        ledger.add(entry("b", Some("damaged"))).unwrap();
        assert!(Ledger::open(place.path()).is_err(), "it is locked");
        ledger.file.write_all(b"{\"path\":\"c\",\"by").unwrap();
        drop(ledger);
        let mut ledger = Ledger::open(place.path()).unwrap();
        assert_eq!(ledger.entries.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(ledger.write_dead().unwrap(), 1);
        let dead = std::fs::read_to_string(place.path().join(DEAD_LETTERS)).unwrap();
        assert!(dead.contains("damaged") && dead.lines().count() == 1, "{dead}");
        ledger.add(entry("b", None)).unwrap();
        drop(ledger);
        let ledger = Ledger::open(place.path()).unwrap();
        assert_eq!((ledger.entries.len(), ledger.write_dead().unwrap()), (2, 0));
    }

    #[test]
    fn a_change_of_an_input_is_seen() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a"), "12").unwrap();
        let before = Measure::of_path(place.path());
        assert_eq!((before.bytes, before), (2, Measure::of_path(place.path())));
        std::fs::write(place.path().join("a"), "123").unwrap();
        assert_ne!(before, Measure::of_path(place.path()));
    }
}
