//! The application that records while the kernel's tests run: events with the names that they ask
//! for.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lastwords::{Scope, Session, event};

/// The name of its session.
pub(crate) const SESSION: &str = "ftracetest";

/// The application; it ends when this is dropped.
pub(crate) struct App(Child);

impl App {
    /// Starts it, and waits until it records.
    pub(crate) fn start(sessions: &Path) -> Result<Self> {
        let mut command = Command::new(rig::own_program());
        command
            .arg("app")
            .env("LASTWORDS_DIR", sessions)
            .env_remove("LASTWORDS")
            .stdin(Stdio::piped());
        let app = Self(command.spawn().context("the application")?);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            let is_there = |summary: &lastwords_control::Summary| {
                let channels = summary
                    .details
                    .as_ref()
                    .map(|details| details.channels.as_slice())
                    .unwrap_or_default();
                channels.first().is_some_and(|channel| channel.events >= 4)
            };
            if lastwords_control::list(Some(sessions)).is_ok_and(|all| all.iter().any(is_there)) {
                return Ok(app);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the application did not record in 10 s");
    }
}

impl Drop for App {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Records until the end of standard input.
pub(crate) fn run() -> Result<()> {
    let session = Session::builder(SESSION).scope(Scope::User).start()?;
    std::thread::spawn(|| {
        for number in 0u32.. {
            event!(
                sched,
                "sched_switch",
                prev_comm = "swapper",
                prev_pid = 0u32,
                next_comm = "app",
                next_pid = number
            );
            event!(
                sched,
                "sched_process_fork",
                parent_comm = "app",
                parent_pid = number,
                child_pid = number + 1
            );
            event!(sched, "sched_process_exec", filename = "/bin/true", pid = number);
            event!(
                signal,
                "signal_generate",
                sig = number % 32,
                errno = 0i32,
                code = 0i32,
                comm = "app",
                pid = number
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    session.remove();
    Ok(())
}
