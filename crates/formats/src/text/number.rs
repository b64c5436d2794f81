//! Numbers, without the formatting machinery.

use std::io::Write;

/// ASCII zeroes.
const ZEROES: u64 = 0x3030_3030_3030_3030;
const EIGHT: u64 = 100_000_000;

/// Two decimal digits of a number under 100.
#[inline]
pub(crate) fn two(number: u32) -> [u8; 2] {
    [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

/// Eight decimal digits of a number under 10^8, a byte each, the first in the lowest byte. In lanes of one word: first
/// halves of four digits, then quarters of two, then digits.
#[inline]
fn eight(number: u64) -> u64 {
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x7f_0000_007f;
    let quarters = (halves - hundreds * 100) << 16 | hundreds;
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    (quarters - tens * 10) << 8 | tens
}

/// Nine decimal digits of a number under 10^9.
#[inline]
pub(crate) fn nine(number: u32) -> [u8; 9] {
    let (top, rest) = (number / 100_000_000, number % 100_000_000);
    let mut digits = [0; 9];
    digits[0] = b'0' + (top % 10) as u8;
    digits[1..].copy_from_slice(&(eight(u64::from(rest)) | ZEROES).to_le_bytes());
    digits
}

/// Six decimal digits of a number under 10^6.
pub(crate) fn six(number: u32) -> [u8; 6] {
    let [a, b] = two(number / 10_000);
    let [c, d] = two(number / 100);
    let [e, f] = two(number);
    [a, b, c, d, e, f]
}

/// Decimal.
#[inline]
pub(crate) fn unsigned(out: &mut Vec<u8>, value: u64) {
    if value < EIGHT {
        up_to_eight(out, value);
    } else if value < EIGHT * EIGHT {
        up_to_eight(out, value / EIGHT);
        exactly_eight(out, value % EIGHT);
    } else {
        let (top, rest) = (value / (EIGHT * EIGHT), value % (EIGHT * EIGHT));
        up_to_eight(out, top);
        exactly_eight(out, rest / EIGHT);
        exactly_eight(out, rest % EIGHT);
    }
}

/// Without leading zeroes: all eight are appended, what is behind the number is cut again.
#[inline]
fn up_to_eight(out: &mut Vec<u8>, value: u64) {
    let digits = eight(value);
    let leading = (digits.trailing_zeros() / 8).min(7);
    block(out, &((digits | ZEROES) >> (8 * leading)).to_le_bytes(), 8 - leading as usize);
}

#[inline]
fn exactly_eight(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&(eight(value) | ZEROES).to_le_bytes());
}

/// Decimal.
#[inline]
pub(crate) fn signed(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    unsigned(out, value.unsigned_abs());
}

/// `0x` and upper-case digits, as many as needed.
#[inline]
pub(crate) fn hexadecimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    hexadecimal_digits(out, value, b'A');
}

/// Lower-case hexadecimal digits, as many as needed.
#[inline]
pub(crate) fn hex(out: &mut Vec<u8>, value: u64) {
    hexadecimal_digits(out, value, b'a');
}

#[inline]
fn hexadecimal_digits(out: &mut Vec<u8>, value: u64, ten: u8) {
    let leading = (value | 1).leading_zeros() / 4;
    let (high, low) = (eight_hexadecimal((value >> 32) as u32, ten), eight_hexadecimal(value as u32, ten));
    let digits = u128::from(high) | u128::from(low) << 64;
    block(out, &(digits >> (8 * leading)).to_le_bytes(), 16 - leading as usize);
}

/// Eight hexadecimal digits of a number, a byte each, the first in the lowest byte: half bytes are spread, those over nine
/// lifted to the letters from `ten` on.
#[inline]
fn eight_hexadecimal(number: u32, ten: u8) -> u64 {
    let mut digits = u64::from(number);
    digits = (digits | digits << 16) & 0x0000_ffff_0000_ffff;
    digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
    digits = (digits | digits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // With six more, those that are letters have the fifth bit.
    let letters = (digits + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (digits + ZEROES + letters * u64::from(ten - b'0' - 10)).swap_bytes()
}

/// Appends the first `used` bytes of a block: all are copied, which is a few stores, then the rest is cut again.
#[inline]
pub(crate) fn block<const N: usize>(out: &mut Vec<u8>, block: &[u8; N], used: usize) {
    let end = out.len() + used;
    out.extend_from_slice(block);
    out.truncate(end);
}

/// A constant text that is appended often: one [`block`] where it is short.
#[derive(Debug, Clone)]
pub(crate) struct Constant {
    block: [u8; Self::BLOCK],
    len: usize,
    /// All of it, where it is longer than a block.
    long: Vec<u8>,
}

impl Constant {
    const BLOCK: usize = 32;

    pub(crate) fn new(text: &[u8]) -> Self {
        let mut block = [0; Self::BLOCK];
        match block.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text);
                Self { block, len: text.len(), long: Vec::new() }
            }
            None => Self { block, len: 0, long: text.to_vec() },
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.block[..self.len] } else { &self.long }
    }

    #[inline]
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        if self.long.is_empty() {
            block(out, &self.block, self.len);
        } else {
            out.extend_from_slice(&self.long);
        }
    }
}

/// The bits of a signed number of so many bytes.
#[inline]
pub(crate) fn masked(value: i64, size: u8) -> u64 {
    let raw = value.cast_unsigned();
    if size < 8 { raw & ((1 << (8 * u32::from(size))) - 1) } else { raw }
}

/// As C's `%g`.
pub(crate) fn general(out: &mut Vec<u8>, value: f64) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(b"inf");
    } else {
        general_finite(out, value.abs());
    }
}

fn general_finite(out: &mut Vec<u8>, value: f64) {
    let mut text = [0u8; 32];
    let mut rest = text.as_mut_slice();
    let _ = write!(rest, "{value:.5e}");
    let end = text.iter().position(|b| *b == b'e').unwrap_or(0);
    let exponent: i32 = text[end + 1..]
        .split(|b| *b == 0)
        .next()
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0);
    let mut digits = [0u8; 6];
    for (place, digit) in digits.iter_mut().zip(text[..end].iter().filter(|b| **b != b'.')) {
        *place = *digit;
    }
    let used = digits.iter().rposition(|d| *d != b'0').map_or(1, |last| last + 1);
    if !(-4..6).contains(&exponent) {
        out.push(digits[0]);
        fraction(out, &digits[1..used.max(1)]);
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        let magnitude = exponent.unsigned_abs();
        if magnitude < 10 {
            out.push(b'0');
        }
        unsigned(out, u64::from(magnitude));
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-1 - exponent) as usize));
        out.extend_from_slice(&digits[..used]);
    } else {
        let whole = exponent as usize + 1;
        out.extend_from_slice(&digits[..whole]);
        fraction(out, digits.get(whole..used).unwrap_or_default());
    }
}

fn fraction(out: &mut Vec<u8>, digits: &[u8]) {
    if !digits.is_empty() {
        out.push(b'.');
        out.extend_from_slice(digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(put: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"=".to_vec();
        put(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn integers_are_those_of_the_standard_library() {
        let mut values = vec![0, u64::MAX, u64::MAX - 1];
        for power in 0..20 {
            let ten = 10u64.pow(power);
            values.extend([ten - 1, ten, ten + 1, ten.wrapping_mul(3), ten / 7]);
        }
        let mut value = 1u64;
        for _ in 0..100_000 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            values.push(value >> (value >> 58));
        }
        for value in values {
            assert_eq!(text(|out| unsigned(out, value)), format!("={value}"));
            assert_eq!(text(|out| signed(out, value.cast_signed())), format!("={}", value.cast_signed()));
            assert_eq!(text(|out| hexadecimal(out, value)), format!("={value:#X}").replace('X', "x"));
            assert_eq!(text(|out| hex(out, value)), format!("={value:x}"));
            let small = (value % 1_000_000_000) as u32;
            assert_eq!(nine(small).as_slice(), format!("{small:09}").as_bytes());
            assert_eq!(six(small % 1_000_000).as_slice(), format!("{:06}", small % 1_000_000).as_bytes());
        }
    }

    #[test]
    fn constants_are_whole() {
        for len in 0..70 {
            let constant = "x".repeat(len);
            assert_eq!(text(|out| Constant::new(constant.as_bytes()).put(out)), format!("={constant}"));
        }
    }
}
