//! LTTng for a guest: the kernel's modules, built with the headers and the compiler of its suite,
//! and the suite's daemons.
//!
//! Packages are unpacked into a folder that stands for a root, never installed; the build runs in
//! it. Probes that no scenario uses are left out: some of them need files that Debian's headers
//! lack.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::packages::{Kernel, Program, Store};
use rig::{make_empty, run_quietly};

/// Programs of the build, beside the kernel's headers (which bring the compiler) and LTTng's own.
const PROGRAMS: &[&str] = &[
    "make",
    "dwarves",
    "bash",
    "coreutils",
    "sed",
    "gawk",
    "grep",
    "findutils",
    "kmod",
    "perl-base",
    "diffutils",
];
/// The modules of a suite.
const MODULES: &str = "lttng-modules-dkms";
/// Whose modules are tried where those of the kernel's own suite do not build: the newest.
const NEWEST: &str = "sid";
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
/// Runs a script in a root of its own, as whom it may be: with the host's devices, as root there
/// and nobody here.
const IN_ROOT: &str = "mount --rbind /dev \"$1/dev\" && mount --rbind /proc \"$1/proc\" && exec chroot \"$1\" /usr/bin/bash -ec \"$2\"";

/// The parts of LTTng that a guest needs.
pub(super) struct Tracer {
    /// The folder that stands for the root of programs and libraries.
    pub(super) root: PathBuf,
    /// `lib/modules/RELEASE` with LTTng's modules and the tables of `depmod`, in a folder of that
    /// root.
    pub(super) modules: PathBuf,
    /// The tracer's module with debug information and without BTF.
    pub(super) debug: PathBuf,
}

impl Tracer {
    /// Builds it for a kernel, or takes what was built before. `given`: the modules' source, a
    /// folder or an archive of it, in place of the suite's package.
    pub(super) fn prepare(store: &Store, kernel: &Kernel, given: Option<&Path>) -> Result<Self> {
        let root = store.folder("lttng").join(&kernel.release);
        let guest =
            given.map_or("guest".to_string(), |path| format!("guest-{}", source_name(path)));
        let tracer = Self {
            modules: root.join(&guest).join("lib/modules").join(&kernel.release),
            debug: root.join(&guest).join("debug/lttng-tracer.ko"),
            root,
        };
        if !tracer.modules.join("modules.dep.bin").is_file() || !tracer.debug.is_file() {
            let suite = store.suite_of_headers(&kernel.release)?;
            if !tracer.root.join("usr/bin/make").exists() {
                unpack_programs(store, suite, kernel, &tracer.root)?;
            }
            eprintln!("building LTTng's modules for {}", kernel.release);
            let built = match given {
                Some(path) => take_source(path, &tracer.root)
                    .and_then(|source| tracer.build(kernel, &source, &guest)),
                None => tracer.build_package(store, suite, kernel, &guest),
            };
            built.with_context(|| format!("LTTng for {}", kernel.release))?;
        }
        Ok(tracer)
    }

    /// A program of it, with its libraries.
    pub(super) fn program(&self, path: &str) -> Program {
        Program::at(&self.root, path)
    }

    /// Builds the modules that the suite has, or else the newest.
    fn build_package(
        &self,
        store: &Store,
        suite: &str,
        kernel: &Kernel,
        guest: &str,
    ) -> Result<()> {
        let mut why = None;
        for suite in [suite, NEWEST] {
            let sources = self.root.join("usr/src");
            if let Ok(old) = one_of(&sources, "lttng-modules-") {
                std::fs::remove_dir_all(old)?;
            }
            unpack(&store.package(suite, MODULES)?, &self.root)?;
            match self.build(kernel, &one_of(&sources, "lttng-modules-")?, guest) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    eprintln!("{MODULES} of {suite} is not built for {}", kernel.release);
                    why = Some(error);
                }
            }
        }
        why.map_or(Ok(()), Err)
    }

    /// Builds the modules of a source below `usr/src` of the root, into the root's folder `guest`.
    fn build(&self, kernel: &Kernel, source: &Path, guest: &str) -> Result<()> {
        choose_probes(&source.join("src/probes"))?;
        std::fs::create_dir_all(self.root.join(guest).join("usr/lib"))?;
        let script = format!(
            "export PATH=/usr/bin:/usr/sbin LC_ALL=C
             # Newer suites have them under the machine's name alone.
             for tool in gcc objcopy as ld; do
                 [ -e /usr/bin/$tool ] && continue
                 ln -s $(ls /usr/bin | grep -E \"^({machine}-)?$tool(-[0-9]+)?$\" | head -1) /usr/bin/$tool
             done
             make -j$(nproc) -C /usr/src/linux-headers-{release} M=/usr/src/{source} modules CONFIG_LTTNG=m
             mkdir -p /{guest}/lib/modules/{release}/extra /{guest}/debug
             cd /{guest}/lib/modules/{release}
             find /usr/src/{source} -name '*.ko' | while read f; do
                 objcopy -g $f extra/$(basename $f)
             done
             # Empty tables of what is built in are refused by LTTng's daemon.
             [ -s modules.builtin ] || echo kernel/none.ko > modules.builtin
             touch modules.order
             ln -sfn /{guest}/lib/modules /{guest}/usr/lib/modules
             depmod -b /{guest} {release}
             objcopy -R .BTF -R .BTF.base $(find /usr/src/{source} -name lttng-tracer.ko) /{guest}/debug/lttng-tracer.ko",
            source = source.file_name().unwrap_or_default().to_string_lossy(),
            release = kernel.release,
            machine = format_args!("{}-linux-gnu", std::env::consts::ARCH),
        );
        let unshare = ["-r", "-m", "sh", "-ec", IN_ROOT, "sh"];
        run_quietly(Command::new("unshare").args(unshare).arg(&self.root).arg(script)).map(drop)
    }
}

/// Lays out the root: headers, compiler, programs of the build, LTTng's daemons.
fn unpack_programs(store: &Store, suite: &str, kernel: &Kernel, root: &Path) -> Result<()> {
    let part = root.with_extension("part");
    merged_root(&part)?;
    for file in store.headers(suite, &kernel.release, &[PROGRAMS, &["lttng-tools"]].concat())? {
        unpack(&file, &part)?;
    }
    let bin = part.join("usr/bin");
    for (link, to) in [("sh", "bash"), ("awk", "gawk")] {
        if !bin.join(link).exists() {
            std::os::unix::fs::symlink(to, bin.join(link))?;
        }
    }
    if root.exists() {
        std::fs::remove_dir_all(root)?;
    }
    std::fs::rename(&part, root).with_context(|| root.display().to_string())
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

/// Returns the name of a folder or an archive of sources, without the extension of the archive.
fn source_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(".tar").next().unwrap_or_default().to_string()
}

/// Lays a folder or an archive of sources beside the root's own; a folder that its release's tag
/// names may be called as it likes.
fn take_source(path: &Path, root: &Path) -> Result<PathBuf> {
    // Not called as a package's is, so that neither is taken for the other.
    let to = root.join("usr/src").join(format!("given-{}", source_name(path)));
    make_empty(&to)?;
    let mut command = if path.is_dir() { Command::new("cp") } else { Command::new("tar") };
    match path.is_dir() {
        true => command.arg("-a").arg(path.join(".")).arg(&to),
        false => command.arg("-C").arg(&to).args(["--strip-components=1", "-xf"]).arg(path),
    };
    run_quietly(&mut command)?;
    if !to.join("src/probes/Kbuild").is_file() {
        bail!("{}: no source of lttng-modules: it has no src/probes/Kbuild", path.display());
    }
    Ok(to)
}

fn one_of(folder: &Path, begin: &str) -> Result<PathBuf> {
    let entries =
        std::fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten();
    let found = entries
        .map(|e| e.path())
        .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(begin)));
    found.with_context(|| format!("{}: nothing called {begin}* in it", folder.display()))
}

/// Leaves those of [`PROBES`] that this release has in the list of what is built.
fn choose_probes(folder: &Path) -> Result<()> {
    let path = folder.join("Kbuild");
    let old = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut new: String =
        old.split_inclusive('\n').take_while(|line| !line.starts_with("obj-")).collect();
    let mut kept = 0;
    for probe in PROBES.iter().filter(|probe| folder.join(format!("{probe}.c")).is_file()) {
        new += &format!("obj-$(CONFIG_LTTNG) += {probe}.o\n");
        kept += 1;
    }
    ensure!(kept > 0, "{}: none of the probes is there", folder.display());
    std::fs::write(&path, new).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sources() {
        assert_eq!(
            source_name(Path::new("/a/lttng-modules-2.15.2.tar.bz2")),
            "lttng-modules-2.15.2"
        );
        assert_eq!(source_name(Path::new("lttng-modules-2.14.6/")), "lttng-modules-2.14.6");
    }
}
