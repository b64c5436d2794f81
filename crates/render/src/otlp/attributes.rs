//! Attributes, and values in OTLP's JSON: each is an object whose only member names its type.

use crate::iter::{Field, Value};
use crate::json::text;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::collections::HashMap;
use std::io::Write as _;

/// Deepest nesting of a value that is written as lists and structures. Readers of protocol buffers
/// have a limit of their own; deeper values become text.
const MAX_DEPTH: usize = 16;

/// Attributes, whose keys OTLP wants to be unique.
#[derive(Debug, Clone, Default)]
pub(super) struct Attributes {
    /// Each key with its value as JSON.
    list: Vec<(String, Vec<u8>)>,
    /// The keys, each with the last number that was appended to it.
    numbers: HashMap<String, u64>,
}

impl Attributes {
    /// Adds an attribute. If another one has the key, `_2`, `_3`, ... is appended.
    pub(super) fn put(&mut self, key: &str, value: &Value) {
        if *value == Value::Absent {
            return;
        }
        let mut json = Vec::new();
        put_value(&mut json, value, 0);
        let mut unique = key.to_owned();
        while self.numbers.contains_key(&unique) {
            let number = self.numbers.entry(key.to_owned()).or_insert(1);
            *number = number.saturating_add(1);
            unique = format!("{key}_{number}");
        }
        self.numbers.insert(unique.clone(), 1);
        self.list.push((unique, json));
    }

    /// Adds an attribute, or gives the attribute of this key another value.
    pub(super) fn set(&mut self, key: &str, value: &Value) {
        match self.list.iter_mut().find(|(own, _)| own == key) {
            Some((_, json)) if *value != Value::Absent => {
                json.clear();
                put_value(json, value, 0);
            }
            Some(_) => {}
            None => self.put(key, value),
        }
    }

    /// Adds the fields.
    pub(super) fn fields<'f>(&mut self, fields: impl IntoIterator<Item = &'f Field>) {
        fields.into_iter().for_each(|field| self.put(&field.name, &field.value));
    }

    /// Adds a text.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.put(key, &Value::Text(value.as_bytes().to_vec()));
    }

    /// Adds a number.
    pub(super) fn number(&mut self, key: &str, value: impl Into<i64>) {
        self.put(key, &Value::Signed(value.into()));
    }

    /// Adds a count.
    pub(super) fn count(&mut self, key: &str, value: u64) {
        self.put(key, &Value::Unsigned(value));
    }

    /// Appends the member `attributes`, if there are any.
    pub(super) fn member(&self, out: &mut Vec<u8>) {
        if self.list.is_empty() {
            return;
        }
        out.extend_from_slice(b",\"attributes\":");
        self.array(out);
    }

    /// Appends the attributes as an array.
    pub(super) fn array(&self, out: &mut Vec<u8>) {
        let pairs = self.list.iter().map(|(key, json)| (key.as_str(), json));
        key_values(out, pairs, |out, json| out.extend_from_slice(json));
    }
}

/// Appends an array of `KeyValue`.
fn key_values<'k, V>(
    out: &mut Vec<u8>,
    pairs: impl Iterator<Item = (&'k str, V)>,
    put: impl Fn(&mut Vec<u8>, V),
) {
    out.push(b'[');
    for (at, (key, value)) in pairs.enumerate() {
        out.extend_from_slice(if at == 0 { b"{\"key\":" } else { b",{\"key\":" });
        text(out, key.as_bytes());
        out.extend_from_slice(b",\"value\":");
        put(out, value);
        out.push(b'}');
    }
    out.push(b']');
}

/// Appends an `AnyValue`.
fn put_value(out: &mut Vec<u8>, value: &Value, depth: usize) {
    let below = depth.saturating_add(1);
    match value {
        Value::Unsigned(number) => integer(out, i128::from(*number)),
        Value::Signed(number) => integer(out, i128::from(*number)),
        Value::Enum(number, None) => integer(out, *number),
        Value::Enum(_, Some(label)) => string(out, label.as_bytes()),
        Value::Float(number) => double(out, *number),
        // The double is the same number.
        Value::Float32(number) => double(out, f64::from(*number)),
        Value::Bool(is) => _ = write!(out, "{{\"boolValue\":{is}}}"),
        Value::Text(bytes) if std::str::from_utf8(bytes).is_ok() => string(out, bytes),
        Value::Text(bytes) | Value::Bytes(bytes) => {
            _ = write!(out, "{{\"bytesValue\":\"{}\"}}", BASE64_STANDARD.encode(bytes));
        }
        Value::List(_) | Value::Struct(_) if depth >= MAX_DEPTH => {
            string(out, value.to_string().as_bytes());
        }
        Value::List(elements) => {
            out.extend_from_slice(b"{\"arrayValue\":{\"values\":[");
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                put_value(out, element, below);
            }
            out.extend_from_slice(b"]}}");
        }
        Value::Struct(members) => {
            out.extend_from_slice(b"{\"kvlistValue\":{\"values\":");
            let there = members.iter().filter(|(_, value)| *value != Value::Absent);
            let pairs = there.map(|(name, value)| (name.as_str(), value));
            key_values(out, pairs, |out, value| put_value(out, value, below));
            out.extend_from_slice(b"}}");
        }
        Value::Absent => out.extend_from_slice(b"{}"),
    }
}

/// Appends an integer. OTLP's integers have 64 bits and a sign; others become text.
fn integer(out: &mut Vec<u8>, number: i128) {
    let kind = if i64::try_from(number).is_ok() { "intValue" } else { "stringValue" };
    let _ = write!(out, "{{\"{kind}\":\"{number}\"}}");
}

/// Appends a number with the shortest digits from which the same number is read, or a word of
/// protocol buffers' JSON.
fn double(out: &mut Vec<u8>, number: f64) {
    let _ = match number {
        number if number.is_nan() => write!(out, "{{\"doubleValue\":\"NaN\"}}"),
        f64::INFINITY => write!(out, "{{\"doubleValue\":\"Infinity\"}}"),
        f64::NEG_INFINITY => write!(out, "{{\"doubleValue\":\"-Infinity\"}}"),
        number => write!(out, "{{\"doubleValue\":{number:?}}}"),
    };
}

/// Appends a text.
pub(super) fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(b"{\"stringValue\":");
    text(out, bytes);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: &Value) -> String {
        let mut out = Vec::new();
        put_value(&mut out, value, 0);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_have_their_types_and_are_exact() {
        let text = |text: &str| Value::Text(text.as_bytes().to_vec());
        for (value, expected) in [
            (Value::Unsigned(1 << 63), r#"{"stringValue":"9223372036854775808"}"#),
            (Value::Unsigned((1 << 63) - 1), r#"{"intValue":"9223372036854775807"}"#),
            (Value::Signed(i64::MIN), r#"{"intValue":"-9223372036854775808"}"#),
            (Value::Float(0.1), r#"{"doubleValue":0.1}"#),
            (Value::Float32(0.1), r#"{"doubleValue":0.10000000149011612}"#),
            (Value::Float(f64::NAN), r#"{"doubleValue":"NaN"}"#),
            (Value::Float(f64::NEG_INFINITY), r#"{"doubleValue":"-Infinity"}"#),
            (Value::Bool(true), r#"{"boolValue":true}"#),
            (text("a\"\u{1b}\u{e9}"), "{\"stringValue\":\"a\\\"\\u001b\u{e9}\"}"),
            (Value::Text(vec![b'a', 0xff]), r#"{"bytesValue":"Yf8="}"#),
            (Value::Bytes(vec![1, 2, 3]), r#"{"bytesValue":"AQID"}"#),
            (Value::Enum(7, Some("seven".into())), r#"{"stringValue":"seven"}"#),
            (Value::Enum(8, None), r#"{"intValue":"8"}"#),
            (
                Value::List(vec![Value::Signed(1), Value::Absent]),
                r#"{"arrayValue":{"values":[{"intValue":"1"},{}]}}"#,
            ),
            (
                Value::Struct(vec![("a".into(), text("b")), ("c".into(), Value::Absent)]),
                r#"{"kvlistValue":{"values":[{"key":"a","value":{"stringValue":"b"}}]}}"#,
            ),
        ] {
            assert_eq!(json(&value), expected, "{value:?}");
        }
        let deep = (0..100).fold(Value::Signed(7), |deep, _| Value::List(vec![deep]));
        assert_eq!(json(&deep).matches("arrayValue").count(), MAX_DEPTH);
        assert!(json(&deep).contains(r#"{"stringValue":"7"}"#));
    }

    #[test]
    fn keys_are_unique() {
        let mut attributes = Attributes::default();
        for key in ["a", "a", "a_2", "a", "c_2", "c", "c", "b"] {
            attributes.number(key, 1i64);
        }
        attributes.set("b", &Value::Signed(2));
        let keys: Vec<&str> = attributes.list.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a", "a_2", "a_2_2", "a_3", "c_2", "c", "c_3", "b"]);
        let mut out = Vec::new();
        attributes.array(&mut out);
        assert!(out.ends_with(br#"{"key":"b","value":{"intValue":"2"}}]"#));
    }
}
