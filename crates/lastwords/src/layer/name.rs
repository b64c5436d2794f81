//! Names of events that were given none: the constant part of the message, or the place in the source.

use std::fmt::{self, Write as _};

use tracing_core::Event;
use tracing_core::field::{Field, Visit};

use crate::process::constant;

/// Most bytes of a name.
const MOST: usize = 120;

/// `main.rs:71`.
pub(super) fn of_place(file: &'static str, line: u32) -> &'static str {
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    if file.is_empty() { "event" } else { String::leak(format!("{file}:{line}")) }
}

/// The name that the event's message gives: its constant text with `{}` in place of values, and whether all of it is constant.
/// Returns `None` if the message has no constant text, or if constant text cannot be told from values.
pub(super) fn of_event(event: &Event<'_>) -> Option<(&'static str, bool)> {
    let mut message = Message::default();
    event.record(&mut message);
    let Message { text, has_values, is_unclear, .. } = message;
    let is_name =
        !is_unclear && !["", "{}"].contains(&&*text) && text.len() <= MOST && !text.contains(char::is_control);
    is_name.then(|| (&*String::leak(text), !has_values))
}

/// The pieces of a message as the formatting machinery writes them: constant text of a format string lies in the memory of the
/// program that nobody writes to, values that are formatted do not. Two pieces of constant text never follow each other in a
/// format string: then one of them is a value, and nothing tells which.
#[derive(Default)]
struct Message {
    text: String,
    has_values: bool,
    /// True if the last piece was constant text, false if it was a value, `None` before the first piece.
    last: Option<bool>,
    is_unclear: bool,
}

impl fmt::Write for Message {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if piece.is_empty() {
            return Ok(());
        }
        let is_constant = constant::is_constant(piece.as_bytes());
        match (is_constant, self.last.replace(is_constant)) {
            (true, Some(true)) => self.is_unclear = true,
            (true, _) => self.text.push_str(piece),
            (false, Some(false)) => (),
            (false, _) => self.text.push_str("{}"),
        }
        self.has_values |= !is_constant;
        Ok(())
    }
}

impl Visit for Message {
    fn record_str(&mut self, field: &Field, text: &str) {
        if field.name() == "message" {
            // Text is taken, never refused.
            let _ = self.write_str(text);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_place_without_a_file() {
        assert_eq!(super::of_place("", 0), "event");
    }
}
