//! Names of events that were given none: the constant part of the message, or the place in the source.

use std::fmt::{self, Write as _};

use tracing_core::Event;
use tracing_core::field::{Field, Visit};

use crate::process::constant;

/// Most bytes of a name.
const MOST: usize = 120;

/// What the first message of a callsite gives for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// All of the message is constant text.
    Constant(&'static str),
    /// Constant text with `{}` in place of values.
    Pattern(&'static str),
    /// There is no constant text, or it cannot be told from values.
    None,
}

/// `main.rs:71`.
pub(super) fn of_place(file: &'static str, line: u32) -> &'static str {
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    if file.is_empty() { "event" } else { String::leak(format!("{file}:{line}")) }
}

/// The name that the event's message gives.
pub(super) fn of_event(event: &Event<'_>) -> Name {
    let mut message = Message(Pieces::default());
    event.record(&mut message);
    message.0.name()
}

/// Finds the message.
struct Message(Pieces);

impl Visit for Message {
    fn record_str(&mut self, field: &Field, text: &str) {
        if field.name() == "message" {
            // Text is taken, never refused.
            let _ = self.0.write_str(text);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

/// The pieces of a message as the formatting machinery writes them: constant text of a format string lies in the memory of the
/// program that nobody writes to, values that are formatted do not. Two pieces of constant text never follow each other in a
/// format string: then one of them is a value, and nothing tells which.
#[derive(Default)]
struct Pieces {
    text: String,
    has_values: bool,
    last: Option<Piece>,
    is_unclear: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Constant,
    Value,
}

impl fmt::Write for Pieces {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if piece.is_empty() {
            return Ok(());
        }
        let kind = if constant::is_constant(piece.as_bytes()) { Piece::Constant } else { Piece::Value };
        match (kind, self.last) {
            (Piece::Constant, Some(Piece::Constant)) => self.is_unclear = true,
            (Piece::Constant, _) => self.text.push_str(piece),
            (Piece::Value, Some(Piece::Value)) => (),
            (Piece::Value, _) => self.text.push_str("{}"),
        }
        self.has_values |= kind == Piece::Value;
        self.last = Some(kind);
        Ok(())
    }
}

impl Pieces {
    fn name(self) -> Name {
        let Self { text, has_values, is_unclear, .. } = self;
        if is_unclear || text.is_empty() || text == "{}" || text.len() > MOST || text.contains(char::is_control) {
            return Name::None;
        }
        let text = String::leak(text);
        if has_values { Name::Pattern(text) } else { Name::Constant(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(message: fmt::Arguments<'_>) -> Name {
        let mut pieces = Pieces::default();
        pieces.write_fmt(message).expect("it is taken");
        pieces.name()
    }

    #[test]
    fn names_of_messages() {
        let (user, kind, bytes) = (String::from("eve"), std::hint::black_box("constant"), std::hint::black_box(7));
        assert_eq!(name(format_args!("ready")), Name::Constant("ready"));
        assert_eq!(name(format_args!("served {bytes} bytes to {user}")), Name::Pattern("served {} bytes to {}"));
        assert_eq!(name(format_args!("{user} came")), Name::Pattern("{} came"));
        assert_eq!(name(format_args!("{user}")), Name::None, "a value alone");
        assert_eq!(name(format_args!("a {kind}")), Name::None, "which of the two is the value?");
        assert_eq!(name(format_args!("{kind}: bad")), Name::None);
        assert_eq!(name(format_args!("at {:?}", Some(bytes))), Name::None);
        assert_eq!(name(format_args!("")), Name::None);
        assert_eq!(name(format_args!("two\nlines")), Name::None);
        assert_eq!(of_place("src/deep/main.rs", 7), "main.rs:7");
        assert_eq!(of_place("", 0), "event");
    }
}
