//! The events of the library: each source has those of the truth, in either order, and can be read
//! to where a caller stops.

use super::event::{Event, Value, compare, named};
use super::kernel;
use super::sources::{Part, Source, Truth, sources};
use crate::support::Place;
use lastwords_open::{EventRef, Events, Field, Opened, Options, Order, Selection, open};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

fn value(value: lastwords_open::Value) -> Value {
    use lastwords_open::Value as Typed;
    match value {
        Typed::Unsigned(number) => Value::Number(number.into()),
        Typed::Signed(number) => Value::Number(number.into()),
        Typed::Float(real) => Value::Real(real),
        Typed::Float32(real) => Value::Real(real.into()),
        Typed::Bool(is) => Value::Bool(is),
        Typed::Text(text) => Value::Text(String::from_utf8(text).expect("text is UTF-8")),
        Typed::Bytes(bytes) => {
            Value::List(bytes.into_iter().map(|byte| Value::Number(byte.into())).collect())
        }
        Typed::Enum(number, label) => {
            let label = label.map_or(Value::Null, Value::Text);
            Value::Record(vec![named("value", Value::Number(number)), named("label", label)])
        }
        Typed::List(elements) => Value::List(elements.into_iter().map(self::value).collect()),
        Typed::Struct(members) => Value::Record(
            members.into_iter().map(|(name, of)| named(&name, self::value(of))).collect(),
        ),
        Typed::Absent => Value::Null,
    }
}

fn members(fields: Vec<Field>) -> Vec<(String, Value)> {
    fields.into_iter().map(|field| named(&field.name, value(field.value))).collect()
}

/// An event, and the position of its trace. `by_clock`: its time is the reading of the clock.
fn seen(event: &mut EventRef<'_, '_>, by_clock: bool) -> (usize, Event) {
    let ns = if by_clock { event.ticks().into() } else { event.time().expect("a time").into() };
    let contexts = members(event.all_contexts());
    let found = Event {
        ns,
        cpu: event.cpu(),
        name: event.kind().whole_name(),
        fields: members(event.fields()),
        contexts,
    };
    let ids = event.ids();
    let context = |names: &[&str]| {
        found.contexts.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, of)| of)
    };
    let number = |of: Option<i64>| of.map(|number| Value::Number(number.into()));
    if by_clock {
        // ftrace's word for a thread is pid; its word for a process is tgid.
        assert_eq!(number(ids.tid).as_ref(), context(&["pid"]));
        let tgid = context(&["tgid"]).filter(|tgid| **tgid != Value::Number(0));
        assert_eq!(number(ids.pid).as_ref(), tgid);
    } else {
        // A session without the context knows the process that created it.
        let pid = context(&["vpid", "pid"]);
        assert!(pid.is_none() || number(ids.pid).as_ref() == pid, "{found:?} {ids:?}");
        assert_eq!(number(ids.tid).as_ref(), context(&["vtid", "tid"]));
    }
    (event.trace(), found)
}

fn all(events: &mut Events<'_>, by_clock: bool) -> Result<Vec<(usize, Event)>, String> {
    let mut found = Vec::new();
    while let Some(mut event) = events.advance() {
        found.push(seen(&mut event, by_clock));
    }
    events.fault().map_or(Ok(found), |fault| Err(fault.to_string()))
}

/// Opens the inputs of a source, among which may be the option `--bundle`.
fn opened(place: &Place, source: &Source) -> Opened {
    let (mut options, mut paths) = (Options::default(), Vec::new());
    let mut words = source.inputs.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bundle" => options.bundle.push(place.at(words.next().expect("a file"))),
            word => paths.push(place.at(word)),
        }
    }
    open(&paths, &options).expect("the options hold")
}

fn judge(place: &Place, source: &Source) -> Result<(), String> {
    let opened = opened(place, source);
    for (position, trace) in opened.traces.iter().enumerate() {
        let one = std::slice::from_ref(trace);
        let by_clock = trace.ftrace().is_some();
        let selected = lastwords_open::Selected::new(one, Selection::default());
        let selected = selected.map_err(|error| error.to_string())?;
        let read = |order| all(&mut selected.events(order), by_clock);
        let (merged, mut apart) = (read(Order::Time)?, read(Order::Stream)?);
        let first = selected.events(Order::Time).take(2).map(Result::unwrap);
        for (event, (_, found)) in first.zip(&merged) {
            let read = |fields| (event.kind.whole_name(), event.cpu, members(fields));
            let is = (found.name.clone(), found.cpu, found.fields.clone());
            assert_eq!(read(event.fields.clone()), is);
        }
        apart.sort_by_key(|(_, event)| event.ns);
        for found in [merged, apart] {
            let found: Vec<Event> = found.into_iter().map(|(_, event)| event).collect();
            let part = |parts: &[Part]| parts.get(position).map(|part| part.events.clone());
            match (&source.truth, by_clock) {
                (Truth::Packets(parts), _) => {
                    compare(part(parts).ok_or("a trace too many")?, &found, true)?;
                }
                (Truth::Both(part, _), false) => compare(part.events.clone(), &found, true)?,
                (Truth::Kernel(kernel) | Truth::Both(_, kernel), _) => {
                    kernel::judge_events(kernel, &trace.name, found)?;
                }
            }
        }
    }
    // All traces at once have each event once.
    let selected = opened.select(Selection::default()).map_err(|error| error.to_string())?;
    let count = selected.events(Order::Time).filter(Result::is_ok).count() as u64;
    let mut apart = selected.events(Order::Stream);
    let total = apart.by_ref().count() as u64;
    // Another thread may end the reading.
    let stop = AtomicBool::new(false);
    let mut stopped = selected.events(Order::Time).until_set(&stop);
    assert!(stopped.next().is_some());
    stop.store(true, Ordering::Relaxed);
    assert!(stopped.next().is_none());
    match (count, apart.totals().events) == (total, total) && total > 0 {
        true => Ok(()),
        false => Err(format!("{count} events are merged, {total} are there")),
    }
}

#[test]
fn the_library_has_the_events_of_each_source() {
    let mut wrong = String::new();
    for is_lossy in [false, true] {
        let place = Place::new();
        for source in sources(&place, is_lossy) {
            if let Err(why) = judge(&place, &source) {
                writeln!(wrong, "== {}, lossy: {is_lossy}: {why}", source.name).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
