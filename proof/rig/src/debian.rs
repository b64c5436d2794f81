//! Clean systems of Debian, as tarballs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::mirror::{Mirror, System};
use crate::run_quietly;

/// The essential packages of a suite and `packages` (separated by commas), as
/// `target/tools/NAME-SUITE.tar`. The system is fetched once.
pub fn tarball(name: &str, suite: &str, packages: &str) -> Result<PathBuf> {
    let system = System::of_host()?;
    let folder = crate::tools();
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let tarball = folder.join(format!("{name}-{suite}.tar"));
    if !tarball.exists() {
        let source = folder.join(format!("{name}-{suite}.sources"));
        let mirror =
            if system.id == "debian" { Mirror::of_host(&system) } else { Mirror::of_debian() };
        std::fs::write(&source, mirror?.source(suite, "main"))?;
        let new = tarball.with_extension("new.tar");
        let mut command = Command::new("mmdebstrap");
        command.args([
            "--quiet",
            "--mode=root",
            "--variant=minbase",
            "--aptopt=Acquire::Languages \"none\"",
        ]);
        // A tarball that is made anew after a loss of power need not be synced.
        command.arg("--dpkgopt=force-unsafe-io");
        command.arg(format!("--include={packages}")).arg(suite).arg(&new).arg(&source);
        run_quietly(&mut command)?;
        std::fs::rename(&new, &tarball).with_context(|| tarball.display().to_string())?;
    }
    Ok(tarball)
}
