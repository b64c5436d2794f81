//! Messages of markers. A marker has a format string that names fields.

use super::escape::bare;
use crate::iter::{Field, Value};
use lastwords_trace::class::EventClass;
use lastwords_trace::text::number::Constant;
use serde_json::Value as Json;

/// Maximum number of pieces of a message. It limits the cost of a format string from a hostile
/// image.
const MAX_PIECES: usize = 64;

/// A piece of a message.
pub(super) enum Piece {
    Text(Constant),
    /// The value of the field at this position among the fields that are shown. Such a field is not
    /// shown again after the message.
    Value {
        field: usize,
        base16: bool,
    },
}

/// Returns the format string of a marker from the attributes of its class, or nothing if there is
/// none.
pub(crate) fn format(class: &EventClass) -> String {
    let attributes: Option<Json> = serde_json::from_str(&class.attributes).ok();
    let format =
        attributes.as_ref().and_then(|value| value.get("lastwords")?.get("format")?.as_str());
    format.unwrap_or_default().to_owned()
}

/// Returns the provider of an event that is named by its place in the source (`main.rs:71`); none
/// for events with other names.
pub(super) fn provider_of_place(class: &EventClass) -> Option<&str> {
    let location = place(class)?;
    let place = location.rsplit(['/', '\\']).next()?;
    class.name.as_deref()?.strip_suffix(place)?.strip_suffix(':')
}

/// Returns the place of an event class in the source, `src/main.rs:71`, if its attributes have it.
pub(crate) fn place(class: &EventClass) -> Option<String> {
    let attributes: Json = serde_json::from_str(&class.attributes).ok()?;
    Some(attributes.get("lastwords")?.get("location")?.as_str()?.to_owned())
}

/// Returns the name of an event. If the name ends with the marker's format string, returns only the
/// provider.
pub(super) fn shown_name<'n>(name: &'n str, format: &str) -> &'n str {
    match name.strip_suffix(format) {
        Some(provider) if !format.is_empty() => provider.trim_end_matches(':'),
        _ => name,
    }
}

/// Parses the format string of a marker. `{name}` is the field of that name, `{0}` is the field
/// `arg0`, and `{}` is the next field that the string does not name. `{{` and `}}` are braces.
/// `fields` are the names of the fields that are shown. Text is escaped.
pub(super) fn pieces(format: &str, fields: &[&str]) -> Vec<Piece> {
    parse(format, fields, bare)
}

/// Returns the message of a marker as it is, without escapes.
pub(crate) fn message(format: &str, fields: &[Field]) -> String {
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let mut message = String::new();
    for piece in parse(format, &names, |text, bytes| text.extend_from_slice(bytes)) {
        match piece {
            Piece::Text(text) => message.push_str(&String::from_utf8_lossy(text.bytes())),
            Piece::Value { field, base16 } => {
                let value = fields.get(field).map(|field| match &field.value {
                    Value::Unsigned(number) if base16 => format!("{number:#x}"),
                    value => value.to_string(),
                });
                message.push_str(&value.unwrap_or_default());
            }
        }
    }
    // In a line, a blank divides the message from the name.
    message.strip_prefix(' ').map(str::to_owned).unwrap_or(message)
}

/// Does the same as [`pieces`], and appends text with `put`.
fn parse(format: &str, fields: &[&str], put: fn(&mut Vec<u8>, &[u8])) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut text: Vec<u8> = Vec::new();
    let mut rest = format;
    let mut unnamed = fields
        .iter()
        .enumerate()
        .filter(|(_, name)| !keys(name).any(|key| names(format, key)))
        .map(|(at, _)| at);
    if !rest.is_empty() {
        text.push(b' ');
    }
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        put(&mut text, before.as_bytes());
        let end = from.find('}').filter(|_| from.starts_with('{'));
        if from.starts_with("{{") || from.starts_with("}}") {
            text.extend(from.bytes().next());
            rest = from.get(2..).unwrap_or_default();
        } else if let Some(end) = end {
            let inner = from.get(1..end).unwrap_or_default();
            let (name, spec) = inner.split_once(':').unwrap_or((inner, ""));
            let named = fields.iter().position(|field| keys(field).any(|key| key == name));
            match named.or_else(|| unnamed.next()).filter(|_| pieces.len() < MAX_PIECES) {
                Some(field) => {
                    pieces.push(Piece::Text(Constant::new(&std::mem::take(&mut text))));
                    pieces.push(Piece::Value { field, base16: spec.ends_with(['x', 'X']) });
                }
                None => put(&mut text, from.as_bytes().get(..=end).unwrap_or_default()),
            }
            rest = &from[end.saturating_add(1)..];
        } else {
            text.extend(from.bytes().next());
            rest = from.get(1..).unwrap_or_default();
        }
    }
    put(&mut text, rest.as_bytes());
    if !text.is_empty() {
        pieces.push(Piece::Text(Constant::new(&text)));
    }
    pieces
}

/// Returns the keys by which a format string can name a field: the name, and for `arg0` also the
/// number 0.
fn keys(name: &str) -> impl Iterator<Item = &str> {
    [Some(name), name.strip_prefix("arg")].into_iter().flatten()
}

/// Returns true if `format` contains `{name}` or `{name:...}`.
fn names(format: &str, name: &str) -> bool {
    let mut rest = format;
    while let Some(at) = rest.find('{') {
        rest = &rest[at.saturating_add(1)..];
        if rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['}', ':'])) {
            return true;
        }
    }
    false
}
