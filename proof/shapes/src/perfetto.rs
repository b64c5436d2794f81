//! Perfetto traces.

use anyhow::{Context as _, Result, bail};
use lastwords_testkit::wire::{self, Wire};

use super::form::Form;
use super::found::{Event, Found};
use super::shape::Shape;

/// The end of the names of tracks that say what is missing.
const LOSSES: &str = ": missing events";

fn fields(bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>> {
    wire::fields(bytes).map_err(anyhow::Error::msg)
}

/// The events of a trace: its instants, but those on tracks that say what is missing.
pub(super) fn read(shape: &Shape, bytes: &[u8]) -> Result<Vec<Event>> {
    let names: Vec<String> = (0..shape.classes.len()).map(|class| shape.name_of(class)).collect();
    let (mut events, mut losses) = (Vec::new(), Vec::new());
    for (number, packet) in fields(bytes)? {
        let (1, Wire::Bytes(packet)) = (number, packet) else {
            bail!("field {number} in the trace")
        };
        for (number, field) in fields(packet)? {
            match (number, field) {
                // The description of a track comes before what is on it.
                (60, Wire::Bytes(track)) => losses.extend(track_of_losses(&fields(track)?)),
                (11, Wire::Bytes(event)) if !is_on(&fields(event)?, &losses) => {
                    events.push(self::event(shape, &names, event)?);
                }
                _ => {}
            }
        }
    }
    Ok(events)
}

/// The id of a track, if it says what is missing.
fn track_of_losses(track: &[(u64, Wire<'_>)]) -> Option<u64> {
    let is_named = |(number, wire): &(u64, Wire<'_>)| matches!((number, wire), (2, Wire::Bytes(name)) if name.ends_with(LOSSES.as_bytes()));
    let id = track.iter().find_map(|(number, wire)| {
        if let (1, Wire::Number(id)) = (number, wire) { Some(*id) } else { None }
    });
    id.filter(|_| track.iter().any(is_named))
}

/// True if an event is on one of the tracks.
fn is_on(event: &[(u64, Wire<'_>)], tracks: &[u64]) -> bool {
    event.iter().any(|(number, wire)| matches!((number, wire), (11, Wire::Number(track)) if tracks.contains(track)))
}

fn event(shape: &Shape, names: &[String], bytes: &[u8]) -> Result<Event> {
    let all = fields(bytes)?;
    let name = all.iter().find_map(|(number, wire)| match (number, wire) {
        (23, Wire::Bytes(name)) => Some(*name),
        _ => None,
    });
    let name = String::from_utf8_lossy(name.context("an event without a name")?).into_owned();
    let class = names
        .iter()
        .position(|known| *known == name)
        .with_context(|| format!("INVENTED: {name}"))?;
    let mut notes = Vec::new();
    for (number, wire) in &all {
        if let (4, Wire::Bytes(note)) = (number, wire) {
            notes.push(annotation(note)?);
        }
    }
    let own = &shape.classes[class].fields;
    let fields =
        notes.split_off(notes.len().checked_sub(own.len()).context("fewer fields than it has")?);
    let fields = fields
        .into_iter()
        .zip(own)
        .map(|((name, found), field)| (name, as_form(found, &field.form)));
    Ok(Event { class, cpu: None, contexts: notes, fields: fields.collect() })
}

/// An empty list has no value at all.
fn as_form(found: Found, form: &Form) -> Found {
    match (form, found) {
        (Form::Enum { .. }, Found::List(list)) if list.is_empty() => Found::Token("nothing".into()),
        (_, found) => found,
    }
}

fn annotation(bytes: &[u8]) -> Result<(String, Found)> {
    let (mut name, mut list, mut value) = (String::new(), Vec::new(), None);
    for (number, wire) in fields(bytes)? {
        match (number, wire) {
            (10, Wire::Bytes(text)) => name = String::from_utf8(text.to_vec())?,
            (2, Wire::Number(number)) => value = Some(Found::Bool(number != 0)),
            // 7: shown with hexadecimal digits.
            (3 | 7, Wire::Number(number)) => value = Some(Found::Integer(i128::from(number))),
            (4, Wire::Number(number)) => {
                value = Some(Found::Integer(i128::from(number.cast_signed())))
            }
            (5, Wire::Fixed(bits)) => value = Some(Found::Double(f64::from_bits(bits))),
            (6, Wire::Bytes(text)) => value = Some(Found::Text(text.to_vec())),
            (12, Wire::Bytes(element)) => list.push(annotation(element)?.1),
            _ => bail!("field {number} in an annotation"),
        }
    }
    Ok((name, value.unwrap_or(Found::List(list))))
}
