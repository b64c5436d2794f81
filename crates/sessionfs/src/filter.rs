//! The files `filter` and `trigger` of events: what they show, and what they accept.
//!
//! This is the only place that knows which filters and triggers the recorder has. It has none yet that an event carries: an
//! expression is checked and then refused.

use lastwords_filter::Filter;
use rustix::io::Errno;

use crate::error_log::Refusal;

/// The text of an event's `filter`.
pub(crate) const NO_FILTER: &str = "none\n";
/// The text of a provider's `filter`.
pub(crate) const PROVIDER_FILTER: &str = "### global filter ###\n# Use this to set filters for multiple events.\n\
     # Filters are not evaluated in the application yet: report --filter EXPR selects events when they are read.\n";
/// The text of `trigger`.
pub(crate) const NO_TRIGGER: &str = "# Available triggers:\n#\n";

/// Sets the filter of events. `0` and `none` remove it, which always succeeds.
pub(crate) fn set_filter(text: &str) -> Result<(), (Errno, Refusal)> {
    let text = text.trim();
    if matches!(text, "0" | "none") {
        return Ok(());
    }
    let place = "event filter parse error".to_owned();
    match Filter::parse(text) {
        Err(error) => {
            let offset = text.get(..error.offset()).map_or(0, |before| before.chars().count());
            Err((Errno::INVAL, Refusal { place, why: error.to_string().replace('\n', " "), offset }))
        }
        Ok(_) => {
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
        let (errno, refusal) = set_filter("bytes >\n").unwrap_err();
        assert_eq!(errno, Errno::INVAL);
        assert!(!refusal.why.is_empty() && !refusal.why.contains('\n'), "{refusal:?}");
        let (errno, _) = set_filter("bytes > 1").unwrap_err();
        assert_eq!(errno, Errno::OPNOTSUPP);
        assert_eq!((set_filter("0\n"), set_filter("none")), (Ok(()), Ok(())));
    }

    #[test]
    fn no_trigger_is_accepted_and_then_ignored() {
        assert_eq!(set_trigger("snapshot\n").unwrap_err().0, Errno::INVAL);
        assert_eq!(set_trigger("!snapshot\n").unwrap_err().0, Errno::NOENT);
        assert_eq!(set_trigger("\n"), Ok(()));
    }
}
