//! Dumps of a guest's memory, in each form: by QEMU itself, and by makedumpfile from QEMU's.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::packages::{Program, Store};
use super::qemu::{Config, Guest};
use super::{PANIC, boot};
use rig::run_quietly;

/// A form of dump.
pub(super) struct Format {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    by: By,
}

enum By {
    /// QEMU's `dump-guest-memory` in this format.
    Qemu(&'static str),
    /// makedumpfile with these options.
    Makedumpfile(&'static [&'static str]),
}

/// All of them. QEMU may be built without lzo and snappy.
pub(super) const FORMATS: &[Format] = &[
    Format { name: "elf", what: "QEMU: ELF", by: By::Qemu("elf") },
    Format {
        name: "kdump-zlib",
        what: "QEMU: kdump-compressed, flattened, zlib",
        by: By::Qemu("kdump-zlib"),
    },
    Format { name: "kdump-lzo", what: "QEMU: the same, lzo", by: By::Qemu("kdump-lzo") },
    Format { name: "kdump-snappy", what: "QEMU: the same, snappy", by: By::Qemu("kdump-snappy") },
    Format { name: "d31-zlib", what: "makedumpfile -d 31, zlib", by: By::Makedumpfile(&["-c"]) },
    Format { name: "d31-lzo", what: "makedumpfile -d 31, lzo", by: By::Makedumpfile(&["-l"]) },
    Format {
        name: "d31-snappy",
        what: "makedumpfile -d 31, snappy",
        by: By::Makedumpfile(&["-p"]),
    },
    Format { name: "d31-zstd", what: "makedumpfile -d 31, zstd", by: By::Makedumpfile(&["-z"]) },
    Format {
        name: "d31-flat",
        what: "makedumpfile -d 31, flattened",
        by: By::Makedumpfile(&["-c", "-F"]),
    },
    Format {
        name: "d31-split",
        what: "makedumpfile -d 31, split in two",
        by: By::Makedumpfile(&["-c", "--split"]),
    },
];

/// One dump: the files of it, in their order.
pub(super) struct Dump {
    pub(super) format: &'static str,
    pub(super) files: Vec<PathBuf>,
    /// Pages were left out of it.
    pub(super) is_cut: bool,
}

/// The suite whose makedumpfile is used: the newest that there is for all suites of kernels.
const MAKEDUMPFILE: &str = "trixie";

/// The row of that name.
pub(super) fn find(name: &str) -> Result<&'static Format> {
    let found = FORMATS.iter().find(|f| f.name == name);
    found.with_context(|| format!("no dump format `{name}`: `cargo xtask lab --list` lists them"))
}

/// Makes the dumps. The guest stands still.
pub(super) fn make(
    guest: &mut Guest,
    store: &Store,
    formats: &[&'static Format],
    folder: &Path,
) -> Result<Vec<Dump>> {
    let has = guest.qmp("query-dump-guest-memory-capability", json!({}))?;
    let elf = folder.join("memory.elf");
    let wanted = formats.iter().any(|f| f.name == "elf");
    let packed = formats.iter().any(|f| matches!(f.by, By::Makedumpfile(_)));
    let mut dumps = Vec::new();
    for format in formats {
        let By::Qemu(name) = format.by else { continue };
        if !has["formats"].as_array().is_some_and(|all| all.iter().any(|f| f == name)) {
            bail!("this QEMU does not write {name}: it was built without");
        }
        let file = if name == "elf" { elf.clone() } else { folder.join(format!("memory.{name}")) };
        by_qemu(guest, name, &file)?;
        dumps.push(Dump { format: format.name, files: vec![file], is_cut: false });
    }
    if packed {
        if !wanted {
            by_qemu(guest, "elf", &elf)?;
        }
        let moved = folder.join("moved.elf");
        move_headers(&elf, &moved)?;
        let program = store.program("makedumpfile", MAKEDUMPFILE, "usr/bin/makedumpfile")?;
        for format in formats {
            if let By::Makedumpfile(options) = format.by {
                dumps.push(by_makedumpfile(&program, options, format.name, &moved)?);
            }
        }
        std::fs::remove_file(moved)?;
        if !wanted {
            std::fs::remove_file(elf)?;
        }
    }
    Ok(dumps)
}

/// Starts a guest that panics after it has said that its truth is there. Returns its dumps in these
/// forms, and its console.
pub(super) fn of_panic(
    config: &Config<'_>,
    store: &Store,
    formats: &[&str],
) -> Result<(Vec<Dump>, String)> {
    let mut guest = boot(config, "LAB-TRUTH-DONE")?;
    guest.wait_for("end Kernel panic", PANIC)?;
    guest.qmp("stop", json!({}))?;
    let formats = formats.iter().map(|name| find(name)).collect::<Result<Vec<_>>>()?;
    let dumps = make(&mut guest, store, &formats, config.folder)?;
    let console = guest.console().replace('\r', "");
    guest.quit()?;
    Ok((dumps, console))
}

fn by_qemu(guest: &mut Guest, format: &str, file: &Path) -> Result<()> {
    let protocol = format!("file:{}", file.display());
    guest
        .qmp(
            "dump-guest-memory",
            json!({ "paging": false, "protocol": protocol, "format": format }),
        )
        .map(drop)
}

fn by_makedumpfile(
    program: &Program,
    options: &[&str],
    name: &'static str,
    elf: &Path,
) -> Result<Dump> {
    let file = |part: &str| elf.with_file_name(format!("{name}{part}"));
    let mut command = program.command()?;
    command.args(options).args(["-d", "31"]).arg(elf);
    let files =
        if options.contains(&"--split") { vec![file("-1"), file("-2")] } else { vec![file("")] };
    let flat = options.contains(&"-F");
    if flat {
        // The stream goes to standard output.
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "makedumpfile -F: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::fs::write(&files[0], output.stdout)?;
    } else {
        run_quietly(command.args(&files))?;
    }
    for file in &files {
        ensure!(file.metadata()?.len() > 0, "{}: empty", file.display());
    }
    Ok(Dump { format: name, files, is_cut: true })
}

/// Size of an ELF64 header and of a program header, as elf(5) has them.
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const CHUNK: u64 = 1 << 20;

/// Copies QEMU's ELF so that its program headers stand right behind the ELF header: makedumpfile
/// takes no other.
fn move_headers(from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    let mut header = [0u8; HEADER];
    from.read_exact_at(&mut header, 0)?;
    let word = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
    };
    let half = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let (table, count) = (word(&header, 32), usize::from(half(&header, 56)));
    let mut headers = vec![0u8; count * PROGRAM_HEADER];
    from.read_exact_at(&mut headers, table)?;
    // e_phoff, e_shoff, e_ehsize; no section headers.
    header[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
    header[40..48].fill(0);
    header[52..54].copy_from_slice(&(HEADER as u16).to_le_bytes());
    header[58..64].fill(0);
    to.write_all_at(&header, 0)?;
    let mut at = (HEADER + headers.len()) as u64;
    for program_header in headers.chunks_exact_mut(PROGRAM_HEADER) {
        let (offset, size) = (word(program_header, 8), word(program_header, 32));
        program_header[8..16].copy_from_slice(&at.to_le_bytes());
        copy(&from, offset, &to, at, size)?;
        at = (at + size).next_multiple_of(16);
    }
    to.write_all_at(&headers, HEADER as u64)?;
    Ok(())
}

/// Copies, leaving out what is zero.
fn copy(from: &File, offset: u64, to: &File, at: u64, size: u64) -> Result<()> {
    let mut buffer = vec![0u8; CHUNK as usize];
    to.set_len(at + size)?;
    for start in (0..size).step_by(CHUNK as usize) {
        let len = (size - start).min(CHUNK) as usize;
        from.read_exact_at(&mut buffer[..len], offset + start)?;
        if buffer[..len].iter().any(|b| *b != 0) {
            to.write_all_at(&buffer[..len], at + start)?;
        }
    }
    Ok(())
}
