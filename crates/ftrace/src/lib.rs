//! The kernel's own tracer: sub-buffers, event formats, rings in memory, the kernel's print
//! formats, its `trace` text, and trace.dat files.
//!
//! Readers return a [`Tracing`], and writers take one. ftrace's sub-buffers are kept as they are in
//! memory: `u64` time stamp, `commit` word of the machine's size, data. Writers make the text and
//! the files from these bytes and from the event formats, as the kernel does itself. Layouts are
//! those of `kernel/trace/ring_buffer.c`, `trace_events.c` and `trace_output.c` of Linux 5.10 to
//! 7.3, and of trace-cmd's `trace-cmd.dat.v6(5)` and `trace-cmd.dat.v7(5)`.
//!
//! The crate has no features.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod choice;
pub mod ctf;
pub mod dat;
mod filter;
mod format;
pub mod format_file;
pub mod histogram;
pub mod log;
pub mod memory;
mod model;
pub mod page;
pub mod persistent;
pub mod print;
mod recording;
mod relative_time;
mod retime;
pub mod text;
mod values;
mod windowed;

pub use choice::Choice;
pub use format::{Field, Format, HeaderPage, identifier};
pub use lastwords_trace::symbols::{
    Mapped, NoSymbols, Parameter, ParameterKind, Symbol, SymbolRow, Symbols,
};
pub use lastwords_trace::tracer::{Stats, UNKNOWN};
pub use model::{
    Array, Clock, CpuRing, FlagColumns, Latency, Ring, SubBufferInfo, Tracing, counters,
    counters_of, is_since,
};
pub use recording::Recording;
pub use retime::retime;
pub use windowed::Windowed;

#[cfg(test)]
extern crate self as lastwords_ftrace;
#[cfg(test)]
#[path = "../../kernel/tests/kernel/support/memory.rs"]
mod kernel_memory;
#[cfg(test)]
mod perfetto_tests;
#[cfg(test)]
mod samples;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
