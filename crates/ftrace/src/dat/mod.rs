//! trace.dat, the file of trace-cmd and KernelShark, in versions 6 and 7 (`trace-cmd.dat.v6(5)`,
//! `trace-cmd.dat.v7(5)`).
//!
//! The file has sub-buffers in the form that they had in memory. [`open`] returns a
//! [`Tracing`](crate::Tracing) that reads a sub-buffer when it is asked for. [`write()`] copies
//! sub-buffers.

mod chunks;
mod clock;
mod listing;
pub mod made;
mod needed;
mod open;
mod options;
mod parts;
mod reader;
mod relation;
mod ring;
mod sections;
mod symbols;
mod write;
mod write_options;

pub use listing::{comms, printk_formats, whole_lines};
pub use open::{clock, open};
pub use options::counters;
pub use parts::tracing_data;
pub use relation::{Guest, Relation, Shift, ShiftSample};
pub use symbols::Listed;
pub use write::{DataPosition, InPlace, write, write_head};
pub use write_options::WriteOptions;

/// The magic number of a file.
const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// Ids of options. In version 7, ids from 16 on are also ids of sections.
mod id {
    pub(super) const DONE: u16 = 0;
    pub(super) const DATE: u16 = 1;
    pub(super) const CPU_STAT: u16 = 2;
    pub(super) const BUFFER: u16 = 3;
    pub(super) const TRACE_CLOCK: u16 = 4;
    pub(super) const UNAME: u16 = 5;
    pub(super) const OFFSET: u16 = 7;
    pub(super) const CPU_COUNT: u16 = 8;
    pub(super) const VERSION: u16 = 9;
    pub(super) const TRACEID: u16 = 11;
    pub(super) const TIME_SHIFT: u16 = 12;
    pub(super) const GUEST: u16 = 13;
    pub(super) const TSC2NSEC: u16 = 14;
    pub(super) const HEADER_INFO: u16 = 16;
    pub(super) const FTRACE_EVENTS: u16 = 17;
    pub(super) const EVENT_FORMATS: u16 = 18;
    pub(super) const KALLSYMS: u16 = 19;
    pub(super) const PRINTK: u16 = 20;
    pub(super) const COMMAND_LINES: u16 = 21;
    /// Id of the section of strings.
    pub(super) const STRINGS: u16 = 15;
}

#[cfg(test)]
mod as_trace_cmd;
#[cfg(test)]
mod tests;
