//! Names of events that have none: the constant part of the message, or the place in the source.

use std::fmt::{self, Write as _};

use tracing_core::Event;
use tracing_core::field::{Field, Visit};

use crate::process::constant;

/// Largest size of a name, in bytes.
const MOST: usize = 120;

/// Returns the name of a place in the source, such as `main.rs:71`.
pub(super) fn of_place(file: &'static str, line: u32) -> &'static str {
    let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
    if file.is_empty() { "event" } else { String::leak(format!("{file}:{line}")) }
}

/// Returns the name that the event's message gives: its constant text with `{}` in place of values, and whether all of
/// it is constant. Returns `None` if the message has no constant text, or if constant text cannot be distinguished from
/// values.
pub(super) fn of_event(event: &Event<'_>) -> Option<(&'static str, bool)> {
    let mut message = Message::default();
    event.record(&mut message);
    let Message { text, has_values, is_unclear, .. } = message;
    let is_name =
        !is_unclear && !["", "{}"].contains(&&*text) && text.len() <= MOST && !text.contains(char::is_control);
    is_name.then(|| (&*String::leak(text), !has_values))
}

/// The pieces of a message as the formatting machinery writes them. Constant text of a format string is in memory of
/// the program that nobody writes to; formatted values are not. Two pieces of constant text never follow each other in
/// a format string. If two pieces seem constant, one of them is a value, and it is not known which.
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
            // Text is cut, so the write cannot fail.
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
