//! The files `filter` and `trigger` of events: what they show, and what they accept.
//!
//! This is the only place that knows which filters and triggers the recorder has. It has none yet that an event carries: an
//! expression is checked and then refused.

use lastwords_filter::{Filter, Name, Step};
use rustix::io::Errno;

use crate::error_log::Refusal;

/// The text of an event's `filter`.
pub(crate) const NO_FILTER: &str = "none\n";
/// The text of a provider's `filter`.
pub(crate) const PROVIDER_FILTER: &str = "### global filter ###\n# Use this to set filters for multiple events.\n\
     # Filters are not evaluated in the application yet: report --filter EXPR selects events when they are read.\n";
/// The text of `trigger`.
pub(crate) const NO_TRIGGER: &str = "# Available triggers:\n#\n";

/// Names that each event has, beside its fields.
const CONTEXTS: &[&str] = &["comm", "pid", "tid", "cpu", "CPU", "COMM", "level", "channel", "event"];

/// Sets the filter of events that have these fields. `0` and `none` remove it, which always succeeds.
pub(crate) fn set_filter(text: &str, fields: &[&str]) -> Result<(), (Errno, Refusal)> {
    let text = text.trim();
    if matches!(text, "0" | "none") {
        return Ok(());
    }
    let place = "event filter parse error".to_owned();
    let unknown = |filter: &Filter| {
        let is_unknown = |name: &Name| {
            let first = name.steps().first().map(|step| if let Step::Member(name) = step { name.as_str() } else { "" });
            !name.is_context() && !first.is_some_and(|name| fields.contains(&name) || CONTEXTS.contains(&name))
        };
        let position = filter.names().iter().position(is_unknown)?;
        let error = filter.unknown_name(position, "a field of the event");
        // The kernel points behind the name and the blanks that follow it.
        let rest = text.get(error.offset()..).unwrap_or_default();
        let behind = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
        Some((error, text.len() - behind.len()))
    };
    let refused = |(error, at): (lastwords_filter::Error, usize)| {
        let offset = text.get(..at).map_or(0, |before| before.chars().count());
        let why = format!("found {}; expected {}", error.found(), error.expected());
        Err((Errno::INVAL, Refusal { place: place.clone(), why, offset }))
    };
    match Filter::parse(text) {
        Err(error) => {
            let at = error.offset();
            refused((error, at))
        }
        Ok(filter) => {
            if let Some(error) = unknown(&filter) {
                return refused(error);
            }
            let why = "filters are not evaluated in the application yet; `lastwords report --filter` has them";
            Err((Errno::OPNOTSUPP, Refusal { place, why: why.to_owned(), offset: 0 }))
        }
    }
}

/// Adds a trigger, or removes one (`!`). There is none to remove, and none can be added yet.
pub(crate) fn set_trigger(text: &str) -> Result<(), (Errno, Refusal)> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(());
    }
    let refusal = |why: &str| Refusal::new("trigger", why);
    match text.strip_prefix('!') {
        Some(_) => Err((Errno::NOENT, refusal("the event has no such trigger"))),
        None => Err((Errno::INVAL, refusal("events have no triggers yet; `lastwords snapshot take` takes a snapshot"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_expression_is_told_with_its_place() {
        let (errno, refusal) = set_filter("bytes >\n", &["bytes"]).unwrap_err();
        assert_eq!(errno, Errno::INVAL);
        assert!(!refusal.why.is_empty() && !refusal.why.contains('\n'), "{refusal:?}");
        let (errno, refusal) = set_filter("bytes > 1 && byte == 2", &["bytes"]).unwrap_err();
        assert_eq!((errno, refusal.offset), (Errno::INVAL, 18), "{refusal:?}");
        let (errno, _) = set_filter("bytes > 1 && comm == \"x\"", &["bytes"]).unwrap_err();
        assert_eq!(errno, Errno::OPNOTSUPP);
        assert_eq!((set_filter("0\n", &[]), set_filter("none", &[])), (Ok(()), Ok(())));
    }

    #[test]
    fn no_trigger_is_accepted_and_then_ignored() {
        assert_eq!(set_trigger("snapshot\n").unwrap_err().0, Errno::INVAL);
        assert_eq!(set_trigger("!snapshot\n").unwrap_err().0, Errno::NOENT);
        assert_eq!(set_trigger("\n"), Ok(()));
    }
}
