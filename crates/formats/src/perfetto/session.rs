//! Sessions: an instant on its thread's track for each event, a slice for each time that a span was entered.

use std::collections::HashMap;
use std::io::Write;

use lastwords_trace::clock::Rounding;
use lastwords_trace::merge::{Event, Progress};
use lastwords_trace::schema::{Channel, EnvValue, Field};
use lastwords_trace::source::Source;
use lastwords_trace::value::{Value, Values};

use super::proto::Message;
use super::{BOOTTIME, REALTIME, packet, put_packet};
use crate::events::{Line, Outcome, run};
use crate::select::Selection;
use lastwords_ctf::{Error, Result};

/// Tracks that are told apart; events beyond stand on their stream's.
const MOST_TRACKS: usize = 1 << 16;
/// Fields of `DebugAnnotation`.
mod annotation {
    pub(super) const BOOL: u32 = 2;
    pub(super) const UNSIGNED: u32 = 3;
    pub(super) const SIGNED: u32 = 4;
    pub(super) const DOUBLE: u32 = 5;
    pub(super) const TEXT: u32 = 6;
    pub(super) const NAME: u32 = 10;
    pub(super) const ELEMENT: u32 = 12;
}

/// What a track event is: `TrackEvent.Type`.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
}

/// Writes the selected events of `sources`, merged by time.
///
/// # Errors
/// `out` cannot be written.
pub fn write(
    sources: &[&dyn Source],
    selection: &Selection,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    let absolute = sources.iter().all(|source| source.schema().clock.absolute);
    let clock = if absolute { REALTIME } else { BOOTTIME };
    let mut head = Vec::new();
    let mut packet = Message::default();
    packet.nested(packet::CLOCK_SNAPSHOT, |snapshot| {
        snapshot.nested(1, |one| {
            one.number(1, clock);
            one.number(2, 0);
        });
        snapshot.number(2, clock);
    });
    put_packet(&mut head, &mut packet);
    out.write_all(&head).map_err(Error::Output)?;
    let names = sources.iter().map(|source| source.schema().thread_names()).collect();
    let mut tracks = Tracks { sources, names, clock, known: HashMap::new(), packet, event: Message::default() };
    let mut outcome = run(sources, selection, Rounding::Floor, &mut tracks, out, progress)?;
    outcome.totals.bytes += head.len() as u64;
    Ok(outcome)
}

/// Whose events stand on a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Thread { source: usize, pid: i64, tid: i64 },
    Stream { source: usize, stream: usize },
}

struct Tracks<'s> {
    sources: &'s [&'s dyn Source],
    /// By source, names by thread id, for events whose contexts have none.
    names: Vec<HashMap<i64, &'s str>>,
    clock: u64,
    /// Ids, and whether the track has its thread's name.
    known: HashMap<Owner, (u64, bool)>,
    packet: Message,
    event: Message,
}

/// The process that made the session.
fn creator(sources: &[&dyn Source], source: usize) -> Option<i64> {
    match sources.get(source)?.schema().env.get("vpid")? {
        EnvValue::Integer(pid) => Some(*pid),
        EnvValue::Text(_) => None,
    }
}

/// What the contexts of an event say of its thread.
#[derive(Default)]
struct Thread<'a> {
    pid: Option<i64>,
    tid: Option<i64>,
    name: &'a [u8],
}

impl<'a> Thread<'a> {
    fn of(contexts: Values<'a>) -> Self {
        let mut thread = Self::default();
        for (field, value) in contexts {
            match (field.name.as_str(), value) {
                ("vpid", value) => thread.pid = whole(&value),
                ("vtid", value) => thread.tid = whole(&value),
                ("procname", Value::Text(name)) => thread.name = name,
                _ => {}
            }
        }
        thread
    }
}

fn whole(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Signed { value, .. } => Some(*value),
        Value::Unsigned { value, .. } => i64::try_from(*value).ok(),
        _ => None,
    }
}

impl Line for Tracks<'_> {
    fn line(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let sources = self.sources;
        let Some(source) = sources.get(event.source) else { return };
        let schema = source.schema();
        let Some(channel) = schema.channels.get(event.channel) else { return };
        let Some(class) = channel.events.get(event.raw.class) else { return };
        let contexts = Values::new(&channel.contexts, event.context(), schema.byte_order);
        let mut thread = Thread::of(contexts.clone());
        if thread.name.is_empty() {
            let listed = thread.tid.and_then(|id| self.names[event.source].get(&id).copied());
            thread.name = listed.unwrap_or_default().as_bytes();
        }
        let track = self.track(out, event, channel, &thread);
        let fields = Values::new(&class.fields, event.payload(), schema.byte_order);
        let span = |name: &'static str| fields.clone().find(|(field, _)| field.name == name).map(|(_, value)| value);
        let (kind, name) = match (class.name.as_str(), span("name")) {
            ("span:enter", Some(Value::Text(name))) => (Kind::Begin, name),
            ("span:exit", Some(Value::Text(name))) => (Kind::End, name),
            _ => (Kind::Instant, class.name.as_bytes()),
        };
        self.event.clear();
        self.event.number(9, kind as u64);
        self.event.number(11, track);
        if !matches!(kind, Kind::End) {
            self.event.text(22, channel.name.as_bytes());
            self.event.text(23, name);
            contexts.chain(fields).for_each(|(field, value)| annotate(&mut self.event, field, &value));
        }
        self.packet.number(packet::TIMESTAMP, u64::try_from(event.nanoseconds).unwrap_or(0));
        self.packet.number(packet::CLOCK_ID, self.clock);
        self.packet.message(packet::TRACK_EVENT, &self.event);
        put_packet(out, &mut self.packet);
    }
}

impl Tracks<'_> {
    /// The id of the track of an event; what it is called is written when it is new, and when its thread's name comes.
    fn track(&mut self, out: &mut Vec<u8>, event: &Event<'_>, channel: &Channel, thread: &Thread<'_>) -> u64 {
        let (source, stream) = (event.source, event.stream);
        let by_stream = Owner::Stream { source, stream };
        let wanted = match (thread.pid.or_else(|| creator(self.sources, source)), thread.tid) {
            (Some(pid), Some(tid)) => Owner::Thread { source, pid, tid },
            _ => by_stream,
        };
        let is_full = self.known.len() >= MOST_TRACKS;
        let owner = if is_full && !self.known.contains_key(&wanted) { by_stream } else { wanted };
        let known = self.known.get(&owner).copied();
        let named = !thread.name.is_empty();
        if let Some((id, had)) = known
            && (had || !named || owner == by_stream)
        {
            return id;
        }
        let id = known.map_or_else(|| self.known.len() as u64 + 1, |(id, _)| id);
        self.known.insert(owner, (id, named));
        let cpu = self.sources.get(source).and_then(|s| s.streams().get(stream)).and_then(|s| s.cpu);
        self.packet.nested(packet::TRACK_DESCRIPTOR, |track| {
            track.number(1, id);
            match owner {
                Owner::Thread { pid, tid, .. } => track.nested(4, |of| {
                    of.signed(1, pid);
                    of.signed(2, tid);
                    if !thread.name.is_empty() {
                        of.text(5, thread.name);
                    }
                }),
                Owner::Stream { .. } => {
                    let cpu = cpu.map_or_else(String::new, |cpu| format!(", CPU {cpu}"));
                    track.text(2, format!("{}{cpu}", channel.name).as_bytes());
                }
            }
        });
        put_packet(out, &mut self.packet);
        id
    }
}

/// `TrackEvent.debug_annotations`.
fn annotate(event: &mut Message, field: &Field, value: &Value<'_>) {
    event.nested(4, |note| {
        note.text(annotation::NAME, field.name.as_bytes());
        put(note, value);
    });
}

fn put(note: &mut Message, value: &Value<'_>) {
    match value {
        Value::Unsigned { value, .. } => note.number(annotation::UNSIGNED, *value),
        Value::Signed { value, .. } => note.signed(annotation::SIGNED, *value),
        Value::Single(value) => note.double(annotation::DOUBLE, f64::from(*value)),
        Value::Double(value) => note.double(annotation::DOUBLE, *value),
        Value::Bool(value) => note.number(annotation::BOOL, u64::from(*value != 0)),
        Value::Text(text) => note.text(annotation::TEXT, text),
        Value::Bytes(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            note.text(annotation::TEXT, digits.as_bytes());
        }
        Value::Enum(value) => match value.matching().next() {
            Some(label) => note.text(annotation::TEXT, label.as_bytes()),
            None => note.signed(annotation::SIGNED, value.value),
        },
        Value::Elements(elements) => {
            for element in *elements {
                note.nested(annotation::ELEMENT, |inner| put(inner, &element));
            }
        }
    }
}
