//! Lines on stdout, and remarks on stderr, for readers who may have gone away.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line on stdout.
///
/// # Errors
/// It cannot be written; a closed pipe is an error here and quiet in [`crate::exit`].
pub(crate) fn line(text: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

/// Writes a remark on stderr. That nobody reads it is no reason to stop.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "note: {text}");
}

/// Writes on stderr that something was lost.
pub(crate) fn warning(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "warning: {text}");
}

/// Writes on stderr that something cannot be read, and that the rest goes on.
pub(crate) fn error(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{} {text}", crate::paint::error("error:"));
}
