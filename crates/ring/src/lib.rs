//! The per-CPU ring buffer of lastwords.
//!
//! Three layers, each a trait whose implementation is chosen when the recorder is built, so that no call through a table is
//! left on the fast path:
//!
//! 1. [`header`]: event header and id; the feature `full-headers` chooses;
//! 2. [`reserve`]: space reservation: restartable sequences, lockless, locked;
//! 3. [`memory`]: how a position becomes an address; [`backend`] makes the memory.
//!
//! A [`Channel`] ties them together for the recorder; [`swap`] exchanges live and spare halves for a snapshot. The shapes
//! in memory are those of `lastwords-abi`.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![cfg_attr(loom, allow(dead_code, reason = "a model has no counter clock and no kernel"))]

extern crate alloc;

mod hooks;

#[cfg(all(feature = "std", not(loom)))]
pub mod backend;
pub mod channel;
pub mod clock;
mod consume;
pub mod cpu;
pub mod header;
pub mod init;
pub mod memory;
#[cfg(loom)]
pub mod model;
pub mod os;
pub mod packet;
pub mod record;
pub mod reserve;
pub mod stream;
pub mod swap;
pub mod threads;

pub use channel::Channel;
pub use clock::ClockKind;
pub use cpu::rseq_available;
pub use init::{StreamSpec, init_stream};
pub use record::{Lost, Tail, prepend};
pub use stream::{AttachError, Stream};
