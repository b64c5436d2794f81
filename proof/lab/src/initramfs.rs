//! The guest's first file system: a cpio archive in the `newc` form
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rig::run_quietly;

use super::packages::Kernel;
use super::{hotplug, static_build};

/// An archive that is being made.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

impl Archive {
    /// Adds a folder; those above it must be there.
    pub(super) fn folder(&mut self, path: &str) {
        self.entry(path, FOLDER, &[]);
    }

    /// Adds a file that may be run.
    pub(super) fn program(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    /// Adds a copy of a file of the host.
    pub(super) fn copy(&mut self, path: &str, of: &Path) -> Result<()> {
        let content = std::fs::read(of).with_context(|| of.display().to_string())?;
        self.program(path, &content);
        Ok(())
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// Writes the whole archive to a file in a folder.
    pub(super) fn write(self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join("initramfs");
        std::fs::write(&path, self.finish()).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Adds modules with those that they need, and the list of their names, each behind those that
    /// it needs.
    pub(super) fn modules(&mut self, list: &str, names: &[&str], kernel: &Kernel) -> Result<()> {
        let (mut modules, mut lines) = (Vec::new(), String::new());
        for name in names {
            kernel.add_module(name, &mut modules)?;
        }
        for (name, module) in &modules {
            self.program(&format!("mod/{name}.ko"), module);
            lines += &format!("{name}\n");
        }
        self.program(list, lines.as_bytes());
        Ok(())
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.files += 1;
        let (name, size) = (path.len() + 1, content.len());
        let header = [self.files, mode, 0, 0, 1, 0, size as u32, 0, 0, 0, 0, name as u32, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Adds programs of this machine by their names in `bin`, stripped, and the libraries that they
/// need.
pub(super) fn add_programs(
    archive: &mut Archive,
    folder: &Path,
    programs: &[(&str, PathBuf)],
) -> Result<()> {
    archive.folder("lib");
    archive.folder("lib64");
    let mut there = Vec::new();
    for (name, program) in programs {
        let stripped = folder.join(name);
        run_quietly(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
        archive.copy(&format!("bin/{name}"), &stripped)?;
        let libraries = if static_build::prove(&stripped).is_ok() {
            Vec::new()
        } else {
            hotplug::libraries(&stripped)?
        };
        for (name, library) in libraries {
            if !there.contains(&name) {
                archive.copy(&name, &library)?;
                there.push(name);
            }
        }
        std::fs::remove_file(&stripped)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_begins_at_four_bytes() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.program("bin/x", b"12345");
        let bytes = archive.finish();
        let starts: Vec<usize> =
            (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"070701")).collect();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|at| at % 4 == 0));
        // c_filesize is the seventh field.
        assert_eq!(&bytes[starts[1] + 6 + 6 * 8..][..8], b"00000005");
    }
}
