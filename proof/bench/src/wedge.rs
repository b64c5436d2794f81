//! LTTng-UST under the kills of `cargo xtask wedge`: what another process records on the CPU where
//! a writer was killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::lttng::Session;
use super::programs::output;
use rig::scratch::Scratch;

/// The result for LTTng-UST.
#[derive(Debug)]
pub(crate) struct Wedged {
    /// Kills after which what the other process recorded was not there; none: it always was.
    pub(crate) dead_after: Option<u64>,
    /// The CPU.
    pub(crate) cpu: usize,
    /// Events that the other process recorded each time.
    pub(crate) events: u64,
}

/// Events that the other process records. Its program records as many before, to warm up.
const EVENTS: u64 = 10_000;
/// The writer needs so long until it is registered with the daemon and records.
const START: Duration = Duration::from_millis(250);

/// Kills tight-loop writers, at most `count`, until another process's events are not recorded any
/// more.
pub(crate) fn wedge_lttng(count: u64) -> Result<Wedged> {
    let cpu = super::allowed_cpus()?.into_iter().next().context("no CPU")?;
    let folder = Scratch::create(&std::env::temp_dir(), "lastwords-wedge-lttng")?;
    let program = compile(folder.path())?;
    let session = Session::start()?;
    if recorded_behind(&session, &program, cpu)? == 0 {
        bail!("LTTng-UST records nothing even before the first kill");
    }
    for kills in 1..=count {
        let mut writer = writer(&session, &program, cpu)?;
        std::thread::sleep(START + Duration::from_micros(kills * 379 % 4000));
        writer.kill().context("kill")?;
        writer.wait().context("wait")?;
        if recorded_behind(&session, &program, cpu)? == 0 {
            return Ok(Wedged { dead_after: Some(kills), cpu, events: 2 * EVENTS });
        }
    }
    Ok(Wedged { dead_after: None, cpu, events: 2 * EVENTS })
}

fn writer(session: &Session, program: &Path, cpu: usize) -> Result<std::process::Child> {
    let mut command = session.command(program);
    command
        .args(["lttng", "a", "1000000000000", &cpu.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command.spawn().context("the writer")
}

/// Has another process record, and counts its events in a snapshot.
fn recorded_behind(session: &Session, program: &Path, cpu: usize) -> Result<usize> {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    output(session.command(program).args(["lttng", "a", &EVENTS.to_string(), &cpu.to_string()]))?;
    let home = home(session, program)?;
    let snapshots = home.join("snapshot");
    let _ = std::fs::remove_dir_all(&snapshots);
    session.check()?;
    let begin = format!("--begin={}.{:09}", since.as_secs(), since.subsec_nanos());
    // A trace that is damaged by then is read as far as it goes.
    let read = Command::new("babeltrace2").arg(begin).arg(&snapshots).stdin(Stdio::null()).output();
    let text = read.context("babeltrace2")?.stdout;
    Ok(text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count())
}

/// The daemon's home, as its clients are told.
fn home(session: &Session, program: &Path) -> Result<PathBuf> {
    let command = session.command(program);
    let home =
        command.get_envs().find(|(name, _)| *name == "LTTNG_HOME").and_then(|(_, value)| value);
    home.map(PathBuf::from).context("LTTng's home")
}

fn compile(out: &Path) -> Result<PathBuf> {
    let sources = rig::root().join("bench/c");
    let program = out.join("lttng");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-O2", "-I"]).arg(&sources).arg(sources.join("lttng.c"));
    output(compiler.args(["-llttng-ust", "-ldl", "-lpthread", "-o"]).arg(&program))
        .context("LTTng-UST's headers are needed: package liblttng-ust-dev")?;
    Ok(program)
}
