//! Tarballs with a program that needs no shared libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::tree::{FILE, PROGRAM, Tree};
use super::{Release, contents};
use lastwords_proof_lab::static_build::{self, Symbols};
use rig::run_quietly;

/// Makes the tarball for a target in `to`, and that of its debug file.
pub(super) fn build(
    release: &Release,
    target: &str,
    scratch: &Path,
    to: &Path,
) -> Result<Vec<PathBuf>> {
    let machine = target.split('-').next().unwrap_or(target);
    let program = static_build::build(Some(target), Symbols::Kept)?;
    let name = format!("lastwords-{}-{machine}-linux", release.version);
    let tree = Tree::create(scratch.join(&name))?.of_machine(machine);
    let name_of_debug = format!("{name}-debug");
    let debug = Tree::create(scratch.join(&name_of_debug))?;
    tree.copy("bin/lastwords", PROGRAM, &program)?;
    tree.split("bin/lastwords", &debug, "")?;
    // A program of another machine cannot print its pages here; that of this machine prints the
    // same.
    let is_own = super::host()?.starts_with(machine);
    let printer = if is_own { program } else { rig::programs::lastwords()? };
    contents::texts(&tree, &printer, "share", "share/zsh/site-functions")?;
    contents::licences(&tree, ".")?;
    tree.compress("THIRD-PARTY", super::linked::notices("lastwords-cli")?)?;
    for text in ["README.md", "CHANGELOG.md", "docs/INSTALL.md"] {
        tree.copy(text.rsplit('/').next().unwrap_or(text), FILE, &rig::root().join(text))?;
    }
    for path in git_files("hooks")? {
        let is_program = is_executable(&rig::root().join(&path));
        tree.copy(&path, if is_program { PROGRAM } else { FILE }, &rig::root().join(&path))?;
    }
    [name, name_of_debug].iter().map(|name| pack(release, name, scratch, to)).collect()
}

/// Packs the folder of this name in `scratch`.
fn pack(release: &Release, name: &str, scratch: &Path, to: &Path) -> Result<PathBuf> {
    let file = to.join(format!("{name}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.env("XZ_OPT", "-6 -T1").arg("-C").arg(scratch).args([
        "--sort=name",
        "--format=gnu",
        "--owner=0",
        "--group=0",
    ]);
    tar.args(["--numeric-owner", "--mode=go+rX,go-w"])
        .arg(format!("--mtime=@{}", release.epoch))
        .arg("-cJf")
        .arg(&file);
    run_quietly(tar.arg(name))?;
    Ok(file)
}

/// The files that the repository has in a folder.
fn git_files(folder: &str) -> Result<Vec<String>> {
    let printed =
        run_quietly(Command::new("git").current_dir(rig::root()).args(["ls-files", folder]))?;
    Ok(printed.lines().map(str::to_string).collect())
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|data| data.permissions().mode() & 0o100 != 0)
}
