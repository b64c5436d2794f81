//! Readers of traces: folders, index files, packets.
//!
//! [`open`] opens a folder once: it compiles the metadata and finds the packets. [`Reader`] then
//! reads the events of one stream, with a window of one packet in memory. [`run`] reads the events
//! of all streams in order of time.
//!
//! If something cannot be read, the rest of its packet is skipped and the error is reported with
//! its position. All other packets are read.

mod copy;
mod cpu;
mod error;
mod folder;
mod index;
mod merge;
mod packet_times;
mod place;
mod siblings;
mod stream;
mod tail;
pub mod tournament;
mod trace;

pub use copy::copy;
pub use cpu::cpu;
pub use error::Error;
pub use folder::{OpenedFolder, is_trace, open};
pub use index::Entry;
pub use merge::{Due, Merge, Sink, readers, run};
pub use place::{Place, Skip};
pub use stream::{Loss, Next, Reader, Watch, unwatched};
pub use tail::{Cut, Tail};
pub use trace::{Account, Memory, Stream, Trace};
