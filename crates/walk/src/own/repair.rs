//! The checksum of a region's header, and flipping back a single wrong bit.

use lastwords_abi::region::{HEADER_SIZE, RegionHeader, checksum};
use std::mem::offset_of;

/// Bytes of the header that its checksum covers.
const COVERED: usize = offset_of!(RegionHeader, check);

/// The checksum of header and fixed part: the header up to the checksum, continued over what follows the header.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    checksum(&covered(bytes))
}

fn covered(bytes: &[u8]) -> Vec<u8> {
    let head = bytes.get(..COVERED).unwrap_or_default();
    let fixed = bytes.get(HEADER_SIZE as usize..).unwrap_or_default();
    [head, fixed].concat()
}

/// Finds the one bit of the covered bytes (or of the checksum) that is wrong, and flips it in `bytes`. False where
/// no single bit explains the checksum.
pub(crate) fn flip_one(bytes: &mut [u8], check: u64) -> bool {
    let mut all = covered(bytes);
    if (checksum(&all) ^ check).count_ones() <= 1 {
        return true;
    }
    for at in 0..all.len() {
        for bit in 0..8u32 {
            let flip = 1u8.wrapping_shl(bit);
            if let Some(byte) = all.get_mut(at) {
                *byte ^= flip;
            }
            if checksum(&all) == check {
                let gap = (HEADER_SIZE as usize).saturating_sub(COVERED);
                let place = if at < COVERED { at } else { at.saturating_add(gap) };
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= flip;
                }
                return true;
            }
            if let Some(byte) = all.get_mut(at) {
                *byte ^= flip;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_bit_is_found() {
        let good: Vec<u8> = (0..192u32).map(|i| (i * 7) as u8).collect();
        let check = sum(&good);
        for bit in (0..192 * 8).filter(|b| !(COVERED * 8..128 * 8).contains(b)) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(flip_one(&mut bad, check), "bit {bit}");
            assert_eq!(bad, good, "bit {bit}");
        }
        let mut two = good;
        two[3] ^= 1;
        two[170] ^= 4;
        assert!(!flip_one(&mut two, check));
    }
}
