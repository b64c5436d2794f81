//! Splits TSDL into words. CTF 1.8.3, appendix C: the lexical grammar is that of C.

use super::Wrong;
use crate::metadata::HOLE;

/// A word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// Identifier or keyword.
    Name(&'a str),
    /// Integer literal.
    Number(u64),
    /// String or character literal, unescaped.
    Text(String),
    /// Punctuation: one character, or `:=`, `...`, `->`.
    Mark(&'static str),
    /// A part of the text is missing, or is no word, for this reason. Words on both sides of it do
    /// not belong together.
    Lost(String),
    /// The end of the text.
    End,
}

impl std::fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Number(number) => write!(f, "`{number}`"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Mark(mark) => write!(f, "`{mark}`"),
            Self::Lost(why) => f.write_str(why),
            Self::End => f.write_str("the end"),
        }
    }
}

const MARKS: [&str; 24] = [
    ":=", "...", "->", "{", "}", "(", ")", "[", "]", "<", ">", ";", ":", ",", "=", ".", "*", "+",
    "-", "&", "|", "!", "~", "/",
];

/// Characters that stand for what is missing: [`HOLE`], and zeros in a file.
const HOLES: [char; 2] = [HOLE as char, '\0'];

/// Splits text into words, each with its line from 1. What is no word becomes [`Word::Lost`].
pub(super) fn words(text: &str) -> Vec<(Word<'_>, u32)> {
    let mut words = Vec::new();
    let mut lexer = Lexer { rest: text, line: 1 };
    loop {
        let found = lexer.skip_blanks().and_then(|()| {
            let line = lexer.line;
            Ok((lexer.word()?, line))
        });
        match found {
            Ok(word) => {
                let is_end = word.0 == Word::End;
                words.push(word);
                if is_end {
                    return words;
                }
            }
            // Words that are lost one behind the other are one loss.
            Err(_) if matches!(words.last(), Some((Word::Lost(_), _))) => {}
            Err(Wrong { line, what }) => words.push((Word::Lost(what), line)),
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn wrong(&self, what: impl Into<String>) -> Wrong {
        Wrong { line: self.line, what: what.into() }
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        let lines = taken.bytes().filter(|b| *b == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.rest = rest;
        taken
    }

    /// Skips blanks, comments, and preprocessor lines. An error is skipped, too.
    fn skip_blanks(&mut self) -> Result<(), Wrong> {
        loop {
            let blanks =
                self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']).len();
            self.take(self.rest.len().saturating_sub(blanks));
            if self.rest.starts_with("/*") {
                let end = self.rest.find(HOLES).unwrap_or(self.rest.len());
                match self.rest.get(..end).and_then(|comment| comment.find("*/")) {
                    Some(end) => self.take(end.saturating_add(2)),
                    None => {
                        let wrong = self.wrong("comment without an end");
                        self.take(end);
                        return Err(wrong);
                    }
                };
            } else if self.rest.starts_with("//") || self.rest.starts_with('#') {
                let end = self.rest.find(['\n', HOLES[0], HOLES[1]]).unwrap_or(self.rest.len());
                self.take(end);
            } else {
                return Ok(());
            }
        }
    }

    /// Returns the next word. An error is skipped.
    fn word(&mut self) -> Result<Word<'a>, Wrong> {
        let Some(first) = self.rest.chars().next() else { return Ok(Word::End) };
        if HOLES.contains(&first) {
            let wrong = self.wrong("a part of the text is missing");
            let behind = self.rest.trim_start_matches(HOLES);
            self.take(self.rest.len().saturating_sub(behind.len()));
            // A text may be filled up with zeros.
            return if behind.is_empty() && first == '\0' { Ok(Word::End) } else { Err(wrong) };
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let end = self
                .rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(self.rest.len());
            if self.rest.get(end..).is_some_and(|r| r.starts_with('"'))
                && self.rest.get(..end) == Some("L")
            {
                self.take(end);
                return self.text('"').map(Word::Text);
            }
            return Ok(Word::Name(self.take(end)));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' || first == '\'' {
            return self.text(first).map(Word::Text);
        }
        match MARKS.iter().find(|mark| self.rest.starts_with(**mark)) {
            Some(mark) => {
                self.take(mark.len());
                Ok(Word::Mark(mark))
            }
            None => {
                let wrong = self.wrong(format!("found {first:?}, expected a word of TSDL"));
                self.take(first.len_utf8());
                Err(wrong)
            }
        }
    }

    fn number(&mut self) -> Result<Word<'a>, Wrong> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let text = self.take(end);
        let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
        let parsed = if let Some(hexadecimal) =
            digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))
        {
            u64::from_str_radix(hexadecimal, 16)
        } else if let Some(binary) = digits.strip_prefix("0b").or_else(|| digits.strip_prefix("0B"))
        {
            u64::from_str_radix(binary, 2)
        } else if digits.len() > 1 && digits.starts_with('0') {
            u64::from_str_radix(digits, 8)
        } else {
            digits.parse()
        };
        match parsed {
            Ok(number) => Ok(Word::Number(number)),
            Err(_) => Err(self.wrong(format!("found `{text}`, expected an integer of 64 bits"))),
        }
    }

    fn text(&mut self, quote: char) -> Result<String, Wrong> {
        self.take(1);
        let mut text = Vec::new();
        loop {
            let next = self.rest.chars().next().filter(|c| !HOLES.contains(c));
            let Some(c) = next else { return Err(self.wrong("text without an end")) };
            self.take(c.len_utf8());
            if c == quote {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            if c == '\\' {
                self.escape(&mut text)?;
            } else if c == '\n' {
                return Err(self.wrong("text without an end on its line"));
            } else {
                text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), Wrong> {
        let Some(c) = self.rest.chars().next() else {
            return Err(self.wrong("text without an end"));
        };
        let digits = |rest: &str, radix: u32, most: usize| {
            rest.chars().take(most).take_while(|c| c.is_digit(radix)).count()
        };
        let byte = match c {
            'n' => b'\n',
            't' => b'\t',
            'r' => b'\r',
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'v' => 11,
            'e' => 27,
            '\\' | '\'' | '"' | '?' => c as u8,
            'x' => {
                self.take(1);
                let count = digits(self.rest, 16, 2);
                let value = u8::from_str_radix(self.take(count), 16);
                text.push(value.map_err(|_| self.wrong("`\\x` without hexadecimal digits"))?);
                return Ok(());
            }
            '0'..='7' => {
                let count = digits(self.rest, 8, 3);
                let value = u8::from_str_radix(self.take(count), 8);
                text.push(value.map_err(|_| self.wrong("an octal escape above `\\377`"))?);
                return Ok(());
            }
            c => return Err(self.wrong(format!("unknown escape `\\{c}`"))),
        };
        self.take(c.len_utf8());
        text.push(byte);
        Ok(())
    }
}
