//! Why a session could not be made, joined or changed.

use std::io;
use std::path::{Path, PathBuf};

use lastwords_ring::backend::BackendError;

/// Errors name the path, the place and the value, and say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder of sessions.
    #[error("{}: {call}: {source}{}", path.display(), hint(source))]
    Io {
        /// What was called.
        call: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder that must not be trusted.
    #[error("{}: {what}; {remedy}", path.display())]
    Untrusted {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A name of a session or channel.
    #[error("name {name:?}: {why}; use 1 to 47 letters, digits, `.`, `_` and `-`, beginning with a letter or digit")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A channel's geometry.
    #[error("channel {channel:?}: {field} is {value}; {rule}")]
    Geometry {
        /// Name of the channel.
        channel: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What it should be.
        rule: &'static str,
    },
    /// More memory than was allowed.
    #[error(
        "the session takes {needs} bytes, its limit is {limit}; raise the limit, or ask for fewer or smaller sub-buffers"
    )]
    TooLarge {
        /// Bytes that it takes.
        needs: u64,
        /// Bytes that it may take.
        limit: u64,
    },
    /// A table is full.
    #[error("no room for another {what}: {limit} is the most; {remedy}")]
    Full {
        /// What there is no room for.
        what: &'static str,
        /// The most there can be.
        limit: usize,
        /// What to do.
        remedy: &'static str,
    },
    /// Something that this machine, back-end or session does not offer.
    #[error("{what}: {why}; {remedy}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// Why it cannot be.
        why: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The back-end gave no memory.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A file is not the region that it should be.
    #[error("{path}: offset {offset}: {what}; if its program is older or newer, use the `lastwords` of that version")]
    Region {
        /// The file.
        path: String,
        /// Offset of what is wrong, bytes.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// Someone else is at it.
    #[error("{what} is held by {}; try again when it is done", holder(*owner))]
    Busy {
        /// What is held.
        what: &'static str,
        /// Who holds it; 0 when unknown.
        owner: u32,
    },
    /// There is no spare, or no snapshot.
    #[error("session {session:?}: {what}; {remedy}")]
    Snapshot {
        /// Name of the session.
        session: String,
        /// What is missing.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
}

impl Error {
    pub(crate) fn io(call: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io { call, path: path.as_ref().to_owned(), source: source.into() }
    }

    pub(crate) fn unsupported(what: &'static str, why: impl Into<String>, remedy: &'static str) -> Self {
        Self::Unsupported { what, why: why.into(), remedy }
    }

    pub(crate) fn region(path: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self::Region { path: path.into(), offset, what: what.into() }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ELOOP | libc::ENOTDIR) => "; a link or file stands where a folder should: remove it",
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => "; set LASTWORDS_DIR to a folder that you may write",
        Some(libc::ENOENT) => "; its parent must exist",
        _ => "",
    }
}

fn holder(pid: u32) -> String {
    if pid == 0 { "another process".to_owned() } else { format!("process {pid}") }
}
