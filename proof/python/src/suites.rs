//! The wheel in clean systems of Debian: `pip install` into an environment, as a user does it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rig::{debian, run_quietly};

use crate::{ALONE, Environment, stored_sessions};

/// What a minimal Debian lacks: environments of Python, and what DuckDB is linked with.
const PACKAGES: &str = "python3-venv,libstdc++6";

/// Installs the wheel with DuckDB, reads sessions by the package alone, and asks them by SQL.
const USE: &str = r#"
python3 -m venv /venv
/venv/bin/pip install --quiet --no-index --find-links /wheels "lastwords[sql]"
/venv/bin/python /alone.py /sessions
rows=$(/venv/bin/lastwords-sql /sessions --format csv -c "SELECT count(*) > 0 FROM events" | tail -n 1)
test "$rows" = true || { echo "lastwords-sql: $rows"; exit 1; }
/venv/bin/python -c 'import platform; print("Python", platform.python_version())'
"#;

/// Mounts `/proc` in the system, and runs the script there.
const ENTER: &str = r#"mount -t proc proc "$1/proc"
exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 sh -eu /use.sh"#;

/// Installs and uses the wheel in a clean system of a suite, such as `trixie`.
pub(crate) fn run(suite: &str, tests: &Environment, folder: &Path, wheel: &Path) -> Result<()> {
    let tarball = debian::tarball("python", suite, PACKAGES)?;
    let root = folder.join("suite");
    if root.exists() {
        std::fs::remove_dir_all(&root).context("the system of the last run")?;
    }
    std::fs::create_dir(&root).context("the system's folder")?;
    run_quietly(Command::new("tar").arg("-C").arg(&root).arg("-xf").arg(&tarball))?;
    download(tests, &root, wheel)?;
    std::fs::write(root.join("alone.py"), ALONE).context("alone.py")?;
    std::fs::write(root.join("use.sh"), USE).context("use.sh")?;
    stored_sessions(&root.join("sessions"))?;
    let mut enter = Command::new("unshare");
    enter.args(["--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-ec", ENTER, "sh"]);
    let said = run_quietly(enter.arg(&root)).with_context(|| format!("the wheel in {suite}"))?;
    println!("{suite}: {}", said.trim_end());
    std::fs::remove_dir_all(&root).context("the system")
}

/// Fetches the wheel's dependencies for the system's Python into its folder `wheels`.
fn download(tests: &Environment, root: &Path, wheel: &Path) -> Result<()> {
    let python = root.join("usr/bin/python3");
    let program = std::fs::read_link(&python).with_context(|| python.display().to_string())?;
    let name = program.to_string_lossy();
    let version = name.strip_prefix("python").with_context(|| format!("{name} is no Python"))?;
    let wheels = root.join("wheels");
    let mut pip = tests.command("python");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--only-binary=:all:", "--python-version", version, "--dest"]).arg(&wheels);
    run_quietly(pip.arg(format!("{}[sql]", wheel.display())))?;
    ensure!(wheels.is_dir(), "pip has downloaded nothing for Python {version}");
    Ok(())
}
