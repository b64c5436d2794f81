//! The hash FNV-1a of 32 bits, for descriptions of events and for types of values.

/// Where FNV-1a of 32 bits begins.
pub(crate) const BASIS: u32 = 0x811c_9dc5;

/// The hash with one byte more.
pub(crate) const fn with_byte(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(0x0100_0193)
}

/// The hash with more bytes.
pub(crate) fn with_bytes(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| with_byte(hash, *byte))
}
