//! The library of the rigs in `proof/` and of `xtask`: the programs of the workspace, folders to
//! work in, packages of Debian for guests and clean systems.
//!
//! Nothing here uses a crate of the product, because `xtask` must build in seconds.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

pub mod apt;
pub mod babeltrace;
pub mod copied;
pub mod debian;
pub mod elf;
pub mod ended;
pub mod json;
pub mod lines;
pub mod mirror;
pub mod process;
pub mod programs;
pub mod room;
pub mod scratch;
pub mod version;
pub mod wheel;
pub mod workers;

/// Ends a program: prints the error, if there is one.
pub fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// This very program, also when its file was built anew since it was started.
pub fn own_program() -> PathBuf {
    format!("/proc/{}/exe", std::process::id()).into()
}

/// The top folder of the workspace: the nearest folder with a lock file above the package that
/// cargo runs, or above this one.
pub fn root() -> PathBuf {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let package = PathBuf::from(package);
    let root = package.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.map_or_else(|| package.clone(), Path::to_path_buf)
}

/// The cargo that runs us.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// The folder beside the repository that keeps crash cases, where there is one.
pub fn beside() -> PathBuf {
    root().join("../shared")
}

/// The folder of the tools that are laid out beside the system's own.
pub fn tools() -> PathBuf {
    root().join("target/tools")
}

/// Where the tools that are laid out beside the system's own have their programs.
pub fn bin() -> PathBuf {
    tools().join("bin")
}

/// A seed of random numbers, by the clock.
pub fn clock_seed() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64
}

/// True if root runs this.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|l| l.strip_prefix("Uid:"))
        .is_some_and(|l| l.split_whitespace().nth(1) == Some("0"))
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// The command fails; the error has what it wrote on both.
pub fn run_quietly(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| shown(command))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "{}: {}\n{text}{}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(text)
}

/// A command as a user would type it.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Puts `folder` there, empty.
///
/// # Errors
/// The folder cannot be removed or made.
pub fn make_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .with_context(|| format!("{}: cannot remove", folder.display()))?;
    }
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot make the folder", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_the_packages() {
        assert!(root().join("proof/rig/Cargo.toml").is_file());
        assert!(root().join("crates/cli/Cargo.toml").is_file());
    }
}
