//! The header with which every region begins.

/// First 16 bytes of each region. The first byte is no ASCII and the line ends catch text-mode
/// damage.
pub const MAGIC: [u8; 16] = *b"\x89LASTWORDS\r\n\x1a\n\0\0";
/// Regions begin at a multiple of this many bytes, in memory and in files.
pub const REGION_ALIGN: u64 = 4096;
/// Value of [`RegionHeader::byte_order`] read in the byte order in which it was written.
pub const BYTE_ORDER_MARK: u32 = 0x0102_0304;
/// Size in bytes of [`RegionHeader`].
pub const HEADER_SIZE: u32 = 128;

/// [`RegionHeader::kind`]: the control page of a session ([`crate::session`]); exactly one a session.
pub const KIND_SESSION: u32 = 1;
/// [`RegionHeader::kind`]: the event descriptions ([`crate::registry`]); exactly one a session.
pub const KIND_REGISTRY: u32 = 2;
/// [`RegionHeader::kind`]: the ring of one channel and CPU ([`crate::stream`]).
pub const KIND_STREAM: u32 = 3;
/// [`RegionHeader::kind`]: the table of open spans ([`crate::spans`]); at most one a session.
pub const KIND_SPANS: u32 = 4;
/// [`RegionHeader::kind`]: counters and histograms ([`crate::counters`]); at most one a session.
pub const KIND_COUNTERS: u32 = 5;

/// The first 128 bytes of each region. All of it is written before the region is published and
/// never changes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RegionHeader {
    /// [`MAGIC`].
    pub magic: [u8; 16],
    /// [`crate::VERSION_MAJOR`] of the writer.
    pub major: u16,
    /// [`crate::VERSION_MINOR`] of the writer.
    pub minor: u16,
    /// One of the `KIND_` constants.
    pub kind: u32,
    /// [`BYTE_ORDER_MARK`].
    pub byte_order: u32,
    /// Bytes in a pointer of the writer (8, or 4); page tables of paged streams hold pointers of
    /// this size in u64.
    pub word_size: u32,
    /// Length of the whole region in bytes, this header included; a multiple of [`REGION_ALIGN`].
    pub size: u64,
    /// UUID of the session; the same in all its regions.
    pub session: [u8; 16],
    /// Which of its kind: the stream index for streams, else 0.
    pub index: u32,
    /// Bytes that follow this header and are, like it, written once before the region is
    /// published; covered by `check`.
    pub fixed_len: u32,
    /// 0; room for minor versions.
    pub reserved: [u64; 6],
    /// [`checksum`]-family sum (see docs/ABI.md, "Checksums") of the header up to this field,
    /// continued over the `fixed_len` bytes that follow the header.
    pub check: u64,
    /// 0.
    pub reserved2: u64,
}

const _: () = assert!(size_of::<RegionHeader>() == HEADER_SIZE as usize);
const _: () = assert!(core::mem::offset_of!(RegionHeader, check) == 112);

/// The checksum of the format: a sum over little-endian 64-bit words, in eight lanes that rotate.
/// Any single flipped bit, and any burst within one word, changes it. `state` starts as
/// [`CHECK_INIT`]; `bytes` are padded with zeroes to a multiple of 64. Words are read little-endian
/// on every machine.
///
/// Lane `i % 8` takes word `i`: `lane = rotate_left(lane, 1) + word`. The result folds the lanes in
/// order: `sum = rotate_left(sum, 7) ^ lane`, begun with the length of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.finish()
}

/// [`checksum`] of bytes that come in pieces.
#[derive(Debug, Clone)]
pub struct Checksum {
    lanes: [u64; 8],
    len: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        Self { lanes: CHECK_INIT, len: 0 }
    }
}

impl Checksum {
    /// Adds a piece. Every piece but the last has a multiple of 64 bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.len = self.len.wrapping_add(bytes.len() as u64);
        let mut blocks = bytes.chunks_exact(64);
        for block in &mut blocks {
            add_block(&mut self.lanes, block);
        }
        let rest = blocks.remainder();
        if !rest.is_empty() {
            let mut last = [0u8; 64];
            last[..rest.len()].copy_from_slice(rest);
            add_block(&mut self.lanes, &last);
        }
    }

    /// The sum of all that was added.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.lanes.iter().fold(self.len, |sum, lane| sum.rotate_left(7) ^ lane)
    }
}

/// The lanes' first values: distinct odd numbers, so that zeroes do not sum to zero.
pub const CHECK_INIT: [u64; 8] = [
    0x9e37_79b9_7f4a_7c15,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
    0x6996_c3a1_5d3b_1e0f,
    0xd6e8_feb8_6659_fd93,
    0xa076_1d64_78bd_642f,
];

#[inline]
fn add_block(lanes: &mut [u64; 8], block: &[u8]) {
    for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
        let mut w = [0u8; 8];
        w.copy_from_slice(word);
        *lane = lane.rotate_left(1).wrapping_add(u64::from_le_bytes(w));
    }
}
