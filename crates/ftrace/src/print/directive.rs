//! The directives of printf, parsed as in `lib/vsprintf.c`.

use super::Machine;
use super::arith::Int;
use super::number::{self, Spec};
use super::pointer::Pointer;
use lastwords_bytes::low_u8;

/// Size of an integer argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Bytes(u8),
    /// The size of a `long`.
    Word,
}

/// The kind of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `%d`, `%i`.
    Signed(Size),
    /// `%u`, `%o`, `%x`, `%X`.
    Unsigned { size: Size, base: u8, upper: bool },
    /// `%c`.
    Char,
    /// `%s`.
    Text,
    /// `%p` and its extensions.
    Pointer(Pointer),
}

/// A directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Directive {
    pub(crate) spec: Spec,
    /// The width is passed as an argument.
    pub(crate) width_given: bool,
    /// The precision is passed as an argument.
    pub(crate) precision_given: bool,
    pub(crate) kind: Kind,
}

/// A part of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormatPart<'a> {
    Text(&'a [u8]),
    Show(Directive),
}

/// Splits off the first part of a format. Returns the part and the rest.
///
/// # Errors
/// A directive takes an argument and cannot be shown without the kernel's memory.
pub(crate) fn next_part(format: &[u8]) -> Result<(FormatPart<'_>, &[u8]), String> {
    let until = format.iter().position(|b| *b == b'%').unwrap_or(format.len());
    let (before, directive_on) = format.split_at_checked(until).unwrap_or((format, &[]));
    if until > 0 {
        return Ok((FormatPart::Text(before), directive_on));
    }
    let from = |at: usize| format.get(at..).unwrap_or_default();
    let mut at = 1usize;
    let mut directive = Directive {
        spec: Spec::default(),
        width_given: false,
        precision_given: false,
        kind: Kind::Signed(Size::Bytes(4)),
    };
    at = at.saturating_add(flags(&mut directive.spec, from(1)));
    let (width, given, used) = amount(from(at));
    directive.spec.width = width.unwrap_or(0);
    directive.width_given = given;
    at = at.saturating_add(used);
    if format.get(at) == Some(&b'.') {
        let (precision, given, used) = amount(from(at.saturating_add(1)));
        directive.spec.precision = Some(precision.unwrap_or(0));
        directive.precision_given = given;
        at = at.saturating_add(used.saturating_add(1));
    }
    let (size, used) = size(from(at));
    at = at.saturating_add(used);
    let Some(conversion) = format.get(at) else { return Ok((FormatPart::Text(format), &[])) };
    at = at.saturating_add(1);
    let unsigned = |base, upper| Kind::Unsigned { size, base, upper };
    directive.kind = match conversion {
        b'd' | b'i' => Kind::Signed(size),
        b'u' => unsigned(10, false),
        b'o' => unsigned(8, false),
        b'x' => unsigned(16, false),
        b'X' => unsigned(16, true),
        b'c' => Kind::Char,
        b's' => Kind::Text,
        b'p' => {
            let length = from(at).iter().take_while(|b| b.is_ascii_alphanumeric()).count();
            let letters = from(at).get(..length).unwrap_or_default();
            at = at.saturating_add(length);
            let shown = String::from_utf8_lossy(letters);
            Kind::Pointer(
                Pointer::parse(letters)
                    .ok_or_else(|| format!("the directive %p{shown}, which needs the kernel"))?,
            )
        }
        b'%' => return Ok((FormatPart::Text(b"%"), from(at))),
        // Anything that is not a directive is text.
        _ => return Ok((FormatPart::Text(format.get(..at).unwrap_or(format)), from(at))),
    };
    Ok((FormatPart::Show(directive), from(at)))
}

fn flags(spec: &mut Spec, format: &[u8]) -> usize {
    for (index, byte) in format.iter().enumerate() {
        match byte {
            b'-' => spec.left = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'#' => spec.prefix = true,
            b'0' => spec.zero = true,
            _ => return index,
        }
    }
    format.len()
}

/// Parses a number or a star. Returns the number, true for a star, and the number of bytes.
fn amount(format: &[u8]) -> (Option<u32>, bool, usize) {
    if format.first() == Some(&b'*') {
        return (None, true, 1);
    }
    let all = format.iter().map_while(|b| char::from(*b).to_digit(10));
    let digits = all.clone().count();
    let value = all.fold(0u32, |sum, digit| sum.saturating_mul(10).saturating_add(digit));
    ((digits > 0).then_some(value), false, digits)
}

fn size(format: &[u8]) -> (Size, usize) {
    match format {
        [b'h', b'h', ..] => (Size::Bytes(1), 2),
        [b'l', b'l', ..] => (Size::Bytes(8), 2),
        [b'h', ..] => (Size::Bytes(2), 1),
        [b'l' | b'z' | b'Z' | b't', ..] => (Size::Word, 1),
        [b'L' | b'q' | b'j', ..] => (Size::Bytes(8), 1),
        _ => (Size::Bytes(4), 0),
    }
}

/// Appends an integer in the form of the directive.
pub(crate) fn integer(directive: Directive, value: u64, machine: Machine, out: &mut Vec<u8>) {
    let of = |size: Size, signed: bool| {
        let size = if let Size::Bytes(size) = size { size } else { machine.word_size };
        Int { size, signed }.wrap(value)
    };
    match directive.kind {
        Kind::Signed(size) => {
            let value = of(size, true).cast_signed();
            number::number(out, directive.spec, value.unsigned_abs(), value < 0, 10, false);
        }
        Kind::Unsigned { size, base, upper } => {
            let spec = number::Spec { plus: false, space: false, ..directive.spec };
            number::number(out, spec, of(size, false), false, base, upper);
        }
        Kind::Char | Kind::Text | Kind::Pointer(_) => {
            let spec = number::Spec { precision: None, ..directive.spec };
            number::text(out, spec, &[low_u8(value)]);
        }
    }
}
