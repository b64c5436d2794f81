//! Where long text goes: a pager on a terminal, else stdout.

use crate::say;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Takes text; [`Pager::finish`] waits until it was read.
#[derive(Debug)]
pub(crate) enum Pager {
    /// Stdout itself.
    Plain(StdoutLock<'static>),
    /// A program that shows it; the pipe to it.
    Program {
        /// The program.
        child: Child,
        /// Its standard input; none once closed.
        pipe: Option<ChildStdin>,
    },
}

impl Pager {
    /// Chooses: `$PAGER` on a terminal (empty or `cat`: none; unset: `less` where it is installed), else stdout.
    pub(crate) fn open(wanted: bool) -> Self {
        if wanted
            && io::stdout().is_terminal()
            && let Some(program) = program()
            && let Ok(mut child) = command(&program).spawn()
        {
            let pipe = child.stdin.take();
            return Self::Program { child, pipe };
        }
        Self::Plain(io::stdout().lock())
    }

    /// A program shows it: nothing else may draw on the terminal.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self, Self::Program { .. })
    }

    /// Flushes, and waits for the reader. One who left has read what was wanted: false.
    pub(crate) fn finish(self) -> io::Result<bool> {
        match self {
            Self::Plain(mut out) => {
                let flushed = out.flush();
                let whole = flushed.is_ok();
                say::failure(flushed).map_or(Ok(whole), Err)
            }
            Self::Program { mut child, pipe } => {
                drop(pipe);
                child.wait().map(|_| true)
            }
        }
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Program { pipe: Some(pipe), .. } => pipe.write(bytes),
            Self::Program { pipe: None, .. } => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Program { pipe: Some(pipe), .. } => pipe.flush(),
            Self::Program { pipe: None, .. } => Ok(()),
        }
    }
}

fn program() -> Option<String> {
    match std::env::var("PAGER") {
        Ok(pager) if pager.trim().is_empty() || pager.trim() == "cat" => None,
        Ok(pager) => Some(pager),
        Err(_) => on_path("less").then(|| "less".to_owned()),
    }
}

fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Has `$1` show its input; what it leaves, as it fails, goes to stdout as it is. One that was ended by a signal was to end.
const SHOW: &str = r#"eval "$1"; code=$?; if [ $code -gt 0 ] && [ $code -lt 128 ]; then exec cat; fi"#;

fn command(program: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SHOW, "sh", program]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_that_fails_costs_no_text() {
        for (program, shown) in
            [("cat", "some\ntext\n"), ("/no/such/pager -x", "some\ntext\n"), ("false", "some\ntext\n"), ("true", "")]
        {
            let mut child = command(program).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let _ = child.stdin.take().unwrap().write_all(b"some\ntext\n");
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{program}");
        }
    }
}
