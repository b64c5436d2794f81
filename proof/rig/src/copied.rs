//! The files of a machine's tracer that are kept beside the repository.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Lays out what was copied from the machine as its files were: the formats are lines `PATH:TEXT`
/// of one file.
pub fn files(system: &Path, tree: &Path) -> Result<()> {
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
