//! Values of fields. A value is made of the seed, the number of the event and the place of the
//! field, so that the program that records and the judge make the same one.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;

use lastwords_testkit::random::{Random, mix};
use tracing_core::field::{DebugValue, DisplayValue, Value, debug, display};

/// The type of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The key itself, which no other event has: texts of spans differ by it, also where they are
    /// cut.
    Key,
    Unsigned,
    Signed,
    Wide,
    WideSigned,
    Float,
    Bool,
    /// A `&str` of up to so many bytes.
    Text(usize),
    /// `%value`, written in pieces.
    Display(usize),
    /// `?value`, written in pieces.
    Debug(usize),
    /// `&dyn Error`.
    Error(usize),
    /// `&[u8]`.
    Bytes(usize),
    /// `?value`, whose formatting fails in the middle.
    Failing(usize),
    /// `?value`, whose formatting records an event.
    Loud(usize),
    /// A value of another type in each event, as the field of a generic function's callsite has it.
    Any,
}

impl Kind {
    /// Returns a kind at random; texts have up to `most` bytes.
    pub(crate) fn random(rng: &mut Random, most: usize) -> Self {
        match rng.below(16) {
            0 | 1 => Self::Unsigned,
            2 | 3 => Self::Signed,
            4 => Self::Wide,
            5 => Self::WideSigned,
            6 => Self::Float,
            7 => Self::Bool,
            8..=10 => Self::Text(most),
            11 | 12 => Self::Display(most),
            13 => Self::Debug(most),
            14 if rng.one_in(4) => Self::Failing(most),
            14 if rng.one_in(4) => Self::Loud(most),
            14 => Self::Error(most),
            _ => Self::Bytes(most / 3),
        }
    }

    /// Returns the value of the field at `place` in the event that `key` stands for.
    pub(crate) fn value(self, key: u64, place: usize) -> Held {
        let rng = &mut Random(mix(key ^ (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        match self {
            Self::Key => Held::Unsigned(key),
            Self::Unsigned => Held::Unsigned(number(rng)),
            Self::Signed => Held::Signed(number(rng).cast_signed()),
            Self::Wide => Held::Wide(u128::from(number(rng)) << 64 | u128::from(number(rng))),
            Self::WideSigned => Held::WideSigned(
                (u128::from(number(rng)) << 64 | u128::from(number(rng))).cast_signed(),
            ),
            Self::Float => Held::Float(float(rng)),
            Self::Bool => Held::Bool(rng.one_in(2)),
            Self::Text(most) => Held::Text(text(rng, most)),
            Self::Display(most) => Held::Display(display(Pieces::random(rng, most))),
            Self::Debug(most) => Held::Debug(debug(Pieces::random(rng, most))),
            Self::Error(most) => Held::Error(Box::new(Pieces::random(rng, most))),
            Self::Bytes(most) => {
                let len = length(rng, most);
                Held::Bytes((0..len).map(|_| rng.bits() as u8).collect())
            }
            Self::Failing(most) => Held::Failing(debug(Failing(Pieces::random(rng, most)))),
            Self::Loud(most) => Held::Loud(debug(Loud(Pieces::random(rng, most)))),
            Self::Any => {
                let kinds = [
                    Self::Unsigned,
                    Self::Signed,
                    Self::Float,
                    Self::Bool,
                    Self::Text(30),
                    Self::Wide,
                ];
                rng.pick(&kinds).value(key ^ 1, place)
            }
        }
    }
}

/// A value, as it is given to `tracing`.
pub(crate) enum Held {
    Unsigned(u64),
    Signed(i64),
    Wide(u128),
    WideSigned(i128),
    Float(f64),
    Bool(bool),
    Text(String),
    Display(DisplayValue<Pieces>),
    Debug(DebugValue<Pieces>),
    Error(Box<dyn std::error::Error + 'static>),
    Bytes(Box<[u8]>),
    Failing(DebugValue<Failing>),
    Loud(DebugValue<Loud>),
}

/// A value that must be found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expected {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(String),
}

impl Held {
    /// Returns the value as `tracing` takes it.
    pub(crate) fn as_value(&self) -> &dyn Value {
        match self {
            Self::Unsigned(value) => value,
            Self::Signed(value) => value,
            Self::Wide(value) => value,
            Self::WideSigned(value) => value,
            Self::Float(value) => value,
            Self::Bool(value) => value,
            Self::Text(value) => value,
            Self::Display(value) => value,
            Self::Debug(value) => value,
            Self::Error(value) => value,
            Self::Bytes(value) => value,
            Self::Failing(value) => value,
            Self::Loud(value) => value,
        }
    }

    /// Returns what a reader must find.
    pub(crate) fn expected(&self) -> Expected {
        Expected::Text(match self {
            Self::Unsigned(value) => return Expected::Unsigned(*value),
            Self::Signed(value) => return Expected::Signed(*value),
            Self::Float(value) => return Expected::Float(*value),
            Self::Bool(value) => return Expected::Bool(*value),
            Self::Wide(value) => value.to_string(),
            Self::WideSigned(value) => value.to_string(),
            Self::Text(value) => value.clone(),
            Self::Display(value) => value.to_string(),
            Self::Debug(value) => format!("{value:?}"),
            Self::Error(value) => value.to_string(),
            Self::Bytes(value) => {
                let bytes: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("[{}]", bytes.join(" "))
            }
            // The part that was written before the failure.
            Self::Failing(value) => {
                let mut text = String::new();
                let _ = write!(text, "{value:?}");
                text
            }
            Self::Loud(value) => format!("{value:?}"),
        })
    }
}

/// A text that is formatted in several pieces.
#[derive(Clone)]
pub(crate) struct Pieces {
    text: String,
    /// Characters of each piece but the last; 0: characters are written one by one.
    step: usize,
}

impl Pieces {
    fn random(rng: &mut Random, most: usize) -> Self {
        let text = text(rng, most);
        Self { text, step: *rng.pick(&[0, 1, 3, 7, 64, 500, 10_000]) }
    }
}

impl fmt::Display for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.text.as_str();
        while self.step > 0 && !rest.is_empty() {
            let end = rest.char_indices().nth(self.step).map_or(rest.len(), |(end, _)| end);
            let (piece, behind) = rest.split_at(end);
            f.write_str(piece)?;
            rest = behind;
        }
        rest.chars().try_for_each(|character| f.write_char(character))
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Pieces {}

/// A text behind which formatting fails.
pub(crate) struct Failing(Pieces);

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)?;
        Err(fmt::Error)
    }
}

/// A text whose formatting records an event: see [`HOOK`].
pub(crate) struct Loud(Pieces);

/// The function that a [`Loud`] value calls while it is formatted.
pub(crate) static HOOK: OnceLock<fn()> = OnceLock::new();

impl fmt::Debug for Loud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hook) = HOOK.get() {
            hook();
        }
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A value whose formatting panics.
#[derive(Clone, Copy)]
pub(crate) struct Panics;

impl fmt::Debug for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the beginning")?;
        panic!("a value that cannot be formatted")
    }
}

/// An integer: often one near a limit.
fn number(rng: &mut Random) -> u64 {
    let shift = rng.below(64);
    match rng.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << shift,
        3 => (1 << shift) - 1,
        4 => rng.below(1000),
        _ => rng.bits(),
    }
}

fn float(rng: &mut Random) -> f64 {
    match rng.below(8) {
        0 => 0.0,
        1 => -0.0,
        2 => f64::NAN,
        3 => f64::INFINITY,
        4 => f64::NEG_INFINITY,
        5 => f64::from(rng.bits() as i32) / 1024.0,
        _ => Some(f64::from_bits(rng.bits())).filter(|value| value.is_finite()).unwrap_or(0.1),
    }
}

/// A length: often the largest or a small one.
fn length(rng: &mut Random, most: usize) -> usize {
    let most = most as u64;
    let len = match rng.below(4) {
        0 => most,
        1 => rng.below(most.min(24) + 1),
        _ => rng.below(most + 1),
    };
    len as usize
}

/// Pieces of texts: NUL, control characters, quotes, separators, and characters of one to four
/// bytes.
const PIECES: [&str; 32] = [
    "a", "b", "Z", "0", "9", " ", "=", ",", "\"", "\\", "'", "{", "}", "[", "]", "\n", "\t", "é",
    "ß", "漢", "😀", "𝄞", "\u{1b}", "\u{7f}", "\u{85}", "\u{202e}", "%", "<", ":", "\u{1f}", "…",
    "\0",
];

/// A text of at most `most` bytes.
pub(crate) fn text(rng: &mut Random, most: usize) -> String {
    let len = length(rng, most);
    let is_plain = rng.one_in(2);
    let mut text = String::with_capacity(len);
    while text.len() < len {
        let piece = if is_plain { PIECES[rng.below(6) as usize] } else { *rng.pick(&PIECES) };
        text.push_str(if text.len() + piece.len() <= len { piece } else { "x" });
    }
    text
}

/// The text as the recorder keeps it: a NUL would end it, so that each is replaced.
pub(crate) fn stored(text: &str) -> String {
    text.replace('\0', "\u{1a}")
}
