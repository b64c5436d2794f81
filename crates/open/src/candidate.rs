//! A place in which a trace may be.

use crate::source::{Location, MEMORY, PlaceKind};
use std::path::PathBuf;

/// A location for an input, or the reason why there is none.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The location.
    pub(super) location: anyhow::Result<Location>,
    /// The location was named. Otherwise it was found in a folder that was named.
    pub(super) is_named: bool,
}

impl Candidate {
    pub(super) fn named(location: anyhow::Result<Location>) -> Self {
        Self { location, is_named: true }
    }

    pub(super) fn found(location: anyhow::Result<Location>) -> Self {
        Self { location, is_named: false }
    }

    /// Makes a candidate of the parts of one dump.
    pub(super) fn split(parts: Vec<PathBuf>) -> Self {
        let first = parts.first().cloned().unwrap_or_default();
        let location = Location::new(&first, Some(&MEMORY));
        Self::named(Ok(Location { open: parts, is_split: true, ..location }))
    }

    /// Returns the kind of the location: none inside if it is a file.
    pub(super) fn source(&self) -> Option<Option<&'static PlaceKind>> {
        self.location.as_ref().ok().map(|location| location.source)
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.location.as_ref().is_err_and(|error| error.is::<NothingToRecover>())
    }
}

/// An error: the input has nothing to recover, by its kind and not because of damage.
#[derive(Debug)]
pub(super) struct NothingToRecover(String);

impl NothingToRecover {
    pub(super) fn error(why: String) -> anyhow::Error {
        anyhow::Error::from(Self(why))
    }
}

impl std::fmt::Display for NothingToRecover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NothingToRecover {}
