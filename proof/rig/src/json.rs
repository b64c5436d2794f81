//! Values of JSON in which numbers stay as their digits, so that no float is rounded.

use std::fmt;

use anyhow::{Result, ensure};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::from_str;
use serde_json::value::RawValue;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// The digits.
    Number(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// The members of an object, in their order.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Returns the member of this name.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns the text of a string.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// Reads one value, which is all of the text.
///
/// # Errors
/// The text is not JSON, has a blank between tokens, or has two members of one name in an object.
pub fn parse(text: &str) -> Result<Json> {
    let mut is_string = false;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_string = !is_string,
            b'\\' => drop(bytes.next()),
            _ => ensure!(is_string || !byte.is_ascii_whitespace(), "a blank between tokens"),
        }
    }
    value(text)
}

fn value(text: &str) -> Result<Json> {
    Ok(match text.bytes().next() {
        Some(b'{') => Json::Object(from_str::<Members>(text)?.0),
        Some(b'[') => {
            let list: Vec<&RawValue> = from_str(text)?;
            Json::List(list.into_iter().map(|item| value(item.get())).collect::<Result<_>>()?)
        }
        Some(b'"') => Json::Text(from_str(text)?),
        Some(b'n' | b't' | b'f') => from_str::<Option<bool>>(text)?.map_or(Json::Null, Json::Bool),
        _ => Json::Number(from_str::<serde_json::Number>(text).map(|_| text.to_owned())?),
    })
}

struct Members(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((name, raw)) = map.next_entry::<String, &RawValue>()? {
            if self.0.iter().any(|(other, _)| *other == name) {
                return Err(A::Error::custom(format!("two members {name}")));
            }
            self.0.push((name, value(raw.get()).map_err(A::Error::custom)?));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_written() {
        let json = parse("{\"a\":[1.50,-2e3,null],\"b\":\"\\u00e9\\n\"}").unwrap();
        let number = |digits: &str| Json::Number(digits.to_owned());
        let list = Json::List(vec![number("1.50"), number("-2e3"), Json::Null]);
        assert_eq!((json.get("a"), json.get("b").and_then(Json::text)), (Some(&list), Some("é\n")));
        for text in ["", "[1", "{\"a\":1,\"a\":2}", "1 2", "[1, 2]", "1 ", "nul"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
