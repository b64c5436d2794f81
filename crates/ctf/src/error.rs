use std::io;
use std::path::{Path, PathBuf};

/// A writer's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be made or written.
    #[error("{}: cannot {doing}: {}", .path.display(), reason(.source))]
    Io {
        /// The path of the file or folder.
        path: PathBuf,
        /// The operation that failed: `create`, `write`.
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The output stream could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// The format cannot express a field; names channel, event and field.
    #[error("the format cannot express {0}")]
    Schema(String),
    /// An input cannot be read.
    #[error("{0}")]
    Input(#[source] lastwords_bytes::Error),
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "it exists already; name another, or remove it".to_owned(),
        _ => error.to_string(),
    }
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
