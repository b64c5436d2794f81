//! Sends long text to a pager if stdout is a terminal, or else to stdout.

use crate::say;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A writer for text. [`Pager::finish`] waits until the pager has ended.
#[derive(Debug)]
pub(crate) enum Pager {
    /// Stdout.
    Plain(StdoutLock<'static>),
    /// A pager program, and the pipe to it.
    Program {
        /// The process of the program.
        child: Child,
        /// Its standard input, or none after it was closed.
        pipe: Option<ChildStdin>,
    },
}

impl Pager {
    /// Chooses a pager. On a terminal it is `$PAGER`; an empty value or `cat` means none. If
    /// `$PAGER` is unset, it is `less` if that is installed. Otherwise text goes to stdout.
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

    /// Returns true if a program shows the text. Then nothing else may draw on the terminal.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self, Self::Program { .. })
    }

    /// Flushes, and waits for the reader. Returns false if a reader of stdout has left before the
    /// end.
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

/// A shell script that runs the pager `$1`. If the pager fails, `cat` prints the rest of the input.
/// A pager that a signal ended was ended on purpose.
const SHOW: &str =
    r#"eval "$1"; code=$?; if [ $code -gt 0 ] && [ $code -lt 128 ]; then exec cat; fi"#;

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
        for (program, shown) in [
            ("cat", "some\ntext\n"),
            ("/no/such/pager -x", "some\ntext\n"),
            ("false", "some\ntext\n"),
            ("true", ""),
        ] {
            let mut child =
                command(program).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let _ = child.stdin.take().unwrap().write_all(b"some\ntext\n");
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "{program}");
        }
    }
}
