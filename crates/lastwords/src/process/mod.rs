//! The process that records: its identity, memory that it never frees, libraries that it keeps
//! loaded, its handlers of signals, its clock. This layer uses none of the others.

use std::io::Write as _;

pub mod clock;
pub(crate) mod identity;
pub(crate) mod keep_loaded;
pub(crate) mod kept_memory;
pub(crate) mod loaded;
pub(crate) mod signals;

/// Prints a line for people on stderr. An application without stderr goes on. Control characters,
/// which a name or a variable may contain, are escaped.
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "lastwords: {}", one_line(&line.to_string()));
}

fn one_line(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(escaped).collect()
}

/// Cuts the text to at most `most` bytes, at a character.
#[inline]
pub fn cut(text: &str, most: usize) -> &str {
    // Nearly all texts fit, so this comparison is all that an event of the tracing layer pays for.
    if text.len() <= most { text } else { &text[..cut_len(text.as_bytes(), most)] }
}

/// Returns how many bytes of a UTF-8 text remain when it is cut to `most`, at a character.
pub(crate) fn cut_len(text: &[u8], most: usize) -> usize {
    let mut len = text.len().min(most);
    // A byte 10xxxxxx continues a character.
    while len < text.len() && len > 0 && text[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    len
}

/// Returns true if the program runs with other rights than its caller has (set-user-ID, file
/// capabilities). Then the caller's environment cannot be trusted.
pub(crate) fn is_secure() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_said_is_one_line() {
        let line = super::one_line("a/b\n\u{1b}[31mé \"x\"\u{9b}");
        assert_eq!(line, "a/b\\n\\u{1b}[31mé \"x\"\\u{9b}");
    }
}
