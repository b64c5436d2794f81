//! `cargo xtask hotplug`: CPUs of a guest are taken offline and brought online while processes
//! there record and are killed.
//!
//! The guest boots with one CPU fewer than it has, which is online for the first time after a
//! session has begun. What is done in it is the rig `kills`, as the tests have built it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::jobs::{self, Machine};
use super::packages::Store;
use super::{Arch, QUICK, add_programs};
use rig::{make_empty, run_quietly};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernel: the beginning of a version (`6.12`), a Debian package, or a .deb
    #[arg(long, value_name = "KERNEL", default_value = QUICK.0)]
    kernel: String,
    /// The guest's CPUs
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    cpus: u32,
    /// Processes that record and are killed, with the reservations in turn
    #[arg(long, default_value_t = 300)]
    count: u64,
    /// The part that CI runs
    #[arg(long)]
    quick: bool,
}

/// Kills of the part that CI runs.
const QUICK_COUNT: u64 = 15;
/// Until the guest has done all: for its boot, and for each kill.
const LIMIT: Duration = Duration::from_secs(120);
const LIMIT_OF_KILL: Duration = Duration::from_secs(10);

/// Boots, and judges what the guest says.
pub(crate) fn run(args: &Args) -> Result<()> {
    let count = if args.quick { args.count.min(QUICK_COUNT) } else { args.count };
    let store = Store::open()?;
    let kernel = store.kernel(&args.kernel, Arch::Amd64, None)?;
    let folder = store.runs().join(format!("{}-hotplug", kernel.release));
    make_empty(&folder)?;
    let jobs = [("hotplug".to_string(), format!("kills hotplug-here --count {count}"))];
    let mut archive = jobs::base(&store, Arch::Amd64, &jobs)?;
    add_programs(&mut archive, &folder, &[("kills", rig::programs::rig("kills")?)])?;
    // On a host that has much to do, a guest finds its timer too slow to work.
    let arguments = format!("loglevel=4 panic=0 no_timer_check maxcpus={}", args.cpus - 1);
    let limit = LIMIT + LIMIT_OF_KILL * u32::try_from(count).unwrap_or(u32::MAX >> 8);
    let (arguments, cpus) = (arguments.as_str(), args.cpus);
    let machine = Machine { arch: Arch::Amd64, arguments, cpus, counts_instructions: false, limit };
    machine.run(&store, &kernel, archive, jobs.len(), &folder)
}

/// Returns the libraries and the loader of a program of this machine: their paths in a guest, and
/// their paths here.
pub(super) fn libraries(program: &Path) -> Result<Vec<(String, PathBuf)>> {
    let printed = run_quietly(Command::new("ldd").arg(program))?;
    Ok(printed.lines().filter_map(library).collect())
}

/// A line of ldd: a library that was found, or the loader. What has no file (the vDSO) is none.
fn library(line: &str) -> Option<(String, PathBuf)> {
    let (said, _) = line.trim().rsplit_once(" (0x")?;
    if let Some((name, path)) = said.split_once(" => ") {
        return Some((format!("lib/{name}"), path.into()));
    }
    said.strip_prefix('/').map(|loader| (loader.to_string(), said.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ldd() {
        let lines = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /usr/lib/libc.so.6 (0x00007f58)\n\t/lib64/ld.so.2 (0x00007f5c)\n";
        let found: Vec<_> = lines.lines().filter_map(library).collect();
        let expected =
            [("lib/libc.so.6", "/usr/lib/libc.so.6"), ("lib64/ld.so.2", "/lib64/ld.so.2")];
        assert_eq!(found, expected.map(|(name, path)| (name.to_string(), PathBuf::from(path))));
    }
}
