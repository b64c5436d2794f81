//! The list of the inputs of a data set that were tried.

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
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

/// The list of inputs that were tried. Several runs may add to it at the same time: a run holds the
/// lock of the file while it reads what the others have added, and adds a line.
pub(super) struct Ledger {
    folder: PathBuf,
    file: File,
    /// Bytes of the file that were read.
    read: u64,
    /// The newest entry of each path.
    entries: BTreeMap<String, Entry>,
}

impl Ledger {
    /// Reads the list of a data set.
    ///
    /// # Errors
    /// The list cannot be read or locked.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(LEDGER);
        let open = File::options().read(true).append(true).create(true).open(&path);
        let file = open.with_context(|| path.display().to_string())?;
        let mut ledger =
            Self { folder: folder.to_owned(), file, read: 0, entries: BTreeMap::new() };
        ledger.locked(Self::catch_up)?;
        Ok(ledger)
    }

    /// Does something while no other run does. An error names the file.
    fn locked<T>(&mut self, run: impl FnOnce(&mut Self) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let lock = |file: &File, how| rustix::io::retry_on_intr(|| flock(file, how));
        let locked = lock(&self.file, FlockOperation::LockExclusive).map_err(Into::into);
        let done = locked.and_then(|()| run(self));
        // Without it, the lock ends with the run.
        let _ = lock(&self.file, FlockOperation::Unlock);
        done.with_context(|| self.folder.join(LEDGER).display().to_string())
    }

    /// Reads the lines that were added since. A line that a killed run left torn is ended: its input
    /// is read again. The file must be locked: nobody is writing a line.
    fn catch_up(&mut self) -> anyhow::Result<()> {
        self.file.seek(SeekFrom::Start(self.read))?;
        let (mut reader, mut line) = (BufReader::new(&self.file), Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            self.read += line.len() as u64;
            if line.last() != Some(&b'\n') {
                (&self.file).write_all(b"\n")?;
                self.read += 1;
            }
            if let Ok(entry) = serde_json::from_slice::<Entry>(&line) {
                self.entries.insert(entry.path.clone(), entry);
            }
            line.clear();
        }
        Ok(())
    }

    /// Returns the newest entry of an input, also of another run.
    ///
    /// # Errors
    /// The list cannot be read.
    pub(super) fn newest(&mut self, path: &str) -> anyhow::Result<Option<&Entry>> {
        if self.file.metadata().map_or(true, |meta| meta.len() != self.read) {
            self.locked(Self::catch_up)?;
        }
        Ok(self.entries.get(path))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, entry: Entry) -> anyhow::Result<()> {
        let line = format!("{}\n", serde_json::to_string(&entry)?);
        self.locked(|ledger| {
            ledger.catch_up()?;
            ledger.file.write_all(line.as_bytes())?;
            ledger.file.sync_data()?;
            ledger.read += line.len() as u64;
            ledger.entries.insert(entry.path.clone(), entry);
            Ok(())
        })
    }

    /// Writes the list of the inputs that cannot be read, of all runs. Returns their number.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write_dead(&mut self) -> anyhow::Result<usize> {
        self.locked(|ledger| {
            ledger.catch_up()?;
            ledger.replace_dead()
        })
    }

    fn replace_dead(&self) -> anyhow::Result<usize> {
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
        ledger.file.write_all(b"{\"path\":\"c\",\"by").unwrap();
        drop(ledger);
        let mut ledger = Ledger::open(place.path()).unwrap();
        assert_eq!(ledger.entries.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(ledger.write_dead().unwrap(), 1);
        let dead = std::fs::read_to_string(place.path().join(DEAD_LETTERS)).unwrap();
        assert!(dead.contains("damaged") && dead.lines().count() == 1, "{dead}");
        ledger.add(entry("b", None)).unwrap();
        drop(ledger);
        let mut ledger = Ledger::open(place.path()).unwrap();
        assert_eq!((ledger.entries.len(), ledger.write_dead().unwrap()), (2, 0));
    }

    #[test]
    fn several_runs_share_a_ledger() {
        let place = tempfile::tempdir().unwrap();
        let mut one = Ledger::open(place.path()).unwrap();
        let mut other = Ledger::open(place.path()).unwrap();
        one.add(entry("a", Some("damaged"))).unwrap();
        assert_eq!(other.newest("a").unwrap().unwrap().error.as_deref(), Some("damaged"));
        assert!(other.newest("b").unwrap().is_none());
        other.add(entry("b", Some("empty"))).unwrap();
        other.add(entry("a", None)).unwrap();
        assert_eq!(one.write_dead().unwrap(), 1, "what the other run has added counts");
        assert_eq!(one.newest("a").unwrap().unwrap().error, None);
        std::thread::scope(|scope| {
            for (ledger, begin) in [(&mut one, 0), (&mut other, 100)] {
                scope.spawn(move || {
                    (begin..begin + 50)
                        .for_each(|n| ledger.add(entry(&n.to_string(), None)).unwrap());
                });
            }
        });
        let lines = std::fs::read_to_string(place.path().join(LEDGER)).unwrap();
        assert_eq!(lines.lines().count(), 103);
        assert_eq!(Ledger::open(place.path()).unwrap().entries.len(), 102);
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
