//! Finds the fields that several combinations of contexts have in common. If it is unknown which
//! combination the events have, no field may get a name that could belong to another field.

use lastwords_trace::schema::{Field, FieldClass};

/// Bytes of an unnamed context word.
const WORD: usize = 4;

/// Offset of the field with this name.
pub(crate) fn offset_of(name: &str, fields: &[Field]) -> Option<usize> {
    placed(fields).find(|(_, field)| field.name == name).map(|(at, _)| at)
}

/// True if the bytes are text, then only NULs.
pub(crate) fn is_padded_text(bytes: &[u8; 16]) -> bool {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
    rest.iter().all(|b| *b == 0) && !text.iter().any(u8::is_ascii_control)
}

/// Returns the fields of `first`; fields that differ in one of `others` become words named
/// `context0`, `context1` and so on. Returns none if the sizes differ: where an event's fields
/// begin is not known then.
pub(crate) fn common(first: &[Field], others: &[Vec<Field>]) -> Option<Vec<Field>> {
    let size = size_of(first);
    if others.iter().any(|other| size_of(other) != size) {
        return None;
    }
    let is_sure = |at: usize, field: &Field| {
        others.iter().all(|other| placed(other).any(|f| f == (at, field)))
    };
    let mut fields = Vec::new();
    let mut unsure = 0usize;
    for (at, field) in placed(first) {
        if is_sure(at, field) {
            fields.push(field.clone());
            continue;
        }
        let len = field.class.fixed_size().unwrap_or(0);
        let word = FieldClass::Integer { size: 4, signed: false, base: 10 };
        let (class, count) =
            if len.is_multiple_of(WORD) { (word, len / WORD) } else { (field.class.clone(), 1) };
        for _ in 0..count {
            fields.push(Field { name: format!("context{unsure}"), class: class.clone() });
            unsure = unsure.saturating_add(1);
        }
    }
    Some(fields)
}

fn size_of(fields: &[Field]) -> usize {
    fields.iter().fold(0usize, |n, f| n.saturating_add(f.class.fixed_size().unwrap_or(0)))
}

fn placed(fields: &[Field]) -> impl Iterator<Item = (usize, &Field)> {
    fields.iter().scan(0usize, |at, field| {
        let here = *at;
        *at = at.saturating_add(field.class.fixed_size().unwrap_or(0));
        Some((here, field))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(name: &str) -> Field {
        Field { name: name.into(), class: FieldClass::Integer { size: 4, signed: true, base: 10 } }
    }

    fn name() -> Field {
        Field { name: "procname".into(), class: FieldClass::Text { size: 16 } }
    }

    fn names(fields: &[Field]) -> Vec<&str> {
        fields.iter().map(|f| f.name.as_str()).collect()
    }

    #[test]
    fn only_what_all_agree_in_has_a_name() {
        let first = [number("vpid"), name()];
        let common =
            |first: &[Field], other| common(first, &[other]).map(|fields| names(&fields).join(" "));
        assert_eq!(
            common(&first, vec![number("vtid"), name()]).as_deref(),
            Some("context0 procname")
        );
        let shifted = common(&first, vec![name(), number("cpu")]);
        assert_eq!(shifted.as_deref(), Some("context0 context1 context2 context3 context4"));
        assert_eq!(common(&[number("vpid")], vec![]), None, "the sizes differ");
    }

    #[test]
    fn text_is_padded_with_nul() {
        assert!(is_padded_text(b"worker-1\0\0\0\0\0\0\0\0"));
        assert!(is_padded_text(b"sixteen-letters."));
        assert!(!is_padded_text(b"\x1a\x10\0\0worker-1\0\0\0\0"));
    }
}
