//! Walks the buffers of LTTng's user-space tracer: streams in shared memory that describe
//! themselves.
//!
//! Each stream (a channel's ring on one CPU) is a mapping of its own. It is found by the magic at
//! its start: in the files of a session's folder, or at any page boundary of a process core or of a
//! machine's memory. No symbols are needed. Only folders have names of sessions and channels.

mod abi;
mod find;
mod folder;
mod mapping;
mod stream;
mod tail;

pub use abi::MAGIC;
pub use find::{Sessions, image, memory, texts};
pub use folder::folder;
