//! Records with the kernel's own tracer (ftrace), through tracefs.
//!
//! A [`Recording`] works in an instance of tracefs of its own, or in one that exists, whose
//! settings it restores. More instances ([`Buffer`]) go into the same file. Everything else that it
//! adds to the machine's tracing (probes and synthetic events, which exist once for all instances)
//! has names of its own.
//! [`Recording::finish`] stops the tracing, saves the rings as a trace.dat file and removes what
//! was added.
//!
//! Before anything is changed, a [`journal`] of what will be added is written into a folder of the
//! user. If the process is killed, [`restore`] reads the journal, saves what the rings still have,
//! and removes what was added.
//!
//! Trace data goes from `per_cpu/cpuN/trace_pipe_raw` through a pipe into a file by `splice(2)`, a
//! thread for each CPU, and from there into the trace.dat file by `copy_file_range(2)`. It is not
//! copied to user space, with one exception: `splice(2)` gives full sub-buffers only, so the last
//! sub-buffer of each CPU is read when tracing has stopped.
//!
//! Rings are not mapped, which Linux 6.10 and newer can do. Taking a sub-buffer out of a mapped ring
//! needs a system call (`TRACE_MMAP_IOCTL_GET_READER`), and writing it to a file copies it: 1.01
//! seconds of CPU time a gigabyte on 6.18, where `read` and `write` take 0.79 and `splice` takes
//! 0.36. Without consuming, only the reader's sub-buffer of a mapping does not change while it is
//! read, and a ring that is mapped refuses another size and snapshots.
//!
//! The snapshots that triggers take are read while recording goes on, and saved in folders of their
//! own. The histograms that triggers make are saved at the end, beside the trace ([`histograms()`]).
//!
//! With a receiver, sub-buffers go from the pipe to a socket instead of a file
//! ([`lastwords_stream`]).
//!
//! The form of tracefs is that of `Documentation/trace/ftrace.rst`, `kprobetrace.rst`,
//! `uprobetracer.rst` and `events.rst` of Linux 5.10 to 7.2.
//!
//! The crate has no features.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adopted;
pub mod agent;
mod changes;
mod check;
mod choice;
mod definitions;
mod drain;
mod elf;
mod error;
mod events;
mod firings;
mod histograms;
mod instance;
pub mod journal;
mod plan;
mod recording;
mod restore;
mod rule;
mod save;
mod send;
mod shared;
mod snapshot;
mod staying;
mod triggers;

pub use choice::Choice;
pub use definitions::{Definition, DefinitionKind};
pub use error::{Error, Result};
pub use firings::{News, Tell};
pub use histograms::histograms;
pub use plan::{Buffer, Plan, Snapshots};
pub use recording::Recording;
pub use restore::{Restored, restore};
pub use rule::Rule;
pub use save::Saved;
pub use staying::Staying;

/// Returns true if an instance of this name exists, so that a recording may use it.
#[must_use]
pub fn has_instance(name: &str) -> bool {
    let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    is_name
        && lastwords_open::tracefs_folder()
            .is_ok_and(|tracefs| instance::Instance::named(tracefs, name).exists())
}
