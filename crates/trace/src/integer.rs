//! Integers of whole bytes in either byte order.

use lastwords_bytes::{ByteOrder, low_u8, low_u16, low_u32};

/// Takes an unsigned integer of 1, 2, 4 or 8 bytes from the front of `bytes`; none if `bytes` is
/// too short.
#[inline]
pub fn take_integer(bytes: &mut &[u8], size: u8, order: ByteOrder) -> Option<u64> {
    match size {
        1 => bytes.split_off_first().map(|b| u64::from(*b)),
        2 => chunk(bytes).map(|raw| u16::from_le_bytes(order.little(raw)).into()),
        4 => chunk(bytes).map(|raw| u32::from_le_bytes(order.little(raw)).into()),
        8 => chunk(bytes).map(|raw| u64::from_le_bytes(order.little(raw))),
        _ => None,
    }
}

#[inline]
fn chunk<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

/// Sign-extends a two's complement number of `size` bytes.
#[inline]
#[must_use]
pub fn extend(raw: u64, size: u8) -> i64 {
    match size {
        1 => i64::from(low_u8(raw).cast_signed()),
        2 => i64::from(low_u16(raw).cast_signed()),
        4 => i64::from(low_u32(raw).cast_signed()),
        _ => raw.cast_signed(),
    }
}
