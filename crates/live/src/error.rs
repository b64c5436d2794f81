//! Why live sessions and instances cannot be read.

use lastwords_open::chain;
use std::path::PathBuf;

/// The reason why nothing can be read. An input that cannot be read by itself is a
/// [`Failure`](lastwords_open::Failure) of what is opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The options do not hold.
    #[error(transparent)]
    Open(#[from] lastwords_open::Error),
    /// A session cannot be opened, or its snapshot is being read by another process.
    #[error(transparent)]
    Session(#[from] lastwords::Error),
    /// What is followed cannot be read any more.
    #[error("{why}")]
    Followed {
        /// The folder of the session or the instance.
        folder: PathBuf,
        /// The folder and the reason, one sentence.
        why: String,
    },
}

impl Error {
    /// What is followed in a folder cannot be read, because of `why`.
    pub(crate) fn followed(folder: &std::path::Path, why: &anyhow::Error) -> Self {
        Self::Followed { folder: folder.to_owned(), why: chain(why) }
    }
}

/// The result of reading.
pub type Result<T> = std::result::Result<T, Error>;
