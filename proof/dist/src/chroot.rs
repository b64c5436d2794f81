//! A clean Debian in a folder, in which packages are installed, used and removed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use rig::mirror::System;
use rig::{debian, run_quietly};

/// Besides the essential packages: a compiler for what links with the library, systemd, which
/// judges the units, and the tools that make the first file systems of crash kernels.
const PACKAGES: &str =
    "gcc,libc6-dev,pkg-config,systemd,initramfs-tools-core,dracut-core,cpio,zstd";

pub(super) struct Chroot {
    tarball: PathBuf,
}

impl Chroot {
    /// The system of a suite.
    pub(super) fn open(suite: Option<&str>) -> Result<Self> {
        let host = System::of_host()?;
        Ok(Self { tarball: debian::tarball("debian", suite.unwrap_or(&host.codename), PACKAGES)? })
    }

    /// Installs, uses and removes the packages, without a network, in name spaces that end with the
    /// script.
    pub(super) fn run(&self, scratch: &Path, debs: &[PathBuf]) -> Result<()> {
        let root = scratch.join("chroot");
        std::fs::create_dir(&root)?;
        run_quietly(Command::new("tar").arg("-C").arg(&root).arg("-xf").arg(&self.tarball))?;
        for folder in ["packages", "sources"] {
            std::fs::create_dir(root.join(folder))?;
        }
        let copy = |from: &Path, to: &str| {
            let name = from.file_name().unwrap_or_default();
            std::fs::copy(from, root.join(to).join(name))
                .with_context(|| from.display().to_string())
        };
        for deb in debs {
            copy(deb, "packages")?;
        }
        for source in ["examples/c-app/main.c", "examples/compare.awk", "proof/dist/src/chroot.sh"]
        {
            copy(&rig::root().join(source), "sources")?;
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
