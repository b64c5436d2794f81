//! Names as a reader of the trace sees them. Both the metadata and the babeltrace text style use
//! them.

use crate::metadata::Version;
use lastwords_trace::schema::{Field, FieldClass};
use std::collections::HashSet;

/// A field and its names.
pub struct Member<'a> {
    /// The field.
    pub field: &'a Field,
    /// The shown name, which is unique in its scope.
    pub name: String,
    /// The name of the length field that precedes this field, if it has one.
    pub length: Option<String>,
    /// The name of the bit that says whether an event has this field, if the field is optional.
    pub presence: Option<String>,
}

/// Name of the bits that fill the last byte of the bits of optional fields.
pub const PADDING: &str = "_present_padding";

/// Returns the fields of one scope with unique names. CTF 1.8 has identifiers only, so other
/// characters become `_`. If a field and a length field have the same name, the field keeps it.
pub fn members(fields: &[Field], version: Version) -> Vec<Member<'_>> {
    let mut taken = HashSet::new();
    let mut member = |field| Member {
        field,
        name: name_of(field, version, &mut taken),
        length: None,
        presence: None,
    };
    let mut members: Vec<_> = fields.iter().map(&mut member).collect();
    for member in &mut members {
        if matches!(member.field.class, FieldClass::Bytes | FieldClass::Sequence(_)) {
            member.length = Some(unique(&format!("_{}_length", member.name), &mut taken));
        }
        if matches!(member.field.class, FieldClass::Optional(_)) {
            member.presence = Some(unique(&format!("_{}_present", member.name), &mut taken));
        }
    }
    members
}

fn name_of(field: &Field, version: Version, taken: &mut HashSet<String>) -> String {
    let name = match version {
        Version::V1_8 => identifier(&field.name),
        Version::V2 => plain(&field.name),
    };
    unique(&name, taken)
}

/// Returns `name`, or the first of `name_2`, `name_3`, … that is neither taken nor empty. Names
/// that differ only in leading underscores count as equal: Babeltrace 2.0 removes the underscore
/// that CTF 1.8 requires, and the names are equal then.
pub fn unique(name: &str, taken: &mut HashSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let is_free =
        |name: &String| !name.is_empty() && taken.insert(name.trim_start_matches('_').to_owned());
    names.find(is_free).unwrap_or_default()
}

/// Keeps the letters, digits and underscores of a name. Each other character becomes `_`.
pub fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Replaces control characters of a name by `_`, because a name that is printed without escapes
/// must not control the terminal.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if is_unsafe(c) { '_' } else { c }).collect()
}

/// Returns true for characters that control a terminal: control characters (C0, DEL, C1), and those
/// that begin or reorder a line.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    let reorders = [
        '\u{61c}'..='\u{61c}',
        '\u{200e}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2066}'..='\u{2069}',
    ];
    c.is_control() || reorders.iter().any(|range| range.contains(&c))
}

/// Formats a UUID as text with hyphens.
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
