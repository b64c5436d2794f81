//! Folders to work in.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

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
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self(folder))
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
