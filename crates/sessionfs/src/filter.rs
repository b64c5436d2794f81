//! The files `filter` of events.

use rustix::io::Errno;

use crate::buffer::Buffer;
use crate::catalog::Event;
use crate::control;
use crate::expression::{parse, unknown_name};
use crate::restriction::{self, Restriction};

/// The text of a provider's `filter`.
pub(crate) const PROVIDER_FILTER: &str = "### global filter ###\n# Use this to set filters for multiple events.\n\
     # Only events that have the fields are affected.\n";

/// Returns the text of an event's `filter`.
pub(crate) fn text(buffer: &Buffer, event: &Event) -> Result<String, Errno> {
    let (_, rules) = restriction::read(buffer)?;
    Ok(buffer
        .filters
        .find(&rules, event)
        .map_or_else(|| "none\n".to_owned(), |filter| format!("{filter}\n")))
}

/// Sets the filter of these events. `0` and `none` remove it. Of several events, those without the
/// fields are left as they are.
pub(crate) fn set(buffer: &Buffer, events: &[&Event], command: &[u8]) -> Result<(), Errno> {
    let mut text = String::from_utf8_lossy(command).trim().to_owned();
    let filter = match text.as_str() {
        "0" | "none" => None,
        text => {
            Some(parse(text).map_err(|refusal| buffer.refuse(Errno::INVAL, command, &refusal))?)
        }
    };
    if Restriction::split(&text).is_some() {
        // It is the user's own, although it looks like one of the mount.
        text = format!("({text})");
    }
    let unknown =
        |event: &&Event| filter.as_ref().and_then(|filter| unknown_name(filter, &text, event));
    let fitting: Vec<&Event> =
        events.iter().copied().filter(|event| unknown(event).is_none()).collect();
    if fitting.is_empty() {
        let refusal = events.iter().find_map(unknown).ok_or(Errno::NOENT)?;
        return Err(buffer.refuse(Errno::INVAL, command, &refusal));
    }
    let before: Vec<Option<String>> =
        fitting.iter().map(|event| buffer.filters.kept(event)).collect();
    fitting
        .iter()
        .for_each(|event| buffer.filters.keep(event, filter.as_ref().map(|_| text.clone())));
    let added = control::add_enabled(buffer, &fitting, "filter", command);
    if added.is_err() {
        fitting.iter().zip(before).for_each(|(event, before)| buffer.filters.keep(event, before));
    }
    added
}
