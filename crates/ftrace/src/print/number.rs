//! Implements `number()` and `string()` of `lib/vsprintf.c`: flags, width and precision.

use lastwords_bytes::low_u8;
pub(crate) use lastwords_trace::text::number::hex;
use lastwords_trace::text::number::unsigned;

/// The layout of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// `-`.
    pub(crate) left: bool,
    /// `0`.
    pub(crate) zero: bool,
    /// `+`.
    pub(crate) plus: bool,
    /// A space.
    pub(crate) space: bool,
    /// `#`.
    pub(crate) prefix: bool,
    /// Minimum width.
    pub(crate) width: u32,
    /// Precision.
    pub(crate) precision: Option<u32>,
}

/// Limit of a width or precision that a hostile format asks for. (The kernel's `FIELD_WIDTH_MAX` is
/// larger, but its line of text is not.)
pub(crate) const WIDEST: u32 = 8192;

fn fill(out: &mut Vec<u8>, byte: u8, count: i64) {
    if let Ok(count) = usize::try_from(count) {
        out.resize(out.len().saturating_add(count), byte);
    }
}

fn signed_len(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX)
}

/// Appends an integer. `negative`: a sign is written before `magnitude`. `base` is 8, 10 or 16.
pub(crate) fn number(
    out: &mut Vec<u8>,
    spec: Spec,
    magnitude: u64,
    negative: bool,
    base: u8,
    upper: bool,
) {
    if spec == Spec::default() && (base == 10 || (base == 16 && !upper)) {
        if negative {
            out.push(b'-');
        }
        return if base == 10 { unsigned(out, magnitude) } else { hex(out, magnitude) };
    }
    let mut digits = [0u8; 24];
    let length = reversed(&mut digits, magnitude, base, upper);
    let sign = if negative { Some(b'-') } else { sign_of(spec) };
    let with_prefix = spec.prefix && base != 10;
    let prefix: &[u8] = match (with_prefix, base, magnitude) {
        (true, 16, _) if upper => b"0X",
        (true, 16, _) => b"0x",
        (true, 8, 1..) => b"0",
        _ => b"",
    };
    let precision = spec.precision.unwrap_or(0).min(WIDEST).max(length);
    let taken = i64::from(precision)
        .saturating_add(signed_len(prefix))
        .saturating_add(i64::from(sign.is_some()));
    let padding = i64::from(spec.width.min(WIDEST)).saturating_sub(taken);
    if !spec.left && !spec.zero {
        fill(out, b' ', padding);
    }
    out.extend(sign);
    out.extend_from_slice(prefix);
    if spec.zero && !spec.left {
        fill(out, b'0', padding);
    }
    fill(out, b'0', i64::from(precision).saturating_sub(i64::from(length)));
    out.extend(digits.iter().take(length as usize).rev());
    if spec.left {
        fill(out, b' ', padding);
    }
}

/// Appends the hexadecimal digits of an integer, with zeros before them up to a width.
pub(crate) fn padded_hex(out: &mut Vec<u8>, value: u64, width: u32) {
    number(out, Spec { width, zero: true, ..Spec::default() }, value, false, 16, false);
}

fn sign_of(spec: Spec) -> Option<u8> {
    if spec.plus { Some(b'+') } else { spec.space.then_some(b' ') }
}

/// Writes the digits, the last one first. Returns their number, which is at least 1.
fn reversed(digits: &mut [u8; 24], mut value: u64, base: u8, upper: bool) -> u32 {
    let letters = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let mut length = 0u32;
    loop {
        let (rest, digit) = match base {
            16 => (value >> 4, value & 15),
            8 => (value >> 3, value & 7),
            _ => (value / 10, value % 10),
        };
        // A number has at most 22 octal digits.
        if let (Some(place), Some(letter)) =
            (digits.get_mut(length as usize), letters.get(usize::from(low_u8(digit))))
        {
            *place = *letter;
        }
        length = length.saturating_add(1);
        value = rest;
        if value == 0 {
            return length;
        }
    }
}

/// Appends text, truncated to the precision and padded to the width.
pub(crate) fn text(out: &mut Vec<u8>, spec: Spec, text: &[u8]) {
    let text = spec.precision.map_or(text, |p| text.get(..p as usize).unwrap_or(text));
    let padding = i64::from(spec.width.min(WIDEST)).saturating_sub(signed_len(text));
    if !spec.left {
        fill(out, b' ', padding);
    }
    out.extend_from_slice(text);
    if spec.left {
        fill(out, b' ', padding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(spec: Spec, value: i64, base: u8) -> String {
        let mut out = Vec::new();
        number(&mut out, spec, value.unsigned_abs(), value < 0, base, false);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn as_the_kernel_lays_out() {
        let base = Spec::default();
        assert_eq!(show(base, -42, 10), "-42");
        assert_eq!(show(Spec { width: 5, ..base }, 42, 10), "   42");
        assert_eq!(show(Spec { width: 5, left: true, ..base }, 42, 10), "42   ");
        assert_eq!(show(Spec { width: 5, zero: true, ..base }, -42, 10), "-0042");
        assert_eq!(show(Spec { width: 8, zero: true, prefix: true, ..base }, 0x2a, 16), "0x00002a");
        assert_eq!(
            (show(base, 0, 16), show(base, 0x10, 16), show(base, i64::MAX, 16)),
            ("0".into(), "10".into(), "7fffffffffffffff".into())
        );
        assert_eq!(show(Spec { prefix: true, ..base }, 0, 16), "0x0");
        assert_eq!(show(Spec { prefix: true, ..base }, 8, 8), "010");
        assert_eq!(show(Spec { precision: Some(4), width: 6, ..base }, 42, 10), "  0042");
        assert_eq!(show(Spec { plus: true, ..base }, 42, 10), "+42");
        let mut out = Vec::new();
        text(&mut out, Spec { width: 6, precision: Some(3), ..base }, b"abcdef");
        assert_eq!(out, b"   abc");
    }
}
