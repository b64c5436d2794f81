//! The values of fields: each is made of the seed, the writer, the number of the event and the
//! place of the field. The programs that record make the same values by the same rules
//! (`support.rs.in`, `support.h`).

use lastwords_testkit::random::{Random, mix};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The odd factor that hides numbers of events in a word, and its inverse modulo 2^64.
pub(super) const FACTOR: u64 = 0xd134_2543_de82_ef95;
pub(super) const INVERSE: u64 = inverse(FACTOR);

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

/// The type in Rust, and the end of names in the header for C.
pub(super) fn type_name(of: Scalar) -> String {
    match of {
        Scalar::Integer { bits, signed } => format!("{}{bits}", if signed { 'i' } else { 'u' }),
        Scalar::Single => "f32".into(),
        Scalar::Double => "f64".into(),
        Scalar::Bool => "bool".into(),
    }
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
pub(super) const PIECES: [&str; 64] = [
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

pub(super) fn word(key: u64, field: u64, at: u64) -> u64 {
    mix(key.wrapping_add((field * 8192 + at + 1).wrapping_mul(GOLDEN)))
}

pub(super) fn scalar(r: u64) -> u64 {
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

pub(super) fn length(r: u64, most: u64) -> u64 {
    match r >> 62 {
        0 => most,
        1 => r % (most.min(24) + 1),
        _ => r % (most + 1),
    }
}

pub(super) fn text(key: u64, field: u64, most: u64, how: Text) -> Vec<u8> {
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

pub(super) fn extended(value: u64, bits: u32, signed: bool) -> i128 {
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

    pub(super) fn value(self, r: u64) -> Value {
        match self {
            Self::Integer { bits, signed } => Value::Integer(extended(scalar(r), bits, signed)),
            Self::Single => Value::Single(f32::from_bits(single(r))),
            Self::Double => Value::Double(f64::from_bits(double(r))),
            Self::Bool => Value::Bool(r & 1 == 1),
        }
    }

    pub(super) fn random(rng: &mut Random) -> Self {
        match rng.below(11) {
            0 => Self::Single,
            1 => Self::Double,
            2 => Self::Bool,
            n => Self::Integer { bits: 8 << (n & 3), signed: n >= 7 },
        }
    }
}

/// The rules that the programs take from here, as definitions of C or Rust.
pub(super) fn factor() -> u64 {
    FACTOR
}

#[cfg(test)]
mod tests {
    use super::*;

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
