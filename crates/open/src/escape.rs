//! Makes text from memory or from a file safe for a terminal.

use lastwords_ctf::names::is_unsafe;

/// Returns the text with escapes (`\u{..}`, `\n`) in place of characters that could control a
/// terminal.
///
/// ```
/// assert_eq!(lastwords_open::escape("a\x1b[31mb"), "a\\u{1b}[31mb");
/// ```
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unsafe(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_are_shown_not_sent() {
        assert_eq!(escape("a\x1b[31mb"), "a\\u{1b}[31mb");
        assert_eq!(escape("a\u{61c}b\u{202e}é"), "a\\u{61c}b\\u{202e}é");
    }
}
