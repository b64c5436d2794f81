//! The hash by which the kernel's tables of histograms find a key. It proves that a key is whole.

/// Start value (`JHASH_INITVAL` of `include/linux/jhash.h`).
const START: u32 = 0xdead_beef;

/// Returns the hash of a key, as a machine of little-endian byte order computes it: `hashlittle` of
/// Bob Jenkins' `lookup3.c`, which is in the public domain, with 0 as the initial value.
pub(super) fn hash(key: &[u8]) -> u32 {
    let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let [mut a, mut b, mut c] = [START.wrapping_add(len); 3];
    let mut rest = key;
    while let Some((block, behind)) = rest.split_first_chunk::<12>() {
        if behind.is_empty() {
            break;
        }
        let [x, y, z] = words(block);
        (a, b, c) = mix(a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z));
        rest = behind;
    }
    if rest.is_empty() {
        return c;
    }
    let mut last = [0; 12];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let [x, y, z] = words(&last);
    finish(a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z))
}

fn words(block: &[u8; 12]) -> [u32; 3] {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *block;
    [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes)
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    for (first, second, third) in [(4, 6, 8), (16, 19, 4)] {
        a = a.wrapping_sub(c) ^ c.rotate_left(first);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(second);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(third);
        b = b.wrapping_add(a);
    }
    (a, b, c)
}

fn finish(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers that `lookup3.c` gives for its own examples.
    #[test]
    fn known_answers() {
        assert_eq!(hash(b""), 0xdead_beef);
        assert_eq!(hash(b"Four score and seven years ago"), 0x1777_0551);
    }
}
