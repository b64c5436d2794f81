//! Colours output for people on terminals.

use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// The choices of `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// Colour if the output is a terminal, unless NO_COLOR is set
    Auto,
    /// Always colour
    Always,
    /// Never colour
    Never,
}

static OUT: OnceLock<bool> = OnceLock::new();
static ERR: OnceLock<bool> = OnceLock::new();

/// Decides once for the whole process whether output is coloured.
pub(crate) fn init(when: When) {
    let decide = |is_terminal: bool| match when {
        When::Always => true,
        When::Never => false,
        When::Auto => is_terminal && allowed(),
    };
    OUT.get_or_init(|| decide(std::io::stdout().is_terminal()));
    ERR.get_or_init(|| decide(std::io::stderr().is_terminal()));
}

/// Returns true if the environment allows colour: `NO_COLOR` is unset or empty, and `TERM` is not
/// `dumb`.
fn allowed() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    !plain && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

fn painted(on: &OnceLock<bool>, style: Style, text: impl Display) -> String {
    if on.get().copied().unwrap_or(false) {
        format!("{style}{text}{style:#}")
    } else {
        text.to_string()
    }
}

/// Formats text in bold for stdout.
pub(crate) fn bold(text: impl Display) -> String {
    painted(&OUT, Style::new().bold(), text)
}

/// Formats text in green for stdout.
pub(crate) fn good(text: impl Display) -> String {
    painted(&OUT, AnsiColor::Green.on_default(), text)
}

/// Formats text in yellow for stdout.
pub(crate) fn warning(text: impl Display) -> String {
    painted(&OUT, AnsiColor::Yellow.on_default(), text)
}

/// Returns true if stdout is coloured.
pub(crate) fn is_coloured() -> bool {
    OUT.get().copied().unwrap_or(false)
}

/// Formats what was searched for, for stdout.
pub(crate) fn found(text: &str) -> String {
    painted(&OUT, AnsiColor::Black.on(AnsiColor::Yellow), text)
}

/// Formats text in yellow for stdout.
pub(crate) fn warned(text: &str) -> String {
    painted(&OUT, AnsiColor::Yellow.on_default().bold(), text)
}

/// Formats text in red for stdout.
pub(crate) fn bad(text: &str) -> String {
    painted(&OUT, AnsiColor::Red.on_default().bold(), text)
}

/// Formats text in red for stderr.
pub(crate) fn error(text: impl Display) -> String {
    painted(&ERR, AnsiColor::Red.on_default().bold(), text)
}
