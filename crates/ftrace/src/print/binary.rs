//! `bstr_printf`: a format and its arguments packed into words, as `trace_printk` records them.

use super::arith::Int;
use super::bytes::{Value, read};
use super::directive::{Directive, FormatPart, Kind, Size, integer, next_part};
use super::number::{self, WIDEST};
use super::pointer::Pointer;
use super::{Env, Fault};
use lastwords_bytes::low_u32;
use lastwords_trace::nul;

/// The packed arguments, which are read in order.
struct Packed<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Packed<'a> {
    fn integer(&mut self, size: u8, env: &Env<'_, '_>) -> Result<u64, Fault> {
        // Arguments longer than 32 bits are aligned as words of 32 bits.
        self.at = self.at.next_multiple_of(usize::from(size.min(4)));
        let value = read(self.bytes, self.at, Int { size, signed: false }, env.machine.order)?;
        self.at = self.at.saturating_add(usize::from(size));
        Ok(value)
    }

    fn text(&mut self) -> Result<&'a [u8], Fault> {
        let text = nul::until(self.bytes.get(self.at..).ok_or(Fault::Outside)?);
        self.at = self.at.saturating_add(text.len().saturating_add(1));
        Ok(text)
    }
}

/// Appends the text of a format and its packed arguments.
///
/// # Errors
/// The arguments end before the format does.
pub fn print_binary(
    format: &[u8],
    arguments: &[u8],
    env: &mut Env<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let mut packed = Packed { bytes: arguments, at: 0 };
    let mut rest = nul::until(format);
    while !rest.is_empty() {
        let (found, left) = next_part(rest).map_err(|_| Fault::Kind)?;
        rest = left;
        match found {
            FormatPart::Text(text) => out.extend_from_slice(text),
            FormatPart::Show(directive) => show(directive, &mut packed, env, out)?,
        }
    }
    Ok(())
}

fn show(
    mut directive: Directive,
    packed: &mut Packed<'_>,
    env: &mut Env<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if directive.width_given {
        let given = low_u32(packed.integer(4, env)?).cast_signed();
        directive.spec.left |= given < 0;
        directive.spec.width = given.unsigned_abs().min(WIDEST);
    }
    if directive.precision_given {
        directive.spec.precision =
            Some(low_u32(packed.integer(4, env)?).cast_signed().max(0).cast_unsigned());
    }
    match directive.kind {
        Kind::Signed(size) | Kind::Unsigned { size, .. } => {
            let bytes = if let Size::Bytes(bytes) = size { bytes } else { env.machine.word_size };
            let value = packed.integer(bytes, env)?;
            integer(directive, value, env.machine, out);
        }
        Kind::Char => {
            let value = packed.integer(1, env)?;
            integer(directive, value, env.machine, out);
        }
        Kind::Text => number::text(out, directive.spec, packed.text()?),
        Kind::Pointer(Pointer::Hidden | Pointer::Raw | Pointer::Symbol(_) | Pointer::Error) => {
            let value = packed.integer(env.machine.word_size, env)?;
            let Kind::Pointer(pointer) = directive.kind else { return Ok(()) };
            pointer.show(directive.spec, &Value::Int((value, Int::U64)), env, out)?;
        }
        // The kernel replaced the data of a pointer by its text when it recorded the event.
        Kind::Pointer(_) => out.extend_from_slice(packed.text()?),
    }
    Ok(())
}
