//! Groups the events by their stream classes.

use super::block::{Event, Stream};
use super::declared::Declared;
use super::{Missing, Wrong};
use std::collections::{BTreeMap, HashMap};

/// Ids of stream classes with their declarations and events.
pub(super) type Grouped<'a> = Vec<(u64, Option<&'a Stream>, Vec<&'a Event>)>;

/// Returns the stream classes in the order of the metadata, with their events. Of several classes
/// with one id none is known.
pub(super) fn streams<'d>(declared: &'d Declared, missing: &mut Missing) -> Grouped<'d> {
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for stream in &declared.streams {
        let count = counts.entry(stream.id.unwrap_or(0)).or_default();
        *count = count.saturating_add(1);
    }
    let mut grouped: Grouped<'_> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    for stream in &declared.streams {
        let id = stream.id.unwrap_or(0);
        if counts.get(&id) == Some(&1) {
            places.insert(id, grouped.len());
            grouped.push((id, Some(stream), Vec::new()));
        } else {
            missing.add(Wrong {
                line: stream.line,
                what: format!("a second stream class of id {id}"),
            });
        }
    }
    // Events that name no stream class have one that is not declared.
    if grouped.is_empty() && declared.events.iter().any(|event| event.stream.is_none()) {
        places.insert(0, 0);
        grouped.push((0, None, Vec::new()));
    }
    let only = if let [(id, ..)] = grouped.as_slice() { Some(*id) } else { None };
    let mut lost: BTreeMap<Option<u64>, (u32, u64)> = BTreeMap::new();
    for event in &declared.events {
        let id = event.stream.or(only);
        match id.and_then(|id| places.get(&id)).and_then(|at| grouped.get_mut(*at)) {
            Some((.., events)) => events.push(event),
            None => {
                let (_, count) = lost.entry(id).or_insert((event.line, 0));
                *count = count.saturating_add(1);
            }
        }
    }
    for (id, (line, count)) in lost {
        let what = match id {
            Some(id) => format!("stream_id {id} of {count} events: there is no such stream class"),
            None => format!("{count} events: expected a stream_id, as there are several"),
        };
        missing.add(Wrong { line, what });
    }
    grouped
}
