//! Writers of text, JSON lines and Perfetto traces, ftrace's own text and trace.dat files, and the reader of the latter; and the evidence, as
//! text and as data.
//!
//! Writers take [`lastwords_ctf::read::Trace`]s, select events of them, merge these by time, and return [`Totals`]. A kernel's trace array
//! becomes such a trace in [`ftrace::ctf`].
#![forbid(unsafe_code)]

pub mod events;
pub mod evidence;
mod fields;
pub mod ftrace;
pub mod json;
mod once;
pub mod perfetto;
pub mod select;
pub mod text;

pub use lastwords_ctf::{Error, Result, Totals, create_file, create_folder, is_empty_folder};
