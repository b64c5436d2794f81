//! Declarations of CTF's metadata: blocks of TSDL, fragments of CTF 2.

use std::ops::Range;

/// Returns true if the bytes are text.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| *byte >= b' ' || b"\n\r\t\x1e".contains(byte))
}

/// Returns the declarations of a text.
pub(crate) fn declarations(bytes: &[u8]) -> Vec<(String, Range<usize>)> {
    let mut found = Vec::new();
    let (mut begin, mut depth, mut is_string) = (0, 0u32, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'"' if at == 0 || bytes[at - 1] != b'\\' => is_string = !is_string,
            _ if is_string => {}
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b';' | b'\x1e' if depth == 0 && at > begin => {
                found.push((name(&bytes[begin..at]), begin..at + usize::from(*byte == b';')));
                begin = at + usize::from(*byte == b';');
            }
            _ => {}
        }
    }
    if begin < bytes.len() {
        found.push((name(&bytes[begin..]), begin..bytes.len()));
    }
    found
}

fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(60)
        .collect()
}
