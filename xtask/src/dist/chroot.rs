//! A clean Debian in a folder, in which packages are installed, used and removed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::setup::mirror::{Mirror, System};
use crate::setup::run_quietly;

/// Besides the essential packages: a compiler for what links with the library, systemd, which judges the units, and the tools that make
/// the first file systems of crash kernels.
const PACKAGES: &str = "gcc,libc6-dev,pkg-config,systemd,initramfs-tools-core,dracut-core,cpio,zstd";

pub(super) struct Chroot {
    tarball: PathBuf,
}

impl Chroot {
    /// The system of a suite; it is fetched once, and kept as a tarball.
    pub(super) fn open(suite: Option<&str>) -> Result<Self> {
        let system = System::of_host()?;
        let suite = suite.unwrap_or(&system.codename);
        let folder = crate::root().join("target/tools");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let tarball = folder.join(format!("debian-{suite}.tar"));
        if !tarball.exists() {
            let source = folder.join(format!("debian-{suite}.sources"));
            let mirror = if system.id == "debian" { Mirror::of_host(&system) } else { Mirror::of_debian() };
            std::fs::write(&source, mirror?.source(suite, "main"))?;
            let new = tarball.with_extension("new.tar");
            let mut command = Command::new("mmdebstrap");
            command.args(["--quiet", "--mode=root", "--variant=minbase", "--aptopt=Acquire::Languages \"none\""]);
            // A tarball that is made anew after a loss of power need not be synced.
            command.arg("--dpkgopt=force-unsafe-io");
            command.arg(format!("--include={PACKAGES}")).arg(suite).arg(&new).arg(&source);
            run_quietly(&mut command)?;
            std::fs::rename(&new, &tarball).with_context(|| tarball.display().to_string())?;
        }
        Ok(Self { tarball })
    }

    /// Installs, uses and removes the packages, without a network, in name spaces that end with the script.
    pub(super) fn run(&self, scratch: &Path, debs: &[PathBuf]) -> Result<()> {
        let root = scratch.join("chroot");
        std::fs::create_dir(&root)?;
        run_quietly(Command::new("tar").arg("-C").arg(&root).arg("-xf").arg(&self.tarball))?;
        for folder in ["packages", "sources"] {
            std::fs::create_dir(root.join(folder))?;
        }
        let copy = |from: &Path, to: &str| {
            let name = from.file_name().unwrap_or_default();
            std::fs::copy(from, root.join(to).join(name)).with_context(|| from.display().to_string())
        };
        for deb in debs {
            copy(deb, "packages")?;
        }
        for source in ["examples/c-app/main.c", "examples/compare.awk", "xtask/src/dist/chroot.sh"] {
            copy(&crate::root().join(source), "sources")?;
        }
        let enter = "mount -t proc proc \"$1/proc\"; mount -t tmpfs tmpfs \"$1/dev/shm\"; mount -t tmpfs tmpfs \"$1/tmp\"
            exec chroot \"$1\" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 sh /sources/chroot.sh";
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--net",
            "--ipc",
            "--uts",
            "--fork",
            "--kill-child",
            "sh",
            "-ec",
            enter,
            "sh",
        ]);
        let status = command.arg(&root).status().context("unshare")?;
        if !status.success() {
            bail!("the packages in {}: {status}", self.tarball.display());
        }
        Ok(())
    }
}
