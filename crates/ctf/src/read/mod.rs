//! Readers of traces: folders, index files, packets.
//!
//! A folder is opened once ([`open`]): its metadata is compiled, its packets are found. [`Reader`] then goes through the
//! events of a stream with a window of one packet in memory, [`run`] through those of all in order of time.
//!
//! What cannot be read costs a packet, or what is left of it, and is told with its place; the rest is read.

mod copy;
mod cpu;
mod error;
mod folder;
mod index;
mod merge;
mod stream;
pub mod tournament;
mod value;

pub use copy::copy;
pub use cpu::cpu;
pub use error::Error;
pub use folder::{Found, Memory, Stream, Trace, is_trace, open};
pub use index::Entry;
pub use merge::{Due, Sink, readers, run};
pub use stream::{Loss, Next, Reader, Watch, unwatched};
pub use value::{Member, Value};
