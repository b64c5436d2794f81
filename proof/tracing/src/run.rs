//! Starts the program of a shape, and recovers what it left.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::judge::{Format, Report, Sum, judge};
use crate::model::Model;
use crate::shape::Shape;
use crate::{found, lines, perfetto};

/// Longest wait for a program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a shape in a new folder, and judges it.
/// CTF is read by `babeltrace`, if there is one.
pub(crate) fn run(lastwords: &Path, babeltrace: Option<&Path>, seed: u64, shape: &Shape, folder: &Path) -> Result<Sum> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(folder).with_context(|| folder.display().to_string())?;
    let log = std::fs::File::create(folder.join("log"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["record", "--seed", &seed.to_string(), "--shape", &shape.index.to_string()]).arg(folder);
    command.env_remove("LASTWORDS").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = command.spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("the program does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let said = std::fs::read_to_string(folder.join("log"))?;
    let is_killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    ensure!(is_killed && said.is_empty(), "the program ended by itself: {status}\n{said}");
    let report = report(shape, folder)?;
    let session = session(folder)?;
    let model = Model::of(shape);
    let bytes = recover(lastwords, &session, folder, "json")?;
    let sum = judge(&model, &report, Format::Json, &found::json(std::str::from_utf8(&bytes)?)?)?;
    account(lastwords, &session, sum, shape.threads.len())?;
    open_spans(lastwords, &session, &model)?;
    // Each shape is read in one more format.
    let (format, found) = match shape.index % 3 {
        0 => (Format::Perfetto, perfetto::read(&recover(lastwords, &session, folder, "perfetto")?)?),
        1 => (Format::Text, lines::text(&recover(lastwords, &session, folder, "text")?)?),
        _ => match babeltrace {
            Some(babeltrace) => {
                recover(lastwords, &session, folder, "ctf")?;
                let trace = only(&folder.join("to-ctf"))?;
                let printed = output(Command::new(babeltrace).args(["--color", "never"]).arg(trace))?;
                (Format::Ctf, lines::babeltrace(&printed)?)
            }
            None => return Ok(sum),
        },
    };
    judge(&model, &report, format, &found).with_context(|| format!("{format:?}"))
}

/// What the threads noted of themselves.
fn report(shape: &Shape, folder: &Path) -> Result<Report> {
    let bytes = std::fs::read(folder.join("steps"))?;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    // A thread that did not begin has no id.
    let threads = (0..=shape.threads.len()).map(|thread| (word(2 * thread), word(2 * thread + 1) as usize));
    Ok(Report { threads: threads.collect() })
}

/// The folder of the one session.
fn session(folder: &Path) -> Result<PathBuf> {
    let folders = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let folders: Vec<PathBuf> = folders.collect();
    let [session] = &folders[..] else { bail!("{} sessions", folders.len()) };
    Ok(session.clone())
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.env_remove("LASTWORDS").output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Ok(output.stdout)
}

/// Recovers the session in a format. Returns the file's bytes; none of a folder.
fn recover(lastwords: &Path, session: &Path, folder: &Path, format: &str) -> Result<Vec<u8>> {
    let to = folder.join(format!("to-{format}"));
    output(Command::new(lastwords).arg("recover").arg(session).arg("-o").arg(&to).args(["--to", format]))?;
    let path = only(&to)?;
    if path.is_dir() { Ok(Vec::new()) } else { Ok(std::fs::read(path)?) }
}

fn only(folder: &Path) -> Result<PathBuf> {
    let found: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    let [path] = &found[..] else { bail!("{} things in {}", found.len(), folder.display()) };
    Ok(path.clone())
}

/// Judges the session's account: nothing is lost here, and texts that were cut are counted.
fn account(lastwords: &Path, path: &Path, sum: Sum, threads: usize) -> Result<()> {
    let text = output(Command::new(lastwords).arg("inspect").arg(path).arg("--json"))?;
    let text: serde_json::Value = serde_json::from_slice(&text)?;
    let session = &text["sessions"][0];
    for name in ["registry_dropped", "spans_dropped"] {
        ensure!(session[name].as_u64() == Some(0), "LOST: {name} is {}", session[name]);
    }
    let streams = session["streams"].as_array().context("no streams")?;
    for lost in streams.iter().filter_map(|stream| stream["lost"].as_object()) {
        for (name, count) in lost {
            ensure!(count.as_u64() == Some(0), "LOST: {name} is {count}");
        }
    }
    let said = output(Command::new(lastwords).arg("inspect").arg(path))?;
    let cut = counted(&String::from_utf8(said)?);
    // A thread that died in the middle of an event may have counted what that event does not show.
    let is_told = cut == sum.cut || (threads > 1 && cut > sum.cut);
    ensure!(is_told, "NOT COUNTED: {} texts are cut, the account says {cut}", sum.cut);
    Ok(())
}

/// Judges how many spans are told to have been open.
fn open_spans(lastwords: &Path, session: &Path, model: &Model) -> Result<()> {
    let mut command = Command::new(lastwords);
    let reported = command.arg("report").arg(session).args(["--no-pager", "--last", "1"]).output()?;
    let said = String::from_utf8_lossy(&reported.stderr);
    let words: Vec<&str> = said.split_whitespace().collect();
    let is_count = |four: &&[&str]| four[1].starts_with("span") && four[3].starts_with("open");
    let open = words.windows(4).find(is_count).map_or(Ok(0), |four| four[0].replace(',', "").parse())?;
    let (least, more) = model.open;
    ensure!((least..=least + more).contains(&open), "OPEN SPANS: {open}, expected {least} and up to {more} more");
    Ok(())
}

/// The values that were cut, as the account says it: `3 values cut, ...`.
fn counted(text: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_count = |three: &&[&str]| three[1].starts_with("value") && three[2].starts_with("cut");
    words.windows(3).find(is_count).and_then(|three| three[0].replace(',', "").parse().ok()).unwrap_or(0)
}
