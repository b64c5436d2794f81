//! Runs `lastwords convert --to json --strict`, as a user would, and takes its lines apart.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Name of its trace.
    pub(crate) trace: String,
    /// All members of its line but `time`, `trace` and `stream`.
    pub(crate) members: BTreeMap<String, Value>,
}

/// The events of a trace, and the program's messages.
#[derive(Debug)]
pub(crate) struct Whole {
    /// All events, in order.
    pub(crate) events: Vec<Event>,
    /// The status says that events were lost, or that something is unknown.
    pub(crate) is_lost: bool,
    /// The program's messages.
    pub(crate) said: String,
}

/// How the program ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Something was read.
    Read(Whole),
    /// Nothing was read, for this reason.
    Refused(String),
}

/// The files of a folder that stands for a persistent ring: the region, and what describes its
/// kernel.
pub(crate) const REGION: &str = "region";
pub(crate) const DESCRIPTION: &str = "kernel";
/// The bundle that describes the kernel, instead of its files.
pub(crate) const BUNDLE: &str = "bundle";

/// Returns a command that reads a trace. Of a region, the bundle is made of the files beside it, as
/// many as are there.
fn command(program: &Path, trace: &Path, room: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    command.args(["convert", "--to", "json", "--strict", "-o", "-"]);
    let (region, description) = (trace.join(REGION), trace.join(DESCRIPTION));
    if !description.is_dir() {
        let bundle = trace.join(BUNDLE);
        if bundle.is_file() {
            command.arg("--bundle").arg(bundle);
        }
        command.arg(if region.exists() { &region } else { trace });
        return Ok(command);
    }
    let bundle = room.join("bundle");
    let mut pack = Command::new(program);
    pack.args(["bundle", "pack"]).arg(description).arg("-o").arg(&bundle);
    let packed = pack.output().with_context(|| program.display().to_string())?;
    if packed.status.success() {
        command.arg("--bundle").arg(bundle);
    }
    command.arg(region);
    Ok(command)
}

/// Reads a trace.
pub(crate) fn read(program: &Path, trace: &Path) -> Result<Outcome> {
    let room = tempfile::tempdir()?;
    let output = command(program, trace, room.path())?
        .output()
        .with_context(|| program.display().to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_lost = match output.status.code() {
        Some(0) => false,
        Some(3) => true,
        Some(1) => return Ok(Outcome::Refused(said)),
        _ => return Ok(Outcome::Refused(format!("PANIC: {}: {said}", output.status))),
    };
    let text = String::from_utf8(output.stdout).context("JSON is UTF-8")?;
    let mut lines = text.lines();
    let first: Value = serde_json::from_str(lines.next().context("no line")?)?;
    let name = |at: usize| first["traces"][at]["name"].as_str().unwrap_or_default().to_owned();
    let events = lines.map(|line| {
        let mut event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let members = event.as_object_mut().context("an event is an object")?;
        let at = members.get("trace").and_then(Value::as_u64).context("an event has a trace")?;
        ["time", "trace", "stream"].iter().for_each(|name| _ = members.remove(*name));
        Ok(Event {
            trace: name(at as usize),
            members: std::mem::take(members).into_iter().collect(),
        })
    });
    let events = events.collect::<Result<Vec<Event>>>()?;
    ensure!(first["schema"] == "lastwords.events.v1", "another schema");
    Ok(Outcome::Read(Whole { events, is_lost, said }))
}
