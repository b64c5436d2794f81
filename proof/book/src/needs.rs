//! The needs of code blocks: files and programs, and how they get into the folder in which the
//! commands of a page run.

use std::collections::BTreeMap;
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
            copied_files(&case.join("truth/first-boot/system"), &folder.join("first-boot"))
        }
        _ => Ok(()),
    }
}

/// Lays out what was copied from the machine as its files were: the formats are lines `PATH:TEXT`
/// of one file.
fn copied_files(system: &Path, tree: &Path) -> Result<()> {
    const NAMES: [(&str, &str); 9] = [
        ("header_page", "events/header_page"),
        ("header_event", "events/header_event"),
        ("kallsyms", "kallsyms"),
        ("btf-vmlinux", "btf/vmlinux"),
        ("modules", "modules"),
        ("printk_formats", "printk_formats"),
        ("saved_cmdlines", "saved_cmdlines"),
        ("saved_tgids", "saved_tgids"),
        ("uname", "uname"),
    ];
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for line in read(system, "formats")?
        .context("the formats are missing")?
        .split_inclusive(|byte| *byte == b'\n')
    {
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .context("a line of the formats without a path")?;
        files
            .entry(String::from_utf8_lossy(&line[..colon]).into_owned())
            .or_default()
            .extend(&line[colon + 1..]);
    }
    for (name, to) in NAMES {
        files.extend(read(system, name)?.map(|bytes| (to.to_owned(), bytes)));
    }
    for (name, bytes) in files {
        let path = tree.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(tree))?;
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the contents of a file that may be compressed; none if there is no such file.
fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>> {
    let (plain, packed) = (folder.join(name), folder.join(format!("{name}.zst")));
    if plain.is_file() {
        return Ok(Some(std::fs::read(plain)?));
    }
    if !packed.is_file() {
        return Ok(None);
    }
    let output =
        Command::new("zstd").args(["-q", "-d", "-c"]).arg(&packed).output().context("zstd")?;
    if !output.status.success() {
        bail!("{}: zstd: {}", packed.display(), output.status);
    }
    Ok(Some(output.stdout))
}

fn run(command: &mut Command) -> Result<()> {
    rig::run_quietly(command).map(drop)
}
