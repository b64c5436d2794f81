//! Formats numbers without the overhead of `core::fmt`.

use super::page::{Line, Put};
use lastwords_bytes::{low_u8, low_u32};
use std::io::Write;

/// ASCII zeroes.
const ZEROES: u64 = 0x3030_3030_3030_3030;

/// Returns the two decimal digits of a number under 100.
#[inline]
pub fn two(number: u32) -> [u8; 2] {
    [b'0'.wrapping_add((number / 10 % 10) as u8), b'0'.wrapping_add((number % 10) as u8)]
}

/// Returns the hexadecimal digit of the low half of a byte.
#[inline]
pub fn digit(half: u8) -> u8 {
    b"0123456789abcdef".get(usize::from(half & 15)).copied().unwrap_or(b'0')
}

/// Returns the two hexadecimal digits of a byte.
#[inline]
pub fn octet(byte: u8) -> [u8; 2] {
    [digit(byte >> 4), digit(byte)]
}

/// Returns the nine decimal digits of a number under 10^9.
#[inline]
pub fn nine(number: u32) -> [u8; 9] {
    let [digits @ .., _, _, _, _, _, _, _] = nine_before(number, b"");
    digits
}

/// Returns the nine decimal digits of a number under 10^9, followed by at most seven bytes.
#[inline]
pub fn nine_before<const N: usize>(number: u32, behind: &[u8; N]) -> [u8; 16] {
    let [a, b, c, d, e, f, g] = std::array::from_fn(|at| behind.get(at).copied().unwrap_or(0));
    let behind = u64::from_le_bytes([0, a, b, c, d, e, f, g]);
    let [first, second, third] =
        [number / MILLION % THOUSAND, number / THOUSAND % THOUSAND, number % THOUSAND].map(three);
    let (low, high) = (first | second << 24 | third << 48, third >> 16 | behind);
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

const THOUSAND: u32 = 1000;
const MILLION: u32 = 1_000_000;

/// Returns the three decimal digits of a number under 1000, the first digit in the lowest byte.
#[inline]
fn three(number: u32) -> u64 {
    u64::from(THREE.get(number as usize).copied().unwrap_or(0))
}

/// The three decimal digits of each number under 1000, the first digit in the lowest byte.
static THREE: [u32; 1000] = three_digits();

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the compiler evaluates it, and refuses what is outside"
)]
const fn three_digits() -> [u32; 1000] {
    let mut table = [0; 1000];
    let mut number = 0;
    while number < table.len() {
        let [hundreds, tens, ones] = [number / 100, number / 10 % 10, number % 10];
        table[number] = u32::from_le_bytes([
            b'0'.wrapping_add(low_u8(hundreds as u64)),
            b'0'.wrapping_add(low_u8(tens as u64)),
            b'0'.wrapping_add(low_u8(ones as u64)),
            0,
        ]);
        number = number.wrapping_add(1);
    }
    table
}

/// Returns the six decimal digits of a number under 10^6.
#[inline]
pub fn six(number: u32) -> [u8; 6] {
    let [a, b] = two(number / 10_000);
    let [c, d] = two(number / 100);
    let [e, f] = two(number);
    [a, b, c, d, e, f]
}

/// Returns the six decimal digits of a number under 10^6, followed by two bytes.
#[inline]
pub fn six_before(number: u32, behind: [u8; 2]) -> [u8; 8] {
    let digits = three(number / THOUSAND) | three(number % THOUSAND) << 24;
    (digits | u64::from(u16::from_le_bytes(behind)) << 48).to_le_bytes()
}

/// Appends an unsigned decimal number.
#[inline]
pub fn unsigned(out: &mut impl Put, value: u64) {
    if value < 1000 {
        let (digits, used) = up_to_three(low_u32(value));
        out.block(&low_u32(digits).to_le_bytes(), used);
    } else if value < 1_000_000 {
        let (digits, used) = up_to_three(low_u32(value) / THOUSAND);
        out.block(
            &(digits | three(low_u32(value) % THOUSAND) << used.wrapping_mul(8)).to_le_bytes(),
            used.wrapping_add(3),
        );
    } else {
        large(out, value);
    }
}

/// Returns the digits of a number under 1000 without leading zeroes, the first digit in the lowest
/// byte, and the number of digits.
#[inline]
fn up_to_three(number: u32) -> (u64, usize) {
    let leading = if number < 10 { 2 } else { usize::from(number < 100) };
    (three(number) >> leading.wrapping_mul(8), 3usize.wrapping_sub(leading))
}

/// Appends a number of a million or more. A number of a billion or more is split: nine digits
/// follow the digits of the quotient.
fn large(out: &mut impl Put, value: u64) {
    const BILLION: u64 = 1_000_000_000;
    if value >= BILLION {
        unsigned(out, value / BILLION);
        return out.block(&nine_before(low_u32(value % BILLION), b""), 9);
    }
    let digits = u128::from_le_bytes(nine_before(low_u32(value), b""));
    let leading = if value < 10_000_000 { 2 } else { usize::from(value < 100_000_000) };
    out.block(&(digits >> leading.wrapping_mul(8)).to_le_bytes(), 9usize.wrapping_sub(leading));
}

/// Appends a signed decimal number.
#[inline]
pub fn signed(out: &mut impl Put, value: i64) {
    if value < 0 {
        out.block(b"-", 1);
    }
    unsigned(out, value.unsigned_abs());
}

/// Appends a signed decimal number that seldom has more than six digits. A longer number is first
/// written apart: the compiler keeps the position of a line in a register only if no function that
/// it calls has the line's address.
#[inline(always)]
pub fn signed_short(out: &mut impl Put, value: i64) {
    if value < 0 {
        out.block(b"-", 1);
    }
    unsigned_short(out, value.unsigned_abs());
}

/// The same for an unsigned number.
#[inline(always)]
pub fn unsigned_short(out: &mut impl Put, value: u64) {
    if value < 1_000_000 {
        return unsigned(out, value);
    }
    let (digits, used) = apart(value);
    out.block(&digits, used);
}

/// Returns the digits of a number, and how many they are.
#[inline(never)]
fn apart(value: u64) -> ([u8; 32], usize) {
    let mut digits = [0; 32];
    let mut line = Line::new(&mut digits);
    unsigned(&mut line, value);
    let used = line.used();
    (digits, used)
}

/// Appends `0x` and upper-case hexadecimal digits without leading zeroes.
#[inline]
pub fn hexadecimal(out: &mut impl Put, value: u64) {
    out.block(b"0x", 2);
    hexadecimal_digits(out, value, b'A');
}

/// Appends lower-case hexadecimal digits without leading zeroes.
#[inline(always)]
pub fn hex(out: &mut impl Put, value: u64) {
    hexadecimal_digits(out, value, b'a');
}

/// Appends the digits of a number from its first digit that is not zero. The number is shifted
/// until that digit is the highest one: a shift of 64 bits is cheaper than one of the 128 bits of
/// the text.
#[inline(always)]
fn hexadecimal_digits(out: &mut impl Put, value: u64, ten: u8) {
    if value < 10 {
        // Most arguments of system calls have one digit.
        return out.block(&[b'0'.wrapping_add(low_u8(value))], 1);
    }
    if let Ok(low) = u32::try_from(value) {
        let leading = (low | 1).leading_zeros() / 4;
        let digits = eight_hexadecimal(low.wrapping_shl(leading.wrapping_mul(4)), ten);
        return out.block(&digits.to_le_bytes(), 8usize.wrapping_sub(leading as usize));
    }
    let leading = value.leading_zeros() / 4;
    let value = value.wrapping_shl(leading.wrapping_mul(4));
    let (high, low) =
        (eight_hexadecimal(low_u32(value >> 32), ten), eight_hexadecimal(low_u32(value), ten));
    let digits = u128::from(high) | u128::from(low) << 64;
    out.block(&digits.to_le_bytes(), 16usize.wrapping_sub(leading as usize));
}

/// Returns the eight hexadecimal digits of a number, each in a byte, the first digit in the lowest
/// byte. The function first puts each half byte into a byte of its own. It then adds an offset to
/// the values over nine, so that they become the letters from `ten` on.
#[inline]
fn eight_hexadecimal(number: u32, ten: u8) -> u64 {
    let mut digits = u64::from(number);
    digits = (digits | digits << 16) & 0x0000_ffff_0000_ffff;
    digits = (digits | digits << 8) & 0x00ff_00ff_00ff_00ff;
    digits = (digits | digits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // If six is added, the values over nine have the fifth bit set.
    let letters = digits.wrapping_add(0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    digits
        .wrapping_add(ZEROES)
        .wrapping_add(letters.wrapping_mul(u64::from(ten.wrapping_sub(b'0' + 10))))
        .swap_bytes()
}

/// A constant text that is appended often. A short text is appended with one [`Put::block`].
#[derive(Debug, Clone)]
pub struct Constant<const BLOCK: usize = 32> {
    block: [u8; BLOCK],
    len: usize,
    /// The whole text, if it is longer than a block.
    long: Vec<u8>,
}

impl<const BLOCK: usize> Constant<BLOCK> {
    /// Makes the constant of a text.
    #[inline]
    pub fn new(text: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        match block.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text);
                Self { block, len: text.len(), long: Vec::new() }
            }
            None => Self { block, len: 0, long: text.to_vec() },
        }
    }

    /// Returns the text.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            self.block.get(..self.len).unwrap_or_default()
        } else {
            &self.long
        }
    }

    #[inline]
    /// Appends the text.
    pub fn put(&self, out: &mut impl Put) {
        if self.long.is_empty() {
            out.block(&self.block, self.len);
        } else {
            out.text(&self.long);
        }
    }
}

/// Appends a number in the format of C's `%g`.
pub fn general(out: &mut Vec<u8>, value: f64) {
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

/// Appends a number so that the same number is read back: in the format of `%g` if its six digits
/// suffice, else with the least digits that do. If `is_short`, the number has 32 bits.
pub fn exact(out: &mut Vec<u8>, value: f64, is_short: bool) {
    let begin = out.len();
    general(out, value);
    #[allow(clippy::cast_possible_truncation, reason = "a float of 32 bits was made larger")]
    let short = value as f32;
    let shown =
        out.get(begin..).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    let is_exact = match is_short {
        true => shown.parse().is_ok_and(|found: f32| found == short),
        false => shown.parse().is_ok_and(|found: f64| found == value),
    };
    if value.is_finite() && !is_exact {
        out.truncate(begin);
        let _ = if is_short { write!(out, "{short:?}") } else { write!(out, "{value:?}") };
        if out.ends_with(b".0") {
            out.truncate(out.len().saturating_sub(2));
        }
    }
}

fn general_finite(out: &mut Vec<u8>, value: f64) {
    let mut text = [0u8; 32];
    let mut rest = text.as_mut_slice();
    let _ = write!(rest, "{value:.5e}");
    let end = text.iter().position(|b| *b == b'e').unwrap_or(0);
    let exponent: i32 = text
        .get(end.wrapping_add(1)..)
        .and_then(|digits| digits.split(|b| *b == 0).next())
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0);
    let mut digits = [0u8; 6];
    for (place, digit) in digits.iter_mut().zip(text.iter().take(end).filter(|b| **b != b'.')) {
        *place = *digit;
    }
    let used = digits.iter().rposition(|d| *d != b'0').map_or(1, |last| last.wrapping_add(1));
    if !(-4..6).contains(&exponent) {
        out.extend(digits.first());
        fraction(out, digits.get(1..used).unwrap_or_default());
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        let magnitude = exponent.unsigned_abs();
        if magnitude < 10 {
            out.push(b'0');
        }
        unsigned(out, u64::from(magnitude));
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', exponent.unsigned_abs().wrapping_sub(1) as usize));
        out.extend(digits.iter().take(used));
    } else {
        let whole = (exponent.unsigned_abs() as usize).wrapping_add(1);
        out.extend(digits.iter().take(whole));
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
    use lastwords_testkit::random::Random;

    fn text(put: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"=".to_vec();
        put(&mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn integers_equal_those_of_the_standard_library() {
        let mut values = vec![0, u64::MAX, u64::MAX - 1];
        for power in 0..20 {
            let ten = 10u64.pow(power);
            values.extend([ten - 1, ten, ten + 1, ten.wrapping_mul(3), ten / 7]);
        }
        let mut random = Random(1);
        for _ in 0..100_000 {
            let value = random.bits();
            values.push(value >> (value >> 58));
        }
        for value in values {
            assert_eq!(text(|out| unsigned(out, value)), format!("={value}"));
            assert_eq!(
                text(|out| signed(out, value.cast_signed())),
                format!("={}", value.cast_signed())
            );
            assert_eq!(text(|out| unsigned_short(out, value)), format!("={value}"));
            assert_eq!(
                text(|out| signed_short(out, value.cast_signed())),
                format!("={}", value.cast_signed())
            );
            assert_eq!(
                text(|out| hexadecimal(out, value)),
                format!("={value:#X}").replace('X', "x")
            );
            assert_eq!(text(|out| hex(out, value)), format!("={value:x}"));
            let small = (value % 1_000_000_000) as u32;
            assert_eq!(nine(small).as_slice(), format!("{small:09}").as_bytes());
            assert_eq!(
                nine_before(small, b"] (+0.").as_slice(),
                format!("{small:09}] (+0.\0").as_bytes()
            );
            let micros = small % 1_000_000;
            assert_eq!(six(micros).as_slice(), format!("{micros:06}").as_bytes());
            assert_eq!(six_before(micros, *b": ").as_slice(), format!("{micros:06}: ").as_bytes());
        }
    }

    #[test]
    fn floats_are_read_back_as_they_were() {
        let cases = [
            (1.5, "=1.5"),
            (1e6, "=1e+06"),
            (123_456_789.25, "=123456789.25"),
            (f64::MAX, "=1.7976931348623157e308"),
            (5e-324, "=4.94066e-324"),
            (-1.0 / 3.0, "=-0.3333333333333333"),
            (-0.0, "=-0"),
            (f64::NAN, "=nan"),
            (f64::NEG_INFINITY, "=-inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(|out| exact(out, value, false)), expected);
        }
        assert_eq!(text(|out| exact(out, f64::from(0.1f32), true)), "=0.1");
        assert_eq!(text(|out| exact(out, f64::from(16_777_215f32), true)), "=16777215");
        let mut random = Random(1);
        for _ in 0..20_000 {
            let bits = random.bits();
            let (value, short) = (f64::from_bits(bits), f32::from_bits((bits >> 32) as u32));
            let read = text(|out| exact(out, value, false))[1..].parse::<f64>().expect("a number");
            assert!(read == value || value.is_nan(), "{value:?} is {read:?}");
            let shown = text(|out| exact(out, f64::from(short), true));
            let read = shown[1..].parse::<f32>().expect("a number");
            assert!(read == short || short.is_nan(), "{short:?} is {read:?}");
        }
    }

    #[test]
    fn constants_are_appended_completely() {
        for len in 0..70 {
            let constant = "x".repeat(len);
            assert_eq!(
                text(|out| Constant::<32>::new(constant.as_bytes()).put(out)),
                format!("={constant}")
            );
        }
    }
}
