//! `cargo xtask static`: the program `lastwords` without shared libraries, for an initramfs of a
//! crash kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use rig::run_quietly;

/// The arguments of `cargo xtask static`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The target; musl ones need its C compiler (Debian: musl-tools). Without it, this machine's,
    /// with its C library linked in
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

/// Builds it, and prints where it is.
///
/// # Errors
/// It cannot be built, or needs a loader or a library.
pub fn run(args: &Args) -> Result<()> {
    let program = build(args.target.as_deref(), Symbols::Removed)?;
    println!("{} ({} bytes)", program.display(), program.metadata()?.len());
    Ok(())
}

/// What becomes of symbols and debug information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbols {
    /// The program has them.
    Kept,
    /// The program has none, and is small.
    Removed,
}

/// Builds a program for guests of C files of this crate: it needs no library there.
pub(crate) fn of_c(program: PathBuf, sources: &[&str]) -> Result<PathBuf> {
    let folder = rig::root().join("proof/lab/src");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-static", "-pthread", "-o"]).arg(&program);
    run_quietly(cc.args(sources.iter().map(|name| folder.join(name))))?;
    Ok(program)
}

/// Builds it and proves that it needs no loader and no library.
pub fn build(target: Option<&str>, symbols: Symbols) -> Result<PathBuf> {
    let host = host()?;
    let target = target.unwrap_or(&host);
    let of_target = format!("CARGO_TARGET_{}", target.to_uppercase().replace('-', "_"));
    // A target is named even where it is the host's: so the flag is not for macros and build
    // scripts, which must be dynamic.
    let mut command = Command::new(rig::cargo());
    command
        .current_dir(rig::root())
        .args([
            "rustc",
            "--release",
            "--quiet",
            // A crash kernel has no network.
            "--no-default-features",
            "-p",
            "lastwords-cli",
            "--bin",
            "lastwords",
            "--target",
            target,
        ])
        .args(["--", "-C"])
        .arg(if symbols == Symbols::Kept { "strip=none" } else { "strip=symbols" })
        .env(format!("{of_target}_RUSTFLAGS"), "-C target-feature=+crt-static")
        .env_remove("RUSTFLAGS");
    if target == crate::recorder::TARGET && target != host {
        command.env(format!("{of_target}_LINKER"), crate::recorder::LINKER);
        if let Some(compiler) = crate::recorder::compiler_if_needed()? {
            command.env("RUSTC", compiler);
        }
    }
    let status = command.status().context("cargo")?;
    if !status.success() {
        bail!(
            "cargo build --target {target}: {status}; is the target there? `rustup target add {target}` adds it"
        );
    }
    let program = rig::programs::target()?.join(target).join("release/lastwords");
    prove(&program)?;
    if target.split('-').next() == host.split('-').next() {
        let printed = run_quietly(Command::new(&program).arg("--version"))?;
        ensure!(printed.starts_with("lastwords "), "{} --version: {printed:?}", program.display());
        let said = Command::new(&program).arg("doctor").output().context("doctor")?.stdout;
        let said = String::from_utf8_lossy(&said);
        let line =
            said.lines().find(|line| line.contains("restartable sequences:")).unwrap_or_default();
        let fast = line.starts_with("good");
        ensure!(
            fast || !lastwords_ring::rseq_available(),
            "{} doctor: {line:?}, but here they work",
            program.display()
        );
    }
    Ok(program)
}

/// The toolchain's own target.
pub fn host() -> Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let printed = run_quietly(Command::new(rustc).arg("-vV"))?;
    let host = printed.lines().find_map(|l| l.strip_prefix("host: "));
    host.map(str::to_string).context("rustc -vV tells no host")
}

/// Types of program headers (elf(5)): a loader's name, and what a loader does.
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
/// A tag of the dynamic section: a library that is needed.
const DT_NEEDED: u64 = 1;

/// The file asks for no loader and names no library.
pub fn prove(program: &Path) -> Result<()> {
    let bytes = std::fs::read(program).with_context(|| program.display().to_string())?;
    let part =
        |at: usize, len: usize| bytes.get(at..at + len).context("an ELF file that ends too early");
    let word = |at: usize| -> Result<u64> { Ok(u64::from_le_bytes(part(at, 8)?.try_into()?)) };
    let half = |at: usize| -> Result<u16> { Ok(u16::from_le_bytes(part(at, 2)?.try_into()?)) };
    ensure!(bytes.starts_with(b"\x7fELF\x02\x01"), "{}: no ELF64 file", program.display());
    let (table, size, count) = (word(32)? as usize, usize::from(half(54)?), usize::from(half(56)?));
    for header in (0..count).map(|n| table + n * size) {
        let kind = u32::from_le_bytes(part(header, 4)?.try_into()?);
        ensure!(kind != PT_INTERP, "{}: it asks for a loader: not static", program.display());
        if kind == PT_DYNAMIC {
            let (offset, len) = (word(header + 8)? as usize, word(header + 32)? as usize);
            for entry in (offset..offset + len).step_by(16) {
                ensure!(
                    word(entry)? != DT_NEEDED,
                    "{}: it needs a shared library: not static",
                    program.display()
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_not_static() {
        let error = prove(&std::env::current_exe().unwrap()).unwrap_err().to_string();
        assert!(error.contains("not static"), "{error}");
    }
}
