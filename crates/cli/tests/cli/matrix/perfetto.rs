//! A reader of Perfetto traces, as far as instants and a kernel's events go. Numbers of fields are
//! those of Perfetto's schema.

use super::event::{Event, Value};
use super::kernel::processor::Slice;
use lastwords_testkit::wire;
use std::collections::BTreeMap;

pub(super) use lastwords_testkit::wire::Wire;

/// `TrackEvent.Type.TYPE_SLICE_BEGIN`.
const BEGIN: u64 = 1;
/// `TrackEvent.Type.TYPE_SLICE_END`.
const END: u64 = 2;
/// `TrackEvent.Type.TYPE_INSTANT`.
const INSTANT: u64 = 3;

/// The fields of a message.
pub(super) fn fields(bytes: &[u8]) -> Vec<(u64, Wire<'_>)> {
    wire::fields(bytes).expect("a message")
}

/// The field of this number.
pub(super) fn field<'a>(fields: &[(u64, Wire<'a>)], number: u64) -> Option<Wire<'a>> {
    fields.iter().find(|(other, _)| *other == number).map(|(_, wire)| *wire)
}

/// The packets of a file.
pub(super) fn packets(file: &[u8]) -> impl Iterator<Item = Vec<(u64, Wire<'_>)>> {
    fields(file).into_iter().map(|(number, packet)| {
        assert_eq!(number, 1, "a file has packets alone");
        fields(packet.bytes())
    })
}

/// The instants of a file: contexts and fields are annotations of one list.
pub(crate) fn events(file: &[u8]) -> Vec<Event> {
    of_kind(file, INSTANT).into_iter().map(|(.., event)| event).collect()
}

/// The begins of slices, with the numbers of their tracks.
pub(crate) fn begins(file: &[u8]) -> Vec<(u64, Event)> {
    of_kind(file, BEGIN).into_iter().map(|(_, track, event)| (track, event)).collect()
}

/// The slices on the tracks of threads: an end is that of the innermost slice of its track.
pub(crate) fn thread_slices(file: &[u8]) -> Vec<Slice> {
    let (mut threads, mut edges) = (BTreeMap::new(), Vec::new());
    for packet in packets(file) {
        if let Some(track) = field(&packet, 60).map(|track| fields(track.bytes()))
            && let Some(thread) = field(&track, 4).map(|thread| fields(thread.bytes()))
        {
            threads.insert(field(&track, 1).unwrap().number(), field(&thread, 2).unwrap().number());
        }
    }
    for kind in [END, BEGIN] {
        edges.extend(
            of_kind(file, kind)
                .into_iter()
                .map(|(number, track, event)| (event.ns, number, kind, track, event)),
        );
    }
    edges.sort_by_key(|(time, number, ..)| (*time, *number));
    let (mut open, mut slices): (BTreeMap<u64, Vec<usize>>, Vec<Slice>) = Default::default();
    for (time, _, kind, track, event) in edges {
        let Some(tid) = threads.get(&track) else { continue };
        let note = |wanted: &str| {
            event.fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value)
        };
        let words = |wanted| match note(wanted) {
            Some(Value::Text(text)) => text.clone(),
            _ => String::new(),
        };
        let time = u64::try_from(time).unwrap();
        if kind == BEGIN {
            let Some(Value::Number(span)) = note("span_id") else { panic!("{event:?}") };
            open.entry(track).or_default().push(slices.len());
            let (name, span, begin_note) = (event.name.clone(), *span as u64, words("begin"));
            slices.push(Slice {
                tid: *tid,
                span,
                name,
                begin: time,
                end: None,
                begin_note,
                end_note: String::new(),
            });
        } else {
            let at = open.get_mut(&track).and_then(Vec::pop).expect("an end of a slice that began");
            slices[at].end = Some(time);
            slices[at].end_note = words("end");
        }
    }
    slices
}

/// The events of a kind, with the positions of their packets and the numbers of their tracks.
fn of_kind(file: &[u8], wanted: u64) -> Vec<(usize, u64, Event)> {
    let event = |(position, packet): (usize, Vec<(u64, Wire<'_>)>)| {
        let event = fields(field(&packet, 11)?.bytes());
        field(&event, 9).filter(|kind| kind.number() == wanted)?;
        // Tracks from here on have no events, but what is missing.
        let track = Some(field(&event, 11)?.number()).filter(|track| *track < 1 << 41)?;
        let annotations = event.iter().filter(|(number, _)| *number == 4);
        let event = Event {
            ns: field(&packet, 8)?.number().into(),
            cpu: None,
            // The end of a slice has no name.
            name: field(&event, 23).map_or_else(String::new, Wire::text),
            contexts: Vec::new(),
            fields: annotations.map(|(_, wire)| annotation(wire.bytes())).collect(),
        };
        Some((position, track, event))
    };
    packets(file).enumerate().filter_map(event).collect()
}

fn annotation(bytes: &[u8]) -> (String, Value) {
    let (mut name, mut value) = (String::new(), Value::List(Vec::new()));
    for (number, wire) in fields(bytes) {
        match number {
            10 => name = wire.text(),
            2 => value = Value::Bool(wire.number() != 0),
            // 7: shown with hexadecimal digits.
            3 | 7 => value = Value::Number(wire.number().into()),
            4 => value = Value::Number(wire.number().cast_signed().into()),
            5 => {
                let Wire::Fixed(bits) = wire else { panic!("{wire:?} is no double") };
                value = Value::Real(f64::from_bits(bits));
            }
            6 => value = Value::Text(wire.text()),
            11 => match &mut value {
                Value::Record(members) => members.push(annotation(wire.bytes())),
                _ => value = Value::Record(vec![annotation(wire.bytes())]),
            },
            12 => match &mut value {
                Value::List(list) => list.push(annotation(wire.bytes()).1),
                _ => panic!("an element of no list"),
            },
            _ => panic!("field {number} in an annotation"),
        }
    }
    (name, value)
}
