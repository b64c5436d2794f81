//! The events that readers find, and their comparison with the events that must be there.

use super::shape::{CPU, Format, NAME, PID, Shape, TID};
use super::value::Value;

/// A value as a reader found it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Found {
    /// Digits, or a word, as they stand in the text.
    Token(String),
    Integer(i128),
    Double(f64),
    Bool(bool),
    Text(Vec<u8>),
    List(Vec<Found>),
    /// A value of an enumeration and its label.
    Label(Option<Vec<u8>>, Box<Found>),
}

/// An event as a reader found it.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// Index of the shape's class.
    pub(super) class: usize,
    /// CPU of the stream; none where it is bound to none.
    pub(super) cpu: Option<u32>,
    /// Contexts by name; text does not show all.
    pub(super) contexts: Vec<(String, Found)>,
    /// The fields in their order.
    pub(super) fields: Vec<(String, Found)>,
}

/// `value` as `%g` prints it: what CTF's readers show of a float.
pub(super) fn general(value: f64) -> String {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let value = value.abs();
    if value.is_nan() {
        return format!("{sign}nan");
    }
    if value.is_infinite() {
        return format!("{sign}inf");
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let cut = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        return format!("{sign}{}", cut(&format!("{value:.*}", (5 - exponent) as usize)));
    }
    let mark = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{}e{mark}{:02}", cut(digits), exponent.abs())
}

fn integer(token: &str) -> Option<i128> {
    match token.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => token.parse().ok(),
    }
}

impl Found {
    /// It as an integer.
    pub(super) fn integer(&self) -> Option<i128> {
        match self {
            Self::Token(token) => integer(token),
            Self::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// Whether it is that value, by the rules of the format.
    pub(super) fn is(&self, value: &Value, format: Format) -> bool {
        match (value, self) {
            (Value::Integer(value), found) => found.integer() == Some(*value),
            (Value::Bool(value), Self::Bool(found)) => value == found,
            (Value::Bool(value), Self::Integer(found)) => i128::from(*value) == *found,
            (Value::Bool(value), Self::Token(token)) => match format {
                Format::Ctf | Format::Babeltrace => token == if *value { "1" } else { "0" },
                _ => token == if *value { "true" } else { "false" },
            },
            (Value::Double(value), found) => found.is_double(*value, format),
            (Value::Single(value), Self::Token(token))
                if matches!(format, Format::Json | Format::Text) && value.is_finite() =>
            {
                token.parse::<f32>().is_ok_and(|found| found.to_bits() == value.to_bits())
            }
            (Value::Single(value), found) => found.is_double(f64::from(*value), format),
            // Formats whose texts are UTF-8 show a mark for other bytes.
            (Value::Text(bytes), Self::Text(found)) => {
                bytes == found || String::from_utf8_lossy(bytes).as_bytes() == found
            }
            (Value::Bytes(bytes), Self::Text(found) | Self::Label(Some(found), _)) => {
                bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().as_bytes()
                    == found
            }
            (Value::Bytes(bytes), Self::List(found)) => {
                let is = |(byte, found): (&u8, &Self)| found.integer() == Some(i128::from(*byte));
                bytes.len() == found.len() && bytes.iter().zip(found).all(is)
            }
            (Value::List(values), Self::List(found)) => {
                values.len() == found.len()
                    && values.iter().zip(found).all(|(value, found)| found.is(value, format))
            }
            (Value::Enum(value, label), Self::Label(found, number)) => {
                number.integer() == Some(*value)
                    && label.as_ref().map(String::as_bytes) == found.as_deref()
            }
            (Value::Enum(value, _), found) if format == Format::Pages => {
                found.integer() == Some(*value)
            }
            // Text and Perfetto show the label alone, or the number where there is none.
            (Value::Enum(_, Some(label)), Self::Text(found)) => label.as_bytes() == found,
            (Value::Enum(value, None), Self::Integer(found)) if format == Format::Perfetto => {
                *value as u64 as i64 == *found as i64
            }
            (Value::Enum(value, None), found) => found.integer() == Some(*value),
            _ => false,
        }
    }

    fn is_double(&self, value: f64, format: Format) -> bool {
        match (self, format) {
            (Self::Double(found), _) => {
                found.to_bits() == value.to_bits() || (found.is_nan() && value.is_nan())
            }
            (Self::Token(token), Format::Json | Format::Text) if value.is_finite() => {
                token.parse::<f64>().is_ok_and(|found| found.to_bits() == value.to_bits())
            }
            (Self::Text(text), Format::Json) => {
                let name = if value.is_nan() {
                    "NaN"
                } else if value == f64::INFINITY {
                    "inf"
                } else {
                    "-inf"
                };
                !value.is_finite() && text == name.as_bytes()
            }
            (Self::Token(token), _) => *token == general(value),
            _ => false,
        }
    }
}

/// The contexts that the session itself records, in their order.
pub(super) fn built_in(shape: &Shape) -> Vec<&'static str> {
    let bits = shape.context_bits();
    let all = [(PID, "vpid"), (TID, "vtid"), (NAME, "procname"), (CPU, "cpu")];
    all.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_percent_g() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (123_456_789.0, "1.23457e+08"),
            (f64::NEG_INFINITY, "-inf"),
            (1e-310, "1e-310"),
            (999_999.5, "1e+06"),
        ];
        for (value, text) in cases {
            assert_eq!(general(value), text);
        }
    }
}
