//! A folder that has the files of a package at their places, relative to the root of the file
//! system.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use rig::scratch::files_below;
use rig::{make_empty, run_quietly};

/// The mode of a program or a folder.
pub(super) const PROGRAM: u32 = 0o755;
/// The mode of a file that is only read.
pub(super) const FILE: u32 = 0o644;

/// The sections that nobody needs.
const NOTES: [&str; 2] = ["--remove-section=.comment", "--remove-section=.note"];

pub(super) struct Tree {
    root: PathBuf,
    /// The program that splits files of this tree's machine.
    objcopy: String,
}

impl Tree {
    /// Creates an empty tree in place of an earlier one.
    pub(super) fn create(root: PathBuf) -> Result<Self> {
        make_empty(&root)?;
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(PROGRAM))?;
        Ok(Self { root, objcopy: "objcopy".into() })
    }

    /// The same tree, with programs of a machine such as `aarch64`.
    pub(super) fn of_machine(self, machine: &str) -> Self {
        Self { objcopy: format!("{machine}-linux-gnu-objcopy"), ..self }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file.
    pub(super) fn write(
        &self,
        path: &str,
        mode: u32,
        content: impl AsRef<[u8]>,
    ) -> Result<PathBuf> {
        let at = self.place(path)?;
        std::fs::write(&at, content).with_context(|| at.display().to_string())?;
        self.set_mode(path, mode)?;
        Ok(at)
    }

    /// Copies a file.
    pub(super) fn copy(&self, path: &str, mode: u32, of: &Path) -> Result<PathBuf> {
        let content = std::fs::read(of).with_context(|| of.display().to_string())?;
        self.write(path, mode, content)
    }

    /// Copies a file and compresses the copy, without its time and name. `path` does not have the
    /// `.gz`.
    pub(super) fn compress(&self, path: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let at = self.write(path, FILE, content)?;
        run_quietly(Command::new("gzip").arg("-n9").arg(at)).map(drop)
    }

    /// Moves a file or link of another tree to the same mode and content here.
    pub(super) fn take(&self, path: &str, from: &Self, its: &str) -> Result<()> {
        let (from, to) = (from.root.join(its), self.place(path)?);
        std::fs::rename(&from, &to)
            .with_context(|| format!("{} to {}", from.display(), to.display()))
    }

    pub(super) fn set_mode(&self, path: &str, mode: u32) -> Result<()> {
        let at = self.root.join(path);
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(mode))
            .with_context(|| at.display().to_string())
    }

    /// Moves symbols and debug information of a program or library into a file of the tree `debug`,
    /// where debuggers and `lastwords --symbols` look for it: below `folder`, by the build ID.
    pub(super) fn split(&self, path: &str, debug: &Self, folder: &str) -> Result<()> {
        let file = self.root.join(path);
        let printed = run_quietly(Command::new("readelf").arg("-n").arg(&file))?;
        let id = build_id(&printed).with_context(|| format!("{path} has no build ID"))?;
        let (first, rest) = id.split_at(2);
        let its = format!("{folder}.build-id/{first}/{rest}.debug");
        let at = debug.place(&its)?;
        let objcopy = || Command::new(&self.objcopy);
        run_quietly(objcopy().arg("--only-keep-debug").arg(&file).arg(&at))?;
        debug.set_mode(&its, FILE)?;
        run_quietly(objcopy().arg("--strip-unneeded").args(NOTES).arg(&file))?;
        let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
        link.push(&at);
        run_quietly(objcopy().arg(link).arg(&file)).map(drop)
    }

    /// Removes symbols from an archive.
    pub(super) fn strip(&self, path: &str, how: &str) -> Result<()> {
        run_quietly(Command::new("strip").arg(how).args(NOTES).arg(self.root.join(path))).map(drop)
    }

    /// The paths of all files and links, sorted. Folders are not among them.
    pub(super) fn files(&self) -> Result<Vec<String>> {
        let below = |path: PathBuf| {
            let path = path.strip_prefix(&self.root)?.to_str();
            path.map(str::to_owned).context("a path that is not UTF-8")
        };
        files_below(&self.root)?.into_iter().map(below).collect()
    }

    /// The path in this machine's file system; the folders above it are created.
    fn place(&self, path: &str) -> Result<PathBuf> {
        let at = self.root.join(path);
        let parent = at.parent().context("a file has a folder")?;
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        // The folders of a package are open to all, whatever this user's umask is.
        for folder in parent.ancestors().take_while(|folder| folder.starts_with(&self.root)) {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(PROGRAM))?;
        }
        Ok(at)
    }
}

/// Returns the build ID, in the text of `readelf -n`.
fn build_id(printed: &str) -> Option<&str> {
    let (_, id) = printed.split_once("Build ID: ")?;
    let id = id.lines().next()?;
    (id.len() > 2 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_hexadecimal() {
        let printed = |id: &str| format!("  GNU  0x14 NT_GNU_BUILD_ID\n    Build ID: {id}\n");
        assert_eq!(build_id(&printed("f75e4d08")), Some("f75e4d08"));
        assert_eq!(build_id(&printed("../x")), None);
        assert_eq!(build_id("Displaying notes found in: .note.ABI-tag\n"), None);
    }
    use rig::scratch::Scratch;

    #[test]
    fn files_are_listed_in_order_with_their_modes() {
        let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-tree-test").unwrap();
        let tree = Tree::create(scratch.path().join("tree")).unwrap();
        tree.write("usr/lib/b", PROGRAM, "b").unwrap();
        std::os::unix::fs::symlink("b", tree.root().join("usr/lib/a")).unwrap();
        tree.compress("usr/share/c", "c").unwrap();
        assert_eq!(tree.files().unwrap(), ["usr/lib/a", "usr/lib/b", "usr/share/c.gz"]);
        let mode =
            |path: &str| tree.root().join(path).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("usr"), mode("usr/lib/b"), mode("usr/share/c.gz")), (0o755, 0o755, 0o644));
    }
}
