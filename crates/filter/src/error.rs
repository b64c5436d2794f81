//! Errors of parsing, with a line that points at the place.

use std::fmt::{self, Display, Formatter};

/// Most characters of the expression that an error shows on either side of the place.
const SHOWN: usize = 48;

/// An expression that cannot be used: where, what was found there, what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    expression: String,
    offset: usize,
    found: String,
    expected: String,
}

impl Error {
    pub(crate) fn new(
        expression: &str,
        offset: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Box<Self> {
        Box::new(Self {
            expression: expression.to_owned(),
            offset,
            found: found.into(),
            expected: expected.into(),
        })
    }

    /// Returns the offset of the place in the expression, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns what was found there.
    #[must_use]
    pub fn found(&self) -> &str {
        &self.found
    }

    /// Returns what was expected in its place.
    #[must_use]
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// Returns two lines for a terminal: the expression, or the part of it around the place, and a
    /// caret below the place.
    #[must_use]
    pub fn caret(&self) -> String {
        let (before, after) =
            self.expression.split_at_checked(self.offset).unwrap_or((&self.expression, ""));
        let shown: String = before.chars().rev().take(SHOWN).collect();
        let cut = if before.chars().nth(SHOWN).is_some() { "…" } else { "" };
        let begin: String = cut.chars().chain(shown.chars().rev()).map(visible).collect();
        let mut end: String = after.chars().take(SHOWN).map(visible).collect();
        if after.chars().nth(SHOWN).is_some() {
            end.push('…');
        }
        format!("  {begin}{end}\n  {}^", " ".repeat(begin.chars().count()))
    }
}

/// Returns the character, or a mark for one that would move the caret or control a terminal.
fn visible(c: char) -> char {
    match c {
        _ if c.is_control() => '\u{fffd}',
        // Marks that have no width or reorder the line.
        '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '\u{fffd}',
        c => c,
    }
}

/// Returns a text between backquotes, safe for a terminal.
pub(crate) fn quoted(text: &str) -> String {
    let text: String = text.chars().map(visible).collect();
    format!("`{text}`")
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { offset, found, expected, .. } = self;
        write!(f, "byte {offset}: found {found}; expected {expected}\n{}", self.caret())
    }
}

impl std::error::Error for Error {}
