//! trace.dat, the file of trace-cmd and KernelShark: version 6 and 7 (`trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`).
//!
//! Sub-buffers stand in the file as they were in memory; [`open`] gives a
//! [`Tracing`](lastwords_trace::ftrace::Tracing) that reads them when they are asked for, [`write()`] copies them.

mod chunks;
mod clock;
mod listing;
mod open;
mod options;
mod parts;
mod reader;
mod ring;
mod sections;
mod symbols;
mod write;

pub use listing::{comms, printk_formats};
pub use open::open;
pub use symbols::Listed;
pub use write::{WriteOptions, write};

/// What every file begins with.
const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// Ids of options. From 16 on, in version 7, also ids of sections.
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
    pub(super) const TIME_SHIFT: u16 = 12;
    pub(super) const TSC2NSEC: u16 = 14;
    pub(super) const HEADER_INFO: u16 = 16;
    pub(super) const FTRACE_EVENTS: u16 = 17;
    pub(super) const EVENT_FORMATS: u16 = 18;
    pub(super) const KALLSYMS: u16 = 19;
    pub(super) const PRINTK: u16 = 20;
    pub(super) const COMMAND_LINES: u16 = 21;
    /// The section of strings.
    pub(super) const STRINGS: u16 = 15;
}

#[cfg(test)]
mod as_trace_cmd;
#[cfg(test)]
mod tests;
