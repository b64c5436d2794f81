//! A region as described by its header.

use lastwords_bytes::ByteOrder;
use std::sync::Arc;

/// A region whose header is valid.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) address: u64,
    /// Length in bytes, from the header.
    pub(crate) size: u64,
    /// Number of bytes from the start of the region to the last byte that the image has.
    pub(crate) held: u64,
    pub(crate) kind: u32,
    pub(crate) index: u32,
    pub(crate) session: [u8; 16],
    pub(crate) order: ByteOrder,
    pub(crate) minor: u16,
    /// The stream of a channel that was created while the session recorded.
    pub(crate) is_added: bool,
    pub(crate) word_size: u32,
    /// Bytes after the header that the header's checksum covers.
    pub(crate) fixed: Vec<u8>,
    /// Name of the file that contains the region.
    pub(crate) name: Arc<str>,
    /// Offset of the region in that file, bytes.
    pub(crate) offset: u64,
    /// If the header was damaged: a message about its repair.
    pub(crate) mended: Option<String>,
    /// All reserved words of the header are 0, as in this version of the format.
    pub(crate) reserved_is_zero: bool,
}

impl Region {
    /// Name of the region in messages: file and offset.
    pub(crate) fn place(&self) -> String {
        format!("{}+{:#x}", self.name, self.offset)
    }
}
