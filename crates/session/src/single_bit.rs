//! The checksum of a region's header, and the single bits that may be wrong if the checksum does
//! not match.
//!
//! The checksum adds words with rotations, so flipping any of about a dozen bits can give the same
//! sum. The caller decides by the plausibility of the fields.

use lastwords_abi::region::{HEADER_SIZE, RegionHeader, checksum};
use std::mem::offset_of;

/// Number of header bytes that the header's checksum covers.
const COVERED: usize = offset_of!(RegionHeader, check);

/// Checksum of a region's header: the header up to the checksum field, then the fixed part after
/// the header.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    checksum(&covered(bytes))
}

fn covered(bytes: &[u8]) -> Vec<u8> {
    let head = bytes.get(..COVERED).unwrap_or_default();
    let fixed = bytes.get(HEADER_SIZE as usize..).unwrap_or_default();
    [head, fixed].concat()
}

/// Returns every version of header and fixed part that has one flipped bit and the checksum
/// `check`. `bytes` unchanged is among them if the wrong bit may be in the checksum itself.
pub(crate) fn mended(bytes: &[u8], check: u64) -> Vec<Vec<u8>> {
    let mut all = covered(bytes);
    let mut found = Vec::new();
    if (checksum(&all) ^ check).count_ones() <= 1 {
        found.push(bytes.to_vec());
    }
    for at in 0..all.len() {
        for bit in 0..8u32 {
            let flip = 1u8.wrapping_shl(bit);
            toggle(&mut all, at, flip);
            if checksum(&all) == check {
                let gap = (HEADER_SIZE as usize).saturating_sub(COVERED);
                let place = if at < COVERED { at } else { at.saturating_add(gap) };
                let mut copy = bytes.to_vec();
                toggle(&mut copy, place, flip);
                found.push(copy);
            }
            toggle(&mut all, at, flip);
        }
    }
    found
}

fn toggle(bytes: &mut [u8], at: usize, flip: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= flip;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_bit_is_among_the_found() {
        let good: Vec<u8> = (0..192u32).map(|i| (i * 7) as u8).collect();
        let check = sum(&good);
        for bit in (0..192 * 8).filter(|b| !(COVERED * 8..128 * 8).contains(b)) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = mended(&bad, check);
            assert!(found.contains(&good), "bit {bit}");
            assert!(found.len() <= 24, "bit {bit}: {}", found.len());
        }
        assert!(mended(&good, check ^ 0x10).contains(&good));
    }
}
