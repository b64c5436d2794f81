//! The lines of event classes whose fields stand one behind the other on byte boundaries: one pass over the bytes, without
//! a visitor.

use super::plan::{Look, ScopePlan};
use super::value::number;
use crate::text::escape::quoted;
use crate::text::number::{Constant, signed, unsigned};
use lastwords_trace::ctf::{Encoding, Flat};
use lastwords_trace::nul;
use lastwords_trace::schema::ByteOrder;
use lastwords_trace::value::{extend, take_integer};

/// Contexts and payload of an event class.
pub(super) struct Line<'t> {
    steps: Vec<Step<'t>>,
    /// Behind the last value.
    tail: Constant,
}

/// What stands before a value, and the value.
struct Step<'t> {
    prefix: Constant,
    value: Value<'t>,
}

enum Value<'t> {
    Skip(usize),
    Integer { size: u8, signed: bool, order: ByteOrder, look: Look<'t> },
    Text,
    Chars(usize),
}

impl<'t> Line<'t> {
    /// Of the scopes that an event class has, in order; none where a field is of another kind.
    pub(super) fn new(scopes: &[&ScopePlan<'t>]) -> Option<Self> {
        let mut steps = Vec::new();
        let mut text = Vec::new();
        for (position, scope) in scopes.iter().enumerate() {
            if position > 0 {
                text.extend_from_slice(b", ");
            }
            for flat in scope.code.flat()? {
                if let Some(value) = value(scope, flat, &mut text)? {
                    steps.push(Step { prefix: Constant::new(&text), value });
                    text.clear();
                }
            }
        }
        Some(Self { steps, tail: Constant::new(&text) })
    }

    /// Nothing stands in it.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.tail.bytes().is_empty()
    }

    /// Appends an event whose contexts begin at the beginning of `bytes`; false where the bytes are not such an event.
    #[inline]
    pub(super) fn put(&self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let mut rest = bytes;
        for Step { prefix, value } in &self.steps {
            prefix.put(out);
            let behind = match value {
                Value::Integer { size, signed, order, look } => integer(rest, *size, *signed, *order, *look, out),
                Value::Text => text(rest, out),
                Value::Chars(length) => chars(rest, *length, out),
                Value::Skip(bytes) => rest.get(*bytes..),
            };
            let Some(behind) = behind else { return false };
            rest = behind;
        }
        self.tail.put(out);
        true
    }
}

/// The step for a value, unless the field is not shown or is all text, which is appended.
fn value<'t>(scope: &ScopePlan<'t>, flat: Flat, before: &mut Vec<u8>) -> Option<Option<Value<'t>>> {
    let look = |node: u32| scope.parts.get(node as usize).map(|part| (part.prefix.bytes(), part.look));
    let (node, value) = match flat {
        Flat::Begin(node) => {
            before.extend_from_slice(look(node)?.0);
            before.push(b'{');
            return Some(None);
        }
        Flat::End => {
            before.extend_from_slice(b" }");
            return Some(None);
        }
        Flat::Skip(bytes) => return Some(Some(Value::Skip(usize::try_from(bytes).ok()?))),
        Flat::Integer { node, size, signed, order } => {
            (node, Value::Integer { size, signed, order, look: look(node)?.1 })
        }
        Flat::Text(node) => (node, Value::Text),
        Flat::Chars(node, length) => (node, Value::Chars(usize::try_from(length).ok()?)),
    };
    let (prefix, look) = look(node)?;
    match (look, &value) {
        (Look::Hidden, Value::Integer { size, .. }) => return Some(Some(Value::Skip(usize::from(*size)))),
        (Look::Hidden, _) => return None,
        (Look::Text(Encoding::Utf8), _) | (_, Value::Integer { .. }) => {}
        _ => return None,
    }
    before.extend_from_slice(prefix);
    Some(Some(value))
}

/// What is behind the integer.
#[inline]
fn integer<'b>(
    mut bytes: &'b [u8],
    size: u8,
    is_signed: bool,
    order: ByteOrder,
    look: Look<'_>,
    out: &mut Vec<u8>,
) -> Option<&'b [u8]> {
    let raw = take_integer(&mut bytes, size, order)?;
    let value = if is_signed { extend(raw, size).cast_unsigned() } else { raw };
    match look {
        Look::Unsigned => unsigned(out, value),
        Look::Signed => signed(out, value.cast_signed()),
        look => number(out, look, value),
    }
    Some(bytes)
}

#[inline]
fn text<'b>(bytes: &'b [u8], out: &mut Vec<u8>) -> Option<&'b [u8]> {
    let end = nul::find(bytes)?;
    quoted(out, bytes.get(..end)?);
    bytes.get(end + 1..)
}

/// Text of so many bytes, as far as its first NUL.
#[inline]
fn chars<'b>(bytes: &'b [u8], length: usize, out: &mut Vec<u8>) -> Option<&'b [u8]> {
    let (all, rest) = bytes.split_at_checked(length)?;
    quoted(out, all.get(..nul::find(all).unwrap_or(length))?);
    Some(rest)
}
