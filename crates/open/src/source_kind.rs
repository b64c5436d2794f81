//! The kinds of inputs.

use lastwords_image::{ImageKind, vmcore};
use std::fmt;

/// The kind of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// Sessions of lastwords, and streams of LTTng, in a container of a process's memory.
    Sessions(ImageKind),
    /// The memory of a machine.
    Machine(vmcore::Format),
    /// A trace.dat file.
    TraceDat,
    /// A persistent ring buffer of ftrace.
    Persistent,
    /// A trace instance of the running kernel, whose events are read from its files.
    Instance,
    /// Memory of LTTng's user-space tracer.
    Lttng,
    /// A folder of CTF.
    Ctf,
}

impl SourceKind {
    /// Returns the kind in a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Sessions(kind) => kind.words(),
            Self::Machine(format) => format.words(),
            Self::TraceDat => "trace.dat",
            Self::Persistent => "persistent ring buffer",
            Self::Instance => "an instance of the running kernel",
            Self::Lttng => "memory of LTTng's user-space tracer",
            Self::Ctf => "folder of CTF",
        }
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
