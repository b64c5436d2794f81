//! `cargo xtask arm64`: the recorder of aarch64, built here and run on a kernel of Debian under
//! QEMU.
//!
//! Processes that record are killed there, what they left is recovered there, and tests are run
//! there, with the C library's restartable sequences and with our own registration of them. QEMU's
//! translation orders memory more strictly than the architecture does: what only a machine of it
//! would reorder is not shown.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Arch;
use super::initramfs::Archive;
use super::jobs::{self, Machine};
use super::packages::Store;
use rig::{make_empty, run_quietly};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernel: the beginning of a version (`6.12`), a Debian package, or a .deb
    #[arg(long, value_name = "KERNEL", default_value = "6.12")]
    kernel: String,
    /// The guest's CPUs
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Processes that record and are killed: as many with each way of registration, and as many
    /// with all reservations in turn
    #[arg(long, default_value_t = 300)]
    kills: u64,
    /// Writers of a shared session that are killed, for each reservation
    #[arg(long, default_value_t = 40)]
    wedges: u64,
    /// Processes that record and are killed while CPUs are taken offline and brought online
    #[arg(long, default_value_t = 30)]
    hotplug: u64,
    /// Instructions of the recorder at which it is stopped and what it left is judged
    #[arg(long, default_value_t = 200_000)]
    points: u64,
}

/// The rigs that the guest runs: packages, and programs of these names.
const KILLS: &str = "lastwords-proof-kills";
const CRASH_STEP: &str = "lastwords-proof-crash-step";

pub(crate) const TARGET: &str = "aarch64-unknown-linux-gnu";
pub(crate) const LINKER: &str = "aarch64-linux-gnu-gcc";
/// Whose compiler and standard library are used where this toolchain has none for the target: both
/// of one version.
const SUITE: &str = "sid";
/// The libraries of the programs, by the names under which the linker finds them.
const LIBRARIES: &[&str] = &["ld-linux-aarch64.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1"];
/// The C library registers no restartable sequences: the recorder does.
const OWN: &str = "GLIBC_TUNABLES=glibc.pthread.rseq=0";
/// Until the guest has done all.
const LIMIT: Duration = Duration::from_secs(1500);

/// The programs that were built for the guest, with their names there.
struct Built {
    programs: Vec<(String, PathBuf)>,
    tests: Vec<String>,
}

/// Builds, boots, and judges what the guest says.
pub(crate) fn run(args: &Args) -> Result<()> {
    let begun = Instant::now();
    let store = Store::open()?;
    let built = build(&store)?;
    let kernel = store.kernel(&args.kernel, Arch::Arm64, None)?;
    let folder = store.runs().join(format!("{}-recorder", kernel.release));
    make_empty(&folder)?;
    let jobs = jobs(&built, args);
    let archive = archive(&store, &built, &jobs)?;
    println!("built in {:.0} s", begun.elapsed().as_secs_f64());
    let machine = Machine {
        arch: Arch::Arm64,
        arguments: "loglevel=4 panic=0",
        cpus: args.cpus,
        counts_instructions: false,
        limit: LIMIT,
    };
    machine.run(&store, &kernel, archive, jobs.len(), &folder)
}

/// Returns the jobs of the guest: name, command.
fn jobs(built: &Built, args: &Args) -> Vec<(String, String)> {
    let Args { kills, wedges, points, hotplug, .. } = args;
    let mut jobs = Vec::new();
    let ways = [("", String::new()), ("-own", format!("export {OWN}; "))];
    for (way, set) in ways {
        let mut job = |name: &str, command: String| {
            jobs.push((format!("{name}{way}"), format!("{set}{command}")))
        };
        job("demo", "lastwords demo --reservation rseq --seconds 1".into());
        job("kills-rseq", format!("{KILLS} --count {kills} --reservation rseq"));
        job("hotplug", format!("{KILLS} hotplug-here --count {hotplug}"));
        job("wedge", format!("{KILLS} wedge --count {wedges}"));
        if way.is_empty() {
            job("kills", format!("{KILLS} --count {kills}"));
            job("crash-step", format!("{CRASH_STEP} --this-build --points {points}"));
        }
        for test in &built.tests {
            job(test, test.clone());
        }
    }
    jobs
}

/// The guest's first file system.
fn archive(store: &Store, built: &Built, jobs: &[(String, String)]) -> Result<Archive> {
    let mut archive = jobs::base(store, Arch::Arm64, jobs)?;
    for library in LIBRARIES {
        let found = run_quietly(Command::new(LINKER).arg(format!("-print-file-name={library}")))?;
        archive.copy(&format!("lib/{library}"), Path::new(found.trim()))?;
    }
    for (name, program) in &built.programs {
        archive.copy(&format!("bin/{name}"), program)?;
    }
    Ok(archive)
}

/// Debian's compiler for the target, if the toolchain has no standard library of it. Fails if there
/// is no linker.
pub(crate) fn compiler_if_needed() -> Result<Option<PathBuf>> {
    compiler_of(&Store::open()?)
}

fn compiler_of(store: &Store) -> Result<Option<PathBuf>> {
    needs_linker()?;
    if has_target()? { Ok(None) } else { compiler(store).map(Some) }
}

fn needs_linker() -> Result<()> {
    if Command::new(LINKER).arg("--version").output().is_err() {
        bail!(
            "no {LINKER} here; Debian and Ubuntu: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        );
    }
    Ok(())
}

/// Builds program, rigs and tests, with the toolchain's compiler where it has the target, else with
/// Debian's.
fn build(store: &Store) -> Result<Built> {
    let compiler = compiler_of(store)?;
    let kinds: [&[&str]; 2] = [
        &["build", "-p", "lastwords-cli", "-p", KILLS, "-p", CRASH_STEP],
        &["test", "--no-run", "-p", "lastwords-ring", "-p", "lastwords"],
    ];
    let mut built = Built { programs: Vec::new(), tests: Vec::new() };
    for kind in kinds {
        let mut command = Command::new(rig::cargo());
        command.current_dir(rig::root()).args(kind).args(["--quiet", "--target", TARGET]);
        command
            .arg("--message-format=json-render-diagnostics")
            .arg("--target-dir")
            .arg(store.folder("arm64-target"));
        command
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
            .env_remove("RUSTFLAGS");
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        if let Some(compiler) = &compiler {
            command.env("RUSTC", compiler);
        }
        for line in run_quietly(&mut command)?.lines() {
            add(&mut built, &serde_json::from_str(line)?);
        }
    }
    ensure!(!built.tests.is_empty(), "cargo test --no-run built no tests");
    Ok(built)
}

/// Takes a program that cargo reports.
fn add(built: &mut Built, message: &Value) {
    let Some(program) = message["executable"].as_str().map(PathBuf::from) else { return };
    let target = message["target"]["name"].as_str().unwrap_or_default();
    let mut name = target.to_string();
    match (message["profile"]["test"].as_bool(), message["target"]["kind"][0].as_str()) {
        (Some(true), Some(kind)) => {
            name = format!("{kind}-{target}");
            built.tests.push(name.clone());
        }
        (_, Some("bin")) => {}
        _ => return,
    }
    built.programs.push((name, program));
}

/// This toolchain can build for the target.
fn has_target() -> Result<bool> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let folder =
        run_quietly(Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]))?;
    Ok(Path::new(folder.trim()).is_dir())
}

/// Debian's compiler with the standard libraries of both architectures, as one program.
fn compiler(store: &Store) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let rustc = store.program("rustc", SUITE, "usr/bin/rustc")?;
    store.add("libstd-rust-dev", SUITE, Arch::Arm64, &rustc.root)?;
    let mut command = rustc.command()?;
    command.arg("--sysroot").arg(rustc.root.join("usr"));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| format!("'{}'", word.display())).collect::<Vec<_>>().join(" ");
    let script = rustc.root.join("rustc.sh");
    std::fs::write(&script, format!("#!/bin/sh\nexec {words} \"$@\"\n"))
        .with_context(|| script.display().to_string())?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(script)
}
