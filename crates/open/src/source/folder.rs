//! Lists folders that may have traces.

use super::Place;
use super::sniff::{self, Beginning, is_ctf_stream};
use crate::fired::{SNAPSHOT_FILE, SNAPSHOT_TRACE};
use anyhow::Context as _;
use lastwords_ctf::read::is_trace;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};

/// Returns true if a folder is a trace instance of a running kernel, or the top folder of its
/// tracefs.
#[must_use]
pub fn is_instance(folder: &Path) -> bool {
    folder.join("per_cpu").is_dir() && folder.join("tracing_on").is_file()
}

/// Returns true if a file has the name of a session's region.
pub(crate) fn is_region(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name, "session" | "registry" | "spans" | "counters") || name.starts_with("stream-")
}

/// The entries of a folder that are not hidden, in order.
#[derive(Default)]
pub(crate) struct Folder {
    /// The folder.
    pub(crate) path: PathBuf,
    /// Its files.
    pub(crate) files: Vec<PathBuf>,
    /// The folders in it.
    pub(crate) folders: Vec<PathBuf>,
    /// Entries of other kinds: links, pipes, sockets, devices.
    pub(crate) others: Vec<PathBuf>,
    /// It has the metadata of a trace.
    pub(crate) is_ctf: bool,
    beginnings: OnceCell<Vec<(PathBuf, Option<Beginning>)>>,
}

impl Folder {
    /// Lists a folder, and looks for a trace's metadata in it.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn look(folder: &Path) -> anyhow::Result<Self> {
        let is_ctf = folder.join("metadata").is_file() && is_trace(folder);
        Ok(Self { is_ctf, ..Self::list(folder)? })
    }

    /// Lists a folder.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn list(folder: &Path) -> anyhow::Result<Self> {
        let entries = std::fs::read_dir(folder)
            .with_context(|| format!("{}: cannot be read", folder.display()))?;
        let mut found = Self { path: folder.to_owned(), ..Self::default() };
        for entry in entries
            .filter_map(Result::ok)
            .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        {
            match entry.file_type() {
                Ok(kind) if kind.is_file() => found.files.push(entry.path()),
                Ok(kind) if kind.is_dir() => found.folders.push(entry.path()),
                _ => found.others.push(entry.path()),
            }
        }
        // The account of a kernel's snapshot belongs to the trace beside it.
        if found.files.iter().any(|file| file.ends_with(SNAPSHOT_TRACE)) {
            found.files.retain(|file| !file.ends_with(SNAPSHOT_FILE));
        }
        [&mut found.files, &mut found.folders, &mut found.others]
            .into_iter()
            .for_each(|paths| paths.sort());
        Ok(found)
    }

    /// Returns true if it has the regions of a session. The streams of a folder of CTF may have the
    /// names of a session's.
    pub(crate) fn has_regions(&self) -> bool {
        !self.is_ctf && self.files.iter().any(|file| is_region(file) && !is_ctf_stream(file))
    }

    /// Returns the files, each with what its first bytes say.
    pub(crate) fn beginnings(&self) -> &[(PathBuf, Option<Beginning>)] {
        let look = |file: &PathBuf| (file.clone(), sniff::of_file(file));
        self.beginnings.get_or_init(|| self.files.iter().map(look).collect())
    }

    /// Returns true if a file is one of these.
    pub(crate) fn has_files_of(&self, place: &Place) -> bool {
        self.beginnings().iter().any(|(_, own)| own.is_some_and(|own| own.is_of(place)))
    }
}
