//! LTTng's tracer of user space: streams in shared memory that describe themselves.
//!
//! Each stream (a channel's ring on one CPU) is a mapping of its own. It is found by the magic at its beginning: in the files
//! of a session's folder, in a process core or a machine's memory at the beginning of any page. No symbols are needed; names are only in folders.

mod abi;
mod find;
mod folder;
mod stream;
mod tail;

pub use abi::MAGIC;
pub use find::{Sessions, image, memory, texts};
pub use folder::folder;
