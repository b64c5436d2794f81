//! Computes the checksum of docs/ABI.md, section 2, word by word.

const LANES: [u64; 8] = [
    0x9e37_79b9_7f4a_7c15,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
    0x6996_c3a1_5d3b_1e0f,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
];

/// The checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut lanes = LANES;
    let words = bytes.len().div_ceil(64) * 8;
    for i in 0..words {
        let mut word = [0u8; 8];
        for (k, b) in word.iter_mut().enumerate() {
            *b = bytes.get(i * 8 + k).copied().unwrap_or(0);
        }
        let lane = &mut lanes[i % 8];
        *lane = lane.rotate_left(1).wrapping_add(u64::from_le_bytes(word));
    }
    let mut sum = bytes.len() as u64;
    for lane in lanes {
        sum = sum.rotate_left(7) ^ lane;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::checksum;

    /// The test vectors of docs/ABI.md, which a Python program computed.
    #[test]
    fn the_vectors_of_the_page_hold() {
        let all: Vec<u8> = (0..=255).collect();
        let mut header = crate::layout::region::MAGIC.to_vec();
        header.extend([1, 0, 0, 0, 2, 0, 0, 0, 4, 3, 2, 1, 8, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0]);
        header.extend(0xa0..=0xaf_u8);
        header.resize(112, 0);
        let vectors: [(&[u8], u64); 8] = [
            (b"", 0x2715_3a9f_d843_061c),
            (b"\0", 0x4f2a_753f_b086_0c38),
            (b"abc", 0x0864_753f_b086_0ce1),
            (&[0; 64], 0x0e2a_753f_b086_0c38),
            (&[0; 65], 0xdd54_ea7f_610c_1870),
            (&all, 0xa035_adcf_3d8c_a759),
            (&[0xff; 100], 0xf87e_e657_31ad_9972),
            (&header, 0x6d35_1ecb_9b82_69a5),
        ];
        for (bytes, sum) in vectors {
            assert_eq!(checksum(bytes), sum, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn each_single_bit_changes_the_sum() {
        let mut bytes: Vec<u8> = (0..200u8).map(|i| i.wrapping_mul(37)).collect();
        let right = checksum(&bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&bytes), right, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
