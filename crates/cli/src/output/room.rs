//! Decides whether the path of an output is free, and whether an existing file or folder there may
//! be replaced.
//!
//! `--force` replaces a regular file, a link, and a folder that holds one CTF trace and nothing
//! else. It never replaces an input, or a folder that an input lies in. Nothing is removed before
//! all checks of the command line have passed.

use super::{Format, Job, is_stdout};
use anyhow::{Context, bail};
use lastwords_open::is_ctf_stream;
use lastwords_render::is_empty_folder;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

impl Job<'_> {
    /// Checks that a file or folder can be written at a path. It removes nothing.
    ///
    /// # Errors
    /// The path has something that must not be replaced.
    pub(super) fn check_room(&self, path: &Path) -> anyhow::Result<()> {
        let Ok(meta) = path.symlink_metadata() else { return Ok(()) };
        let shown = path.display();
        if is_stdout(path) || is_empty_folder(path) {
            return Ok(());
        }
        if is_device(path) {
            return match self.to.or_else(|| Format::of_path(path)) {
                Some(Format::Text | Format::Json | Format::Perfetto | Format::Otlp) => Ok(()),
                Some(format) if format.is_table() => Ok(()),
                _ => bail!(
                    "{shown}: a device or a FIFO takes text, json, perfetto, otlp, parquet and arrow; name a new file or folder"
                ),
            };
        }
        if !self.force {
            bail!("{shown} exists: choose another name or pass --force");
        }
        if let Some(input) = self.input_in(path, &meta) {
            bail!(
                "{shown}: --force does not replace the input {}: choose another name",
                input.display()
            );
        }
        match meta.is_dir() {
            true if !path.join("metadata").is_file() => {
                bail!("{shown}: not a folder of CTF; --force does not remove it")
            }
            true => match foreign(path, true)? {
                Some(name) => bail!(
                    "{shown}: {name} in it is no part of a CTF trace; --force does not remove it"
                ),
                None => Ok(()),
            },
            false => Ok(()),
        }
    }

    /// Removes an existing file or folder that may be replaced.
    ///
    /// # Errors
    /// The path has something that must not be replaced or cannot be removed.
    pub(super) fn make_room(&self, path: &Path) -> anyhow::Result<()> {
        self.check_room(path)?;
        let Ok(meta) = path.symlink_metadata() else { return Ok(()) };
        if is_stdout(path) || is_device(path) || is_empty_folder(path) {
            return Ok(());
        }
        let removed =
            if meta.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        removed.with_context(|| format!("{}: cannot be removed", path.display()))
    }

    /// Returns an input that is at the path or below it.
    fn input_in(&self, path: &Path, meta: &Metadata) -> Option<&Path> {
        let real = path.canonicalize().ok();
        let is_hit = |input: &&Path| {
            let below = input
                .canonicalize()
                .ok()
                .zip(real.as_ref())
                .is_some_and(|(input, real)| input.starts_with(real));
            let is_same = |other: Metadata| (other.dev(), other.ino()) == (meta.dev(), meta.ino());
            below || input.metadata().is_ok_and(is_same)
        };
        let traces = self.traces.all.iter().filter_map(|trace| Some(trace.ctf()?.path.as_path()));
        self.traces.origins.iter().map(|origin| origin.path.as_path()).chain(traces).find(is_hit)
    }
}

/// Returns true if a device, a FIFO or a socket is at the path, also through a link. It is written
/// into, never replaced.
pub(super) fn is_device(path: &Path) -> bool {
    let kind = path.metadata().map(|meta| meta.file_type());
    kind.is_ok_and(|kind| {
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket()
    })
}

/// Returns the first name in a folder that is not part of a CTF trace. Parts are the metadata, the
/// streams, and at the top a folder of index files.
fn foreign(folder: &Path, is_top: bool) -> anyhow::Result<Option<String>> {
    for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_part = match entry.file_type()? {
            kind if kind.is_dir() => is_top && name == "index" && foreign(&path, false)?.is_none(),
            kind if kind.is_file() && is_top => name == "metadata" || is_stream(&path),
            kind => kind.is_file() && path.extension().is_some_and(|extension| extension == "idx"),
        };
        if !is_part {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Returns true if the file is empty or begins as a packet of CTF.
fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.len() == 0) || is_ctf_stream(path)
}
