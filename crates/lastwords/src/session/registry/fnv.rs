//! The hash FNV-1a of 32 bits, for descriptions of events and for types of values.

/// Initial value of FNV-1a of 32 bits.
pub(crate) const BASIS: u32 = 0x811c_9dc5;

/// Adds one byte to the hash.
pub(crate) const fn with_byte(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(0x0100_0193)
}

/// Adds bytes to the hash.
pub(crate) fn with_bytes(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| with_byte(hash, *byte))
}
