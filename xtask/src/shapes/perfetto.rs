//! Perfetto traces: a reader of protocol buffers, as far as sessions need one.

use anyhow::{Context as _, Result, bail};

use super::found::{Event, Found};
use super::shape::Shape;
use super::value::Form;

/// A field of a message.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().context("a number without an end")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a number of more than ten bytes")
}

fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let mut part = |len: usize| -> Result<&[u8]> {
            let (part, rest) = bytes.split_at_checked(len).context("a field beyond its message")?;
            bytes = rest;
            Ok(part)
        };
        let wire = match key & 7 {
            1 => Wire::Fixed(u64::from_le_bytes(part(8)?.try_into()?)),
            0 => Wire::Number(varint(&mut bytes)?),
            2 => {
                let len = varint(&mut bytes)?;
                let (part, rest) = bytes.split_at_checked(len as usize).context("a message beyond its parent")?;
                bytes = rest;
                Wire::Bytes(part)
            }
            other => bail!("wire type {other}"),
        };
        fields.push((key >> 3, wire));
    }
    Ok(fields)
}

/// The end of the names of tracks that say what is missing.
const LOSSES: &str = ": missing events";

/// The events of a trace: its instants, but those on tracks that say what is missing.
pub(super) fn read(shape: &Shape, bytes: &[u8]) -> Result<Vec<Event>> {
    let names: Vec<String> = (0..shape.classes.len()).map(|class| shape.name_of(class)).collect();
    let (mut events, mut losses) = (Vec::new(), Vec::new());
    for (number, packet) in fields(bytes)? {
        let (1, Wire::Bytes(packet)) = (number, packet) else { bail!("field {number} in the trace") };
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
    let id = track
        .iter()
        .find_map(|(number, wire)| if let (1, Wire::Number(id)) = (number, wire) { Some(*id) } else { None });
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
    let class = names.iter().position(|known| *known == name).with_context(|| format!("INVENTED: {name}"))?;
    let mut notes = Vec::new();
    for (number, wire) in &all {
        if let (4, Wire::Bytes(note)) = (number, wire) {
            notes.push(annotation(note)?);
        }
    }
    let own = &shape.classes[class].fields;
    let fields = notes.split_off(notes.len().checked_sub(own.len()).context("fewer fields than it has")?);
    let fields = fields.into_iter().zip(own).map(|((name, found), field)| (name, as_form(found, &field.form)));
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
            (4, Wire::Number(number)) => value = Some(Found::Integer(i128::from(number.cast_signed()))),
            (5, Wire::Fixed(bits)) => value = Some(Found::Double(f64::from_bits(bits))),
            (6, Wire::Bytes(text)) => value = Some(Found::Text(text.to_vec())),
            (12, Wire::Bytes(element)) => list.push(annotation(element)?.1),
            _ => bail!("field {number} in an annotation"),
        }
    }
    Ok((name, value.unwrap_or(Found::List(list))))
}
