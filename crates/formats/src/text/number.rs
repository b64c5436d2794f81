//! Numbers, without the formatting machinery.

use std::io::Write;

const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Two decimal digits of a number under 100.
#[inline]
pub(crate) fn two(number: u32) -> [u8; 2] {
    let at = (number % 100) as usize * 2;
    [PAIRS[at], PAIRS[at + 1]]
}

/// Nine decimal digits of a number under 10^9.
#[inline]
pub(crate) fn nine(number: u32) -> [u8; 9] {
    let (high, low) = (number / 10_000, number % 10_000);
    let (top, middle) = (high / 10_000, high % 10_000);
    let [a, b] = two(middle / 100);
    let [c, d] = two(middle);
    let [e, f] = two(low / 100);
    let [g, h] = two(low);
    [b'0' + (top % 10) as u8, a, b, c, d, e, f, g, h]
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
    if value < 10 {
        out.push(b'0' + value as u8);
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }
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
pub(crate) fn hexadecimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for i in (0..digits).rev() {
        out.push(b"0123456789ABCDEF"[(value >> (4 * i) & 15) as usize]);
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
