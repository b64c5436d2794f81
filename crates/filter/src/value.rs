//! Values of fields, and how they compare.

use std::cmp::Ordering;

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A signed integer.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A float.
    Float(f64),
    /// A boolean: 0 or 1 where it is compared with a number.
    Bool(bool),
    /// Text, which need not be UTF-8, or other bytes.
    Text(&'a [u8]),
    /// A value of an enumeration: its number compares with numbers, its label with text.
    Enum {
        /// The number: any of an `i64` or a `u64`.
        number: i128,
        /// The label, if the number has one.
        label: Option<&'a [u8]>,
    },
}

/// A value on the stack of the evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Item<'a> {
    Unknown,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(&'a [u8]),
    Enum(i128, Option<&'a [u8]>),
}

impl<'a> From<Value<'a>> for Item<'a> {
    #[inline]
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Signed(number) => Self::Integer(number.into()),
            Value::Unsigned(number) => Self::Integer(number.into()),
            Value::Float(number) => Self::Float(number),
            Value::Bool(value) => Self::Bool(value),
            Value::Text(text) => Self::Text(text),
            Value::Enum { number, label } => Self::Enum(number, label),
        }
    }
}

impl From<Option<bool>> for Item<'_> {
    #[inline]
    fn from(truth: Option<bool>) -> Self {
        truth.map_or(Self::Unknown, Self::Bool)
    }
}

/// The result of comparing two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    Ordered(Ordering),
    /// Equal or not, without an order: text.
    Same(bool),
    /// Not equal, and neither is less: a NaN takes part.
    Unordered,
    /// Unknown, or values of different kinds.
    Unknown,
}

impl<'a> Item<'a> {
    /// Returns true if the value is not zero. Text has no truth.
    #[inline]
    pub(crate) fn truth(self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(value),
            Self::Integer(number) | Self::Enum(number, _) => Some(number != 0),
            Self::Float(number) => Some(number != 0.0),
            Self::Text(_) | Self::Unknown => None,
        }
    }

    /// Returns the value as an integer; none for floats and text.
    #[inline]
    pub(crate) fn integer(self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(value.into()),
            Self::Integer(number) | Self::Enum(number, _) => Some(number),
            Self::Float(_) | Self::Text(_) | Self::Unknown => None,
        }
    }

    /// Returns the text, or the label of an enumeration. The inner option is none if an enumeration
    /// has no label for its number.
    #[inline]
    pub(crate) fn text(self) -> Option<Option<&'a [u8]>> {
        match self {
            Self::Text(text) => Some(Some(text)),
            Self::Enum(_, label) => Some(label),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn compare(self, other: Self) -> Compared {
        if let (Some(left), Some(right)) = (self.integer(), other.integer()) {
            return Compared::Ordered(left.cmp(&right));
        }
        match (self, other) {
            (Self::Float(left), Self::Float(right)) => ordered(left.partial_cmp(&right)),
            (Self::Float(left), right) => match right.integer() {
                Some(right) => ordered(compare_float(right, left).map(Ordering::reverse)),
                None => Compared::Unknown,
            },
            (left, Self::Float(right)) => match left.integer() {
                Some(left) => ordered(compare_float(left, right)),
                None => Compared::Unknown,
            },
            _ => match (self.text(), other.text()) {
                (Some(left), Some(right)) => Compared::Same(left == right),
                _ => Compared::Unknown,
            },
        }
    }
}

fn ordered(ordering: Option<Ordering>) -> Compared {
    ordering.map_or(Compared::Unordered, Compared::Ordered)
}

/// 2 to the power of 127, which is more than every `i128`.
const BEYOND: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

/// Compares an integer with a float, exactly. Returns none for NaN.
fn compare_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float >= BEYOND {
        return Some(Ordering::Less);
    }
    if float < -BEYOND {
        return Some(Ordering::Greater);
    }
    let whole = float.trunc();
    #[allow(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        reason = "a whole number within an i128: exact"
    )]
    let rounded = whole as i128;
    // If the whole numbers are equal, the fraction decides.
    Some(integer.cmp(&rounded).then_with(|| whole.partial_cmp(&float).unwrap_or(Ordering::Equal)))
}
