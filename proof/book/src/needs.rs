//! The needs of code blocks: files and programs, and how they get into the folder in which the
//! commands of a page run.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Returns why a thing is not here; none if it is.
pub(super) fn missing(name: &str) -> Result<Option<String>> {
    let case = |name: &str| rig::beside().join("cases").join(name).is_dir();
    let (is_here, why) = match name {
        "vmcore" => (case("ftrace-6.12-live-crash"), "no crash dump beside the repository"),
        "lttng" => {
            (case("ust-shm-crash") && case("ust-core"), "no memory of LTTng beside the repository")
        }
        "persistent" => {
            (case("ftrace-6.12-persistent"), "no persistent ring buffer beside the repository")
        }
        "tracefs" => (
            rig::is_root() && Path::new("/sys/kernel/tracing/instances").is_dir(),
            "needs root and tracefs",
        ),
        "root" => (rig::is_root(), "needs root"),
        "fuse" => (Path::new("/dev/fuse").exists(), "needs /dev/fuse"),
        "gdb" => (Path::new("/usr/bin/gcore").exists(), "needs gcore"),
        _ => {
            bail!("`needs {name}`: expected vmcore, lttng, persistent, tracefs, root, fuse or gdb")
        }
    };
    Ok((!is_here).then(|| why.to_owned()))
}

/// Puts a thing into the folder.
pub(super) fn provide(name: &str, folder: &Path) -> Result<()> {
    let cases = rig::beside().join("cases").canonicalize();
    let link = |from: &Path, to: &str| match symlink(from, folder.join(to)) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).context(to.to_owned())
        }
        _ => Ok(()),
    };
    match name {
        "vmcore" => {
            link(&cases?.join("ftrace-6.12-live-crash/makedumpfile-1.7.2-d31.kdump"), "vmcore")
        }
        "lttng" if folder.join("lttng-shm").exists() => Ok(()),
        "lttng" => {
            let cases = cases?;
            let archive = cases.join("ust-shm-crash/shm.tar");
            run(Command::new("tar").current_dir(folder).arg("-xf").arg(archive))?;
            std::fs::rename(folder.join("shm"), folder.join("lttng-shm"))?;
            link(&cases.join("ust-core/core-kernel.zst"), "lttng-core")?;
            link(&cases.join("ust-core/core-sessiond.zst"), "sessiond-core")
        }
        "persistent" if folder.join("region").exists() => Ok(()),
        "persistent" => {
            let case = cases?.join("ftrace-6.12-persistent");
            let packed = case.join("region-before-second-boot.bin.zst");
            run(Command::new("zstd")
                .args(["-q", "-d"])
                .arg(packed)
                .arg("-o")
                .arg(folder.join("region")))?;
            rig::copied::files(&case.join("truth/first-boot/system"), &folder.join("first-boot"))
        }
        _ => Ok(()),
    }
}

fn run(command: &mut Command) -> Result<()> {
    rig::run_quietly(command).map(drop)
}
