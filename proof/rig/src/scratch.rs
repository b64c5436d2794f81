//! Folders to work in.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A folder `NAME.PID` that goes when we do. Those that killed runs left are removed when the next
/// is made.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder in `parent`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn create(parent: &Path, name: &str) -> Result<Self> {
        for left in left_over(parent, name) {
            let _ = std::fs::remove_dir_all(left);
        }
        let folder = parent.join(format!("{name}.{}", std::process::id()));
        private(&folder)?;
        Ok(Self(folder))
    }

    /// Makes the folder in memory, if there is a file system of it.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn in_memory(name: &str) -> Result<Self> {
        Self::create(&memory(), name)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The folder of files in memory, or else that of temporary files.
pub fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}

/// Makes a folder that is its user's alone, as those of sessions must be.
///
/// # Errors
/// The folder cannot be made.
pub fn private(folder: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot create {}", folder.display()))
}

/// Copies a folder to one of this name among the temporary files, where it stays. Returns its path
/// if it could be copied.
pub fn keep(folder: &Path, name: &str) -> Option<PathBuf> {
    let kept = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&kept);
    let copied = Command::new("cp").arg("-r").arg(folder).arg(&kept).status();
    copied.is_ok_and(|status| status.success()).then_some(kept)
}

/// Returns the one thing in a folder.
///
/// # Errors
/// The folder cannot be read, or has nothing or several things.
pub fn only(folder: &Path) -> Result<PathBuf> {
    one_of(folder, |_| true)
}

/// Returns the one folder in a folder, as that of a session in a folder of sessions.
///
/// # Errors
/// The folder cannot be read, or has no folder or several.
pub fn only_folder(folder: &Path) -> Result<PathBuf> {
    one_of(folder, |path| path.is_dir())
}

/// Returns the files and links in a folder and in all below it, sorted.
///
/// # Errors
/// A folder cannot be read.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(files_below(&entry.path())?),
            false => files.push(entry.path()),
        }
    }
    files.sort();
    Ok(files)
}

fn one_of(folder: &Path, is_one: impl Fn(&PathBuf) -> bool) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_one).collect();
    let [path] = &found[..] else { bail!("{} things in {}", found.len(), folder.display()) };
    Ok(path.clone())
}

/// The folders of this name whose process is gone.
fn left_over(parent: &Path, name: &str) -> Vec<PathBuf> {
    let is_left = |path: &PathBuf| {
        let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let id = file_name.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
        id.and_then(|id| id.parse::<u32>().ok())
            .is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists())
    };
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_left).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_with_what_the_dead_left() {
        let name = "lastwords-bench-scratch-test";
        let parent = std::env::temp_dir();
        // Process ids end at 2 to the power of 22.
        let dead = parent.join(format!("{name}.4194305"));
        std::fs::create_dir_all(&dead).unwrap();
        let scratch = Scratch::create(&parent, name).unwrap();
        let path = scratch.path().to_path_buf();
        assert!(path.is_dir() && !dead.exists());
        assert_eq!(left_over(&parent, name), [] as [PathBuf; 0]);
        drop(scratch);
        assert!(!path.exists());
    }
}
