//! Starts the program of a shape, and recovers what it left.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rig::process::Killed;
use rig::scratch;

use crate::judge::{Format, Lack, Report, Sum, is_span_text, judge};
use crate::model::{Model, Span};
use crate::shape::{Rings, Shape};
use crate::{found, lines, perfetto};

/// Longest wait for a program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a shape in a new folder, and judges it.
/// CTF is read by `babeltrace`, if there is one.
pub(crate) fn run(
    lastwords: &Path,
    babeltrace: Option<&Path>,
    seed: u64,
    shape: &Shape,
    folder: &Path,
) -> Result<Sum> {
    scratch::private(folder)?;
    let log = std::fs::File::create(folder.join("log"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["record", "--seed", &seed.to_string(), "--shape", &shape.index.to_string()])
        .arg(folder);
    command.env_remove("LASTWORDS").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = Killed(command.spawn()?);
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        ensure!(begun.elapsed() < PATIENCE, "the program does not end");
        std::thread::sleep(Duration::from_millis(1));
    };
    let said = std::fs::read_to_string(folder.join("log"))?;
    let is_killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    ensure!(is_killed && said.is_empty(), "the program ended by itself: {status}\n{said}");
    let report = report(shape, folder)?;
    let first = PathBuf::from(std::fs::read_to_string(folder.join("first"))?);
    let sessions = sessions(folder)?;
    ensure!(sessions.len() == 1 + usize::from(shape.has_second), "{} sessions", sessions.len());
    let mut total = Sum::default();
    for (number, session) in sessions.iter().enumerate() {
        let is_first = *session == first;
        let reader = Reader {
            lastwords,
            babeltrace,
            shape,
            session,
            folder: folder.join(format!("to-{number}")),
        };
        std::fs::create_dir(&reader.folder)?;
        let rings = if is_first { shape.rings } else { Rings::Large };
        let sum = reader.judge(&Model::follow(shape, is_first), &report, rings);
        total.add(
            &sum.with_context(
                || if is_first { "the first session" } else { "the second session" },
            )?,
        );
    }
    Ok(total)
}

/// A session that is read.
struct Reader<'a> {
    lastwords: &'a Path,
    babeltrace: Option<&'a Path>,
    shape: &'a Shape,
    session: &'a Path,
    /// For what is recovered.
    folder: PathBuf,
}

impl Reader<'_> {
    fn judge(&self, model: &Model, report: &Report, rings: Rings) -> Result<Sum> {
        let shape = self.shape;
        let account = Account::read(self.lastwords, self.session)?;
        let lack = match rings {
            Rings::Large => Lack::Nothing,
            Rings::Small { discard: true, .. } => Lack::Any { refused: account.refused() },
            Rings::Small { .. } => Lack::Oldest { refused: account.refused() },
        };
        let bytes = self.recover("json")?;
        let found = found::json(std::str::from_utf8(&bytes)?)?;
        let count = found.len();
        let (sum, ids) = judge(model, report, Format::Json, lack, &found)?;
        if lack == Lack::Nothing {
            account.nothing_lost(&sum, model, shape.threads.len())?;
        }
        account.open_spans(shape, model, &ids)?;
        // Each shape is read in one more format.
        let (format, found) = match shape.index % 3 {
            0 => (Format::Perfetto, perfetto::read(&self.recover("perfetto")?)?),
            1 => {
                let bytes = self.recover("text")?;
                let lines = bytes
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty() && line[0] != b'#')
                    .count();
                ensure!(lines == count, "LOST: {lines} lines of text, {count} events");
                // Lines for people have no ids, and texts without quotes.
                let report = ["report", "--no-pager", "--style", "babeltrace"];
                let printed = output(Command::new(self.lastwords).args(report).arg(self.session))?;
                (Format::Ctf, lines::babeltrace(&printed)?)
            }
            _ => match self.babeltrace {
                Some(babeltrace) => {
                    self.recover("ctf")?;
                    let trace = scratch::only(&self.folder.join("ctf"))?;
                    let printed =
                        output(Command::new(babeltrace).args(["--color", "never"]).arg(trace))?;
                    (Format::Ctf, lines::babeltrace(&printed)?)
                }
                None => return Ok(sum),
            },
        };
        let judged =
            judge(model, report, format, lack, &found).with_context(|| format!("{format:?}"));
        judged.map(|(sum, _)| sum)
    }

    /// Recovers the session in a format. Returns the file's bytes; none of a folder.
    fn recover(&self, format: &str) -> Result<Vec<u8>> {
        let to = self.folder.join(format);
        output(
            Command::new(self.lastwords)
                .arg("recover")
                .arg(self.session)
                .arg("-o")
                .arg(&to)
                .args(["--to", format]),
        )?;
        let path = scratch::only(&to)?;
        if path.is_dir() { Ok(Vec::new()) } else { Ok(std::fs::read(path)?) }
    }
}

/// The notes of the threads about themselves.
fn report(shape: &Shape, folder: &Path) -> Result<Report> {
    let bytes = std::fs::read(folder.join("steps"))?;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    // A thread that did not begin has no id.
    let threads =
        (0..=shape.threads.len()).map(|thread| (word(2 * thread), word(2 * thread + 1) as usize));
    Ok(Report { threads: threads.collect() })
}

/// The folders of the sessions.
fn sessions(folder: &Path) -> Result<Vec<PathBuf>> {
    let folders =
        std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    Ok(folders.collect())
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output =
        command.env_remove("LASTWORDS").output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Ok(output.stdout)
}

/// The session's account of itself.
struct Account(serde_json::Value);

impl Account {
    fn read(lastwords: &Path, session: &Path) -> Result<Self> {
        let text = output(Command::new(lastwords).arg("inspect").arg(session).arg("--json"))?;
        let mut all: serde_json::Value = serde_json::from_slice(&text)?;
        Ok(Self(all["sessions"][0].take()))
    }

    fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let streams = self.0["streams"].as_array().into_iter().flatten();
        let counts = streams.filter_map(|stream| stream["lost"].as_object()).flatten();
        counts.filter_map(|(name, count)| Some((name.as_str(), count.as_u64()?)))
    }

    /// Events that the session counts as refused.
    fn refused(&self) -> u64 {
        let is_event = |name: &str| ["full", "too_big", "no_entry", "busy", "lock"].contains(&name);
        self.counts().filter(|(name, _)| is_event(name)).map(|(_, count)| count).sum()
    }

    /// Nothing is lost, and values that were cut are counted: those of events, and texts in the
    /// table of open spans. So are texts with NULs.
    fn nothing_lost(&self, events: &Sum, model: &Model, threads: usize) -> Result<()> {
        for name in ["registry_dropped", "spans_dropped"] {
            ensure!(self.0[name].as_u64() == Some(0), "LOST: {name} is {}", self.0[name]);
        }
        if let Some((name, count)) = self.counts().find(|(_, count)| *count > 0) {
            bail!("LOST: {name} is {count}");
        }
        let counts = [
            ("cut", "cut_values", events.cut, model.cut_in_table, false),
            // Nothing says in which spans the events were that values recorded when formatted.
            ("changed", "changed_values", events.changed, 0, model.is_loud),
        ];
        for (how, name, in_events, in_table, more) in counts {
            let told = self.0["evidence"][name].as_u64().with_context(|| format!("no {name}"))?;
            // A thread that died in the middle of an event may have counted what that event does
            // not show.
            ensure!(
                told == in_events + in_table || ((more || threads > 1) && told >= in_events),
                "NOT COUNTED: {in_events} and {in_table} texts are {how}, the account says {told}"
            );
        }
        Ok(())
    }

    /// Judges the spans that are told to have been open: their number, and the texts of those that
    /// no living thread changed.
    fn open_spans(&self, shape: &Shape, model: &Model, ids: &HashMap<Span, u64>) -> Result<()> {
        let open = self.0["evidence"]["open_spans"].as_array().context("no open spans")?;
        let (least, more) = model.open;
        let range = least..=least + more;
        ensure!(
            range.contains(&open.len()),
            "OPEN SPANS: {}, expected {least} and up to {more} more",
            open.len()
        );
        for (span, made) in model.spans.iter().enumerate() {
            let Some(id) = ids.get(&span).filter(|_| made.is_open_at_end()) else { continue };
            let found = open.iter().find(|open| open["id"].as_u64() == Some(*id));
            let found = found.with_context(|| format!("OPEN SPANS: span {id} is missing"))?;
            let part = |name: &str| found[name].as_str().unwrap_or_default();
            let (target, name, fields) = (part("target"), part("name"), part("fields"));
            let braces = if fields.is_empty() { ("", "") } else { ("{", "}") };
            let text = format!("{target}::{name}{}{fields}{}", braces.0, braces.1);
            let expected = model.text(shape, span);
            ensure!(is_span_text(&expected, &text), "OPEN SPANS: {text:?}, expected {expected:?}");
        }
        Ok(())
    }
}
