//! Prints on stdout, and prints remarks on stderr. Readers of both may have gone away.
//!
//! A verb does its work even if nobody reads its output. A closed pipe is no error. Another error of stdout is reported
//! at the end of the run ([`failed`]).

use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::OnceLock;

/// The first error of writing to stdout.
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

/// Returns why stdout could not be written, if that is an error.
pub(crate) fn failed() -> Option<&'static io::Error> {
    FAILED.get()
}

/// Returns the error of a write. A closed pipe (`report | head`) is no error.
pub(crate) fn failure(written: io::Result<()>) -> Option<io::Error> {
    written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}

/// Writes a note on stderr. A closed stderr is ignored.
pub(crate) fn note(text: impl Display) {
    remark(format!("note: {}\n", safe(text)));
}

/// Writes a warning on stderr: something was lost.
pub(crate) fn warning(text: impl Display) {
    remark(format!("warning: {}\n", safe(text)));
}

/// Writes an error on stderr: something cannot be read, and the work continues.
pub(crate) fn error(text: impl Display) {
    remark(format!("{} {}\n", crate::paint::error("error:"), safe(text)));
}

/// Sends a warning to the system's log at a socket (RFC 3164). A system without such a log is ignored.
pub(crate) fn to_system_log(socket: &Path, text: &str) {
    /// Facility 1 (programs of users), severity 4 (warning).
    const PRIORITY: u8 = 1 << 3 | 4;
    let message = format!("<{PRIORITY}>lastwords[{}]: warning: {}", std::process::id(), safe(text));
    let _ = UnixDatagram::unbound().and_then(|from| from.send_to(message.as_bytes(), socket));
}

/// Makes a message safe for a terminal: it shows control characters in names of files and sessions as escapes. Line
/// breaks are kept.
fn safe(text: impl Display) -> String {
    text.to_string().split('\n').map(crate::table::plain).collect::<Vec<_>>().join("\n")
}

/// Writes on stderr, and ignores errors.
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
    fn the_system_log_gets_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        to_system_log(&path, "nobody listens");
        let log = UnixDatagram::bind(&path).unwrap();
        to_system_log(&path, "2 events\u{7}");
        let mut bytes = [0; 200];
        let len = log.recv(&mut bytes).unwrap();
        let line = format!("<12>lastwords[{}]: warning: 2 events\\u{{7}}", std::process::id());
        assert_eq!(String::from_utf8_lossy(&bytes[..len]), line);
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        assert!(failure(Err(io::ErrorKind::BrokenPipe.into())).is_none());
        assert!(failure(Err(io::ErrorKind::StorageFull.into())).is_some());
        assert!(failure(Ok(())).is_none());
    }
}
