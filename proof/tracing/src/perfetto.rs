//! Perfetto traces: their instants, but those on tracks that say what is missing.

use anyhow::{Context as _, Result, bail, ensure};
use lastwords_testkit::wire::{self, Wire};
use rig::json::Json;

use crate::found::Event;

fn fields(bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>> {
    wire::fields(bytes).map_err(anyhow::Error::msg)
}

/// The events of a trace.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for (number, packet) in fields(bytes)? {
        let (1, Wire::Bytes(packet)) = (number, packet) else {
            bail!("field {number} in the trace")
        };
        for (number, field) in fields(packet)? {
            if let (11, Wire::Bytes(event)) = (number, field) {
                events.extend(self::event(event)?);
            }
        }
    }
    Ok(events)
}

/// An event; none if it is not one of a thread.
fn event(bytes: &[u8]) -> Result<Option<Event>> {
    let (mut name, mut notes) = (None, Vec::new());
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (23, Wire::Bytes(text)) => name = Some(String::from_utf8(text.to_vec())?),
            (4, Wire::Bytes(note)) => notes.push(annotation(note)?),
            // 3: an instant. Slices are those of spans.
            (9, Wire::Number(kind)) if kind != 3 => return Ok(None),
            _ => {}
        }
    }
    let Some(at) = notes.iter().position(|(name, _)| name == "vtid") else { return Ok(None) };
    let (_, tid) = notes.remove(at);
    let Json::Number(tid) = tid else { bail!("the thread is {tid:?}") };
    let name = name.context("no name")?;
    ensure!(at == 0, "{name} has a field before its contexts");
    Ok(Some(Event { name, tid: tid.parse()?, fields: notes }))
}

fn annotation(bytes: &[u8]) -> Result<(String, Json)> {
    let (mut name, mut value) = (String::new(), Json::Null);
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (10, Wire::Bytes(text)) => name = String::from_utf8(text.to_vec())?,
            (2, Wire::Number(number)) => value = Json::Bool(number != 0),
            (3 | 7, Wire::Number(number)) => value = Json::Number(number.to_string()),
            (4, Wire::Number(number)) => value = Json::Number(number.cast_signed().to_string()),
            // The judge compares the bits of floats.
            (5, Wire::Fixed(bits)) => value = Json::Number(format!("{bits:#x}")),
            (6, Wire::Bytes(text)) => value = Json::Text(String::from_utf8(text.to_vec())?),
            _ => bail!("field {number} in an annotation"),
        }
    }
    Ok((name, value))
}
