//! The counters region: counters and histograms that all processes of a session add to.
//!
//! Order: [`RegionHeader`](crate::region::RegionHeader) at 0, [`CountersInfo`] at 128,
//! [`CountersControl`] at [`CONTROL_OFF`], then the table of [`Entry`]s and the table of
//! [`Histogram`]s at the offsets in [`CountersInfo`].
//!
//! A process claims an entry by adding 1 to the number of used entries, writes kind and text, and
//! last the checksum (Release). From then on kind and text never change, the entry is never freed,
//! and every process that finds the text adds to the values there. Two processes that claim at the
//! same time may write two entries of one text; readers add their values up.
//!
//! An increment is one atomic addition, so a recorder that dies has added it or not. A value of a
//! histogram is three, in the order bucket, [`Entry::value`], [`Entry::count`]. So the sum of all
//! buckets is how many values began to be recorded, and `count` how many were recorded whole.

use crate::sync::{AtomicU32, AtomicU64};

/// Offset of [`CountersControl`].
pub const CONTROL_OFF: usize = 192;
/// Offset of the first entry in regions that this version writes.
pub const ENTRIES_OFF: usize = 256;
/// Bytes of text of an entry.
pub const TEXT_LEN: usize = 176;
/// Bytes of an entry that its checksum covers: those behind the checksum, before the values.
pub const COVERED: core::ops::Range<usize> = 8..16 + TEXT_LEN;
/// Separates the parts of a text: name, then key and value of each label.
pub const SEPARATOR: u8 = 0x1f;
/// Bits of a value that choose the bucket within its power of two.
pub const SUB_BITS: u32 = 3;
/// Buckets of a histogram: values below 8 have one each, and each power of two above has 8.
pub const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;

/// [`Entry::kind`]: a counter.
pub const KIND_COUNTER: u32 = 1;
/// [`Entry::kind`]: a histogram.
pub const KIND_HISTOGRAM: u32 = 2;

/// The geometry of the tables; fixed, covered by the region's checksum.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CountersInfo {
    /// Entries of the table of counters.
    pub counters: u32,
    /// Entries of the table of histograms.
    pub histograms: u32,
    /// Offset of the first [`Entry`] of a counter in the region, a multiple of 64.
    pub counters_off: u32,
    /// Offset of the first [`Histogram`] in the region, a multiple of 64.
    pub histograms_off: u32,
    /// [`SUB_BITS`] of the writer.
    pub sub_bits: u32,
    /// 0; room for minor versions.
    pub reserved: [u32; 11],
}
const _: () = assert!(size_of::<CountersInfo>() == 64);

/// Counts of the whole region.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CountersControl {
    /// Entries of counters that were claimed.
    pub used_counters: AtomicU32,
    /// Entries of histograms that were claimed.
    pub used_histograms: AtomicU32,
    /// Additions to counters that found no entry.
    pub lost_additions: AtomicU64,
    /// Values that found no histogram.
    pub lost_values: AtomicU64,
    /// CLOCK_REALTIME when this copy of the region was made, ns; 0 in the region that recorders use.
    pub copied: AtomicU64,
    pad0: [u64; 4],
}
const _: () = assert!(size_of::<CountersControl>() == 64 || cfg!(loom));

/// A counter, or the head of a histogram.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Entry {
    /// The [`checksum`](crate::region::checksum) of the [`COVERED`] bytes of this entry, or 1 if
    /// that is 0. 0 = free, or claimed and not written yet. Stored last (Release).
    pub check: AtomicU64,
    /// One of `KIND_`.
    pub kind: AtomicU32,
    /// Bytes of `text` in use.
    pub text_len: AtomicU32,
    /// The name, and for each label [`SEPARATOR`], key, [`SEPARATOR`], value: UTF-8, as bytes in
    /// memory order, padded with NUL.
    pub text: [AtomicU64; TEXT_LEN / 8],
    /// Of a histogram: values that were recorded whole. Added to last, and read first.
    pub count: AtomicU64,
    /// The counter's value, modulo 2^64. Of a histogram: the sum of its values, modulo 2^64.
    pub value: AtomicU64,
    pad0: [u64; 6],
}
const _: () = assert!(size_of::<Entry>() == 256 || cfg!(loom));

/// A histogram.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Histogram {
    /// Its name, sum and count.
    pub entry: Entry,
    /// How many values fell into each bucket. A value below 8 is the index of its bucket. Of
    /// others, with `e` = 63 - leading zeroes, the index is `(e - 2) * 8 + (value >> (e - 3)) % 8`.
    pub buckets: [AtomicU64; BUCKETS],
}
const _: () = assert!(size_of::<Histogram>() == 4224 || cfg!(loom));
