//! Prints on stdout, and prints remarks on stderr. Readers of both may have gone away.
//!
//! A verb does its work even if nobody reads its output. A closed pipe is no error. Another error
//! of stdout is reported at the end of the run ([`failed`]).

use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::OnceLock;

/// The first error of writing to stdout.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes one line on stdout. Line breaks and control characters in the text are escaped: names in
/// it may be of others.
pub(crate) fn line(text: impl Display) {
    print(one_line(text) + "\n");
}

/// Writes text of our own on stdout, which may have colours and line breaks, and ends it with a
/// line break.
pub(crate) fn own(text: impl Display) {
    print(format!("{text}\n"));
}

/// Writes a value as JSON on stdout: on several lines, or with `is_compact` on one. Characters that
/// control a terminal are escaped.
///
/// # Errors
/// The value cannot be serialized.
pub(crate) fn json(value: &impl Serialize, is_compact: bool) -> anyhow::Result<()> {
    let text = if is_compact {
        serde_json::to_string(value)?
    } else {
        serde_json::to_string_pretty(value)?
    };
    print(lastwords_render::json::safe(&text) + "\n");
    Ok(())
}

/// Writes text on stdout.
pub(crate) fn print(text: impl AsRef<[u8]>) {
    let _ = try_print(text);
}

/// Writes text on stdout. Returns false if nobody takes more of it.
pub(crate) fn try_print(text: impl AsRef<[u8]>) -> bool {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    let is_taken = written.is_ok();
    if let Some(error) = failure(written) {
        let _ = FAILED.set(error);
    }
    is_taken
}

/// Returns why stdout could not be written, if that is an error.
pub(crate) fn failed() -> Option<&'static io::Error> {
    FAILED.get()
}

/// Returns the error of a write. A closed pipe (`report | head`) is no error.
pub(crate) fn failure(written: io::Result<()>) -> Option<io::Error> {
    written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
}

/// Writes one line on stderr that is no note, warning or error.
pub(crate) fn said(text: impl Display) {
    remark(one_line(text) + "\n");
}

/// Writes a note on stderr. A closed stderr is ignored.
pub(crate) fn note(text: impl Display) {
    remark(format!("note: {}\n", one_line(text)));
}

/// Writes a warning on stderr: something was lost.
pub(crate) fn warning(text: impl Display) {
    remark(format!("warning: {}\n", one_line(text)));
}

/// Writes an error on stderr: something cannot be read, and the work continues.
pub(crate) fn error(text: impl Display) {
    remark(format!("{} {}\n", crate::paint::error("error:"), one_line(text)));
}

/// Sends a warning to the system's log at a socket (RFC 3164). A system without such a log is
/// ignored.
pub(crate) fn to_system_log(socket: &Path, text: &str) {
    /// Facility 1 (programs of users), severity 4 (warning).
    const PRIORITY: u8 = 1 << 3 | 4;
    let message =
        format!("<{PRIORITY}>lastwords[{}]: warning: {}", std::process::id(), one_line(text));
    let _ = UnixDatagram::unbound().and_then(|from| from.send_to(message.as_bytes(), socket));
}

/// Writes an error that ends the run on stderr, with its causes. The place in a filter, or in a text
/// that the kernel refuses, is shown on two more lines.
pub(crate) fn failure_of(error: &anyhow::Error) {
    let text = lastwords_open::chain(error);
    let place = error.chain().find_map(|cause| {
        let boxed = cause.downcast_ref::<Box<lastwords_filter::Error>>().map(|error| &**error);
        boxed
            .or_else(|| cause.downcast_ref::<lastwords_filter::Error>())
            .map(lastwords_filter::Error::caret)
    });
    // Only a part of the message that the filter's error made itself has lines of its own.
    match place.as_deref().and_then(|place| Some((place, text.strip_suffix(place)?))) {
        Some((place, text)) => {
            self::error(text.trim_end());
            place.lines().for_each(|line| remark(one_line(line) + "\n"));
        }
        None => self::error(text),
    }
    let of_kernel = error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(lastwords_tracefs::Error::Instance { caret, .. }) => caret.as_deref(),
        _ => None,
    });
    of_kernel.into_iter().flat_map(str::lines).for_each(|line| remark(one_line(line) + "\n"));
}

/// Returns the text on one line, with escapes for line breaks, control characters and characters
/// that reorder a line. A name in a message may be of another user or machine; it must not look
/// like a line of ours.
fn one_line(text: impl Display) -> String {
    crate::table::plain(&text.to_string())
}

/// Writes on stderr, and ignores errors.
pub(crate) fn remark(text: impl AsRef<[u8]>) {
    let _ = io::stderr().lock().write_all(text.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        let forged = "/tmp/a\u{1b}[2Jb\n<0>error: c\r\u{202e}d";
        assert_eq!(one_line(forged), "/tmp/a\\u{1b}[2Jb\\n<0>error: c\\r\\u{202e}d");
    }

    #[test]
    fn the_system_log_gets_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        to_system_log(&path, "nobody listens");
        let log = UnixDatagram::bind(&path).unwrap();
        to_system_log(&path, "2 events\u{7}\n<0>x");
        let mut bytes = [0; 200];
        let len = log.recv(&mut bytes).unwrap();
        let line =
            format!("<12>lastwords[{}]: warning: 2 events\\u{{7}}\\n<0>x", std::process::id());
        assert_eq!(String::from_utf8_lossy(&bytes[..len]), line);
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        assert!(failure(Err(io::ErrorKind::BrokenPipe.into())).is_none());
        assert!(failure(Err(io::ErrorKind::StorageFull.into())).is_some());
        assert!(failure(Ok(())).is_none());
    }
}
