//! A stop-watch for programs: time, CPU time and memory of one run.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

use crate::{Result, job};

/// Runs a program on one CPU, or on all, with its output thrown away. Returns a line of JSON:
/// seconds by the wall and of the CPU, the peak of its resident memory, and the peak of that part
/// of it which no file backs (looked at every 2 ms), both in bytes.
pub(crate) fn run(cpu: Option<usize>, program: &str, arguments: &[String]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    // Started by a thread of its own, so that the program is pinned and we, who look on, are not.
    let pin = || cpu.map_or(Ok(()), |cpu| job::pin(cpu).map_err(std::io::Error::from));
    let started = std::thread::scope(|scope| {
        let starter = scope.spawn(|| pin().and_then(|()| command.spawn()));
        starter.join().map_err(|_| "the starting thread panicked")
    })?;
    let mut child =
        started.map_err(|error| format!("cannot run {program} on CPU {cpu:?}: {error}"))?;
    let (id, done) = (child.id(), AtomicBool::new(false));
    let (ended, wall, anonymous) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| peak_anonymous(id, &done));
        let ended = child.wait();
        let wall = start.elapsed();
        done.store(true, Ordering::Relaxed);
        (ended, wall, watcher.join())
    });
    let (status, anonymous) = (ended?, anonymous.map_err(|_| "the watching thread panicked")?);
    if !status.success() {
        return Err(format!("{program} failed: {status}").into());
    }
    // The program is the only child that this process has waited for.
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let cpu_seconds = seconds(usage.user_time()) + seconds(usage.system_time());
    Ok(format!(
        r#"{{"wall_s": {:.6}, "cpu_s": {cpu_seconds:.6}, "peak_rss": {}, "peak_anonymous": {anonymous}}}"#,
        wall.as_secs_f64(),
        usage.max_rss() * 1024,
    ))
}

/// Looks at a process every 2 ms until it is done; the most bytes in memory that no file backs.
fn peak_anonymous(id: u32, done: &AtomicBool) -> u64 {
    let file = format!("/proc/{id}/status");
    let mut peak = 0;
    while !done.load(Ordering::Relaxed) {
        peak = peak.max(
            std::fs::read_to_string(&file).ok().as_deref().and_then(anonymous_bytes).unwrap_or(0),
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    peak
}

fn seconds(time: nix::sys::time::TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

/// The line `RssAnon:  123 kB` of a process's status.
fn anonymous_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous() {
        assert_eq!(
            anonymous_bytes("VmRSS:\t  5 kB\nRssAnon:\t      12 kB\nRssFile: 1 kB\n"),
            Some(12 * 1024)
        );
        assert_eq!(anonymous_bytes(""), None);
    }
}
