//! Text that cannot steer a terminal.

use super::page::Put;
use lastwords_ctf::names::is_unsafe;

/// Bytes that are not copied as they are: control characters, quotes, backslash, `?`, and all that is not ASCII.
static SPECIAL: [bool; 256] = special();

const fn special() -> [bool; 256] {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = i < 32 || i >= 127 || matches!(i as u8, b'\\' | b'\'' | b'"' | b'?');
        i += 1;
    }
    table
}

/// Appends `text` in double quotes, escaped as babeltrace2 does; and, where it would let them pass, C1 control
/// characters, characters that reorder a line, and bytes that are not UTF-8 as `\xNN`.
#[inline]
pub(crate) fn quoted(out: &mut impl Put, text: &[u8]) {
    out.block(b"\"", 1);
    within_quotes(out, text);
    out.block(b"\"", 1);
}

/// What [`quoted`] puts between the quotes.
#[inline]
pub(crate) fn within_quotes(out: &mut impl Put, text: &[u8]) {
    if text.iter().fold(false, |special, b| special | SPECIAL[usize::from(*b)]) {
        let mut safe = Vec::new();
        escaped(&mut safe, text);
        out.text(&safe);
    } else {
        out.text(text);
    }
}

/// How many bytes of a block come before the first that is not copied as it is.
#[inline]
pub(crate) fn plain(block: &[u8; 16]) -> usize {
    // One after the other, so that the compiler takes all bytes at once.
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

/// Appends `text` without quotes; only what is unsafe, and the backslash, is escaped.
#[inline]
pub(crate) fn bare(out: &mut impl Put, text: &[u8]) {
    if text.iter().fold(true, |plain, b| plain & matches!(b, b' '..=b'~' if *b != b'\\')) {
        out.text(text);
    } else {
        let mut safe = Vec::new();
        bare_escaped(&mut safe, text);
        out.text(&safe);
    }
}

fn bare_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' || is_unsafe(c) {
                character(out, c)
            } else {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes())
            }
        }
        chunk.invalid().iter().for_each(|b| hexadecimal(out, *b));
    }
}

fn hexadecimal(out: &mut Vec<u8>, byte: u8) {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte)]);
}

#[cfg(test)]
mod tests {
    use super::*;

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
