//! Colour, on terminals alone.

use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// Where the output is a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

static OUT: OnceLock<bool> = OnceLock::new();
static ERR: OnceLock<bool> = OnceLock::new();

/// Decides, once a process.
pub(crate) fn init(when: When) {
    let decide = |is_terminal: bool| match when {
        When::Always => true,
        When::Never => false,
        When::Auto => is_terminal && allowed(),
    };
    OUT.get_or_init(|| decide(std::io::stdout().is_terminal()));
    ERR.get_or_init(|| decide(std::io::stderr().is_terminal()));
}

/// The environment does not speak against it: `NO_COLOR` unset or empty, `TERM` not `dumb`.
fn allowed() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    !plain && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

fn painted(on: &OnceLock<bool>, style: Style, text: impl Display) -> String {
    if on.get().copied().unwrap_or(false) { format!("{style}{text}{style:#}") } else { text.to_string() }
}

/// Bold, on stdout.
pub(crate) fn bold(text: impl Display) -> String {
    painted(&OUT, Style::new().bold(), text)
}

/// Green, on stdout.
pub(crate) fn good(text: impl Display) -> String {
    painted(&OUT, AnsiColor::Green.on_default(), text)
}

/// Yellow, on stdout.
pub(crate) fn warning(text: impl Display) -> String {
    painted(&OUT, AnsiColor::Yellow.on_default(), text)
}

/// Red, on stdout.
pub(crate) fn bad(text: impl Display) -> String {
    painted(&OUT, AnsiColor::Red.on_default().bold(), text)
}

/// Red, on stderr.
pub(crate) fn error(text: impl Display) -> String {
    painted(&ERR, AnsiColor::Red.on_default().bold(), text)
}
