//! Escapes text so that it cannot control a terminal.

use lastwords_bytes::low_u8;
use lastwords_ctf::names::is_unsafe;
use lastwords_trace::text::number::octet;
use lastwords_trace::text::page::Put;

/// The bytes that are not copied unchanged: control characters, quotes, backslash, `?`, and all
/// bytes that are not ASCII.
static SPECIAL: [bool; 256] = special();

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the compiler evaluates it, and refuses what is outside"
)]
const fn special() -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = i < 32 || i >= 127 || matches!(low_u8(i as u64), b'\\' | b'\'' | b'"' | b'?');
        i = i.wrapping_add(1);
    }
    table
}

/// Appends `text` in double quotes, escaped as in babeltrace2. In addition, C1 control characters,
/// characters that reorder a line, and bytes that are not UTF-8 are escaped as `\xNN`.
#[inline]
pub(crate) fn quoted(out: &mut impl Put, text: &[u8]) {
    out.block(b"\"", 1);
    within_quotes(out, text);
    out.block(b"\"", 1);
}

/// Appends the text that [`quoted`] appends, without the quotes.
#[inline]
pub(crate) fn within_quotes(out: &mut impl Put, text: &[u8]) {
    if text
        .iter()
        .fold(false, |special, b| special | SPECIAL.get(usize::from(*b)).copied().unwrap_or(true))
    {
        let mut safe = Vec::new();
        escaped(&mut safe, text);
        out.text(&safe);
    } else {
        out.text(text);
    }
}

/// Returns the number of bytes of a block before the first byte that is not copied unchanged.
#[inline]
pub(crate) fn plain(block: &[u8; 16]) -> usize {
    // Each loop checks all bytes for one value, so that the compiler can use vector instructions.
    let mut special = [0; 16];
    for byte in [b'\\', b'\'', b'"', b'?', 127] {
        for (mark, b) in special.iter_mut().zip(block) {
            *mark |= if *b == byte { 0xff } else { 0 };
        }
    }
    for (mark, b) in special.iter_mut().zip(block) {
        *mark |= if b.cast_signed() < 32 { 0xff } else { 0 };
    }
    u128::from_le_bytes(special).trailing_zeros() as usize / 8
}

fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            character(out, c);
        }
        chunk.invalid().iter().for_each(|b| hexadecimal(out, *b));
    }
}

fn character(out: &mut Vec<u8>, c: char) {
    let short = match c {
        '\\' | '\'' | '"' | '?' => c as u8,
        '\u{7}' => b'a',
        '\u{8}' => b'b',
        '\u{1b}' => b'e',
        '\u{c}' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\u{b}' => b'v',
        _ => 0,
    };
    let mut utf8 = [0; 4];
    let bytes = c.encode_utf8(&mut utf8).as_bytes();
    if short != 0 {
        out.extend_from_slice(&[b'\\', short]);
    } else if is_unsafe(c) {
        bytes.iter().for_each(|b| hexadecimal(out, *b));
    } else {
        out.extend_from_slice(bytes);
    }
}

/// Appends `text` without quotes. Only unsafe characters and the backslash are escaped.
#[inline]
pub(crate) fn bare(out: &mut impl Put, text: &[u8]) {
    put_readable(out, text, '\\');
}

/// Appends a name as babeltrace2 prints it, but for unsafe characters, which are escaped. A backslash
/// stands for itself.
pub(crate) fn name(out: &mut Vec<u8>, text: &[u8]) {
    escape_if(out, text, is_unsafe);
}

/// Appends `text` in double quotes. Only unsafe characters, the double quote and the backslash are
/// escaped.
pub(crate) fn readable(out: &mut impl Put, text: &[u8]) {
    out.block(b"\"", 1);
    put_readable(out, text, '"');
    out.block(b"\"", 1);
}

/// Appends `text`. Unsafe characters, the backslash and `quote` are escaped.
#[inline]
fn put_readable(out: &mut impl Put, text: &[u8], quote: char) {
    let is_plain = |b: u8| matches!(b, b' '..=b'~') && b != b'\\' && char::from(b) != quote;
    if text.iter().fold(true, |plain, b| plain & is_plain(*b)) {
        out.text(text);
    } else {
        let mut safe = Vec::new();
        escape_if(&mut safe, text, |c| c == '\\' || c == quote || is_unsafe(c));
        out.text(&safe);
    }
}

/// Appends `text`. Bytes that are not UTF-8 and the characters that `is_escaped` takes are escaped.
fn escape_if(out: &mut Vec<u8>, text: &[u8], is_escaped: impl Fn(char) -> bool) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_escaped(c) {
                character(out, c)
            } else {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes())
            }
        }
        chunk.invalid().iter().for_each(|b| hexadecimal(out, *b));
    }
}

fn hexadecimal(out: &mut Vec<u8>, byte: u8) {
    out.extend_from_slice(b"\\x");
    out.extend_from_slice(&octet(byte));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// babeltrace2 prints a name as it is, and a text in quotes escaped.
    #[test]
    fn a_backslash_of_a_name_stands_for_itself() {
        let (mut as_name, mut as_text) = (Vec::new(), Vec::new());
        name(&mut as_name, b"back\\slash \"\x1b\xff");
        quoted(&mut as_text, b"back\\slash");
        assert_eq!(as_name, b"back\\slash \"\\e\\xff");
        assert_eq!(as_text, br#""back\\slash""#);
    }

    #[test]
    fn a_block_is_plain_up_to_its_first_special_byte() {
        for byte in 0..=255 {
            for at in 0..16 {
                let mut block = *b"abcdefghijklmnop";
                block[at] = byte;
                let expected = if SPECIAL[usize::from(byte)] { at } else { 16 };
                assert_eq!(plain(&block), expected, "{byte:#x} at {at}");
            }
        }
        assert_eq!(plain(b"ab\0\"cdefghijklmn"), 2);
    }
}
