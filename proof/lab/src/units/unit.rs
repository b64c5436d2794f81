//! The units in `hooks/systemd`: what they run, on which conditions and in which order. systemd
//! itself judges the files.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::compare::Rows;
use rig::{make_empty, run_quietly};

/// The units, in no order.
const UNITS: &[&str] = &["lastwords-bundle.service", "lastwords-last-boot.service"];
/// The scripts that they run, and what these read.
pub(super) const SCRIPTS: &[&str] = &["save-bundle", "save-last-boot", "common.sh"];
/// The file for tmpfiles.d.
const TMPFILES: &str = "lastwords.conf";
/// Where this machine has units of its own, which ours name.
const SYSTEM: &str = "/usr/lib/systemd/system";

/// A unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) name: String,
    /// Each with its key, as in the file.
    pub(super) conditions: Vec<String>,
    pub(super) start: String,
    before: Vec<String>,
    after: Vec<String>,
}

impl Unit {
    /// Parses the text of a unit.
    fn parse(name: &str, text: &str) -> Result<Self> {
        let values = |key: &str| -> Vec<String> {
            let of_key =
                text.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
            of_key.flat_map(str::split_whitespace).map(str::to_string).collect()
        };
        let conditions =
            text.lines().filter(|line| line.starts_with("Condition")).map(str::to_string).collect();
        let starts: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("ExecStart=")).collect();
        let &[start] = starts.as_slice() else {
            anyhow::bail!("{name} has {} lines ExecStart=", starts.len())
        };
        let (before, after) = (values("Before"), values("After"));
        Ok(Self { name: name.to_string(), conditions, start: start.to_string(), before, after })
    }

    fn is_before(&self, other: &Self) -> bool {
        self.before.contains(&other.name) || other.after.contains(&self.name)
    }
}

/// All units in the order in which systemd starts them.
pub(super) fn all() -> Result<Vec<Unit>> {
    let folder = rig::root().join("hooks/systemd");
    let mut left = Vec::new();
    for name in UNITS {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        left.push(Unit::parse(name, &text)?);
    }
    in_order(left)
}

fn in_order(mut left: Vec<Unit>) -> Result<Vec<Unit>> {
    let mut ordered: Vec<Unit> = Vec::new();
    while !left.is_empty() {
        let first = left.iter().position(|unit| !left.iter().any(|other| other.is_before(unit)));
        ordered.push(left.remove(first.context("units that wait for each other")?));
    }
    Ok(ordered)
}

/// Writes the units as a script of the guest, which defines `unit`.
pub(super) fn script(units: &[Unit]) -> String {
    let quoted = |word: &String| format!("'{word}'");
    let line = |unit: &Unit| {
        let words = [&unit.name, &unit.start].into_iter().chain(&unit.conditions);
        format!("unit {}\n", words.map(quoted).collect::<Vec<_>>().join(" "))
    };
    units.iter().map(line).collect()
}

/// Has systemd judge the units, and the file for tmpfiles.d: what it makes, and what it removes by
/// age.
pub(super) fn judge(rows: &mut Rows, folder: &Path) -> Result<()> {
    let (root, hooks) = (folder.join("root"), rig::root().join("hooks/systemd"));
    make_empty(&root)?;
    let [scripts, system, tmpfiles] =
        ["usr/lib/lastwords", "usr/lib/systemd/system", "usr/lib/tmpfiles.d"];
    for (to, names) in [(scripts, SCRIPTS), (system, UNITS), (tmpfiles, &[TMPFILES])] {
        std::fs::create_dir_all(root.join(to))?;
        for name in names {
            std::fs::copy(hooks.join(name), root.join(to).join(name))
                .with_context(|| (*name).to_string())?;
        }
    }
    run_quietly(
        Command::new("cp")
            .args(["-rn", &format!("{SYSTEM}/."), "."])
            .current_dir(root.join(system)),
    )?;
    let rooted = format!("--root={}", root.display());
    let output =
        Command::new("systemd-analyze").args(["verify", "--man=no", &rooted]).args(UNITS).output();
    let output = output.context("systemd-analyze: package systemd")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // systemd-analyze says what it finds of any unit that is loaded with these.
    let ours: Vec<&str> =
        said.lines().filter(|line| UNITS.iter().any(|unit| line.contains(unit))).collect();
    let is_good = output.status.success() && ours.is_empty();
    rows.row(is_good, "systemd-analyze verify", &format!("{} {}", output.status, ours.join("; ")));
    judge_tmpfiles(rows, &root, &rooted)?;
    std::fs::remove_dir_all(&root).with_context(|| root.display().to_string())
}

fn judge_tmpfiles(rows: &mut Rows, root: &Path, rooted: &str) -> Result<()> {
    let tmpfiles =
        |verb: &str| run_quietly(Command::new("systemd-tmpfiles").args([verb, rooted, TMPFILES]));
    tmpfiles("--create")?;
    let state = root.join("var/lib/lastwords");
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        Ok::<_, std::io::Error>(std::fs::metadata(state.join(name))?.permissions().mode() & 0o7777)
    };
    let modes = [mode("")?, mode("bundles")?, mode("last-boot")?];
    rows.row(
        modes == [0o700; 3],
        "systemd-tmpfiles --create",
        &format!("modes {:o}, {:o} and {:o}", modes[0], modes[1], modes[2]),
    );
    // The same line with a shorter age.
    let file = root.join("usr/lib/tmpfiles.d").join(TMPFILES);
    let text = std::fs::read_to_string(&file)?;
    ensure!(text.contains(" 30d\n"), "{TMPFILES} has no age of 30d");
    std::fs::write(&file, text.replace(" 30d\n", " 2s\n"))?;
    let make = |path: &str| {
        let path = state.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
        std::fs::write(&path, "x")
    };
    ["last-boot/old/trace.dat", "bundles/6.12.bundle"].iter().try_for_each(|path| make(path))?;
    std::thread::sleep(Duration::from_secs(3));
    make("last-boot/new/trace.dat")?;
    tmpfiles("--clean")?;
    let is_there = |path: &str| state.join(path).exists();
    let (old, new, bundle) = (
        is_there("last-boot/old"),
        is_there("last-boot/new/trace.dat"),
        is_there("bundles/6.12.bundle"),
    );
    let detail = format!("old trace kept: {old}, new trace kept: {new}, bundle kept: {bundle}");
    rows.row(!old && new && bundle, "systemd-tmpfiles --clean", &detail);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_boot_is_saved_before_the_bundle() {
        let units = all().unwrap();
        let names: Vec<&str> = units.iter().map(|unit| unit.name.as_str()).collect();
        assert_eq!(names, ["lastwords-last-boot.service", "lastwords-bundle.service"]);
        let scripts: Vec<&str> =
            units.iter().filter_map(|unit| unit.start.rsplit('/').next()).collect();
        assert!(
            SCRIPTS.iter().all(|script| scripts.contains(script) || *script == "common.sh"),
            "{scripts:?}"
        );
        assert!(script(&units).starts_with(
            "unit 'lastwords-last-boot.service' '/usr/lib/lastwords/save-last-boot' 'ConditionPathExistsGlob="
        ));
    }

    #[test]
    fn units_that_wait_for_each_other_have_no_order() {
        let unit = |name: &str, other: &str| {
            let text = format!("[Unit]\nAfter=a.mount {other}\n[Service]\nExecStart=/x\n");
            Unit::parse(name, &text).unwrap()
        };
        assert!(in_order(vec![unit("a", "b"), unit("b", "a")]).is_err());
        let ordered = in_order(vec![unit("a", "b"), unit("b", "c")]).unwrap();
        assert_eq!(ordered[0].name, "b");
        assert!(Unit::parse("x", "[Service]\n").is_err());
    }
}
