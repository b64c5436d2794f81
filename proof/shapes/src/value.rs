//! The values of fields: each is made of the seed, the writer, the number of the event and the
//! place of the field. The programs that record make the same values by the same rules
//! (`support.rs.in`, `support.h`).

use lastwords_testkit::random::{Random, mix};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The odd factor that hides numbers of events in a word, and its inverse modulo 2^64.
const FACTOR: u64 = 0xd134_2543_de82_ef95;
const INVERSE: u64 = inverse(FACTOR);

const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut round = 0;
    while round < 6 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        round += 1;
    }
    found
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Integer { bits: u32, signed: bool },
    Single,
    Double,
    Bool,
}

/// How a text comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// Characters of one to four bytes, control characters and quotes among them.
    Any,
    /// And NULs.
    Nul,
    /// Letters only.
    Ascii,
    /// C: now and then a null pointer.
    Null,
    /// C: bytes that are not UTF-8 among the characters.
    Invalid,
}

/// The form of a field's value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    /// The number of the event and its writer, hidden.
    Number {
        bits: u32,
        signed: bool,
        hex: bool,
    },
    Scalar {
        of: Scalar,
        spelled: &'static str,
    },
    /// An unsigned integer that is shown in base 16.
    Hex {
        bits: u32,
        pointer: bool,
    },
    Char,
    /// `most` bytes without the NUL.
    Text {
        how: Text,
        most: u64,
        spelled: &'static str,
    },
    /// C: `size` bytes, made of a text of up to `most`.
    Padded {
        size: u64,
        most: u64,
        how: Text,
    },
    Bytes {
        most: u64,
        owned: bool,
    },
    Sequence {
        of: Scalar,
        most: u64,
        owned: bool,
    },
    Array {
        of: Scalar,
        count: u64,
    },
    Enum {
        bits: u32,
        signed: bool,
        labels: Vec<(i128, String)>,
    },
    /// Rust: a value of the standard library, or one that is formatted.
    Standard {
        what: Standard,
        most: u64,
    },
}

/// Rust: values of the standard library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standard {
    /// `%text`.
    Displayed,
    /// `?option`.
    Debugged,
    Option(Scalar),
    OptionText,
    Duration,
    SystemTime,
    Path,
    OsString,
    Ipv4,
    Ipv6,
    Socket,
}

impl Standard {
    fn random(rng: &mut Random, in_handler: bool) -> Self {
        match rng.below(11) {
            0 => Self::Displayed,
            1 => Self::Debugged,
            2 | 3 => Self::Option(Scalar::random(rng)),
            4 => Self::OptionText,
            5 => Self::Duration,
            6 => Self::SystemTime,
            7 if !in_handler && rng.one_in(2) => Self::OsString,
            7 => Self::Path,
            8 => Self::Ipv4,
            9 => Self::Ipv6,
            _ => Self::Socket,
        }
    }

    fn value(self, key: u64, at: u64, most: u64) -> Value {
        let number = |i| scalar(word(key, at, i));
        let shown = |text: String| Value::Text(text.into_bytes());
        let is_some = word(key, at, 0) >> 63 == 1;
        match self {
            Self::Displayed => {
                let mut bytes = text(key, at, most, Text::Any);
                // The mark of the cut is among the 256 bytes.
                if bytes.len() > 253 {
                    let end = (0..=253).rev().find(|end| bytes[*end] & 0xc0 != 0x80).unwrap_or(0);
                    bytes.truncate(end);
                    bytes.extend_from_slice("…".as_bytes());
                }
                Value::Text(bytes)
            }
            Self::Debugged => shown(format!("{:?}", is_some.then(|| number(1)))),
            Self::Option(of) => {
                Value::List(is_some.then(|| of.value(word(key, at, 1))).into_iter().collect())
            }
            Self::OptionText => {
                let plain = text(key, at, most, Text::Nul);
                let is_some = !plain.len().is_multiple_of(3);
                let text = stored(plain, true);
                Value::Text(if is_some {
                    [b"Some(", text.as_slice(), b")"].concat()
                } else {
                    b"None".to_vec()
                })
            }
            Self::Duration => {
                let nanoseconds = i128::from(number(2) % 1_000_000_000);
                Value::List(vec![
                    Value::Integer(i128::from(number(1))),
                    Value::Integer(nanoseconds),
                ])
            }
            Self::SystemTime => {
                let (seconds, nanoseconds) = ((number(1) as i64) >> 8, number(2) % 1_000_000_000);
                Value::List(vec![
                    Value::Integer(i128::from(seconds)),
                    Value::Integer(i128::from(nanoseconds)),
                ])
            }
            Self::Path | Self::OsString => Value::Text(text(key, at, most, Text::Any)),
            Self::Ipv4 => shown(std::net::Ipv4Addr::from(number(1) as u32).to_string()),
            Self::Ipv6 => shown(
                std::net::Ipv6Addr::from(u128::from(number(1)) << 64 | u128::from(number(2)))
                    .to_string(),
            ),
            Self::Socket => {
                let ip = std::net::Ipv4Addr::from(number(1) as u32);
                shown(std::net::SocketAddr::from((ip, number(2) as u16)).to_string())
            }
        }
    }
}

/// A value that must be there.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Integer(i128),
    Single(f32),
    Double(f64),
    Bool(bool),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Enum(i128, Option<String>),
}

/// Pieces of texts: [`Text::Nul`] has a NUL in place of the last, [`Text::Ascii`] takes the first
/// 32.
const PIECES: [&str; 64] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
    "t", "u", "v", "w", "x", "y", "z", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", " ", "=",
    ",", "\"", "\\", "'", "?", "{", "}", "[", "]", "\n", "\t", "\r", "é", "ß", "漢", "字", "😀",
    "𝄞", "\u{1b}", "\u{7f}", "\u{85}", "\u{202e}", "%", "<", ":", "Z",
];

/// The pieces, as literals of the programs.
pub(super) fn pieces(literal: impl Fn(&str) -> String) -> String {
    PIECES.iter().map(|piece| literal(piece)).collect::<Vec<_>>().join(", ")
}

/// From which all values of an event are made.
pub(super) fn key(seed: u64, writer: u64, number: u64) -> u64 {
    mix(seed ^ mix(writer << 56 ^ number))
}

fn word(key: u64, field: u64, at: u64) -> u64 {
    mix(key.wrapping_add((field * 8192 + at + 1).wrapping_mul(GOLDEN)))
}

fn scalar(r: u64) -> u64 {
    match r >> 61 {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << (r & 63),
        3 => r & 0xff,
        4 => (1u64 << (r & 63)) - 1,
        _ => mix(r),
    }
}

fn double(r: u64) -> u64 {
    let sign = (r & 1) << 63;
    match r >> 60 {
        0 => sign,
        1 => sign | 0x7ff0_0000_0000_0000,
        2 => sign | 0x7ff8_0000_0000_0000,
        3 => sign | (r & 0x000f_ffff_ffff_ffff),
        4..=6 => f64::from(r as i32).to_bits(),
        7..=9 => (f64::from(r as i32) / 1024.0).to_bits(),
        _ => {
            let bits = mix(r);
            if bits & 0x7ff0_0000_0000_0000 == 0x7ff0_0000_0000_0000 {
                bits ^ 0x4000_0000_0000_0000
            } else {
                bits
            }
        }
    }
}

fn single(r: u64) -> u32 {
    let sign = (r as u32 & 1) << 31;
    match r >> 60 {
        0 => sign,
        1 => sign | 0x7f80_0000,
        2 => sign | 0x7fc0_0000,
        3 => sign | (r as u32 & 0x007f_ffff),
        4..=6 => f32::from(r as i16).to_bits(),
        7..=9 => (f32::from(r as i16) / 64.0).to_bits(),
        _ => {
            let bits = mix(r) as u32;
            if bits & 0x7f80_0000 == 0x7f80_0000 { bits ^ 0x4000_0000 } else { bits }
        }
    }
}

fn length(r: u64, most: u64) -> u64 {
    match r >> 62 {
        0 => most,
        1 => r % (most.min(24) + 1),
        _ => r % (most + 1),
    }
}

fn text(key: u64, field: u64, most: u64, how: Text) -> Vec<u8> {
    let r = word(key, field, 0);
    if how == Text::Null && r & 15 == 5 {
        return b"(null)".to_vec();
    }
    let len = length(r, most) as usize;
    let mut bytes = Vec::with_capacity(len);
    for at in 1.. {
        let mut r = word(key, field, at);
        for _ in 0..8 {
            if bytes.len() == len {
                return bytes;
            }
            let piece: &[u8] = match (how, r as usize & 63) {
                (Text::Ascii, index) => PIECES[index & 31].as_bytes(),
                (Text::Nul, 63) => b"\0",
                (Text::Invalid, 63) => b"\xff",
                (Text::Invalid, 62) => b"\xe9",
                (_, index) => PIECES[index].as_bytes(),
            };
            bytes.extend_from_slice(if bytes.len() + piece.len() <= len { piece } else { b"x" });
            r >>= 8;
        }
    }
    bytes
}

fn extended(value: u64, bits: u32, signed: bool) -> i128 {
    let shift = 64 - bits;
    if signed {
        i128::from(((value << shift) as i64) >> shift)
    } else {
        i128::from((value << shift) >> shift)
    }
}

impl Scalar {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Integer { bits, .. } => u64::from(bits / 8),
            Self::Single => 4,
            Self::Double => 8,
            Self::Bool => 1,
        }
    }

    fn value(self, r: u64) -> Value {
        match self {
            Self::Integer { bits, signed } => Value::Integer(extended(scalar(r), bits, signed)),
            Self::Single => Value::Single(f32::from_bits(single(r))),
            Self::Double => Value::Double(f64::from_bits(double(r))),
            Self::Bool => Value::Bool(r & 1 == 1),
        }
    }

    fn random(rng: &mut Random) -> Self {
        match rng.below(11) {
            0 => Self::Single,
            1 => Self::Double,
            2 => Self::Bool,
            n => Self::Integer { bits: 8 << (n & 3), signed: n >= 7 },
        }
    }
}

impl Form {
    /// The field that holds the number.
    pub(super) fn number(rng: &mut Random) -> Self {
        let bits = 32 << rng.below(2);
        match rng.below(3) {
            0 => Self::Number { bits, signed: true, hex: false },
            n => Self::Number { bits, signed: false, hex: n == 1 },
        }
    }

    /// An integer of eight bytes.
    pub(super) fn wide(rng: &mut Random) -> Self {
        Self::Scalar { of: Scalar::Integer { bits: 64, signed: rng.one_in(2) }, spelled: "" }
    }

    /// A text of which most are of some words.
    pub(super) fn text(rng: &mut Random) -> Self {
        let how = if rng.one_in(4) { Text::Ascii } else { Text::Any };
        Self::Text { how, most: rng.below(60), spelled: "" }
    }

    /// A form whose values all have one size.
    pub(super) fn fixed(rng: &mut Random, rust: bool, most: u64) -> Self {
        match rng.below(8) {
            0 => {
                let of = Scalar::random(rng);
                Self::Array { of, count: 1 + rng.below(most) }
            }
            1 => Self::Hex { bits: 8 << rng.below(4), pointer: false },
            2 => Self::labels(rng),
            3 if !rust => {
                Self::Padded { size: 1 + rng.below(4 * most), most: 4 * most, how: Text::Ascii }
            }
            _ => Self::scalar(rng, rust),
        }
    }

    fn scalar(rng: &mut Random, rust: bool) -> Self {
        let of = Scalar::random(rng);
        let spelled = match of {
            Scalar::Integer { bits: 64, signed: false } if rust && rng.one_in(3) => "usize",
            Scalar::Integer { bits: 64, signed: true } if rust && rng.one_in(3) => "isize",
            _ => "",
        };
        Self::Scalar { of, spelled }
    }

    fn labels(rng: &mut Random) -> Self {
        let (bits, signed) = (8 << rng.below(4), rng.one_in(2));
        let mut labels: Vec<(i128, String)> = Vec::new();
        for number in 0..1 + rng.below(6) {
            let value = extended(scalar(rng.bits()), bits, signed);
            if labels.iter().all(|(other, _)| *other != value) {
                let name = ["idle", "busy now", "ü", "a\"b", "C", "under_way"][number as usize];
                labels.push((value, name.to_owned()));
            }
        }
        Self::Enum { bits, signed, labels }
    }

    /// Any form. `large` counts how many of the class may still be.
    pub(super) fn random(
        rng: &mut Random,
        rust: bool,
        in_handler: bool,
        large: &mut usize,
    ) -> Self {
        let is_large = *large > 0 && rng.one_in(3);
        let mut most = |rng: &mut Random, small: u64, full: u64| {
            if is_large {
                *large -= 1;
                return rng.below(full + 1);
            }
            match rng.below(3) {
                0 => rng.below(small / 4 + 1),
                _ => rng.below(small + 1),
            }
        };
        // What a handler records may not be allocated there.
        let may_own = rust && !in_handler;
        match rng.below(16) {
            0..=4 => Self::scalar(rng, rust),
            5 if !rust => Self::scalar(rng, rust),
            6 => Self::fixed(rng, rust, 12),
            7 => Self::Hex { bits: 8 << rng.below(4), pointer: rng.one_in(4) },
            8 => Self::labels(rng),
            9 if rust && rng.one_in(3) => Self::Char,
            5 | 9 if rust => {
                let most = match rng.below(4) {
                    0 => 257 + rng.below(100),
                    _ => rng.below(100),
                };
                Self::Standard { what: Standard::random(rng, in_handler), most }
            }
            9 => {
                let how = *rng.pick(&[Text::Ascii, Text::Any, Text::Invalid]);
                Self::Padded { size: 1 + rng.below(80), most: rng.below(100), how }
            }
            10 => Self::Bytes { most: most(rng, 64, 5000), owned: may_own && rng.one_in(3) },
            11 => {
                let of = match Scalar::random(rng) {
                    Scalar::Integer { bits: 8, signed: false } => {
                        Scalar::Integer { bits: 8, signed: true }
                    }
                    other => other,
                };
                Self::Sequence { of, most: most(rng, 12, 600), owned: may_own && rng.one_in(3) }
            }
            _ => {
                let how = match rng.below(8) {
                    0 if !is_large => Text::Nul,
                    1 => Text::Ascii,
                    2 if !rust => Text::Null,
                    3 if !rust => Text::Invalid,
                    _ => Text::Any,
                };
                let spelled = if may_own {
                    ["", "", "String", "Box", "Cow", "Arc"][rng.below(6) as usize]
                } else {
                    ""
                };
                Self::Text { how, most: most(rng, 100, 5000), spelled }
            }
        }
    }

    /// Most bytes of a value.
    pub(super) fn most(&self) -> u64 {
        match self {
            Self::Number { bits, .. }
            | Self::Hex { bits, pointer: false }
            | Self::Enum { bits, .. } => u64::from(bits / 8),
            Self::Hex { .. } => 8,
            Self::Scalar { of, .. } => of.bytes(),
            Self::Char => 5,
            Self::Text { most, .. } => most.max(&6) + 1,
            Self::Padded { size, .. } => *size,
            Self::Bytes { most, .. } => 4 + most,
            Self::Sequence { of, most, .. } => 4 + most * of.bytes(),
            Self::Array { of, count } => count * of.bytes(),
            Self::Standard { most, .. } => (most + 8).max(72),
        }
    }

    /// It is recorded as text.
    pub(super) fn is_text(&self) -> bool {
        match self {
            Self::Char | Self::Text { .. } | Self::Padded { .. } => true,
            Self::Standard { what, .. } => {
                !matches!(what, Standard::Option(_) | Standard::Duration | Standard::SystemTime)
            }
            _ => false,
        }
    }

    /// It is recorded as elements behind their count.
    pub(super) fn is_counted(&self) -> bool {
        matches!(
            self,
            Self::Sequence { .. }
                | Self::Bytes { .. }
                | Self::Standard { what: Standard::Option(_), .. }
        )
    }

    /// Rust writes `?` or `%` before it.
    pub(super) fn prefix(&self) -> &'static str {
        match self {
            Self::Standard { what: Standard::Displayed, .. } => "%",
            Self::Standard { what: Standard::Debugged, .. } => "?",
            _ => "",
        }
    }

    /// The value of field `at` of an event.
    pub(super) fn value(&self, rust: bool, key: u64, at: u64) -> Value {
        match self {
            Self::Number { .. } => Value::Integer(0),
            Self::Scalar { of, .. } => of.value(word(key, at, 0)),
            Self::Hex { bits, pointer } => {
                let bits = if *pointer { 64 } else { *bits };
                Value::Integer(extended(scalar(word(key, at, 0)), bits, false))
            }
            Self::Char => {
                let index = word(key, at, 0) as usize & 63;
                Value::Text(PIECES[index].as_bytes().to_vec())
            }
            Self::Text { how, most, .. } => Value::Text(stored(text(key, at, *most, *how), rust)),
            Self::Padded { size, most, how } => {
                let mut bytes = stored(text(key, at, *most, *how), rust);
                bytes.truncate(*size as usize);
                Value::Text(bytes)
            }
            Self::Bytes { most, .. } => {
                let count = length(word(key, at, 0), *most);
                Value::Bytes((0..count).map(|i| scalar(word(key, at, i + 1)) as u8).collect())
            }
            Self::Sequence { of, most, .. } => {
                let count = length(word(key, at, 0), *most);
                Value::List((0..count).map(|i| of.value(word(key, at, i + 1))).collect())
            }
            Self::Array { of, count } => {
                Value::List((0..*count).map(|i| of.value(word(key, at, i + 1))).collect())
            }
            Self::Standard { what, most } => what.value(key, at, *most),
            Self::Enum { labels, bits, signed } => {
                let r = word(key, at, 0);
                if !rust && r >> 61 == 0 {
                    let value = extended(scalar(mix(r)), *bits, *signed);
                    let label = labels.iter().find(|(other, _)| *other == value);
                    return Value::Enum(value, label.map(|(_, label)| label.clone()));
                }
                let (value, label) = &labels[(r % labels.len() as u64) as usize];
                Value::Enum(*value, Some(label.clone()))
            }
        }
    }
}

/// Text as it is recorded: Rust replaces a NUL inside, C ends there.
fn stored(mut bytes: Vec<u8>, rust: bool) -> Vec<u8> {
    if rust {
        bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = 0x1a);
    } else if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// The writer and the number that the number field hides.
pub(super) fn revealed(form: &Form, seed: u64, found: i128) -> Option<(u64, u64)> {
    let Form::Number { bits, .. } = form else { return None };
    let mask = u64::MAX >> (64 - bits);
    let hidden = ((found as u64 ^ seed) & mask).wrapping_mul(INVERSE) & mask;
    let is_right = found == hidden_value(form, seed, hidden);
    is_right.then_some((hidden & 3, hidden >> 2))
}

fn hidden_value(form: &Form, seed: u64, plain: u64) -> i128 {
    let Form::Number { bits, signed, .. } = form else { return 0 };
    extended(plain.wrapping_mul(FACTOR) ^ seed, *bits, *signed)
}

/// The rules that the programs take from here, as definitions of C or Rust.
pub(super) fn factor() -> u64 {
    FACTOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_revealed() {
        for bits in [32, 64] {
            for signed in [false, true] {
                let form = Form::Number { bits, signed, hex: false };
                for plain in [0, 1, 5, 1 << 20, (1 << 29) + 3] {
                    let found = hidden_value(&form, 0x1234_5678_9abc_def1, plain);
                    assert_eq!(
                        revealed(&form, 0x1234_5678_9abc_def1, found),
                        Some((plain & 3, plain >> 2))
                    );
                }
            }
        }
    }

    #[test]
    fn texts_have_their_length() {
        for number in 0..200 {
            let key = key(7, 1, number);
            let bytes = text(key, 3, 77, Text::Any);
            assert_eq!(bytes.len() as u64, length(word(key, 3, 0), 77));
            assert!(String::from_utf8(bytes).is_ok());
        }
    }
}
