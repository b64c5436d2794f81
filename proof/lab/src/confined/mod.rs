//! A Debian with systemd as process 1, in which the package is installed: the units in their
//! sandboxes, the core helper, limits of control groups of version 2, and, in a scenario of its
//! own, SELinux.
//!
//! The system is booted as often as a scenario says, by a reset of the machine, over which its
//! memory stays. Each boot runs words of a script, and each word is a row.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::attacks::attacker;
use super::compare::Rows;
use super::initramfs::Archive;
use super::packages::{Kernel, Store};
use super::qemu::{Config, Guest};
use super::{Arch, DISK_MODULES, Setup, jobs, qemu};
use rig::{debian, is_root, run_quietly};

/// The names of the scenarios, and what they do.
pub(super) const SYSTEMD: &str = "systemd";
pub(super) const OF_SYSTEMD: &str = "the package on a Debian with systemd: its units, the core helper, and all surroundings with control groups of version 2";
pub(super) const SELINUX: &str = "selinux";
pub(super) const OF_SELINUX: &str = "the same Debian with its policy of SELinux, permissive and enforcing: applications in two domains, and the core helper";

/// The settings by which the two scenarios differ.
struct Variant {
    /// For the kernel's command line.
    arguments: &'static str,
    /// The words of each boot, in order, and the seconds that each may take.
    boots: &'static [&'static [(&'static str, u32)]],
    /// The files have labels of SELinux.
    is_labelled: bool,
}

const WITH_SYSTEMD: Variant = Variant {
    // The trace of a boot is kept in memory for the next one.
    arguments: "memmap=12M$0x10000000 trace_instance=boot_map@0x10000000:12M",
    boots: &[
        &[
            ("install", 900),
            ("bundle", 120),
            ("collect", 180),
            ("retention", 120),
            ("core_helper", 300),
            ("record", 60),
        ],
        &[("last_boot", 180), ("journal", 60), ("surroundings", 2400)],
    ],
    is_labelled: false,
};
const WITH_SELINUX: Variant = Variant {
    arguments: "security=selinux selinux=1 enforcing=0 audit_backlog_limit=8192",
    boots: &[&[("install", 900), ("permissive", 600), ("enforcing", 600), ("units", 600)]],
    is_labelled: true,
};

/// The suite of the system, and its packages besides the essential ones.
const SUITE: &str = "trixie";
const PACKAGES: &str = "systemd-sysv,udev,kmod,procps,policycoreutils,selinux-policy-default,checkpolicy,semodule-utils,selinux-utils,strace";
/// Megabytes of the guest's memory.
const MEMORY: u32 = 2048;
const CPUS: u32 = 2;
/// Bytes of the disk; sparse.
const DISK: u64 = 4 << 30;
/// Until all boots have done their words.
const LIMIT: Duration = Duration::from_secs(3600);
/// Starts the script.
const UNIT: &str = "[Service]\nType=exec\nExecStart=/bin/sh /lab/confined.sh\nTimeoutStartSec=infinity\nStandardOutput=null\nStandardError=null\n";
const UNITS: &str = "etc/systemd/system";
/// Units of the suite that only take time here.
const MASKED: &[&str] = &[
    "getty@.service",
    "getty-static.service",
    "serial-getty@.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
];

/// Runs the scenario of systemd on one kernel.
pub(super) fn systemd(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    run(&WITH_SYSTEMD, setup, rows)
}

/// Runs the scenario of SELinux on one kernel.
pub(super) fn selinux(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    run(&WITH_SELINUX, setup, rows)
}

fn run(variant: &Variant, setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    ensure!(is_root(), "the system is made by root: run this command as root");
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let disk = install(variant, kernel, lastwords, folder)?;
    let initramfs = first_system(store, kernel, folder)?;
    let arguments = format!(
        "loglevel=4 panic=0 no_timer_check systemd.show_status=0 fsck.mode=skip {}",
        variant.arguments
    );
    let program = qemu(store, Arch::Amd64)?;
    let config = Config {
        arguments: &arguments,
        memory: MEMORY,
        cpus: CPUS,
        reboots: true,
        disks: std::slice::from_ref(&disk),
        ..Config::new(Arch::Amd64, &program, [&kernel.image, &initramfs, folder])
    };
    let mut guest = Guest::start(&config)?;
    // The machine may be reset before its serial port has sent the line of an earlier boot.
    guest.wait_for(&format!("RECORDER-BOOT-DONE {}.", variant.boots.len()), LIMIT)?;
    let console = guest.console().replace('\r', "");
    guest.quit()?;
    jobs::judge(&console, variant.boots.iter().map(|words| words.len()).sum(), rows)
}

/// Makes the disk: the system, the package, and what the script needs.
fn install(variant: &Variant, kernel: &Kernel, lastwords: &Path, folder: &Path) -> Result<PathBuf> {
    let tree = folder.join("tree");
    std::fs::create_dir(&tree)?;
    run_quietly(
        Command::new("tar")
            .arg("-C")
            .arg(&tree)
            .arg("-xf")
            .arg(debian::tarball("confined", SUITE, PACKAGES)?),
    )?;
    kernel.install_modules(&tree)?;
    run_quietly(Command::new("chroot").arg(&tree).args(["depmod", &kernel.release]))?;
    let lab = tree.join("lab");
    std::fs::create_dir(&lab)?;
    crate::package_of_debian(lastwords, &lab)?;
    surroundings(lastwords, &lab)?;
    std::fs::rename(attacker(folder)?, lab.join("attack"))?;
    let script = rig::root().join("proof/lab/src/guest/confined.sh");
    std::fs::copy(&script, lab.join("confined.sh"))
        .with_context(|| script.display().to_string())?;
    for (boot, words) in (1..).zip(variant.boots) {
        let lines = words.iter().map(|(word, seconds)| format!("{word} {seconds}\n"));
        std::fs::write(lab.join(format!("words-{boot}")), lines.collect::<String>())?;
    }
    let wants = tree.join(UNITS).join("multi-user.target.wants");
    std::fs::create_dir_all(&wants)?;
    std::fs::write(tree.join(UNITS).join("lab.service"), UNIT)?;
    std::os::unix::fs::symlink("../lab.service", wants.join("lab.service"))?;
    for unit in MASKED {
        std::os::unix::fs::symlink("/dev/null", tree.join(UNITS).join(unit))?;
    }
    std::fs::write(tree.join("etc/fstab"), "")?;
    if variant.is_labelled {
        let contexts = "/etc/selinux/default/contexts/files/file_contexts";
        run_quietly(
            Command::new("chroot")
                .arg(&tree)
                .args(["setfiles", "-m", "-e", "/proc", "-e", "/sys", "-e", "/dev", contexts, "/"]),
        )?;
    }
    let disk = folder.join("disk.img");
    File::create(&disk)?.set_len(DISK)?;
    run_quietly(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(&tree).arg(&disk))?;
    std::fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())?;
    Ok(disk)
}

/// Adds the table of surroundings, with what it runs, and a user's application that records on its
/// heap.
fn surroundings(lastwords: &Path, lab: &Path) -> Result<()> {
    let built = lab.join("built");
    let library = rig::programs::build("lastwords-capi")?.join("liblastwords_c.so");
    let compiled = built.join("compiled");
    std::fs::create_dir_all(&compiled)?;
    let table = rig::programs::rig("surroundings")?;
    for program in [lastwords, &library, &table] {
        let to = built.join(program.file_name().context("a file")?);
        run_quietly(Command::new("strip").arg("-o").arg(to).arg(program))?;
    }
    run_quietly(Command::new(&table).arg("--built").arg(&built).arg("--compile").arg(&compiled))
        .map(drop)
}

/// Makes the first file system, which mounts the disk and starts systemd.
fn first_system(store: &Store, kernel: &Kernel, folder: &Path) -> Result<PathBuf> {
    let mut archive = Archive::default();
    archive.folder("bin");
    archive.folder("mod");
    archive.copy("bin/busybox", &store.busybox(Arch::Amd64)?)?;
    archive.program("init", include_bytes!("../guest/disk.sh"));
    archive.program("prelude", include_bytes!("../guest/prelude.sh"));
    archive.modules("modules", &[DISK_MODULES, &["crc32c_generic", "ext4"]].concat(), kernel)?;
    archive.write(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_all_words() {
        let script = include_str!("../guest/confined.sh");
        for (word, _) in
            [WITH_SYSTEMD, WITH_SELINUX].iter().flat_map(|variant| variant.boots).copied().flatten()
        {
            assert!(script.contains(&format!("\n{word}() {{")), "{word}");
        }
    }
}
