//! The lower bytes of numbers, as C's conversion to a smaller type takes them.

/// Returns the lower byte of a number.
///
/// ```
/// assert_eq!(lastwords_bytes::low_u8(0x1234), 0x34);
/// ```
#[inline]
#[must_use]
pub const fn low_u8(number: u64) -> u8 {
    let [byte, ..] = number.to_le_bytes();
    byte
}

/// Returns the lower 2 bytes of a number.
///
/// ```
/// assert_eq!(lastwords_bytes::low_u16(0x12_3456), 0x3456);
/// ```
#[inline]
#[must_use]
pub const fn low_u16(number: u64) -> u16 {
    let [a, b, ..] = number.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// Returns the lower 4 bytes of a number.
///
/// ```
/// assert_eq!(lastwords_bytes::low_u32(0x12_3456_789a), 0x3456_789a);
/// ```
#[inline]
#[must_use]
pub const fn low_u32(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
