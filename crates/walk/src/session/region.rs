//! A region, as its header describes it.

use lastwords_bytes::ByteOrder;
use std::sync::Arc;

/// A region whose header holds.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) address: u64,
    /// Its length, as its header says.
    pub(crate) size: u64,
    /// How much of it the image has, up to the last byte.
    pub(crate) held: u64,
    pub(crate) kind: u32,
    pub(crate) index: u32,
    pub(crate) session: [u8; 16],
    pub(crate) order: ByteOrder,
    pub(crate) minor: u16,
    pub(crate) word_size: u32,
    /// What follows the header and is covered by its checksum.
    pub(crate) fixed: Vec<u8>,
    /// The file it lies in.
    pub(crate) name: Arc<str>,
    /// Where in that file.
    pub(crate) offset: u64,
    /// Its checksum did not hold at first: what was done about it.
    pub(crate) mended: Option<String>,
    /// The reserved words of its header are 0, as this version has them.
    pub(crate) reserved_is_zero: bool,
}

impl Region {
    /// What it is called in messages.
    pub(crate) fn place(&self) -> String {
        format!("{}+{:#x}", self.name, self.offset)
    }
}
