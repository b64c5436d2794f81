//! Encodes integers in either byte order.

/// The byte order of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl Order {
    /// Turns little-endian bytes into this order, or back.
    fn turned<const N: usize>(self, mut bytes: [u8; N]) -> [u8; N] {
        if self == Self::Big {
            bytes.reverse();
        }
        bytes
    }

    /// The two bytes of `v`.
    pub fn u16(self, v: u16) -> [u8; 2] {
        self.turned(v.to_le_bytes())
    }

    /// The four bytes of `v`.
    pub fn u32(self, v: u32) -> [u8; 4] {
        self.turned(v.to_le_bytes())
    }

    /// The eight bytes of `v`.
    pub fn u64(self, v: u64) -> [u8; 8] {
        self.turned(v.to_le_bytes())
    }

    /// Stores `v` at `at`.
    pub fn put16(self, bytes: &mut [u8], at: usize, v: u16) {
        bytes[at..at + 2].copy_from_slice(&self.u16(v));
    }

    /// Stores `v` at `at`.
    pub fn put32(self, bytes: &mut [u8], at: usize, v: u32) {
        bytes[at..at + 4].copy_from_slice(&self.u32(v));
    }

    /// Stores `v` at `at`.
    pub fn put64(self, bytes: &mut [u8], at: usize, v: u64) {
        bytes[at..at + 8].copy_from_slice(&self.u64(v));
    }

    /// The u16 at `at`, if the bytes are long enough.
    pub fn at16(self, bytes: &[u8], at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.turned(*bytes.get(at..)?.first_chunk()?)))
    }

    /// The u32 at `at`, if the bytes are long enough.
    pub fn at32(self, bytes: &[u8], at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.turned(*bytes.get(at..)?.first_chunk()?)))
    }

    /// The u64 at `at`, if the bytes are long enough.
    pub fn at64(self, bytes: &[u8], at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.turned(*bytes.get(at..)?.first_chunk()?)))
    }
}

/// Builds packed bytes: payloads, bodies of records.
#[derive(Debug, Clone)]
pub struct Packed {
    order: Order,
    bytes: Vec<u8>,
}

impl Packed {
    /// Starts with no bytes.
    pub fn new(order: Order) -> Self {
        Self { order, bytes: Vec::new() }
    }

    /// Adds one byte.
    pub fn u8(mut self, v: u8) -> Self {
        self.bytes.push(v);
        self
    }

    /// Adds two bytes.
    pub fn u16(mut self, v: u16) -> Self {
        self.bytes.extend(self.order.u16(v));
        self
    }

    /// Adds four bytes.
    pub fn u32(mut self, v: u32) -> Self {
        self.bytes.extend(self.order.u32(v));
        self
    }

    /// Adds eight bytes.
    pub fn u64(mut self, v: u64) -> Self {
        self.bytes.extend(self.order.u64(v));
        self
    }

    /// Adds bytes unchanged.
    pub fn raw(mut self, v: &[u8]) -> Self {
        self.bytes.extend(v);
        self
    }

    /// Adds text and a NUL.
    pub fn string(self, v: &str) -> Self {
        self.raw(v.as_bytes()).u8(0)
    }

    /// Adds text in a field of `size` bytes, truncated or padded with NULs.
    pub fn text(mut self, v: &str, size: usize) -> Self {
        let end = self.bytes.len() + size;
        self.bytes.extend(v.bytes().take(size));
        self.bytes.resize(end, 0);
        self
    }

    /// Adds a u32 count and the bytes.
    pub fn counted(self, v: &[u8]) -> Self {
        self.u32(u32::try_from(v.len()).unwrap_or(u32::MAX)).raw(v)
    }

    /// Adds a `str` of the registry: u16 length and the bytes.
    pub fn str16(self, v: &[u8]) -> Self {
        self.u16(u16::try_from(v.len()).unwrap_or(u16::MAX)).raw(v)
    }

    /// Returns the bytes.
    pub fn done(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns 128 KiB of memory with the given little-endian words at the given addresses.
pub fn words(words: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![0u8; 32 << 12];
    for (at, word) in words {
        Order::Little.put64(&mut bytes, *at as usize, *word);
    }
    bytes
}
