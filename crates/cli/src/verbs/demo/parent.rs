//! Starts the child, reads its reports, and kills it.

use super::Args;
use super::child::{REPORT_LEN, Report};
use anyhow::{Context, bail};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A child that was killed, and its reports.
#[derive(Debug)]
pub(super) struct Killed {
    pub(super) pid: u32,
    /// The name of its session.
    pub(super) session: String,
    /// The time for which it recorded.
    pub(super) after: Duration,
    pub(super) seed: u64,
    /// The last report of each thread.
    pub(super) reports: BTreeMap<u64, Report>,
}

/// Returns a seed from the clock.
fn seed() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |t| t.subsec_nanos().into())
}

/// Returns the next of a sequence of random numbers (splitmix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *state;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Starts a child and kills it at a random moment.
pub(super) fn record_and_kill(args: &Args) -> anyhow::Result<Killed> {
    let seed = args.seed.unwrap_or_else(seed);
    let session = format!("demo-{}-{seed}", std::process::id());
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let how = args.reservation.and_then(|how| how.to_possible_value());
    let how = how.map(|how| format!("--reservation={}", how.get_name()));
    let mut child = Command::new(&program)
        .args(["demo-child", &session, &args.threads.to_string()])
        .args(how)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{}: cannot start the child", program.display()))?;
    let pid = child.id();
    let Some(mut pipe) = child.stdout.take() else { bail!("the child has no pipe") };
    // The first byte means that the session has started. Without it, the child has failed and
    // printed the reason on stderr.
    let mut ready = [0u8; 1];
    if pipe.read_exact(&mut ready).is_err() {
        let status = child.wait().context("cannot wait for the child")?;
        bail!("the child ended before it recorded: {status}");
    }
    let reader = std::thread::spawn(move || read_reports(pipe));
    let begun = Instant::now();
    let share = (random(&mut seed.clone()) >> 11) as f64 / (1u64 << 53) as f64;
    std::thread::sleep(Duration::from_secs_f64(args.seconds * share));
    child.kill().context("cannot kill the child")?;
    let after = begun.elapsed();
    let status = child.wait().context("cannot wait for the child")?;
    if status.signal() != Some(9) {
        bail!("the child was to die by SIGKILL: {status}");
    }
    let reports =
        reader.join().map_err(|_| anyhow::anyhow!("the reader of the pipe panicked"))??;
    Ok(Killed { pid, session, after, seed, reports })
}

/// Reads all reports until the end of the pipe. An incomplete report is ignored.
fn read_reports(mut pipe: ChildStdout) -> anyhow::Result<BTreeMap<u64, Report>> {
    let mut bytes = Vec::new();
    let mut reports: BTreeMap<u64, Report> = BTreeMap::new();
    let mut chunk = vec![0u8; 1 << 16];
    loop {
        let got = pipe.read(&mut chunk).context("cannot read the child's reports")?;
        if got == 0 {
            return Ok(reports);
        }
        bytes.extend_from_slice(&chunk[..got]);
        let whole = bytes.len() / REPORT_LEN * REPORT_LEN;
        for raw in bytes.drain(..whole).as_slice().chunks_exact(REPORT_LEN) {
            let (thread, report) = Report::from_bytes(raw);
            reports.insert(thread, report);
        }
    }
}

/// Removes the session of the dead child.
pub(super) fn remove(folder: &Path) -> anyhow::Result<()> {
    lastwords_control::destroy(folder).with_context(|| folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_follow_from_the_seed() {
        let (mut a, mut b) = (7, 7);
        assert_eq!(random(&mut a), random(&mut b));
        assert_ne!(random(&mut a), random(&mut 7));
    }
}
