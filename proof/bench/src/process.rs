//! Processes that a bench starts and ends, and their CPU time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use rig::process::wait_until;
use rig::run_quietly;

/// The clock ticks of a second in /proc, on every architecture of Linux that lastwords knows.
const TICKS: f64 = 100.0;
/// A process is asked again after this time whether it is ready.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// The CPU time of a process, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CpuTime {
    pub(super) own: f64,
    /// Together with that of its children that it has waited for.
    pub(super) with_children: f64,
}

/// Ends a process as Ctrl-C does, and returns its CPU time. It is left to be waited for.
pub(super) fn end(child: &Child) -> Result<CpuTime> {
    run_quietly(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    ended(child)
}

/// Waits until a process has ended, and returns its CPU time. It is left to be waited for.
pub(super) fn ended(child: &Child) -> Result<CpuTime> {
    let stat = PathBuf::from(format!("/proc/{}/stat", child.id()));
    // A zombie still has its times.
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let text = fs::read_to_string(&stat)?;
        let (state, time) = times(&text).with_context(|| stat.display().to_string())?;
        if state == "Z" {
            return Ok(time);
        }
        ensure!(Instant::now() < deadline, "it did not end within two minutes");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A TCP port that nobody uses now.
pub(super) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Starts a receiver, and waits until it listens. No connection is made to find out, because that
/// would be a sender.
pub(super) fn start_receiver(words: &[String], port: u16, folder: &Path) -> Result<Child> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).env("LASTWORDS_DIR", folder.join("sessions"));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let listens = |line: &str| line.contains(&format!(":{port:04X} ")) && line.contains(" 0A ");
    let files = ["/proc/net/tcp", "/proc/net/tcp6"];
    let has = |file: &&str| fs::read_to_string(file).is_ok_and(|text| text.lines().any(listens));
    if let Err(error) = wait_until(&mut child, PAUSE, || Ok(files.iter().any(has))) {
        let _ = child.kill();
        child.wait()?;
        return Err(error.context("the receiver does not listen"));
    }
    Ok(child)
}

/// The CPU time of a process that runs.
pub(super) fn cpu_time(id: u32) -> Result<CpuTime> {
    let stat = format!("/proc/{id}/stat");
    let text = fs::read_to_string(&stat).with_context(|| stat.clone())?;
    Ok(times(&text).context(stat)?.1)
}

/// The state of a process and its CPU time, from /proc/PID/stat.
fn times(stat: &str) -> Option<(&str, CpuTime)> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: Option<Vec<u64>> =
        fields.get(11..15)?.iter().map(|field| field.parse().ok()).collect();
    let ticks = ticks?;
    let seconds = |ticks: &[u64]| ticks.iter().sum::<u64>() as f64 / TICKS;
    Some((fields.first()?, CpuTime { own: seconds(&ticks[..2]), with_children: seconds(&ticks) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_are_those_of_the_process_and_its_children() {
        let stat = "7 (a) b) Z 1 7 7 0 -1 4 100 0 0 0 150 20 30 50 20 0 1 0 99 0 0";
        assert_eq!(times(stat), Some(("Z", CpuTime { own: 1.7, with_children: 2.5 })));
        assert_eq!(times("7 (a"), None);
    }
}
