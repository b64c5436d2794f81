//! LTTng for a guest: the kernel's modules, built with the headers and the compiler of its suite, and the suite's daemons.
//!
//! Packages are unpacked into a folder that stands for a root, never installed; the build runs in it. Probes that no scenario
//! uses are left out: some of them need files that Debian's headers lack.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::lab::packages::{Kernel, Program, Store};
use crate::setup::{make_empty, run_quietly};

/// Programs of the build, beside the kernel's headers (which bring the compiler) and LTTng's own.
const PROGRAMS: &[&str] =
    &["make", "dwarves", "bash", "coreutils", "sed", "gawk", "grep", "findutils", "kmod", "perl-base", "diffutils"];
/// Probes that the scenarios use, and the parts that the tracer needs of this folder.
const PROBES: &[&str] = &[
    "lttng-probe-sched",
    "lttng-probe-irq",
    "lttng-probe-signal",
    "lttng-probe-module",
    "lttng-probe-statedump",
    "lttng-probe-workqueue",
    "lttng-probe-printk",
    "lttng-kprobes",
    "lttng-kretprobes",
    "lttng-uprobes",
];
/// Runs a script in a root of its own, as whom it may be: with the host's devices, as root there and nobody here.
const IN_ROOT: &str =
    "mount --rbind /dev \"$1/dev\" && mount --rbind /proc \"$1/proc\" && exec chroot \"$1\" /usr/bin/bash -ec \"$2\"";

/// What a guest needs of LTTng.
pub(super) struct Tracer {
    /// The folder that stands for the root of programs and libraries.
    pub(super) root: PathBuf,
    /// `lib/modules/RELEASE` with LTTng's modules and the tables of `depmod`, in that root's folder `guest`.
    pub(super) modules: PathBuf,
}

impl Tracer {
    /// Builds it for a kernel, or takes what was built before.
    pub(super) fn of(store: &Store, kernel: &Kernel) -> Result<Self> {
        let root = store.folder("lttng").join(&kernel.release);
        let modules = root.join("guest/lib/modules").join(&kernel.release);
        if !modules.join("modules.dep.bin").is_file() {
            eprintln!("building LTTng's modules for {}", kernel.release);
            build(store, kernel, &root, &modules).with_context(|| format!("LTTng for {}", kernel.release))?;
        }
        Ok(Self { root, modules })
    }

    /// A program of it, with its libraries.
    pub(super) fn program(&self, path: &str) -> Program {
        Program::at(&self.root, path)
    }
}

fn build(store: &Store, kernel: &Kernel, root: &Path, modules: &Path) -> Result<()> {
    let headers = format!("linux-headers-{}", kernel.release);
    let mut wanted = vec![headers.as_str(), "lttng-tools"];
    wanted.extend(PROGRAMS);
    let (packages, source) = store.packages_of(&headers, &wanted, "lttng-modules-dkms")?;
    merged_root(root)?;
    for file in packages.iter().chain([&source]) {
        unpack(file, root)?;
    }
    let bin = root.join("usr/bin");
    for (link, to) in [("sh", "bash"), ("awk", "gawk")] {
        if !bin.join(link).exists() {
            std::os::unix::fs::symlink(to, bin.join(link))?;
        }
    }
    let source = one_of(&root.join("usr/src"), "lttng-modules-")?;
    choose_probes(&source.join("src/probes"))?;
    std::fs::create_dir_all(modules.join("extra"))?;
    let script = format!(
        "export PATH=/usr/bin:/usr/sbin LC_ALL=C
         # Newer suites have them under the machine's name alone.
         for tool in gcc objcopy; do
             [ -e /usr/bin/$tool ] && continue
             ln -s $(ls /usr/bin | grep -E \"^({machine}-)?$tool(-[0-9]+)?$\" | head -1) /usr/bin/$tool
         done
         make -j$(nproc) -C /usr/src/{headers} M=/usr/src/{source} modules CONFIG_LTTNG=m
         find /usr/src/{source} -name '*.ko' | while read f; do
             objcopy -g $f /guest/lib/modules/{release}/extra/$(basename $f)
         done
         cd /guest/lib/modules/{release}
         # Empty tables of what is built in are refused by LTTng's daemon.
         [ -s modules.builtin ] || echo kernel/none.ko > modules.builtin
         touch modules.order
         ln -sfn /guest/lib/modules /guest/usr/lib/modules
         depmod -b /guest {release}",
        source = source.file_name().unwrap_or_default().to_string_lossy(),
        release = kernel.release,
        machine = format_args!("{}-linux-gnu", std::env::consts::ARCH),
    );
    std::fs::create_dir_all(root.join("guest/usr/lib"))?;
    run_quietly(Command::new("unshare").args(["-r", "-m", "sh", "-ec", IN_ROOT, "sh"]).arg(root).arg(script)).map(drop)
}

/// A root whose `/bin` and the like are those of `/usr`, as Debian's are.
fn merged_root(root: &Path) -> Result<()> {
    make_empty(root)?;
    for folder in ["bin", "sbin", "lib", "lib64"] {
        std::fs::create_dir_all(root.join("usr").join(folder))?;
        std::os::unix::fs::symlink(format!("usr/{folder}"), root.join(folder))?;
    }
    for folder in ["dev", "proc", "tmp"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    Ok(())
}

/// Unpacks a package without making folders of links.
fn unpack(file: &Path, root: &Path) -> Result<()> {
    let script = "dpkg-deb --fsys-tarfile \"$1\" | tar -x -C \"$2\" --keep-directory-symlink -f -";
    run_quietly(Command::new("sh").args(["-ec", script, "sh"]).arg(file).arg(root)).map(drop)
}

fn one_of(folder: &Path, begin: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten();
    let found =
        entries.map(|e| e.path()).find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(begin)));
    found.with_context(|| format!("{}: nothing called {begin}* in it", folder.display()))
}

/// Leaves those of [`PROBES`] that this release has in the list of what is built.
fn choose_probes(folder: &Path) -> Result<()> {
    let path = folder.join("Kbuild");
    let old = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut new: String = old.split_inclusive('\n').take_while(|line| !line.starts_with("obj-")).collect();
    let mut kept = 0;
    for probe in PROBES.iter().filter(|probe| folder.join(format!("{probe}.c")).is_file()) {
        new += &format!("obj-$(CONFIG_LTTNG) += {probe}.o\n");
        kept += 1;
    }
    ensure!(kept > 0, "{}: none of the probes is there", folder.display());
    std::fs::write(&path, new).with_context(|| path.display().to_string())
}
