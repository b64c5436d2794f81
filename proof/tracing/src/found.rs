//! Events as readers find them.

use anyhow::{Context as _, Result, bail, ensure};
use rig::json::{self, Json};

/// An event.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// `PROVIDER:NAME`.
    pub(crate) name: String,
    pub(crate) tid: u64,
    pub(crate) fields: Vec<(String, Json)>,
}

impl Event {
    /// Returns true for an event that was recorded while a value of another one was formatted.
    pub(crate) fn is_loud(&self) -> bool {
        self.name == "proof::loud:loud"
    }

    /// The event in one line of a few hundred characters.
    pub(crate) fn shown(&self) -> String {
        let text = format!("{} {:?}", self.name, self.fields);
        text.chars().take(600).collect()
    }
}

/// Reads JSON lines.
pub(crate) fn json(text: &str) -> Result<Vec<Event>> {
    let mut lines = text.lines();
    let head = lines.next().context("no first line")?;
    ensure!(head.starts_with("{\"schema\":\"lastwords.events.v1\""), "the schema: {head}");
    lines
        .map(|line| of_line(line).with_context(|| line.chars().take(400).collect::<String>()))
        .collect()
}

fn of_line(line: &str) -> Result<Event> {
    let json = json::parse(line)?;
    let name = json.get("event").and_then(Json::text).context("no name")?.to_owned();
    let Some(Json::Number(tid)) = json.get("context").and_then(|context| context.get("vtid"))
    else {
        bail!("no id of the thread");
    };
    let tid = tid.parse()?;
    let Some(Json::Object(fields)) = json.get("fields").cloned() else { bail!("no fields") };
    Ok(Event { name, tid, fields })
}
