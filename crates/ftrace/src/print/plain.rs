//! The most frequent arguments: an integer field without conversion, or text of a fixed size. They
//! are read and shown in one step, without an expression.

use super::Fault;
use super::arith::Int;
use super::directive::{Directive, Kind, Size};
use super::number::Spec;
use super::tree::Expr;
use lastwords_bytes::ByteOrder;
use lastwords_trace::nul;
use lastwords_trace::text::number::{hex, signed_short, unsigned_short};
use lastwords_trace::text::page::Put;

/// Bytes of a task's name (`TASK_COMM_LEN`), the most frequent text.
const NAME: usize = 16;

/// The format of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IntegerFormat {
    Signed,
    Unsigned,
    Hexadecimal,
}

/// An integer field, read as the last bytes of a word of eight bytes. That works because the first
/// eight bytes of an event hold no field of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IntegerField {
    /// Offset of the word.
    begin: u32,
    /// Number of bits of the word before the field.
    shift: u8,
    format: IntegerFormat,
}

impl IntegerField {
    /// Returns the field that an argument shows, or `None` if it must be evaluated as an
    /// expression.
    fn new(directive: Directive, value: &Expr, word_size: u8) -> Option<Self> {
        let of = |size: Size| if let Size::Bytes(size) = size { size } else { word_size };
        let (shown, format) = match directive.kind {
            Kind::Signed(size) => (Int { size: of(size), signed: true }, IntegerFormat::Signed),
            Kind::Unsigned { size, base: 10, .. } => {
                (Int { size: of(size), signed: false }, IntegerFormat::Unsigned)
            }
            Kind::Unsigned { size, base: 16, upper: false } => {
                (Int { size: of(size), signed: false }, IntegerFormat::Hexadecimal)
            }
            _ => return None,
        };
        let (offset, field) = field_of(value)?;
        let kept = converted(field, shown)?;
        // An unsigned field that is shown as a wider type is never negative.
        let format = if format == IntegerFormat::Signed && !kept.signed {
            IntegerFormat::Unsigned
        } else {
            format
        };
        let begin = offset.wrapping_add(u32::from(kept.size)).checked_sub(8)?;
        Some(Self { begin, shift: 64u8.wrapping_sub(kept.size.wrapping_mul(8)), format })
    }

    /// Appends the field of an event.
    #[inline]
    pub(super) fn put(
        self,
        payload: &[u8],
        order: ByteOrder,
        out: &mut impl Put,
    ) -> Result<(), Fault> {
        let word = payload
            .get(self.begin as usize..)
            .and_then(|rest| rest.first_chunk())
            .ok_or(Fault::Outside)?;
        let word = match order {
            ByteOrder::Little => u64::from_le_bytes(*word),
            ByteOrder::Big => u64::from_be_bytes(*word) << self.shift,
        };
        match self.format {
            IntegerFormat::Signed => signed_short(out, word.cast_signed() >> self.shift),
            IntegerFormat::Unsigned => unsigned_short(out, word >> self.shift),
            IntegerFormat::Hexadecimal => hex(out, word >> self.shift),
        }
        Ok(())
    }
}

/// Returns the offset and type of a field, if the expression is a field or casts of one.
fn field_of(value: &Expr) -> Option<(u32, Int)> {
    match value {
        Expr::Field { offset, kind } => Some((*offset, *kind)),
        Expr::Cast(kind, inner) => {
            let (offset, field) = field_of(inner)?;
            Some((offset, converted(field, *kind)?))
        }
        _ => None,
    }
}

/// Returns the type in which the bytes of a field have their value after the conversion to `into`.
/// Returns `None` if the conversion changes the value or uses only a part of the field.
fn converted(field: Int, into: Int) -> Option<Int> {
    match into.size.cmp(&field.size) {
        std::cmp::Ordering::Greater => (!field.signed || into.signed).then_some(field),
        std::cmp::Ordering::Equal => Some(into),
        std::cmp::Ordering::Less => None,
    }
}

pub(super) enum PlainPiece {
    Number(IntegerField),
    Chars { offset: u32, length: u32 },
}

/// Returns a plain argument, and the constant text at its beginning.
pub(super) fn shown(
    directive: Directive,
    value: &Expr,
    word_size: u8,
) -> Option<(&'static [u8], PlainPiece)> {
    let prefix = directive.spec.prefix;
    if directive.spec != (Spec { prefix, ..Spec::default() }) {
        return None;
    }
    if let (Kind::Text, Expr::Payload { offset, length: length @ 1.., .. }) =
        (directive.kind, value)
    {
        return Some((b"", PlainPiece::Chars { offset: *offset, length: *length }));
    }
    let text: &[u8] = match directive.kind {
        Kind::Unsigned { base: 16, .. } if prefix => b"0x",
        _ => b"",
    };
    Some((text, PlainPiece::Number(IntegerField::new(directive, value, word_size)?)))
}

/// Appends the text in `length` bytes of an event.
#[inline]
pub(super) fn chars(
    payload: &[u8],
    offset: u32,
    length: u32,
    out: &mut impl Put,
) -> Result<(), Fault> {
    let rest = payload.get(offset as usize..).ok_or(Fault::Outside)?;
    match rest.first_chunk::<NAME>() {
        Some(name) if length as usize == NAME => out.block(name, nul::until(name).len()),
        _ => out.text(nul::until(rest.get(..length as usize).ok_or(Fault::Outside)?)),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
