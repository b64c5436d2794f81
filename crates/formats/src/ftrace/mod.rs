//! ftrace: sub-buffers, event formats, the kernel's print formats, its `trace` text, and trace.dat files.
//!
//! Readers return a [`lastwords_trace::ftrace::Tracing`], and writers take one. Layouts are those of
//! `kernel/trace/ring_buffer.c`, `trace_events.c` and `trace_output.c` of Linux 5.10 to 7.2, and of trace-cmd's
//! `trace-cmd.dat.v6(5)` and `trace-cmd.dat.v7(5)`.

pub(crate) mod choice;
pub mod ctf;
pub mod dat;
pub(crate) mod filter;
pub mod format_file;
pub mod log;
pub mod print;
pub mod text;
pub(crate) mod values;

pub use choice::Choice;
pub use lastwords_trace::ftrace::page;

#[cfg(test)]
pub(crate) mod samples;
