//! Implements `lastwords ingest`: adds the crashes in folders to a data set, one input after the
//! other.
//!
//! The file `ingest.jsonl` of the data set has a line for each input that was tried. A run that was
//! killed goes on behind it: an input that is in the list, and has not changed since, is not read
//! again. What cannot be read is in `dead-letters.jsonl`, and is tried again by the next run.

use crate::exit::Outcome;
use crate::input::{Input, Search};
use crate::output::tables;
use crate::progress::Progress;
use crate::say;
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords_arrow::DataSet;
use lastwords_open::{Inputs, Options, chain};
use lastwords_render::missing::count;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The file in a data set with a line for each input that was tried.
const LEDGER: &str = "ingest.jsonl";
/// The file in a data set with the inputs that cannot be read.
const DEAD_LETTERS: &str = "dead-letters.jsonl";
/// The time before an input is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Most files of a folder whose sizes and times are taken.
const MOST_FILES: usize = 1 << 16;

/// The arguments of `ingest`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "lastwords ingest [OPTIONS] --into <DATASET> <INPUT>...")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// The folder of the data set
    ///
    /// It is made if it does not exist. DATASET/v1/TABLE/day=DATE/part-CRASH.parquet has the rows
    /// of a crash in each of the tables events, losses, traces and crashes. A crash that is added
    /// again replaces itself.
    #[arg(long, value_name = "DATASET")]
    into: PathBuf,

    /// Try an input that cannot be read this many times more
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::value::number::<u32>)]
    retries: u32,

    /// Read inputs again that are in the data set already
    #[arg(long)]
    again: bool,
}

/// A line of the ledger.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    path: String,
    bytes: u64,
    modified_ns: i128,
    /// The ids of its crashes.
    crashes: Vec<String>,
    events: u64,
    /// Why it cannot be read; null if it is in the data set.
    error: Option<String>,
    tries: u32,
}

impl Entry {
    fn is_of(&self, measure: Measure) -> bool {
        (self.bytes, self.modified_ns) == (measure.bytes, measure.modified)
    }
}

/// The size of an input, and the time at which it was changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Measure {
    bytes: u64,
    modified: i128,
}

impl Measure {
    fn of_path(path: &Path) -> Self {
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
struct Ledger {
    folder: PathBuf,
    file: File,
    /// The newest entry of each path.
    entries: BTreeMap<String, Entry>,
}

impl Ledger {
    fn open(folder: &Path) -> anyhow::Result<Self> {
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

    fn add(&mut self, entry: Entry) -> anyhow::Result<()> {
        let line = format!("{}\n", serde_json::to_string(&entry)?);
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| self.folder.join(LEDGER).display().to_string())?;
        self.entries.insert(entry.path.clone(), entry);
        Ok(())
    }

    /// Writes the list of the inputs that cannot be read. Returns their number.
    fn write_dead(&self) -> anyhow::Result<usize> {
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

/// The counts of a run.
#[derive(Debug, Default)]
struct Counts {
    inputs: u64,
    crashes: u64,
    known: u64,
    failed: u64,
}

/// Runs `ingest`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if let Some(missing) = args.input.inputs.iter().find(|input| !Path::new(input).exists()) {
        bail!("{}: no such file or folder", plain(missing));
    }
    let set = DataSet::open(&args.into)?;
    let mut ledger = Ledger::open(&args.into)?;
    let left = set.clean()?;
    if left > 0 {
        say::note(format_args!(
            "{} of a writer that was killed removed",
            count(left as u64, "file")
        ));
    }
    let found = Inputs::find(&args.input.inputs, &Options::default())?;
    let inputs: Vec<(PathBuf, Measure)> =
        found.paths().into_iter().map(|path| (path.clone(), Measure::of_path(&path))).collect();
    let total = inputs.iter().map(|(_, measure)| measure.bytes).sum::<u64>();
    let title = format!("{}", args.into.display());
    let (mut bar, mut done, mut counts) = (Progress::new(title, total), 0, Counts::default());
    for (path, measure) in &inputs {
        let key = path.display().to_string();
        let known = ledger.entries.get(&key);
        let is_known = known.is_some_and(|own| own.error.is_none() && own.is_of(*measure));
        match is_known && !args.again {
            true => counts.known += 1,
            false => ledger.add(one(args, &set, path, *measure, &mut counts))?,
        }
        done += measure.bytes;
        bar.set(done);
    }
    drop(bar);
    let dead = ledger.write_dead()?;
    say::line(format_args!(
        "{}: {} {} of {} added, {} known already",
        plain(&args.into.display().to_string()),
        counts.crashes,
        if counts.crashes == 1 { "crash" } else { "crashes" },
        count(counts.inputs, "input"),
        count(counts.known, "input"),
    ));
    if dead > 0 {
        let list = args.into.join(DEAD_LETTERS).display().to_string();
        say::error(format_args!(
            "{} cannot be read: {}",
            count(dead as u64, "input"),
            plain(&list)
        ));
    }
    if inputs.is_empty() {
        bail!("nothing to recover is there");
    }
    Ok(if counts.failed > 0 { Outcome::Negative } else { Outcome::Done })
}

/// Adds the crashes of one input. An error is tried again, and is then part of the entry.
fn one(args: &Args, set: &DataSet, path: &Path, measure: Measure, counts: &mut Counts) -> Entry {
    let mut entry = Entry {
        path: path.display().to_string(),
        bytes: measure.bytes,
        modified_ns: measure.modified,
        crashes: Vec::new(),
        events: 0,
        error: None,
        tries: 0,
    };
    loop {
        entry.tries += 1;
        match add(args, set, path) {
            Ok(added) => {
                counts.inputs += 1;
                counts.crashes += added.len() as u64;
                entry.error = None;
                entry.events = added.iter().map(|(_, events)| events).sum();
                entry.crashes = added.into_iter().map(|(id, _)| id).collect();
                return entry;
            }
            Err(error) => entry.error = Some(chain(&error)),
        }
        if entry.tries > args.retries {
            counts.failed += 1;
            let why = entry.error.as_deref().unwrap_or_default();
            match why.starts_with(&entry.path) {
                true => say::error(format_args!("{}", plain(why))),
                false => say::error(format_args!("{}: {}", plain(&entry.path), plain(why))),
            }
            return entry;
        }
        thread::sleep(PAUSE);
    }
}

/// Adds the crashes of one input. Returns the id and the number of events of each.
fn add(args: &Args, set: &DataSet, path: &Path) -> anyhow::Result<Vec<(String, u64)>> {
    let path = std::path::absolute(path)?;
    let Some(word) = path.to_str() else { bail!("its name is not UTF-8") };
    args.input.only(word).read(Search::Checked, |traces| {
        let mut added = Vec::new();
        for crash in tables::crashes(&traces) {
            let line = tables::add(set, &crash, &traces)?;
            added.push((crash.id, line.events.unwrap_or(0)));
        }
        if let Some(fault) = traces.faults.first() {
            bail!("{fault}");
        }
        Ok(added)
    })
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
