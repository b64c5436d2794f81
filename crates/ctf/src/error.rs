use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A writer's error.
#[derive(Debug)]
pub enum Error {
    /// A file or folder could not be made or written.
    Io {
        /// The path of the file or folder.
        path: PathBuf,
        /// The operation that failed: `create`, `write`.
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The output stream could not be written.
    Output(io::Error),
    /// The format cannot express a field; names channel, event and field.
    Schema(String),
    /// An input cannot be read.
    Input(lastwords_bytes::Error),
}

/// Result of a writer.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a function that turns an I/O error at `path` into an [`Error`].
    pub fn io(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, doing, source }
    }

    /// Returns true if the reader of a pipe went away, as in `report | head`. Callers do not report
    /// this as an error.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, doing, source } if source.kind() == io::ErrorKind::AlreadyExists => {
                write!(
                    f,
                    "{}: cannot {doing}: it exists already; name another, or remove it",
                    path.display()
                )
            }
            Self::Io { path, doing, source } => {
                write!(f, "{}: cannot {doing}: {source}", path.display())
            }
            Self::Output(source) => write!(f, "cannot write the output: {source}"),
            Self::Schema(what) => write!(f, "the format cannot express {what}"),
            Self::Input(source) => write!(f, "{source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Output(source) => Some(source),
            Self::Schema(_) => None,
            Self::Input(source) => Some(source),
        }
    }
}
