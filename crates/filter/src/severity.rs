//! Words of severities: `level <= warn`.
//!
//! `level` has 15 numbers, those of LTTng, and five words. The words are in the order error, warn,
//! info, debug, trace, from the most severe on: `level <= warn` holds for warnings and errors. The
//! numbers are not in that order, because 13 is trace and 14 is debug. So a comparison with a word
//! becomes one with a number that means the same.

use crate::program::{Binary, Constant};

/// The words, from the most severe on.
pub const LEVEL_WORDS: &[&str] = &["error", "warn", "info", "debug", "trace"];

/// For each word but the last: its first number, and the first number of the less severe ones.
const FIRST: [u8; 4] = [0, 4, 5, 7];
/// The number of trace, between those of debug.
const TRACE: u8 = 13;
/// The greatest number.
const MOST: u8 = 14;

/// Returns the comparison of `level` with a number or a text that means the same as one with a
/// word. Returns none if the text is no word of a severity.
pub(crate) fn comparison(operator: Binary, word: &str) -> Option<(Binary, Constant)> {
    let position = LEVEL_WORDS.iter().position(|known| known.eq_ignore_ascii_case(word))?;
    if matches!(operator, Binary::Equal | Binary::NotEqual) {
        let word = LEVEL_WORDS.get(position)?;
        return Some((operator, Constant::Text(word.as_bytes().to_vec())));
    }
    let next = || FIRST.get(position.saturating_add(1)).copied();
    let (operator, number) = match (operator, FIRST.get(position), next()) {
        (Binary::Less, Some(first), _) => (Binary::Less, *first),
        (Binary::GreaterEqual, Some(first), _) => (Binary::GreaterEqual, *first),
        (Binary::LessEqual, Some(_), Some(next)) => (Binary::Less, next),
        (Binary::Greater, Some(_), Some(next)) => (Binary::GreaterEqual, next),
        // Debug is the last before trace.
        (Binary::LessEqual, Some(_), None) | (Binary::Less, None, _) => (Binary::NotEqual, TRACE),
        (Binary::Greater, Some(_), None) | (Binary::GreaterEqual, None, _) => {
            (Binary::Equal, TRACE)
        }
        (Binary::LessEqual, None, _) => (Binary::LessEqual, MOST),
        (Binary::Greater, None, _) => (Binary::Greater, MOST),
        _ => return None,
    };
    Some((operator, Constant::Integer(number.into())))
}
