//! What is told on stdout, and remarks on stderr, for readers who may have gone away.
//!
//! A verb does its work whatever becomes of what it tells: a reader who left is no error, and a stdout that cannot be written
//! is one that is said at the end ([`failed`]).

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::OnceLock;

/// Why stdout could not be written.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes a line on stdout.
pub(crate) fn line(text: impl Display) {
    print(format!("{text}\n"));
}

/// Writes text on stdout.
pub(crate) fn print(text: impl AsRef<[u8]>) {
    let mut out = io::stdout().lock();
    if let Some(error) = failure(out.write_all(text.as_ref()).and_then(|()| out.flush())) {
        let _ = FAILED.set(error);
    }
}

/// Why what was told could not be written, where that is an error.
pub(crate) fn failed() -> Option<&'static io::Error> {
    FAILED.get()
}

/// What is wrong with a write. That its reader went away (`report | head`) is no reason to complain.
pub(crate) fn failure(written: io::Result<()>) -> Option<io::Error> {
    written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}

/// Writes a remark on stderr. That nobody reads it is no reason to stop.
pub(crate) fn note(text: impl Display) {
    remark(format!("note: {}\n", safe(text)));
}

/// Writes on stderr that something was lost.
pub(crate) fn warning(text: impl Display) {
    remark(format!("warning: {}\n", safe(text)));
}

/// Writes on stderr that something cannot be read, and that the rest goes on.
pub(crate) fn error(text: impl Display) {
    remark(format!("{} {}\n", crate::paint::error("error:"), safe(text)));
}

/// A message for a terminal, whatever names of files and sessions are in it: control characters are shown, not sent. Messages of
/// several lines stay so.
fn safe(text: impl Display) -> String {
    text.to_string().split('\n').map(crate::table::plain).collect::<Vec<_>>().join("\n")
}

/// Writes on stderr, as far as that can be written.
pub(crate) fn remark(text: impl AsRef<[u8]>) {
    let _ = io::stderr().lock().write_all(text.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_names_are_shown() {
        assert_eq!(safe("/tmp/a\u{1b}[2Jb: missing\nline"), "/tmp/a\\u{1b}[2Jb: missing\nline");
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        assert!(failure(Err(io::ErrorKind::BrokenPipe.into())).is_none());
        assert!(failure(Err(io::ErrorKind::StorageFull.into())).is_some());
        assert!(failure(Ok(())).is_none());
    }
}
