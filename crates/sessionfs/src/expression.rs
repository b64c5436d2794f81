//! The expressions of filters that are written, with the kernel's errors.

use lastwords_filter::{Filter, Name, Step};

use crate::catalog::Event;
use crate::error_log::Refusal;

/// Names that each event has, beside its fields.
const CONTEXTS: &[&str] =
    &["comm", "pid", "tid", "common_pid", "cpu", "CPU", "COMM", "level", "channel", "event"];

fn refused(error: &lastwords_filter::Error, text: &str, at: usize) -> Refusal {
    let offset = text.get(..at).map_or(0, |before| before.chars().count());
    let why = format!("found {}; expected {}", error.found(), error.expected());
    Refusal { place: "event filter parse error".to_owned(), why, offset }
}

/// Parses the expression of a filter that is written.
pub(crate) fn parse(text: &str) -> Result<Filter, Refusal> {
    Filter::parse(text).map_err(|error| refused(&error, text, error.offset()))
}

/// Returns why a filter does not fit an event: the event has no field of a name.
pub(crate) fn unknown_name(filter: &Filter, text: &str, event: &Event) -> Option<Refusal> {
    let is_field = |name: &str| event.fields.iter().any(|field| field.name == name);
    let is_unknown = |name: &Name| {
        let first = name
            .steps()
            .first()
            .map(|step| if let Step::Member(name) = step { name.as_str() } else { "" });
        !name.is_context() && !first.is_some_and(|name| is_field(name) || CONTEXTS.contains(&name))
    };
    let position = filter.names().iter().position(is_unknown)?;
    let error = filter.unknown_name(position, "a field of the event");
    // The kernel points behind the name and the blanks that follow it.
    let rest = text.get(error.offset()..).unwrap_or_default();
    let behind = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
    Some(refused(&error, text, text.len() - behind.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_trace::schema::{Field, FieldClass};

    fn event(fields: &[&str]) -> Event {
        let field = |name: &&str| Field { name: (*name).to_owned(), class: FieldClass::Bool };
        let fields = fields.iter().map(field).collect();
        Event::made("shop", "sale", fields)
    }

    #[test]
    fn a_wrong_expression_is_told_with_its_place() {
        let refusal = parse("bytes >").unwrap_err();
        assert!(!refusal.why.is_empty() && !refusal.why.contains('\n'), "{refusal:?}");
        let text = "bytes > 1 && byte == 2";
        let refusal = unknown_name(&parse(text).unwrap(), text, &event(&["bytes"])).unwrap();
        assert_eq!(refusal.offset, 18, "{refusal:?}");
        let text = "bytes > 1 && comm == \"x\"";
        assert_eq!(unknown_name(&parse(text).unwrap(), text, &event(&["bytes"])), None);
    }
}
