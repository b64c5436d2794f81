//! What the writer of a file is told.

use super::Relation;

/// Options of a writer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Version 6 or 7. The default is 6, which every trace-cmd and KernelShark reads. If arrays
    /// have sub-buffers of several sizes, the default is 7, because version 6 cannot express them.
    pub version: Option<u8>,
    /// Writes the snapshots instead of the live rings. An array without a snapshot gets no events.
    pub snapshot: bool,
    /// Positions of the arrays to write; an empty list writes all. The top level is always in the
    /// file, without events if it is not selected.
    pub arrays: Vec<usize>,
    /// Writes all of the kernel's symbols. Without this, sub-buffers are searched for the
    /// addresses whose symbols are needed.
    pub all_symbols: bool,
    /// The parts that the file lacks, on one line, which readers report as a loss; none if it has
    /// everything.
    pub missing: Option<String>,
    /// The files of other machines that were recorded with this one; none for a file alone.
    pub relation: Option<Relation>,
}
