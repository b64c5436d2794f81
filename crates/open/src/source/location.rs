//! A place that is to be opened.

use super::Place;
use std::path::{Path, PathBuf};

/// What is equal for locations of the same file or folder.
pub(crate) type Key = (Option<String>, Vec<PathBuf>);

/// Something to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    /// The path that is printed for people.
    pub(crate) shown: PathBuf,
    /// The paths that are opened: one path, or each part of a split dump.
    pub(crate) open: Vec<PathBuf>,
    /// The kind of the location; none for a file, whose kind is found when it is opened.
    pub(crate) source: Option<&'static Place>,
    /// It is the parts of one dump.
    pub(crate) is_split: bool,
    /// The paths in `open` are open files of a session's folder, which are shown by these paths.
    pub(crate) files: Vec<PathBuf>,
    /// The unique part of the name of the session's folder. It is checked if the opened memory may
    /// belong to another session by now.
    pub(crate) unique: Option<String>,
}

impl Location {
    pub(crate) fn new(path: &Path, source: Option<&'static Place>) -> Self {
        let path = path.to_path_buf();
        let (shown, open) = (path.clone(), vec![path]);
        Self { shown, open, source, is_split: false, files: Vec::new(), unique: None }
    }

    /// Returns true if the location is of this kind.
    pub(crate) fn is_of(&self, source: &'static Place) -> bool {
        self.source == Some(source)
    }

    /// Returns true if the location is the folder of a session.
    pub(crate) fn is_folder(&self) -> bool {
        !self.files.is_empty() || self.shown.is_dir()
    }

    /// Returns the path that is opened.
    pub(crate) fn path(&self) -> &Path {
        self.open.first().map_or(&self.shown, PathBuf::as_path)
    }

    pub(crate) fn key(&self) -> Key {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        (self.unique.clone(), self.open.iter().map(real).collect())
    }
}
