//! Finds the NUL that ends a string. Most strings are short, so the first words are checked inline,
//! and only longer strings cause a function call.

/// Number of 8-byte words that are checked inline.
const WORDS: usize = 4;
const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// Offset of the first NUL.
#[inline]
#[must_use]
pub fn find(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    for word in 0..WORDS {
        let Some((first, behind)) = rest.split_first_chunk() else { break };
        let first = u64::from_le_bytes(*first);
        // The lowest top bit that is set belongs to the first zero byte; higher ones may be wrong.
        let zeroes = first.wrapping_sub(ONES) & !first & TOPS;
        if zeroes != 0 {
            return Some(word.wrapping_mul(8).wrapping_add(zeroes.trailing_zeros() as usize / 8));
        }
        rest = behind;
    }
    far(bytes, bytes.len().wrapping_sub(rest.len()))
}

/// The bytes before the first NUL, or all of them if there is none.
#[inline]
#[must_use]
pub fn until(bytes: &[u8]) -> &[u8] {
    find(bytes).and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}

#[cold]
fn far(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr(0, bytes.get(from..)?).map(|at| from.wrapping_add(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_wherever_it_is() {
        for len in 0..70 {
            for fill in [1u8, 0x80, 0xff] {
                let mut bytes = vec![fill; len];
                assert_eq!(find(&bytes), None, "{len} bytes of {fill:#x}");
                for at in (0..len).rev() {
                    bytes[at] = 0;
                    assert_eq!(find(&bytes), Some(at), "of {len} bytes of {fill:#x}");
                }
            }
        }
    }
}
