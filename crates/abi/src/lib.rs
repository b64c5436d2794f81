//! The on-memory format of lastwords sessions: `repr(C)` shapes, constants, version, size
//! assertions. No logic.
//!
//! A session is a set of *regions*. Each begins on a 4096-byte boundary with a
//! [`region::RegionHeader`] that says what it is, how long it is and which session it belongs to,
//! so that a reader finds every region by its magic alone: in a folder of files, in the mappings of
//! a process core, or anywhere in a memory image. All integers are native-endian;
//! [`region::RegionHeader::byte_order`] tells a reader on another machine.
//!
//! `docs/ABI.md` describes the same in prose. The crate has no features.
//!
//! ```
//! use lastwords_abi::region::{MAGIC, REGION_ALIGN};
//!
//! /// Returns the offsets at which regions may begin in a copy of memory.
//! fn regions(memory: &[u8]) -> Vec<usize> {
//!     let begins = |at: &usize| memory[*at..].starts_with(&MAGIC);
//!     (0..memory.len()).step_by(REGION_ALIGN as usize).filter(begins).collect()
//! }
//!
//! let mut memory = vec![0; 3 * 4096];
//! memory[4096..4096 + 16].copy_from_slice(&MAGIC);
//! assert_eq!(regions(&memory), [4096]);
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod context;
pub mod counters;
pub mod header;
pub mod packet;
pub mod region;
pub mod registry;
pub mod session;
pub mod spans;
pub mod stream;
pub mod triggers;

/// The atomics the shapes are made of: core's, or the model checker's under `--cfg loom`.
pub mod sync {
    #[cfg(not(loom))]
    pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

/// Major version: a reader refuses a region whose major version it does not list.
pub const VERSION_MAJOR: u16 = 1;
/// Minor version: fields were only added since; a reader of the same major version reads it.
pub const VERSION_MINOR: u16 = 4;
/// Major version of stream regions of channels that were created while the session recorded, and of
/// no other regions. Readers and recorders of version 1.1 refuse these regions, because they would
/// not report the losses in [`Channel::unattached`](session::Channel::unattached).
pub const VERSION_MAJOR_ADDED: u16 = 2;
/// The major versions a reader of this crate understands.
pub const READABLE_MAJORS: [u16; 2] = [VERSION_MAJOR, VERSION_MAJOR_ADDED];

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
