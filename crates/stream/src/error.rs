//! Why streams cannot be sent, received or saved.

use crate::address::{Address, AddressError};
use lastwords_open::chain;
use std::path::{Path, PathBuf};

/// The reason why a stream cannot be sent, received or saved. A stream that a receiver does not
/// take is none: it is [`Told::Refused`](crate::Told::Refused).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text is no address, or its host is not known.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Other machines can reach an address, and [`Limits::trusts_network`] is not set.
    ///
    /// [`Limits::trusts_network`]: crate::Limits::trusts_network
    #[error(
        "{address}: everybody in the network could send here, and read and change what others send. To listen at this address \
         all the same, add --trust-network; to receive through ssh or WireGuard, see docs/STREAM.md"
    )]
    Network {
        /// The address.
        address: Address,
    },
    /// A receiver cannot listen at an address, or accept a connection.
    #[error("{why}")]
    Listen {
        /// The address.
        address: Address,
        /// The reason, one sentence.
        why: String,
    },
    /// The folder of a receiver cannot be used.
    #[error("{why}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The folder and the reason, one sentence.
        why: String,
    },
    /// There is no connection to a receiver, it is broken, or the receiver takes no more.
    #[error("{why}")]
    Connection {
        /// The address of the receiver.
        address: Address,
        /// The reason, one sentence.
        why: String,
    },
    /// A session that is sent cannot be read any more.
    #[error("{why}")]
    Session {
        /// The name of the session.
        session: String,
        /// The reason, one sentence.
        why: String,
    },
    /// The part of a stream that arrived cannot be saved. It stays in its spool.
    #[error("{why}")]
    Unsaved {
        /// The spool.
        spool: PathBuf,
        /// The spool and the reason, one sentence.
        why: String,
    },
}

/// The result of work with streams.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn listen(address: &Address, why: &anyhow::Error) -> Self {
        Self::Listen { address: address.clone(), why: chain(why) }
    }

    pub(crate) fn folder(folder: &Path, why: &anyhow::Error) -> Self {
        Self::Folder { folder: folder.to_owned(), why: chain(why) }
    }

    pub(crate) fn connection(address: &Address, why: &anyhow::Error) -> Self {
        Self::Connection { address: address.clone(), why: chain(why) }
    }

    /// The reason of a sender that has met an error: a broken connection, or else the session.
    pub(crate) fn session(session: &str, error: anyhow::Error) -> Self {
        error.downcast().unwrap_or_else(|error| Self::Session {
            session: session.to_owned(),
            why: chain(&error),
        })
    }

    pub(crate) fn unsaved(spool: &Path, why: &anyhow::Error) -> Self {
        Self::Unsaved { spool: spool.to_owned(), why: chain(why) }
    }
}

/// The reason why the bytes of a stream are wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// No frame has such a header.
    #[error("{0}")]
    Header(String),
    /// A frame may not stand in its place.
    #[error("{0}")]
    Order(String),
    /// No frame of this kind has such content.
    #[error("{0}")]
    Content(String),
    /// The content of a frame is not the JSON of its kind.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Returns a [`WireError`] of this variant.
macro_rules! refuse {
    ($variant:ident, $($why:tt)+) => {
        return Err($crate::error::WireError::$variant(format!($($why)+)))
    };
}

/// Returns a [`WireError`] of this variant if a condition does not hold.
macro_rules! check {
    ($variant:ident, $holds:expr, $($why:tt)+) => {
        if !$holds {
            $crate::error::refuse!($variant, $($why)+)
        }
    };
}

pub(crate) use {check, refuse};
