//! The class of a trace array: an event class for each event format.

use std::collections::HashSet;

use crate::{Array, Format, Ring, Tracing};
use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{
    Array as CtfArray, Bits, Clock, EventClass, FieldClass, Identity, Integer, Length, Origin,
    Path, Role, Scope, StreamClass, Struct, Text, TraceClass,
};
use lastwords_trace::schema::EnvValue;

use super::{ArrayPackets, Form};
use crate::values::{Column, Element, Kind, Location, columns};
use lastwords_ctf::Version;
use lastwords_ctf::names::{identifier, plain, unique};
use lastwords_ctf::session::{packet_context, packet_header, role, structure, unsigned};
use lastwords_ctf::uuid_text;

const SECOND: i64 = 1_000_000_000;

/// A field of an event class.
#[derive(Debug, Clone)]
pub(super) enum Cell<'a> {
    /// A field of the event.
    Column {
        /// The name of the field, which is unique in the event.
        name: String,
        column: Column<'a>,
    },
    /// The printed text, instead of the format and the arguments that it was printed from.
    Message,
}

/// Returns the fields of the event class for an event format.
pub(super) fn cells(format: &Format, word_size: u8, form: Form) -> Vec<Cell<'_>> {
    let is_print =
        format.system == "ftrace" && matches!(format.name.as_str(), "print" | "bprint" | "bputs");
    let mut taken = HashSet::new();
    let mut cells = Vec::new();
    for column in columns(format, word_size) {
        if is_print && column.field.name == "buf" {
            continue;
        }
        let name = match form {
            Form::Folder(Version::V1_8) => identifier(&column.field.name),
            _ => plain(&column.field.name),
        };
        let name = unique(&name, &mut taken);
        taken.insert(length_of(&name).trim_start_matches('_').to_owned());
        cells.push(Cell::Column { name, column });
    }
    if is_print {
        cells.push(Cell::Message);
    }
    cells
}

fn length_of(name: &str) -> String {
    format!("_{name}_length")
}

pub(crate) fn text() -> FieldClass {
    FieldClass::Text(Text::default())
}

fn integer(element: Element, base: u8, order: ByteOrder) -> FieldClass {
    FieldClass::Integer(Integer::new(Bits::bytes(element.size, order), element.signed, base))
}

fn array(length: Length, element: FieldClass) -> FieldClass {
    FieldClass::Array(Box::new(CtfArray::new(length, element)))
}

/// Returns an array field with its length field before it.
fn counted(name: &str, element: FieldClass, order: ByteOrder) -> Vec<(String, FieldClass)> {
    let length = length_of(name);
    let path = Path { scope: Scope::Payload, names: vec![length.clone()] };
    vec![(length, unsigned(4, order)), (name.to_owned(), array(Length::Of(path), element))]
}

const OCTET: Element = Element { size: 1, signed: false };
const PID: Element = Element { size: 4, signed: true };

/// Returns the members of the payload for one cell: its length field, if it has one, and the field.
fn members(cell: &Cell<'_>, order: ByteOrder, form: Form) -> Vec<(String, FieldClass)> {
    let Cell::Column { name, column } = cell else { return vec![("msg".to_owned(), text())] };
    let base = if is_address(column) { 16 } else { 10 };
    let one = |class| vec![(name.clone(), class)];
    let element = match column.kind {
        Kind::Number(element) => return one(integer(element, base, order)),
        Kind::Argument => return one(integer(PID, 10, order)),
        // CTF 1.8 has no booleans.
        Kind::Bool if form == Form::Folder(Version::V1_8) => return one(integer(OCTET, 10, order)),
        Kind::Bool => return one(FieldClass::Bool(Bits::bytes(1, order))),
        Kind::Text => return one(text()),
        Kind::Bytes => integer(OCTET, 16, order),
        Kind::Numbers(element) => integer(element, base, order),
    };
    match fixed_count(column) {
        Some(count) => one(array(Length::Fixed(count), element)),
        None => counted(name, element, order),
    }
}

/// Returns the number of elements of an array of constant length.
pub(super) fn fixed_count(column: &Column<'_>) -> Option<u64> {
    let size = match column.kind {
        Kind::Numbers(element) => u32::from(element.size.max(1)),
        _ => 1,
    };
    column
        .field
        .size
        .checked_div(size)
        .filter(|_| column.location == Location::Fixed)
        .map(u64::from)
}

/// Returns true if the field is shown in base 16: a pointer, or a field in which a function tracer
/// stores an address.
fn is_address(column: &Column<'_>) -> bool {
    let declaration = &column.field.declaration;
    let name = column.field.name.as_str();
    declaration.contains('*')
        || matches!(name, "ip" | "parent_ip" | "func" | "caller" | "__probe_ip" | "retaddr")
}

/// Returns an event class with these fields.
pub(crate) fn event_class(id: u16, name: String, fields: Vec<(String, FieldClass)>) -> EventClass {
    EventClass {
        id: u64::from(id),
        name: Some(name),
        payload: Some(structure(
            fields.iter().map(|(name, class)| (name.as_str(), class.clone())).collect(),
        )),
        ..EventClass::default()
    }
}

/// Returns the class of a trace with one stream class. Each of its events starts with an id of 2
/// bytes and a time of 8 bytes.
pub(crate) fn framed(
    order: ByteOrder,
    uuid: [u8; 16],
    name: &str,
    clock: Clock,
    common_context: Option<Struct>,
    events: Vec<EventClass>,
) -> TraceClass {
    let header = vec![
        ("id", role(2, order, Role::EventClassId)),
        ("timestamp", role(8, order, Role::Clock)),
    ];
    TraceClass {
        uuid: Some(uuid),
        identity: Identity {
            namespace: None,
            name: Some(name.to_owned()),
            uid: Some(uuid_text(&uuid)),
        },
        header: Some(packet_header(order)),
        clocks: vec![clock],
        streams: vec![StreamClass {
            name: name.to_owned(),
            clock: Some(0),
            packet_context: Some(packet_context(order)),
            event_header: Some(structure(header)),
            common_context,
            events,
            ..StreamClass::default()
        }],
        ..TraceClass::new(2, order)
    }
}

/// Returns the class of the whole trace.
pub(super) fn trace_class(
    packets: &ArrayPackets,
    array: &Array,
    ring: &dyn Ring,
    offset: Option<i64>,
) -> TraceClass {
    let (tracing, form) = (&*packets.tracing, packets.form);
    let order = tracing.byte_order;
    let mut context = match form {
        Form::Lines => vec![("flags", text())],
        _ => ["flags", "preempt_count"].map(|name| (name, integer(OCTET, 16, order))).into(),
    };
    context.push(("pid", integer(PID, 10, order)));
    if !tracing.tgids.is_empty() {
        context.push(("tgid", integer(PID, 10, order)));
    }
    context.push(("comm", text()));
    if form == Form::Lines {
        context.extend([
            ("lost", integer(Element { size: 8, signed: true }, 10, order)),
            ("text", text()),
        ]);
    }
    let name = if array.name.is_empty() { "ftrace".to_owned() } else { array.name.clone() };
    let known = tracing.formats.values().filter(|format| format.id != packets.unknown);
    let described = known.map(|format| {
        let cells = cells(format, tracing.word_size, form);
        let fields = cells.iter().flat_map(|cell| members(cell, order, form)).collect();
        event_class(format.id, format!("{}:{}", format.system, format.name), fields)
    });
    let mut unknown = vec![("type".to_owned(), unsigned(2, order))];
    unknown.extend(counted("data", integer(OCTET, 16, order), order));
    let unknown = event_class(packets.unknown, "ftrace:unknown".to_owned(), unknown);
    let mut events: Vec<EventClass> = described.chain([unknown]).collect();
    events.sort_by_key(|class| class.id);
    let clock = clock(array.clock_name(), offset.unwrap_or(0), origin(offset));
    TraceClass {
        env: environment(tracing, array, ring, &name),
        ..framed(order, packets.uuid, &name, clock, Some(structure(context)), events)
    }
}

fn environment(
    tracing: &Tracing,
    array: &Array,
    ring: &dyn Ring,
    name: &str,
) -> Vec<(String, EnvValue)> {
    let sum = |of: fn(&crate::Stats) -> u64| {
        let all = ring.cpus().iter().map(|cpu| of(&cpu.stats)).fold(0, u64::saturating_add);
        EnvValue::Integer(i64::try_from(all).unwrap_or(i64::MAX))
    };
    let text = |text: &str| EnvValue::Text(text.to_owned());
    let env = [
        ("cpus_online", EnvValue::Integer(tracing.cpus.into())),
        ("domain", text("kernel")),
        ("dropped_events", sum(|stats| stats.dropped)),
        ("kernel_release", text(&tracing.release)),
        ("machine", text(&tracing.machine)),
        ("overwritten_events", sum(|stats| stats.overrun)),
        ("trace_clock", text(array.clock_name())),
        ("trace_name", text(name)),
        ("tracer", text(array.tracer_name())),
        ("tracer_name", text("ftrace")),
        ("uname", text(&tracing.uname)),
    ];
    env.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns a clock that counts nanoseconds. `offset` is added to its readings to get nanoseconds
/// since `origin`.
pub(crate) fn clock(name: &str, offset: i64, origin: Origin) -> Clock {
    Clock {
        id: identifier(name),
        identity: Identity { name: Some(name.to_owned()), ..Identity::default() },
        frequency: SECOND.cast_unsigned(),
        offset_seconds: offset.div_euclid(SECOND),
        offset_cycles: offset.rem_euclid(SECOND).cast_unsigned(),
        origin,
        description: format!("the kernel's clock {name}"),
        ..Clock::default()
    }
}

/// Returns the origin of a clock: the epoch if the offset to real time is known.
pub(crate) fn origin(offset: Option<i64>) -> Origin {
    if offset.is_some() { Origin::UnixEpoch } else { Origin::Unknown }
}

/// Returns a remark about the clock, if a reader must know something about it.
pub(super) fn remark(array: &Array) -> Option<String> {
    let clock = array.clock_name();
    (!array.is_in_ns()).then(|| {
        format!("the trace's clock is {clock}, whose frequency is not known: its readings are shown as nanoseconds")
    })
}
