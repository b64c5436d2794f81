//! Memory images behind one trait: process cores, processes that live, folders of region files, plain files, dumps of
//! physical memory; holes included.
//!
//! An [`Image`] is read at addresses. What it does not have is a hole with a cause, never zeroes: a page that the kernel
//! left out of a core, the end that a truncated file lacks, a block that cannot be read.
//!
//! All reading is by `pread`, so that a file that shrinks while it is read is a hole and not a signal.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod cache;
mod compressed;
pub mod core;
mod elf;
mod file;
mod flattened;
mod open;
mod orphans;
mod process;
mod program_headers;
mod segments;
pub mod vmcore;

pub use cache::Cache;
pub use open::{Kind, Opened, open};

use std::fmt;

/// Why an image does not have some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoleCause {
    /// Whoever wrote the image left them out.
    Excluded,
    /// The file ends before them.
    Truncated,
    /// They cannot be read.
    Bad,
    /// The image knows nothing of that address.
    Unmapped,
}

impl HoleCause {
    /// One lower-case word.
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

/// The first address of a read that the image does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Where it begins.
    pub address: u64,
    /// Why it is there.
    pub cause: HoleCause,
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "address {:#x} is {}", self.address, self.cause.word())
    }
}

impl std::error::Error for Hole {}

/// A run of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// The file that holds it, for messages.
    pub name: std::sync::Arc<str>,
    /// Offset in that file of the first byte.
    pub offset: u64,
    /// None where the image has the bytes.
    pub hole: Option<HoleCause>,
}

impl Range {
    /// First address behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.len)
    }
}

/// A memory image.
pub trait Image: Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> &str;

    /// What it has and what it lacks, by rising address, without overlap.
    fn ranges(&self) -> &[Range];

    /// Addresses are those of the recorded process, so that pointers in the image can be followed.
    fn is_virtual(&self) -> bool;

    /// Fills `buf` with the bytes at `address`.
    ///
    /// # Errors
    /// A byte is not there; `buf` is filled up to the hole's address.
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole>;

    /// The first address from `address` on, below `end`, that may hold something but zeroes; `end` if there is none.
    fn next_data(&self, address: u64, end: u64) -> u64 {
        address.min(end)
    }
}

/// Fills `buf` by parts: `read_some` reads from an address on and says how many bytes, at least one.
fn read_parts(
    address: u64,
    buf: &mut [u8],
    read_some: impl Fn(u64, &mut [u8]) -> Result<usize, Hole>,
) -> Result<(), Hole> {
    let mut done = 0usize;
    while done < buf.len() {
        let at = address.checked_add(done as u64).ok_or(Hole { address, cause: HoleCause::Unmapped })?;
        let Some(rest) = buf.get_mut(done..) else { break };
        done = done.saturating_add(read_some(at, rest)?);
    }
    Ok(())
}

/// What a long piece of work tells whoever watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// What is being done, a few words.
    pub what: &'a str,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all, where it is known.
    pub total: Option<u64>,
}

/// Told of progress; may be called from several threads.
pub type Watch<'a> = &'a (dyn Fn(Progress<'_>) + Sync);

/// Watches nothing.
pub fn unwatched(_: Progress<'_>) {}
