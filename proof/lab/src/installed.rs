//! The installed package in crash kernels: an installed Debian makes the first file system of its
//! crash kernel, with initramfs-tools and kdump-tools or with dracut, and crashes. What the hooks
//! saved on its disk is compared with what the kernel had printed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::compare::{Ours, Rows, judge_trace_dat};
use super::dump::Dump;
use super::packages::{Kernel, Store};
use super::qemu::{Config, Guest};
use super::texts::read;
use super::{Arch, Setup, qemu};
use rig::{debian, is_root, make_empty, run_quietly};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "installed";
pub(super) const WHAT: &str = "the package on a Debian whose crash kernel saves the trace, with initramfs-tools and with dracut";

/// The suite of the system, and its packages besides the essential ones: what kdump-tools needs,
/// and what makes first file systems.
const SUITE: &str = "trixie";
const PACKAGES: &str = "systemd-sysv,udev,kmod,initramfs-tools,dracut-core,zstd,cpio,bsdextrautils,busybox,file,linux-base,ucf,\
                        kexec-tools,makedumpfile";
/// Megabytes of the guest's memory, and what is kept of it for the crash kernel.
const MEMORY: u32 = 1024;
const CRASH_MEMORY: &str = "256M";
const CPUS: u32 = 2;
/// Bytes of the disk; sparse.
const DISK: u64 = 4 << 30;
/// Until the system has installed everything and crashes, and until its crash kernel has done its
/// work.
const INSTALLED: Duration = Duration::from_secs(1500);
const SAVED: Duration = Duration::from_secs(900);
/// The unit that starts the guest's script.
const UNIT: &str =
    "[Service]\nType=oneshot\nExecStart=/bin/sh /lab/installed.sh\nTimeoutStartSec=infinity\n";
const UNITS: &str = "etc/systemd/system";

/// How the first file system of the crash kernel is made.
const WAYS: [&str; 2] = ["initramfs-tools", "dracut"];

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    ensure!(is_root(), "the installed system is made by root: run this command as root");
    let system = System::install(store, kernel, lastwords, folder)?;
    for by in WAYS {
        let out = system.crash(store, kernel, by)?;
        judge(rows, lastwords, by, &out)?;
    }
    Ok(())
}

/// A system that is ready to boot.
struct System<'a> {
    folder: &'a Path,
    /// The root file system before its first boot.
    disk: PathBuf,
    initramfs: PathBuf,
}

impl<'a> System<'a> {
    fn install(store: &Store, kernel: &Kernel, lastwords: &Path, folder: &'a Path) -> Result<Self> {
        let tree = folder.join("tree");
        std::fs::create_dir(&tree)?;
        let tarball = debian::tarball("crash", SUITE, PACKAGES)?;
        run_quietly(Command::new("tar").arg("-C").arg(&tree).arg("-xf").arg(tarball))?;
        let (release, of_guest) = (&kernel.release, tree.join("lab"));
        let image = tree.join(format!("boot/vmlinuz-{release}"));
        std::fs::copy(&kernel.image, &image).with_context(|| image.display().to_string())?;
        kernel.install_modules(&tree)?;
        std::fs::create_dir(&of_guest)?;
        crate::package_of_debian(lastwords, &of_guest)?;
        let kdump = store.package(SUITE, "kdump-tools")?;
        std::fs::copy(&kdump, of_guest.join("kdump-tools_of_suite.deb"))
            .with_context(|| kdump.display().to_string())?;
        std::fs::write(of_guest.join("installed.sh"), include_bytes!("guest/installed.sh"))?;
        let wants = tree.join(UNITS).join("multi-user.target.wants");
        std::fs::create_dir_all(&wants)?;
        std::fs::write(tree.join(UNITS).join("lab.service"), UNIT)?;
        std::os::unix::fs::symlink("../lab.service", wants.join("lab.service"))?;
        std::fs::write(tree.join("etc/fstab"), "LABEL=lab / ext4 defaults 0 1\n")?;
        run_quietly(Command::new("chroot").arg(&tree).args(["depmod", release]))?;
        run_quietly(Command::new("chroot").arg(&tree).args([
            "mkinitramfs",
            "-o",
            "/boot/initrd.img",
            release,
        ]))?;
        let (initramfs, disk) = (folder.join("initramfs"), folder.join("installed.img"));
        std::fs::rename(tree.join("boot/initrd.img"), &initramfs)?;
        File::create(&disk)?.set_len(DISK)?;
        run_quietly(
            Command::new("mke2fs")
                .args(["-q", "-t", "ext4", "-L", "lab", "-d"])
                .arg(&tree)
                .arg(&disk),
        )?;
        std::fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())?;
        Ok(Self { folder, disk, initramfs })
    }

    /// Boots a copy until its crash kernel has ended; what is on its disk then.
    fn crash(&self, store: &Store, kernel: &Kernel, by: &str) -> Result<Found> {
        let folder = self.folder.join(by);
        make_empty(&folder)?;
        let disk = folder.join("disk.img");
        run_quietly(Command::new("cp").arg("--sparse=always").arg(&self.disk).arg(&disk))?;
        let arguments = format!(
            "root=LABEL=lab rw loglevel=4 panic=0 no_timer_check crashkernel={CRASH_MEMORY} lab.by={by}"
        );
        let program = qemu(store, Arch::Amd64)?;
        let config = Config {
            arguments: &arguments,
            memory: MEMORY,
            cpus: CPUS,
            disks: std::slice::from_ref(&disk),
            ..Config::new(Arch::Amd64, &program, [&kernel.image, &self.initramfs, &folder])
        };
        let mut guest = Guest::start(&config)?;
        guest.wait_for("LAB-CRASHES", INSTALLED)?;
        let console = guest.wait_for_end(SAVED)?;
        // The crash kernel has the file system's journal replayed, and ends in good order.
        run_quietly(Command::new("e2fsck").arg("-fn").arg(&disk))?;
        for saved in ["var/crash", "lab/truth"] {
            run_quietly(
                Command::new("debugfs")
                    .arg("-R")
                    .arg(format!("rdump {saved} {}", folder.display()))
                    .arg(&disk),
            )?;
        }
        std::fs::remove_file(&disk).with_context(|| disk.display().to_string())?;
        Ok(Found { console, truth: folder.join("truth"), crash: folder.join("crash") })
    }
}

/// The files and texts that a crash left.
struct Found {
    console: String,
    truth: PathBuf,
    crash: PathBuf,
}

fn judge(rows: &mut Rows, lastwords: &Path, by: &str, found: &Found) -> Result<()> {
    let (traces, others): (Vec<PathBuf>, Vec<PathBuf>) =
        entries(&found.crash)?.into_iter().partition(|path| name(path).starts_with("lastwords-"));
    rows.row(
        traces.len() == 1,
        &format!("{by}: saved once"),
        &traces.iter().map(|path| name(path)).collect::<Vec<_>>().join(" "),
    );
    if let Some(saved) = traces.first() {
        let account = read(&saved.join("report")).unwrap_or_default();
        rows.row(
            account.contains("trace.dat"),
            &format!("{by}: the account"),
            account.lines().last().unwrap_or("none"),
        );
        judge_trace_dat(rows, &format!("{by}: trace.dat"), &saved.join("trace.dat"), &found.truth)?;
    }
    if by != "initramfs-tools" {
        return Ok(());
    }
    let said = found.console.lines().find(|line| line.contains("lastwords: the trace is in "));
    rows.row(
        said.is_some(),
        "kdump-tools-dump.service finds the trace saved",
        said.unwrap_or("nothing is said").trim(),
    );
    // The dump of kdump-tools: made after the trace, of the same memory.
    let dumps = others
        .iter()
        .filter(|path| path.is_dir())
        .map(|path| entries(path))
        .collect::<Result<Vec<_>>>()?;
    let dump = dumps.into_iter().flatten().find(|path| name(path).starts_with("dump."));
    let Some(dump) = dump else {
        rows.row(false, "the dump of kdump-tools", "there is none");
        return Ok(());
    };
    let dump = Dump { format: "kdump-tools", files: vec![dump], is_cut: true };
    let truth = std::fs::read(found.truth.join("top/trace"))?;
    rows.same_text(
        "the dump of kdump-tools",
        &truth,
        &Ours { program: lastwords }.run("report", &dump, &[]),
    );
    Ok(())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the entries of a folder, sorted.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let found = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = found.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
