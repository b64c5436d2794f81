//! LTTng-UST under the kills of `cargo xtask wedge`: what another process records on the CPU where
//! a writer was killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::lttng::Session;
use rig::process::Killed;
use rig::run_quietly;
use rig::scratch::Scratch;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kills
    #[arg(long, default_value_t = 1000)]
    count: u64,
}

/// Events that the other process records. Its program records as many before, to warm up.
const EVENTS: u64 = 10_000;
/// The writer needs so long until it is registered with the daemon and records.
const START: Duration = Duration::from_millis(250);

/// Kills tight-loop writers of LTTng-UST, at most as many as are asked for, until what another
/// process records on the CPU is not there any more.
pub(crate) fn run(args: &Args) -> Result<()> {
    let cpu = rig::workers::allowed_cpus()?.into_iter().next().context("no CPU")?;
    let folder = Scratch::create(&std::env::temp_dir(), "lastwords-wedge-lttng")?;
    let program = super::programs::lttng(folder.path())?;
    let session = Session::start()?;
    if recorded_behind(&session, &program, cpu)? == 0 {
        bail!("LTTng-UST records nothing even before the first kill");
    }
    for kills in 1..=args.count {
        let mut writer = writer(&session, &program, cpu)?;
        std::thread::sleep(START + Duration::from_micros(kills * 379 % 4000));
        writer.kill()?;
        if recorded_behind(&session, &program, cpu)? == 0 {
            println!(
                "LTTng-UST: dead on CPU {cpu} after {kills} kills; the {} events that another process recorded there \
                 behind the last kill are not in its buffers",
                2 * EVENTS
            );
            return Ok(());
        }
    }
    println!("LTTng-UST: alive after {} kills", args.count);
    Ok(())
}

fn writer(session: &Session, program: &Path, cpu: usize) -> Result<Killed> {
    let mut command = session.command(program);
    command
        .args(["lttng", "a", "1000000000000", &cpu.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command.spawn().map(Killed).context("the writer")
}

/// Has another process record, and counts its events in a snapshot.
fn recorded_behind(session: &Session, program: &Path, cpu: usize) -> Result<usize> {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let words = ["lttng", "a", &EVENTS.to_string(), &cpu.to_string()];
    run_quietly(session.command(program).args(words))?;
    let snapshots = session.snapshots();
    let _ = std::fs::remove_dir_all(&snapshots);
    session.check()?;
    let begin = format!("--begin={}.{:09}", since.as_secs(), since.subsec_nanos());
    // A trace that is damaged by then is read as far as it goes.
    let read = Command::new("babeltrace2").arg(begin).arg(&snapshots).stdin(Stdio::null()).output();
    let text = read.context("babeltrace2")?.stdout;
    Ok(text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count())
}
