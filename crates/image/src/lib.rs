//! Memory images, which all implement one trait: process cores, running processes, folders of
//! region files, plain files, dumps of physical memory.
//!
//! An [`Image`] is read by address. Missing bytes are a hole with a cause, never zeros: a page that
//! the kernel left out of a core, the end of a truncated file, an unreadable block.
//!
//! All files are read with `pread`, so a file that shrinks while it is read gives a hole and not a
//! signal.
//!
//! ```
//! use lastwords_bytes::Budget;
//! use lastwords_image::{ImageKind, open, unwatched};
//!
//! // This program is neither a core nor a folder of regions: its file is one range.
//! let opened = open(&std::env::current_exe()?, &Budget::default(), &unwatched)?;
//! assert!(opened.kind == ImageKind::Plain && opened.image.ranges().len() == 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate has no features.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod cache;
mod compressed;
pub mod core;
mod dax_node;
pub mod decompress;
mod elf;
mod file;
mod flattened;
mod got;
mod open;
mod opened;
mod orphans;
mod pages;
pub mod process;
pub mod process_pages;
mod program_headers;
mod segments;
pub mod vmcore;

pub use cache::Cache;
pub use open::{open, open_files};
pub use opened::{ImageKind, Opened};

use std::fmt;

/// The reason why an image lacks some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoleCause {
    /// The writer of the image left them out.
    Excluded,
    /// The file ends before them.
    Truncated,
    /// They cannot be read.
    Bad,
    /// The image has no such address.
    Unmapped,
}

impl HoleCause {
    /// Name of the cause, in lower case.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Excluded => "excluded",
            Self::Truncated => "truncated",
            Self::Bad => "unreadable",
            Self::Unmapped => "not mapped",
        }
    }
}

/// The first missing address of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// First missing address.
    pub address: u64,
    /// Cause of the hole.
    pub cause: HoleCause,
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address {:#x} is {}", self.address, self.cause.word())
    }
}

impl std::error::Error for Hole {}

/// A range of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub address: u64,
    /// Length, bytes.
    pub len: u64,
    /// Name of the file that has the bytes, for messages.
    pub name: std::sync::Arc<str>,
    /// Offset of the first byte in that file.
    pub offset: u64,
    /// None if the image has the bytes; else why it lacks them.
    pub hole: Option<HoleCause>,
}

impl Range {
    /// First address after the range.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.len)
    }
}

/// A memory image.
pub trait Image: Send + Sync {
    /// Name of the image in messages.
    fn name(&self) -> &str;

    /// The ranges that the image has or knows to be missing, sorted by address, without overlap.
    fn ranges(&self) -> &[Range];

    /// True if addresses are those of the recorded process, so that pointers in the image can be
    /// followed.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Fills `buf` with the bytes at `address`.
    ///
    /// # Errors
    /// A byte is missing; `buf` is filled up to the hole's address.
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole>;

    /// First address at or after `address`, below `end`, that may be non-zero; `end` if there is
    /// none.
    fn next_data(&self, address: u64, end: u64) -> u64 {
        address.min(end)
    }
}

/// Fills `buf` in parts. `read_some` reads from an address on and returns the number of bytes. If
/// there are none, the address is a hole.
///
/// # Errors
/// The error of `read_some`, or a hole.
pub fn read_parts(
    address: u64,
    buf: &mut [u8],
    read_some: impl Fn(u64, &mut [u8]) -> Result<usize, Hole>,
) -> Result<(), Hole> {
    let mut done = 0usize;
    while done < buf.len() {
        let unmapped = |address| Hole { address, cause: HoleCause::Unmapped };
        let at = address.checked_add(done as u64).ok_or(unmapped(address))?;
        match read_some(at, buf.get_mut(done..).unwrap_or_default())? {
            0 => return Err(unmapped(at)),
            len => done = done.saturating_add(len),
        }
    }
    Ok(())
}

/// Returns the first bytes of `buf`, at most `most`.
pub fn front(buf: &mut [u8], most: u64) -> &mut [u8] {
    let len = usize::try_from(most).unwrap_or(usize::MAX).min(buf.len());
    buf.get_mut(..len).unwrap_or_default()
}

/// Progress of a long operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Name of the operation, a few words.
    pub what: &'a str,
    /// Number of bytes done.
    pub done: u64,
    /// Total number of bytes, if known.
    pub total: Option<u64>,
}

/// Callback for progress; may be called from several threads.
pub type Watch<'a> = &'a (dyn Fn(Progress<'_>) + Sync);

/// Ignores progress.
pub fn unwatched(_: Progress<'_>) {}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
