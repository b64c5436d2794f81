//! The per-CPU ring buffer of lastwords.
//!
//! A [`Channel`] records events. Its modules are:
//!
//! 1. `header` encodes the event header and id.
//! 2. `reserve` reserves space by restartable sequences, lockless, or locked.
//! 3. `memory` computes the address of an offset in a half. [`backend`] provides the memory, and
//!    [`grow`] allocates it when a ring is first used.
//!
//! [`swap`] exchanges live and spare halves for a snapshot. The shapes in memory are those of
//! `lastwords-abi`.
//!
//! The safe functions of this crate cause no undefined behaviour for any arguments. Other processes
//! can write the control words of a stream at any time. A recorder therefore masks every position
//! to the half before it uses the position.
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]
#![cfg_attr(loom, allow(dead_code, reason = "a model has no counter clock and no kernel"))]

extern crate alloc;

mod hooks;

#[cfg(not(loom))]
pub mod backend;
mod channel;
pub mod clock;
mod consume;
mod cpu;
mod dispatch;
pub mod errno;
pub mod flush;
pub mod forks;
pub mod grow;
mod header;
pub mod init;
mod memory;
#[cfg(loom)]
#[path = "../tests/model/mod.rs"]
pub mod model;
pub mod os;
pub mod packet;
mod record;
mod reserve;
pub mod signals;
mod stream;
pub mod swap;
mod thread_cells;
mod threads;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(loom), not(miri)))]
mod vfork;

pub use channel::{Channel, SessionParts};
pub use clock::ClockKind;
pub use cpu::{current as current_cpu, rseq_available, threads_can_start};
pub use flush::Persist;
pub use init::{AttachError, StreamSpec, init_stream};
pub use record::{Lost, Padded, ShortText, Tail, prepend};
pub use reserve::copy;
pub use stream::{HEADROOM, Stream};
pub use threads::lock_word;
#[cfg(not(loom))]
pub use threads::note_unmapped;
