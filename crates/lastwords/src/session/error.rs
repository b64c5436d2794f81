//! Errors of creating, joining or changing a session.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastwords_ring::backend::BackendError;

/// Errors name the path, the place and the value, and say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of a file or folder of sessions.
    #[error("{}: {call}: {source}{}", path.display(), hint(source))]
    Io {
        /// The failed call.
        call: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A folder that cannot be trusted.
    #[error("{}: {what}; {remedy}", path.display())]
    Untrusted {
        /// The folder.
        path: PathBuf,
        /// The reason.
        what: String,
        /// The advice to the user.
        remedy: &'static str,
    },
    /// A name of a session or channel is not valid.
    #[error(
        "name {name:?}: {why}; use 1 to 47 letters, digits, `.`, `_` and `-`, beginning with a letter or digit"
    )]
    Name {
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// A channel's geometry is not valid.
    #[error("channel {channel:?}: {field} is {value}; {rule}")]
    Geometry {
        /// Name of the channel.
        channel: String,
        /// The name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The condition that the value must fulfil.
        rule: &'static str,
    },
    /// The session needs more memory than its limit.
    #[error(
        "the session takes {needs} bytes, its limit is {limit}; raise the limit, or ask for fewer or smaller sub-buffers"
    )]
    TooLarge {
        /// Bytes that the session takes.
        needs: u64,
        /// Bytes that the session may take.
        limit: u64,
    },
    /// A table is full.
    #[error("no room for another {what}: {limit} is the most; {remedy}")]
    Full {
        /// The kind of entry for which there is no room.
        what: &'static str,
        /// Size of the table.
        limit: usize,
        /// Advice for the user.
        remedy: &'static str,
    },
    /// Something of this name exists already.
    #[error("the session has a {what} {name:?} already; use another name")]
    Exists {
        /// The kind of thing.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// This machine, back-end or session does not support something.
    #[error("{what}: {why}; {remedy}")]
    Unsupported {
        /// The requested feature.
        what: &'static str,
        /// The reason.
        why: String,
        /// An alternative for the user.
        remedy: &'static str,
    },
    /// The back-end gave no memory.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A file is not the region that it should be.
    #[error(
        "{path}: offset {offset}: {what}; if its program is older or newer, use the `lastwords` of that version"
    )]
    Region {
        /// The file.
        path: String,
        /// Offset of the error, in bytes.
        offset: u64,
        /// Description of the error.
        what: String,
    },
    /// Another process or thread holds something that is needed.
    #[error("{what} is held by {}; try again when it is done", holder(*owner))]
    Busy {
        /// Description of what is held.
        what: &'static str,
        /// Process or thread id of the holder; 0 when unknown.
        owner: u32,
    },
    /// The limit of snapshots leaves a trigger without one.
    #[error(
        "the trigger took no snapshot: {most} in {period:?} are the most (Builder::trigger_limit), the next is possible in {:.1} s; its \
         event is recorded, and `lastwords snapshot take` has no limit",
        free_in.as_secs_f64()
    )]
    Limited {
        /// Snapshots in a period.
        most: u32,
        /// The period.
        period: Duration,
        /// Time until there is a place for a snapshot.
        free_in: Duration,
    },
    /// There is no spare, or no snapshot.
    #[error("session {session:?}: {what}; {remedy}")]
    Snapshot {
        /// Name of the session.
        session: String,
        /// Description of what is missing.
        what: &'static str,
        /// Advice for the user.
        remedy: Cow<'static, str>,
    },
}

impl Error {
    #[doc(hidden)]
    pub fn io(call: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Io { call, path: path.as_ref().to_owned(), source: source.into() }
    }

    #[doc(hidden)]
    pub fn unsupported(what: &'static str, why: impl Into<String>, remedy: &'static str) -> Self {
        Self::Unsupported { what, why: why.into(), remedy }
    }

    pub(crate) fn region(path: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self::Region { path: path.into(), offset, what: what.into() }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ELOOP | libc::ENOTDIR) => {
            "; there is a link or file in place of a folder: remove it"
        }
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            "; set LASTWORDS_DIR to a folder that you may write"
        }
        Some(libc::ENOENT) => "; its parent must exist",
        _ => "",
    }
}

fn holder(pid: u32) -> String {
    if pid == 0 { "another process".to_owned() } else { format!("process {pid}") }
}
