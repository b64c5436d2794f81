//! The end of a program that was given damaged input.

use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Longest that a program may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// By itself, with this status.
    Exit(i32),
    /// By a signal.
    Died,
    /// Not within ten seconds.
    Hung,
}

/// Runs a program to its end, or for as long as one has patience.
pub fn end(mut command: Command) -> Result<End> {
    use std::os::unix::process::ExitStatusExt;
    let name = command.get_program().to_owned();
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = quiet.spawn().with_context(|| name.display().to_string())?;
    let begun = Instant::now();
    let of = |status: ExitStatus| {
        if status.signal().is_some() { End::Died } else { End::Exit(status.code().unwrap_or(0)) }
    };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(of(status));
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(End::Hung);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            end(command).unwrap()
        };
        assert_eq!((shell("exit 3"), shell("kill -9 $$")), (End::Exit(3), End::Died));
    }
}
