//! The forms of fields: their types, and the values that they have.

use lastwords_testkit::random::{Random, mix};

use super::value::{
    FACTOR, INVERSE, PIECES, Scalar, Text, Value, extended, length, scalar, text, word,
};

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
}
