//! Errors of reading a trace.

use crate::program::{Fault, SchemaError};
use lastwords_trace::source::Defect;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Reasons why a trace, or a part of it, cannot be read.
#[derive(Debug)]
pub enum Error {
    /// A file or folder cannot be read.
    Io {
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Metadata does not follow its format.
    Metadata {
        /// The file.
        path: PathBuf,
        /// Line of CTF 1.8 metadata, or number of the fragment of CTF 2 metadata, both from 1; 0
        /// if neither is known.
        line: u32,
        /// Description of the error.
        what: String,
    },
    /// Packets cannot be decoded by the metadata.
    Schema {
        /// The metadata file.
        path: PathBuf,
        /// Reason why the metadata cannot be compiled.
        source: SchemaError,
    },
    /// A packet does not follow the metadata.
    Packet {
        /// The file.
        path: PathBuf,
        /// Offset of the packet in the file, in bytes.
        offset: u64,
        /// The error in the packet.
        source: Fault,
    },
    /// A packet in memory does not follow its description, or could not contain everything that its
    /// source has.
    SubBuffer {
        /// The stream's name.
        stream: String,
        /// The packet and its error.
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
            Self::Metadata { path, line, what } => {
                write!(f, "{}: line {line}: {what}", path.display())
            }
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
