//! Text of a field as UTF-8.

use lastwords_trace::class::Encoding;
use lastwords_trace::nul;
use std::borrow::Cow;

/// Returns text up to its NUL. Text of another encoding than UTF-8 is converted to UTF-8, and
/// invalid characters in it are replaced. UTF-8 is not checked.
pub(crate) fn decoded(bytes: &[u8], encoding: Encoding) -> Cow<'_, [u8]> {
    let mut text: String = match encoding {
        Encoding::Utf8 => return Cow::Borrowed(nul::until(bytes)),
        Encoding::Utf16Be | Encoding::Utf16Le => {
            let unit = |pair: &[u8]| match (pair, encoding) {
                ([a, b], Encoding::Utf16Be) => u16::from_be_bytes([*a, *b]),
                ([a, b], _) => u16::from_le_bytes([*a, *b]),
                _ => 0,
            };
            let units = bytes.chunks_exact(2).map(unit);
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        Encoding::Utf32Be | Encoding::Utf32Le => {
            let unit = |four: &[u8]| match (four, encoding) {
                ([a, b, c, d], Encoding::Utf32Be) => u32::from_be_bytes([*a, *b, *c, *d]),
                ([a, b, c, d], _) => u32::from_le_bytes([*a, *b, *c, *d]),
                _ => 0,
            };
            let units = bytes.chunks_exact(4).map(unit);
            units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
    };
    if let Some(end) = text.find('\0') {
        text.truncate(end);
    }
    Cow::Owned(text.into_bytes())
}
