//! The tokens of a print format.

use super::arith::Int;
use lastwords_bytes::low_u8;

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A name or keyword.
    Word(&'a str),
    /// A number.
    Number(u64, Int),
    /// A string whose escapes are resolved.
    Text(Vec<u8>),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// Operators and brackets, the longest first.
const SIGNS: [&str; 34] = [
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "(", ")", "[", "]", "{", "}", ",", "?",
    ":", "+", "-", "*", "/", "%", "<", ">", "&", "|", "^", "~", "!", ".", "=", ";", "#",
];

/// Returns the tokens of `text`.
///
/// # Errors
/// A part of the text is not a token; the error has its byte offset and the rest of the text.
pub(crate) fn tokens(text: &str, word_size: u8) -> Result<Vec<Token<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        // Macros leave a backslash before the end of a line.
        rest = rest.strip_prefix("\\\n").unwrap_or(rest);
        let Some(first) = rest.bytes().next() else { return Ok(out) };
        let (token, left) = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' => word(rest),
            b'0'..=b'9' => number(rest, word_size).ok_or_else(|| wrong(text, rest))?,
            b'"' => string(rest).ok_or_else(|| wrong(text, rest))?,
            b'\'' => character(rest).ok_or_else(|| wrong(text, rest))?,
            _ if first.is_ascii_whitespace() => continue,
            _ => {
                let sign = SIGNS
                    .iter()
                    .find(|s| rest.starts_with(**s))
                    .ok_or_else(|| wrong(text, rest))?;
                (Token::Sign(sign), &rest[sign.len()..])
            }
        };
        out.push(token);
        rest = left;
    }
}

fn wrong(text: &str, rest: &str) -> String {
    let shown: String = rest.chars().take(24).collect();
    format!("no token at byte {}: {shown:?}", text.len().saturating_sub(rest.len()))
}

fn word(text: &str) -> (Token<'_>, &str) {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'))
        .unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    (Token::Word(word), rest)
}

fn number(text: &str, word_size: u8) -> Option<(Token<'_>, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (all, rest) = text.split_at(end);
    let digits = all.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = all[digits.len()..].to_ascii_lowercase();
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    let value = u64::from_str_radix(digits, radix).ok()?;
    let long = suffix
        .contains("ll")
        .then_some(8)
        .or(suffix.contains('l').then_some(word_size))
        .unwrap_or(4);
    let unsigned = suffix.contains('u');
    let fits_signed = |size: u8| value < 1 << (u32::from(size) * 8).saturating_sub(1);
    let fits_unsigned = |size: u8| size == 8 || value < 1 << (u32::from(size) * 8);
    let candidates = [4u8, 8].into_iter().filter(|size| *size >= long);
    let kind = candidates.clone().find_map(|size| {
        let signed = !unsigned && fits_signed(size);
        // A decimal number without suffix never becomes unsigned; it gets a longer type.
        let as_unsigned = (unsigned || radix != 10) && fits_unsigned(size);
        (signed || as_unsigned).then_some(Int { size, signed })
    });
    Some((Token::Number(value, kind.unwrap_or(Int::U64)), rest))
}

fn string(text: &str) -> Option<(Token<'_>, &str)> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some((Token::Text(out), text.get(at.saturating_add(1)..)?)),
            b'\\' => {
                let (byte, length) = escape(bytes.get(at.saturating_add(1)..)?)?;
                out.push(byte);
                at = at.saturating_add(length.saturating_add(1));
            }
            byte => {
                out.push(*byte);
                at = at.saturating_add(1);
            }
        }
    }
}

fn character(text: &str) -> Option<(Token<'_>, &str)> {
    let bytes = text.as_bytes();
    let (byte, end) = match bytes.get(1)? {
        b'\\' => escape(bytes.get(2..)?).map(|(byte, length)| (byte, length.saturating_add(2)))?,
        byte => (*byte, 2),
    };
    (bytes.get(end) == Some(&b'\'')).then_some(())?;
    Some((
        Token::Number(Int::CHAR.wrap(u64::from(byte)), Int::INT),
        text.get(end.saturating_add(1)..)?,
    ))
}

/// Returns the byte that an escape after a backslash means, and the length of the escape.
pub(crate) fn escape(text: &[u8]) -> Option<(u8, usize)> {
    let one = |byte| Some((byte, 1));
    match text.first()? {
        b'n' => one(b'\n'),
        b't' => one(b'\t'),
        b'r' => one(b'\r'),
        b'a' => one(7),
        b'b' => one(8),
        b'v' => one(11),
        b'f' => one(12),
        b'e' => one(27),
        b'x' => {
            let behind = text.get(1..)?;
            let digits = behind.iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
            let value = std::str::from_utf8(behind.get(..digits)?).ok()?;
            Some((u8::from_str_radix(value, 16).ok()?, digits.saturating_add(1)))
        }
        b'0'..=b'7' => {
            let digits = text.iter().take(3).take_while(|b| matches!(b, b'0'..=b'7')).count();
            let all = text.iter().take(digits).filter_map(|b| char::from(*b).to_digit(8));
            // Three octal digits have nine bits. C keeps the low eight of them.
            let value = all.fold(0, |sum, digit| sum << 3 | u64::from(digit));
            Some((low_u8(value), digits))
        }
        other => one(*other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_types_of_c() {
        let of = |text| match tokens(text, 8).unwrap().remove(0) {
            Token::Number(value, kind) => (value, kind),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("12"), (12, Int::INT));
        assert_eq!(of("0x80000000"), (0x8000_0000, Int::UINT));
        assert_eq!(of("2147483648"), (0x8000_0000, Int::S64));
        assert_eq!(of("1UL"), (1, Int::U64));
        assert_eq!(of("010"), (8, Int::INT));
        assert_eq!(of("'a'"), (97, Int::INT));
        assert_eq!(of("'\\n'"), (10, Int::INT));
    }

    #[test]
    fn strings_and_signs() {
        let all = tokens(r#""a\t\"\x41\101", REC->x << 2"#, 8).unwrap();
        assert_eq!(all[0], Token::Text(b"a\t\"AA".to_vec()));
        assert_eq!(all[1..].len(), 6);
        assert!(tokens("\"open", 8).is_err());
        assert!(tokens("a @ b", 8).unwrap_err().contains("byte 2"));
    }
}
