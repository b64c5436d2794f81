//! The events of crashes as columns: record batches of Arrow, and Parquet files.
//!
//! One crash is read by a person; a thousand are a data set. This crate makes tables of what
//! [`lastwords_open`] opens: `events`, `crashes`, `losses` and `traces` ([`Table`]).
//! [`Batches`] reads events as record batches, as far as they are wanted. [`Crash`] has the facts
//! about a crash, its identity and its signature among them. [`DataSet`] is a folder of Parquet
//! files in which each crash is once.
//!
//! Values are exact: a value that a column cannot hold is null there, and is counted
//! ([`Batches::unfit`]). The column `fields` has all values: numbers with all their digits, and a
//! text that is not UTF-8 as `{"bytes":"66ff"}`.
#![forbid(unsafe_code)]

mod crash;
mod dataset;
mod events;
mod fields;
mod identity;
mod ingest;
mod keyed;
mod log;
mod retention;
mod rows;
mod schema;
mod texts;
mod threads;
mod timeline;
mod write;

pub use crash::{Crash, Judge, loss_rows, trace_facts, trace_rows};
pub use dataset::{DataSet, Part};
pub use events::{BATCH_ROWS, Batches, TraceFacts, Wanted};
pub use ingest::{Added, add};
pub use retention::{Keep, Stored};
pub use schema::{Kind, PROMOTED, Table, VERSION, VERSION_KEY};
pub use write::{Format, Writer};

use std::path::{Path, PathBuf};

/// The reason why a table cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        error: std::io::Error,
    },
    /// The output cannot be written.
    #[error(transparent)]
    Output(std::io::Error),
    /// A batch cannot be built or written.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
    /// A Parquet file cannot be written.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
    /// A newer program has made the data set, or added crashes to it.
    #[error("{}: a data set of version {version}, and this program knows version {VERSION}; use a newer lastwords", path.display())]
    Version {
        /// The folder of the data set.
        path: PathBuf,
        /// The version.
        version: u32,
    },
    /// The events of a trace cannot be read.
    #[error(transparent)]
    Events(#[from] lastwords_ctf::Error),
}

impl Error {
    /// Returns true if the output cannot be written, and false if an input cannot be read.
    #[must_use]
    pub fn is_of_output(&self) -> bool {
        !matches!(self, Self::Events(_))
    }

    fn file(path: &Path, error: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), error }
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
