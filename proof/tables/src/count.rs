//! One count, of events by name and field, by each program that can make it.

use crate::{Lab, inputs};
use anyhow::{Result, ensure};
use rig::wheel;
use std::path::Path;
use std::process::Command;

/// The program that counts.
const COUNT: &str = include_str!("count.py");

/// Counts in a trace of this many events. `python` has the wheel, if it is to count, too.
pub(crate) fn run(lab: &Lab, events: u64, python: Option<&Path>) -> Result<()> {
    let (script, trace, file) = (lab.at("count.py"), lab.at("count"), lab.at("count.parquet"));
    std::fs::write(&script, COUNT)?;
    inputs::scheduler(&trace, events)?;
    let mut command = Command::new("python3");
    command.arg(&script).arg(&trace).arg(events.to_string()).arg(&file).args(python);
    command.env("PYTHONPATH", wheel::python_path(&wheel::TABLES));
    command.env("LASTWORDS", &lab.program).env("LASTWORDS_DIR", lab.at("no-sessions"));
    let status = command.status()?;
    ensure!(status.success(), "{}: {status}", rig::shown(&command));
    // They are large.
    std::fs::remove_dir_all(&trace)?;
    Ok(std::fs::remove_file(&file)?)
}
