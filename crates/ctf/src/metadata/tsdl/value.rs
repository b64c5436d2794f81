//! The values of attributes.

use super::Wrong;
use super::lex::Word;
use super::parser::Parser;

/// The value of an attribute.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Name(String),
    Text(String),
    /// A number, and whether a minus precedes it.
    Number(u64, bool),
}

impl Value {
    pub(super) fn word(&self) -> Option<&str> {
        match self {
            Self::Name(word) | Self::Text(word) => Some(word),
            Self::Number(..) => None,
        }
    }

    pub(super) fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Number(number, false) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn signed(&self) -> Option<i64> {
        match self {
            Self::Number(number, false) => i64::try_from(*number).ok(),
            Self::Number(number, true) => 0i64.checked_sub_unsigned(*number),
            _ => None,
        }
    }

    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Self::Number(number, false) => Some(*number != 0),
            Self::Name(word) | Self::Text(word) => match word.as_str() {
                "true" | "TRUE" => Some(true),
                "false" | "FALSE" => Some(false),
                _ => None,
            },
            Self::Number(..) => None,
        }
    }
}

impl Parser<'_> {
    /// Parses the value of an attribute, after the `=`.
    pub(super) fn value(&mut self) -> Result<Value, Wrong> {
        while self.accept("+") {}
        match self.peek() {
            Word::Text(text) => {
                let mut text = text.clone();
                self.advance();
                while let Word::Text(more) = self.peek() {
                    text.push_str(more);
                    self.advance();
                }
                Ok(Value::Text(text))
            }
            Word::Number(number) => {
                self.advance();
                Ok(Value::Number(*number, false))
            }
            Word::Name(_) => self.dotted().map(Value::Name),
            Word::Mark("-") => {
                self.advance();
                match self.advance() {
                    Word::Number(number) => Ok(Value::Number(*number, true)),
                    _ => Err(self.wrong("expected a number after the minus")),
                }
            }
            _ => Err(self.unexpected("a value")),
        }
    }
}
