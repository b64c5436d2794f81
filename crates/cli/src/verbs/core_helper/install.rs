//! Installs and removes the helper. The old pattern is kept in a file, and stands in the new
//! pattern too, so that it is found again if the file is lost.

use super::pattern::{compose, parse};
use super::pipe_limit::{self, PIPE_LIMIT};
use crate::exit::Outcome;
use crate::say;
use anyhow::{Context, bail};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{self, Metadata};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// The kernel's file.
pub(crate) const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";
/// The file in the state folder.
const STATE: &str = "core-helper.json";
const SCHEMA: &str = "lastwords.core-helper.v1";

/// The result of `install`.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Saved {
    schema: String,
    /// The pattern that there was.
    old: String,
    /// The pattern that was written.
    installed: String,
    /// The `core_pipe_limit` that there was, if `install` has changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old_pipe_limit: Option<u32>,
}

/// An installed helper.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Helper {
    /// Path of its program.
    pub(crate) program: String,
    /// The pattern to which it chains.
    pub(crate) old: String,
}

impl Helper {
    /// Returns the helper of a pattern; none if the pattern is that of another.
    pub(crate) fn parse(pattern: &str) -> Option<Self> {
        parse(pattern).map(|(program, old)| Self { program: program.to_owned(), old })
    }
}

fn read_pattern() -> anyhow::Result<String> {
    let text = fs::read_to_string(CORE_PATTERN).context(CORE_PATTERN)?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// Writes the pattern, and reads it back.
fn write_pattern(pattern: &str) -> anyhow::Result<()> {
    fs::write(CORE_PATTERN, format!("{pattern}\n")).context(CORE_PATTERN)?;
    let is_now = read_pattern()?;
    if is_now != pattern {
        bail!("{CORE_PATTERN}: wrote `{pattern}`, and it is `{is_now}`");
    }
    Ok(())
}

/// Puts the helper in front of the core_pattern.
pub(super) fn install(state: &Path) -> anyhow::Result<Outcome> {
    must_be_root()?;
    let program = std::env::current_exe().context("the path of this program")?;
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    let old = read_pattern()?;
    if let Some(helper) = Helper::parse(&old) {
        if helper.program == program {
            say::line(format_args!(
                "{program} is installed already; cores then go to `{}`",
                helper.old
            ));
            return Ok(Outcome::Done);
        }
        bail!(
            "{} is installed as the helper; remove it first: {} core-helper remove",
            helper.program,
            helper.program
        );
    }
    check_program(program)?;
    check_old(&old)?;
    let installed = compose(program, &old)?;
    let old_pipe_limit = Some(pipe_limit::read()?).filter(|limit| *limit == 0);
    let saved = Saved { schema: SCHEMA.into(), old, installed, old_pipe_limit };
    keep(state, &saved)?;
    // Without the limit, the helper would lose small cores.
    let limited =
        if old_pipe_limit.is_some() { pipe_limit::write(pipe_limit::WANTED_LIMIT) } else { Ok(()) };
    if let Err(error) = limited.and_then(|()| write_pattern(&saved.installed)) {
        // The first error is reported. If this fails too, the kernel has refused both.
        let _ = write_pattern(&saved.old);
        let _ = old_pipe_limit.map(pipe_limit::restore);
        let _ = fs::remove_file(state.join(STATE));
        return Err(error);
    }
    say::line(format_args!(
        "{program} is installed until the next boot; cores then go to `{}`",
        saved.old
    ));
    Ok(Outcome::Done)
}

/// Restores the previous core_pattern and core_pipe_limit. What somebody else has set meanwhile is
/// left as it is.
pub(super) fn remove(state: &Path) -> anyhow::Result<Outcome> {
    must_be_root()?;
    let file = state.join(STATE);
    let saved = read_saved(&file)?;
    let pattern = read_pattern()?;
    let old = match (&saved, Helper::parse(&pattern)) {
        (Some(saved), _) if saved.installed == pattern => Some(saved.old.clone()),
        (_, Some(helper)) => Some(helper.old),
        (_, None) => None,
    };
    match &old {
        Some(old) => {
            write_pattern(old)?;
            say::line(format_args!("core_pattern is `{old}` again"));
        }
        None => {
            say::line(format_args!("the helper is not installed; core_pattern stays `{pattern}`"))
        }
    }
    if let Some(saved) = saved {
        saved.old_pipe_limit.map_or(Ok(()), pipe_limit::restore)?;
        fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    Ok(Outcome::Done)
}

/// Prints whether the helper is installed.
pub(super) fn status(json: bool) -> anyhow::Result<Outcome> {
    let pattern = read_pattern()?;
    let helper = Helper::parse(&pattern);
    if json {
        let (program, old) = helper.as_ref().map(|helper| (&helper.program, &helper.old)).unzip();
        let report = json!({ "schema": SCHEMA, "installed": helper.is_some(), "program": program, "core_pattern": old.unwrap_or(&pattern) });
        say::json(&report, false)?;
    } else if let Some(helper) = &helper {
        say::line(format_args!(
            "{} is installed; cores then go to `{}`",
            helper.program, helper.old
        ));
    } else {
        say::line(format_args!("the helper is not installed; core_pattern is `{pattern}`"));
    }
    let Some(helper) = helper else { return Ok(Outcome::Negative) };
    if pipe_limit::read().is_ok_and(|limit| limit == 0) {
        say::error(format_args!(
            "{PIPE_LIMIT} is 0: small cores are lost; run `lastwords core-helper remove` and `install` again, or set it to {}",
            pipe_limit::WANTED_LIMIT
        ));
        return Ok(Outcome::Negative);
    }
    if !Path::new(&helper.program).exists() {
        say::error(format_args!(
            "{} does not exist: no core is kept; run `lastwords core-helper remove` with another copy",
            helper.program
        ));
        return Ok(Outcome::Negative);
    }
    Ok(Outcome::Done)
}

fn must_be_root() -> anyhow::Result<()> {
    if !geteuid().is_root() {
        bail!("{CORE_PATTERN}: only root may change it; run this command with sudo");
    }
    Ok(())
}

/// Checks that only root can replace the program, which the kernel will run as root.
fn check_program(program: &str) -> anyhow::Result<()> {
    if program.contains(|c: char| c == '%' || c.is_whitespace() || !c.is_ascii()) {
        bail!(
            "{program}: core_pattern cannot have this path; copy the program to /usr/bin/lastwords, and install that"
        );
    }
    for path in Path::new(program).ancestors() {
        let meta = fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
        if is_open_to_others(&meta) {
            bail!(
                "{}: others than root may change it, and the kernel would run the program as root; copy the program to /usr/bin/lastwords, \
                 and install that",
                path.display()
            );
        }
    }
    Ok(())
}

/// Returns true if others than root may change the file, or files of root in the folder.
fn is_open_to_others(meta: &Metadata) -> bool {
    let sticky = meta.is_dir() && meta.mode() & 0o1000 != 0;
    meta.uid() != 0 || (meta.mode() & 0o022 != 0 && !sticky)
}

/// Checks that the old handler can be run.
fn check_old(old: &str) -> anyhow::Result<()> {
    let Some(handler) = old.strip_prefix('|') else { return Ok(()) };
    let program = Path::new(handler.split_whitespace().next().unwrap_or_default());
    let is_program = |meta: Metadata| meta.is_file() && meta.permissions().mode() & 0o111 != 0;
    if !program.is_absolute() || !fs::metadata(program).is_ok_and(is_program) {
        bail!(
            "core_pattern is `{old}`, and there is no program `{}`: no core is kept now; set core_pattern to a file or a program first",
            program.display()
        );
    }
    Ok(())
}

/// Writes the state, so that it is on the disk before the pattern changes.
fn keep(folder: &Path, saved: &Saved) -> anyhow::Result<()> {
    let shown = || folder.display().to_string();
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).with_context(shown)?;
    let meta = fs::symlink_metadata(folder).with_context(shown)?;
    if !meta.is_dir() || meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        bail!(
            "{}: it is no folder that only root may change; name another one with --state",
            folder.display()
        );
    }
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(shown)?;
    file.write_all((serde_json::to_string_pretty(saved)? + "\n").as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(folder.join(STATE)).map_err(|error| error.error).with_context(shown)?;
    fs::File::open(folder).and_then(|folder| folder.sync_all()).with_context(shown)
}

/// Reads the state; none if there is none.
fn read_saved(file: &Path) -> anyhow::Result<Option<Saved>> {
    let shown = || file.display().to_string();
    match fs::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text).map(Some).with_context(shown),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(shown),
    }
}
