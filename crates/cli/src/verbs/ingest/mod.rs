//! Implements `lastwords ingest`: adds the crashes in folders to a data set, one input after the
//! other.
//!
//! The file `ingest.jsonl` of the data set has a line for each input that was tried. A run that was
//! killed goes on behind it: an input that is in the list, and has not changed since, is not read
//! again. What holds nothing to recover is counted and passed over; so are compressed files in a
//! folder, with a note. What cannot be read is in `dead-letters.jsonl`, a compressed file that was
//! named among it, and is tried again by the next run. If the data set cannot be written, the run
//! ends: that is no fault of an input. Several runs may add to a data set at the same time.

mod ledger;

use crate::exit::Outcome;
use crate::input::{Input, Search};
use crate::metrics;
use crate::output::tables;
use crate::progress::{Progress, human_bytes};
use crate::say;
use crate::table::plain;
use anyhow::bail;
use lastwords_arrow::{self as arrow, DataSet, Keep};
use lastwords_open::{Failure, Inputs, Options, Reason, chain};
use lastwords_render::missing::count;
use ledger::{DEAD_LETTERS, Entry, Ledger, Measure};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

/// The time before an input is tried again for the first time. It doubles each time.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest time before an input is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The arguments of `ingest`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "lastwords ingest [OPTIONS] --into <DATASET> <INPUT>...")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// The folder of the data set
    ///
    /// It is made if it does not exist. DATASET/v1/TABLE/day=DATE/part-CRASH.parquet has the rows
    /// of a crash in each of the tables events, slice, sched, thread, process, log, losses, traces
    /// and crashes. A crash that is added again replaces itself.
    #[arg(long, value_name = "DATASET")]
    into: PathBuf,

    /// Try an input this often again if reading fails
    ///
    /// Only errors that may pass count: of a device, of a file server, of too many open files. What
    /// is damaged is not tried again by this run.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = crate::value::number::<u32>)]
    retries: u32,

    /// Read inputs again that are in the data set already
    #[arg(long)]
    again: bool,

    /// Remove crashes that are older than this many days
    ///
    /// The time of the crash counts or, if it is not known, the time at which it was added. Crashes
    /// are removed after the inputs were added. The list of inputs keeps theirs, so that they are
    /// not added again.
    #[arg(long, value_name = "DAYS", value_parser = crate::value::number::<u32>)]
    keep_days: Option<u32>,

    /// Remove the oldest crashes above this size (K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = super::record::bytes)]
    keep_size: Option<u64>,
}

impl Args {
    /// Returns what of the data set is kept.
    fn keep(&self) -> Keep {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let age = |days: u32| Duration::from_secs(86_400) * days;
        let since = self.keep_days.map(|days| now.saturating_sub(age(days)).as_nanos());
        let since = since.map(|since| i64::try_from(since).unwrap_or(i64::MAX));
        Keep { since, bytes: self.keep_size }
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
struct Counts {
    inputs: u64,
    crashes: u64,
    known: u64,
    nothing: u64,
    /// Compressed files in folders.
    compressed: u64,
    /// The first one of them.
    first: Option<String>,
    /// Sessions with counters, which no table has.
    counted: u64,
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
        let files = count(left as u64, "file");
        say::note(format_args!("{files} of a writer that was killed removed"));
    }
    let found = Inputs::find(&args.input.inputs, &Options::default())?;
    let inputs: Vec<(PathBuf, Measure)> =
        found.paths().into_iter().map(|path| (path.clone(), Measure::of_path(&path))).collect();
    let mut counts = Counts::default();
    for failure in found.failures() {
        refused(&failure, &mut ledger, &mut counts)?;
    }
    let total = inputs.iter().map(|(_, measure)| measure.bytes).sum::<u64>();
    let title = format!("{}", args.into.display());
    let (mut bar, mut done) = (Progress::new(title, total), 0);
    for (path, measure) in &inputs {
        let known = ledger.newest(&path.display().to_string())?;
        let known = known.filter(|own| own.error.is_none() && own.is_of(*measure) && !args.again);
        match known {
            Some(known) if known.nothing.is_some() => counts.nothing += 1,
            Some(_) => counts.known += 1,
            None => {
                let read = || add(args, &set, path);
                let entry = Entry::new(path, *measure);
                ledger.add(one(entry, args.retries, &thread::sleep, read, &mut counts)?)?;
            }
        }
        done += measure.bytes;
        bar.set(done);
    }
    drop(bar);
    report(args, &counts, ledger.write_dead()?);
    let removed = set.retain(args.keep())?;
    if !removed.is_empty() {
        let bytes: u64 = removed.iter().map(|own| own.bytes).sum();
        let noun = if removed.len() == 1 { "crash" } else { "crashes" };
        let (count, size) = (removed.len(), human_bytes(bytes));
        say::line(format_args!("the {count} oldest {noun} removed, {size}"));
    }
    if inputs.is_empty() && counts.failed == 0 && counts.compressed == 0 {
        bail!("nothing to recover is there");
    }
    Ok(if counts.failed > 0 { Outcome::Negative } else { Outcome::Done })
}

/// Counts an input that is none. One that should be one is added to the ledger.
fn refused(failure: &Failure, ledger: &mut Ledger, counts: &mut Counts) -> anyhow::Result<()> {
    match failure.reason {
        Reason::NothingToRecover => {
            counts.nothing += 1;
            return Ok(());
        }
        Reason::Compressed => {
            counts.compressed += 1;
            counts.first.get_or_insert_with(|| failure.why.clone());
            return Ok(());
        }
        _ => {}
    }
    counts.failed += 1;
    say::error(plain(&failure.why));
    let Some(path) = &failure.path else { return Ok(()) };
    let error = Some(failure.why.clone());
    ledger.add(Entry { error, tries: 1, ..Entry::new(path, Measure::of_path(path)) })
}

/// Prints the counts of a run. `dead` is the number of inputs that cannot be read, of all runs.
fn report(args: &Args, counts: &Counts, dead: usize) {
    say::line(format_args!(
        "{}: {} {} of {} added, {} known already",
        plain(&args.into.display().to_string()),
        counts.crashes,
        if counts.crashes == 1 { "crash" } else { "crashes" },
        count(counts.inputs, "input"),
        count(counts.known, "input"),
    ));
    if counts.nothing > 0 {
        let inputs = count(counts.nothing, "input");
        say::note(format_args!("{inputs} without anything to recover passed over"));
    }
    if let Some(first) = &counts.first {
        let files = count(counts.compressed, "compressed file");
        say::note(format_args!("{files} not opened, the first: {}", plain(first)));
    }
    if counts.counted > 0 {
        let sessions = count(counts.counted, "session");
        say::note(format_args!(
            "the counters and histograms of {sessions} are not in the data set: `lastwords counters INPUT` prints them"
        ));
    }
    if dead > 0 {
        let list = args.into.join(DEAD_LETTERS).display().to_string();
        say::error(format_args!(
            "{} cannot be read: {}",
            count(dead as u64, "input"),
            plain(&list)
        ));
    }
}

/// The crashes of an input that were added.
#[derive(Default)]
struct Added {
    /// The id and the number of events of each crash.
    crashes: Vec<(String, u64)>,
    /// Sessions with counters.
    counted: u64,
}

/// Adds the crashes of one input, with `read`. An error that may pass is tried again, after a
/// pause. The last error is part of the entry.
///
/// # Errors
/// The data set cannot be written.
fn one(
    mut entry: Entry,
    retries: u32,
    pause: &dyn Fn(Duration),
    mut read: impl FnMut() -> (Added, anyhow::Result<()>),
    counts: &mut Counts,
) -> anyhow::Result<Entry> {
    let mut wait = PAUSE;
    let (added, error) = loop {
        entry.tries += 1;
        let (added, done) = read();
        let Err(error) = done else { break (added, None) };
        if error.downcast_ref::<arrow::Error>().is_some_and(arrow::Error::is_of_output) {
            return Err(error);
        }
        let reason = error.downcast_ref::<Failure>().map(|failure| failure.reason);
        if reason != Some(Reason::MayPass) || entry.tries > retries {
            break (added, Some((error, reason)));
        }
        pause(wait);
        wait = (wait * 2).min(LONGEST_PAUSE);
    };
    counts.crashes += added.crashes.len() as u64;
    counts.counted += added.counted;
    entry.events = added.crashes.iter().map(|(_, events)| events).sum();
    entry.crashes = added.crashes.into_iter().map(|(id, _)| id).collect();
    match error {
        None => counts.inputs += 1,
        Some((error, Some(Reason::NothingToRecover))) if entry.crashes.is_empty() => {
            counts.nothing += 1;
            entry.nothing = Some(chain(&error));
        }
        Some((error, _)) => {
            counts.failed += 1;
            let why = chain(&error);
            match why.starts_with(&entry.path) {
                true => say::error(plain(&why)),
                false => say::error(format_args!("{}: {}", plain(&entry.path), plain(&why))),
            }
            entry.error = Some(why);
        }
    }
    Ok(entry)
}

/// Adds the crashes of one input. Returns those that were added, also if a part of the input cannot
/// be read.
fn add(args: &Args, set: &DataSet, path: &Path) -> (Added, anyhow::Result<()>) {
    let mut added = Added::default();
    let done = std::path::absolute(path).map_err(Into::into).and_then(|path| {
        let Some(word) = path.to_str() else { bail!("its name is not UTF-8") };
        args.input.only(word).read(Search::Checked, |traces| {
            for crash in tables::crashes(&traces) {
                let line = tables::add(set, &crash, &traces)?;
                let own = crash.traces.iter().filter_map(|at| traces.all.get(*at));
                added.counted += own.filter_map(metrics::of_trace).count() as u64;
                added.crashes.push((crash.id, line.events.unwrap_or(0)));
            }
            traces.faults.first().map_or(Ok(()), |fault| Err(fault.clone().into()))
        })
    });
    (added, done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_open::Severity;
    use std::cell::RefCell;

    fn failure(reason: Reason) -> anyhow::Error {
        let (severity, why) = (Severity::Error, "x: why".to_owned());
        Failure { path: None, severity, reason, why }.into()
    }

    /// The entry of an input whose tries end with these reasons, and how long each pause was.
    fn tried(reasons: &[Reason]) -> (Entry, Vec<u128>, Counts) {
        let (mut counts, pauses) = (Counts::default(), RefCell::new(Vec::new()));
        let mut left = reasons.iter();
        let read = || match left.next() {
            Some(reason) => (Added::default(), Err(failure(*reason))),
            None => (Added { crashes: vec![("id".to_owned(), 7)], counted: 0 }, Ok(())),
        };
        let pause = |time: Duration| pauses.borrow_mut().push(time.as_millis());
        let entry = Entry::new(Path::new("x"), Measure::default());
        let entry = one(entry, 2, &pause, read, &mut counts).unwrap();
        (entry, pauses.into_inner(), counts)
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let (entry, pauses, counts) = tried(&[Reason::MayPass, Reason::MayPass]);
        assert_eq!((entry.tries, entry.events, entry.error), (3, 7, None));
        assert_eq!((pauses.as_slice(), counts.inputs), (&[200, 400][..], 1));
        let (entry, pauses, counts) = tried(&[Reason::MayPass; 3]);
        assert_eq!((entry.tries, entry.error.as_deref()), (3, Some("x: why")));
        assert_eq!((pauses.len(), counts.failed), (2, 1));
        let (entry, pauses, counts) = tried(&[Reason::Unreadable]);
        assert_eq!((entry.tries, entry.error.as_deref()), (1, Some("x: why")));
        assert_eq!((pauses.len(), counts.failed), (0, 1));
        let (entry, pauses, counts) = tried(&[Reason::NothingToRecover]);
        assert_eq!((entry.error, entry.nothing.as_deref()), (None, Some("x: why")));
        assert_eq!((pauses.len(), counts.failed, counts.nothing), (0, 0, 1));
    }

    #[test]
    fn a_data_set_that_cannot_be_written_is_no_fault_of_an_input() {
        let full = || arrow::Error::Output(std::io::Error::from_raw_os_error(28));
        let read = || (Added::default(), Err(anyhow::Error::from(full()).context("id")));
        let entry = Entry::new(Path::new("x"), Measure::default());
        let pause = |_| panic!("tried again");
        let ran = one(entry, 9, &pause, read, &mut Counts::default());
        assert!(ran.unwrap_err().downcast_ref::<arrow::Error>().is_some());
    }
}
