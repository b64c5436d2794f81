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
            && let Ok(mut child) = spawn(&program)
        {
            let pipe = child.stdin.take();
            return Self::Program { child, pipe };
        }
        Self::Plain(io::stdout().lock())
    }

    /// Flushes, and waits for the reader. One who left has read what was wanted.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut out) => say::failure(out.flush()).map_or(Ok(()), Err),
            Self::Program { mut child, pipe } => {
                drop(pipe);
                child.wait().map(drop)
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

fn spawn(program: &str) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(program).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    command.spawn()
}
