//! A place in which a trace may be.

use crate::reason::Reason;
use crate::source::{Location, MEMORY, Place};
use std::path::{Path, PathBuf};

/// A location for an input, or the reason why there is none.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The location.
    pub(super) location: anyhow::Result<Location>,
    /// The location was named. Otherwise it was found in a folder that was named.
    pub(super) is_named: bool,
    /// The path at which there is no location.
    pub(super) refused: Option<PathBuf>,
}

impl Candidate {
    pub(super) fn named(location: anyhow::Result<Location>) -> Self {
        Self { location, is_named: true, refused: None }
    }

    pub(super) fn found(location: anyhow::Result<Location>) -> Self {
        Self { location, is_named: false, refused: None }
    }

    /// Sets the path at which there is no location.
    pub(super) fn at(self, path: &Path) -> Self {
        Self { refused: Some(path.to_owned()), ..self }
    }

    /// Returns the path, as far as it is known.
    pub(super) fn path(&self) -> Option<&Path> {
        let found = self.location.as_ref().ok().map(|location| location.shown.as_path());
        found.or(self.refused.as_deref())
    }

    /// Makes a candidate of the parts of one dump.
    pub(super) fn split(parts: Vec<PathBuf>) -> Self {
        let first = parts.first().cloned().unwrap_or_default();
        let location = Location::new(&first, Some(&MEMORY));
        Self::named(Ok(Location { open: parts, is_split: true, ..location }))
    }

    /// Returns the kind of the location: none inside if it is a file.
    pub(super) fn source(&self) -> Option<Option<&'static Place>> {
        self.location.as_ref().ok().map(|location| location.source)
    }

    pub(super) fn is_nothing(&self) -> bool {
        let is_nothing = |error| Reason::from_error(error) == Reason::NothingToRecover;
        self.location.as_ref().is_err_and(is_nothing)
    }
}
