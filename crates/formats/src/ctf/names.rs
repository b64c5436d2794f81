//! Names as a reader of the trace sees them: what both the metadata and the babeltrace text style use.

use super::Version;
use lastwords_trace::schema::{Field, FieldClass};
use std::collections::HashSet;

/// A field and its names.
pub(crate) struct Member<'a> {
    /// The field.
    pub(crate) field: &'a Field,
    /// Its name as shown; unique in its scope.
    pub(crate) name: String,
    /// The name of the length that stands before it, where it has one.
    pub(crate) length: Option<String>,
}

/// The fields of one scope with unique names. CTF 1.8 has identifiers only: other characters become `_`.
pub(crate) fn members(fields: &[Field], version: Version) -> Vec<Member<'_>> {
    let mut taken = HashSet::new();
    fields.iter().map(|field| member(field, version, &mut taken)).collect()
}

fn member<'a>(field: &'a Field, version: Version, taken: &mut HashSet<String>) -> Member<'a> {
    let base = match version {
        Version::V1_8 => identifier(&field.name),
        Version::V2 => plain(&field.name),
    };
    let counted = matches!(field.class, FieldClass::Bytes | FieldClass::Sequence(_));
    let mut number = 1;
    loop {
        let name = if number == 1 { base.clone() } else { format!("{base}_{number}") };
        let length = format!("_{name}_length");
        let used = taken.contains(&name) || counted && taken.contains(&length);
        if !name.is_empty() && !used {
            taken.insert(name.clone());
            if counted {
                taken.insert(length.clone());
            }
            return Member { field, name, length: counted.then_some(length) };
        }
        number += 1;
    }
}

/// Letters, digits and `_` of a name; anything else becomes `_`.
pub(crate) fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A name without control characters: what is printed without escapes must not steer a terminal.
pub(crate) fn plain(name: &str) -> String {
    name.chars().map(|c| if is_unsafe(c) { '_' } else { c }).collect()
}

/// Control characters (C0, DEL, C1) and those that reorder a line.
pub(crate) fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
