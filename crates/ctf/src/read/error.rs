//! Why a trace cannot be read.

use crate::program::{Fault, SchemaError};
use lastwords_trace::source::Defect;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a trace, or a part of it, cannot be read.
#[derive(Debug)]
pub enum Error {
    /// A file or folder cannot be read.
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Metadata is not as its format says.
    Metadata {
        /// The file.
        path: PathBuf,
        /// Line of CTF 1.8, number of the fragment of CTF 2, from 1; 0 where neither is known.
        line: u32,
        /// What is wrong.
        what: String,
    },
    /// Packets cannot be decoded by the metadata.
    Schema {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong.
        source: SchemaError,
    },
    /// A packet is not as the metadata says.
    Packet {
        /// The file.
        path: PathBuf,
        /// Where the packet begins, bytes.
        offset: u64,
        /// What is wrong.
        source: Fault,
    },
    /// A packet in memory is not as its description says, or could not be made of all that its source has.
    SubBuffer {
        /// The stream's name.
        stream: String,
        /// Which packet it is, and what is wrong.
        defect: Defect,
    },
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn metadata(path: &Path, line: u32, what: impl Into<String>) -> Self {
        Self::Metadata { path: path.to_path_buf(), line, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Metadata { path, line: 0, what } => write!(f, "{}: {what}", path.display()),
            Self::Metadata { path, line, what } => write!(f, "{}: line {line}: {what}", path.display()),
            Self::Schema { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Packet { path, offset, source } => {
                write!(f, "{}: packet at offset {offset:#x}: {source}", path.display())
            }
            Self::SubBuffer { stream, defect: Defect { sequence, what } } => {
                write!(f, "{stream}, packet {sequence}: {what}")
            }
        }
    }
}

impl std::error::Error for Error {}
