//! Starts the program of a shape, and recovers what it left.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::found;
use crate::judge::{Report, Sum, judge};
use crate::model::Model;
use crate::shape::Shape;

/// Longest wait for a program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a shape in a new folder, and judges it.
pub(crate) fn run(lastwords: &Path, seed: u64, shape: &Shape, folder: &Path) -> Result<Sum> {
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
    let text = recover(lastwords, &session, folder)?;
    let sum = judge(&model, &report, &found::json(&text)?)?;
    account(lastwords, &session, sum)?;
    Ok(sum)
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

fn output(command: &mut Command) -> Result<String> {
    let output = command.env_remove("LASTWORDS").output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn recover(lastwords: &Path, session: &Path, folder: &Path) -> Result<String> {
    let to = folder.join("recovered");
    output(Command::new(lastwords).arg("recover").arg(session).arg("-o").arg(&to).args(["--to", "json"]))?;
    let path = std::fs::read_dir(&to)?.flatten().next().context("nothing was recovered")?.path();
    Ok(std::fs::read_to_string(path)?)
}

/// Judges the session's account: nothing is lost here, and texts that were cut are counted.
fn account(lastwords: &Path, session: &Path, sum: Sum) -> Result<()> {
    let text = output(Command::new(lastwords).arg("inspect").arg(session).arg("--json"))?;
    let text: serde_json::Value = serde_json::from_str(&text)?;
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
    let mut cut = None;
    counted(session, &mut cut);
    ensure!(sum.cut == 0 || cut == Some(sum.cut), "NOT COUNTED: {} texts are cut, the account says {cut:?}", sum.cut);
    ensure!(cut.unwrap_or(0) >= sum.cut, "INVENTED: the account says {cut:?} texts are cut, it is {}", sum.cut);
    Ok(())
}

/// Adds up what the account says of texts that were cut.
fn counted(of: &serde_json::Value, cut: &mut Option<u64>) {
    match of {
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                match value.as_u64() {
                    Some(count) if name.contains("cut") => *cut = Some(cut.unwrap_or(0) + count),
                    _ => counted(value, cut),
                }
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| counted(value, cut)),
        _ => {}
    }
}
