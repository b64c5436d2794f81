//! Event classes, and how a payload becomes theirs.

use std::collections::HashSet;

use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{
    Array as CtfArray, Attributes, Bits, Clock, Encoding, EventClass, FieldClass, Identity, Integer, Length, Origin,
    Path, Role, Scope, StreamClass, Text, TraceClass,
};
use lastwords_trace::ftrace::{Array, Format, Ring, Tracing};
use lastwords_trace::schema::EnvValue;

use crate::ftrace::beside::Beside;
use crate::ftrace::text::{At, Printer};
use crate::ftrace::values::{Column, Datum, Element, Kind, Place, columns};
use lastwords_ctf::session::{packet_context, packet_header, role, structure, unsigned};
use lastwords_ctf::uuid_text;

const SECOND: u64 = 1_000_000_000;

/// A field of an event class.
#[derive(Debug, Clone)]
pub(super) enum Cell<'a> {
    /// A field of the event.
    Column {
        /// Unique in the event.
        name: String,
        column: Column<'a>,
    },
    /// What was printed, as text.
    Message,
}

/// A kind of event.
#[derive(Debug, Clone)]
pub(super) struct Class<'a> {
    format: &'a Format,
    pub(super) cells: Vec<Cell<'a>>,
}

/// By event id.
pub(super) fn classes(tracing: &Tracing) -> Vec<Option<Class<'_>>> {
    let last = tracing.formats.keys().next_back().map_or(0, |id| usize::from(*id) + 1);
    let mut classes = vec![None; last];
    for (id, format) in &tracing.formats {
        if let Some(place) = classes.get_mut(usize::from(*id)) {
            *place = Some(class(format, tracing.word_size));
        }
    }
    classes
}

fn class(format: &Format, word_size: u8) -> Class<'_> {
    let is_print = format.system == "ftrace" && matches!(format.name.as_str(), "print" | "bprint" | "bputs");
    let mut taken = HashSet::new();
    let mut cells = Vec::new();
    for column in columns(format, word_size) {
        if is_print && column.field.name != "ip" {
            continue;
        }
        let base = lastwords_ctf::names::identifier(&column.field.name);
        let mut name = base.clone();
        let mut number = 1;
        while name.is_empty() || !taken.insert(name.clone()) {
            number += 1;
            name = format!("{base}_{number}");
        }
        taken.insert(length_of(&name));
        cells.push(Cell::Column { name, column });
    }
    if is_print {
        cells.push(Cell::Message);
    }
    Class { format, cells }
}

fn length_of(name: &str) -> String {
    format!("_{name}_length")
}

fn text() -> FieldClass {
    FieldClass::Text(Text { length: None, encoding: Encoding::Utf8, attributes: Attributes::default() })
}

fn integer(element: Element, base: u8, order: ByteOrder) -> FieldClass {
    FieldClass::Integer(Integer::new(Bits::bytes(element.size, order), element.signed, base))
}

fn array(length: Length, element: FieldClass) -> FieldClass {
    let attributes = Attributes::default();
    FieldClass::Array(Box::new(CtfArray { length, element, alignment: 0, is_uuid: false, attributes }))
}

const OCTET: Element = Element { size: 1, signed: false };

/// Members of the payload for one cell: a length first, where there is one.
fn members(cell: &Cell<'_>, order: ByteOrder) -> Vec<(String, FieldClass)> {
    let Cell::Column { name, column } = cell else { return vec![("msg".to_owned(), text())] };
    let base = if is_address(column) { 16 } else { 10 };
    let element = match column.kind {
        Kind::Number(element) => return vec![(name.clone(), integer(element, base, order))],
        Kind::Argument => return vec![(name.clone(), integer(Element { size: 4, signed: true }, 10, order))],
        Kind::Bool => return vec![(name.clone(), integer(OCTET, 10, order))],
        Kind::Text => return vec![(name.clone(), text())],
        Kind::Bytes => integer(OCTET, 16, order),
        Kind::Numbers(element) => integer(element, base, order),
    };
    if let Some(count) = fixed_count(column) {
        return vec![(name.clone(), array(Length::Fixed(count), element))];
    }
    let length = length_of(name);
    let path = Path { scope: Scope::Payload, names: vec![length.clone()] };
    vec![(length, unsigned(4, order)), (name.clone(), array(Length::Of(path), element))]
}

/// Elements of an array that always has as many.
fn fixed_count(column: &Column<'_>) -> Option<u64> {
    let size = match column.kind {
        Kind::Numbers(element) => u32::from(element.size.max(1)),
        _ => 1,
    };
    (column.place == Place::Fixed).then_some(u64::from(column.field.size / size))
}

/// Shown in base 16: pointers, and what function tracers call addresses.
fn is_address(column: &Column<'_>) -> bool {
    let declaration = &column.field.declaration;
    let name = column.field.name.as_str();
    declaration.contains('*') || matches!(name, "ip" | "parent_ip" | "func" | "caller" | "__probe_ip" | "retaddr")
}

/// Appends the header and the context of an event.
pub(super) fn put(out: &mut Vec<u8>, order: ByteOrder, time: u64, at: At, printer: &Printer<'_>) {
    let common = at.common;
    match order {
        ByteOrder::Little => {
            out.extend_from_slice(&common.id.to_le_bytes());
            out.extend_from_slice(&time.to_le_bytes());
        }
        ByteOrder::Big => {
            out.extend_from_slice(&common.id.to_be_bytes());
            out.extend_from_slice(&time.to_be_bytes());
        }
    }
    out.extend_from_slice(&[common.flags, common.preempt]);
    put_word(out, common.pid, order);
    put_text(out, printer.comm(common.pid).as_bytes());
}

fn put_word(out: &mut Vec<u8>, value: u32, order: ByteOrder) {
    out.extend_from_slice(&if order == ByteOrder::Little { value.to_le_bytes() } else { value.to_be_bytes() });
}

/// Text up to its NUL; bytes that are no UTF-8 become U+FFFD.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(text) {
        Ok(_) => out.extend_from_slice(text),
        Err(_) => out.extend_from_slice(String::from_utf8_lossy(text).as_bytes()),
    }
    out.push(0);
}

impl Cell<'_> {
    /// Appends the value.
    pub(super) fn put(
        &self,
        out: &mut Vec<u8>,
        payload: &[u8],
        order: ByteOrder,
        at: At,
        printer: &mut Printer<'_>,
        scratch: &mut Vec<u8>,
    ) {
        let Self::Column { column, .. } = self else {
            scratch.clear();
            printer.message(scratch, payload, at);
            return put_text(out, scratch);
        };
        let bytes = column.bytes(payload, order);
        match column.kind {
            Kind::Text => put_text(out, bytes.unwrap_or_default()),
            Kind::Argument => {
                let value = match column.read(payload, order) {
                    Datum::Signed(value) => value as u32,
                    _ => 0,
                };
                put_word(out, value, order);
            }
            Kind::Number(Element { size, .. }) => fill(out, bytes, usize::from(size)),
            Kind::Bool => out.push(u8::from(bytes.and_then(<[u8]>::first).is_some_and(|byte| *byte != 0))),
            Kind::Bytes | Kind::Numbers(_) => {
                let size = match column.kind {
                    Kind::Numbers(element) => usize::from(element.size.max(1)),
                    _ => 1,
                };
                match fixed_count(column) {
                    Some(count) => fill(out, bytes, usize::try_from(count).unwrap_or(0).saturating_mul(size)),
                    None => {
                        let bytes = bytes.unwrap_or_default();
                        let count = bytes.len() / size;
                        put_word(out, u32::try_from(count).unwrap_or(0), order);
                        out.extend_from_slice(bytes.get(..count * size).unwrap_or_default());
                    }
                }
            }
        }
    }
}

/// Appends so many bytes; those that the payload does not hold are 0.
fn fill(out: &mut Vec<u8>, bytes: Option<&[u8]>, size: usize) {
    let end = out.len().saturating_add(size);
    out.extend(bytes.unwrap_or_default().iter().take(size));
    out.resize(end, 0);
}

/// The class of the whole trace.
pub(super) fn trace_class(
    tracing: &Tracing,
    array: &Array,
    ring: &dyn Ring,
    beside: &Beside,
    uuid: [u8; 16],
    classes: &[Option<Class<'_>>],
) -> TraceClass {
    let order = tracing.byte_order;
    let name = if array.name.is_empty() { "ftrace".to_owned() } else { array.name.clone() };
    TraceClass {
        version: 2,
        uuid: Some(uuid),
        identity: Identity { namespace: None, name: Some(name.clone()), uid: Some(uuid_text(&uuid)) },
        order,
        env: environment(tracing, array, ring, &name),
        header: Some(packet_header(order)),
        clocks: vec![clock(array, beside)],
        streams: vec![StreamClass {
            id: 0,
            name,
            identity: Identity::default(),
            clock: Some(0),
            packet_context: Some(packet_context(order)),
            event_header: Some(structure(vec![
                ("id", role(2, order, Role::EventClassId)),
                ("timestamp", role(8, order, Role::Clock)),
            ])),
            common_context: Some(structure(vec![
                ("flags", integer(OCTET, 16, order)),
                ("preempt_count", integer(OCTET, 16, order)),
                ("pid", integer(Element { size: 4, signed: true }, 10, order)),
                ("comm", text()),
            ])),
            events: classes.iter().flatten().map(|class| event_class(class, order)).collect(),
            attributes: Attributes::default(),
        }],
        attributes: Attributes::default(),
        preamble: Attributes::default(),
    }
}

fn event_class(class: &Class<'_>, order: ByteOrder) -> EventClass {
    let Class { format, cells } = class;
    let members: Vec<(String, FieldClass)> = cells.iter().flat_map(|cell| members(cell, order)).collect();
    EventClass {
        id: u64::from(format.id),
        name: Some(format!("{}:{}", format.system, format.name)),
        identity: Identity::default(),
        log_level: None,
        emf_uri: String::new(),
        specific_context: None,
        payload: Some(structure(members.iter().map(|(name, class)| (name.as_str(), class.clone())).collect())),
        attributes: Attributes::default(),
    }
}

fn environment(tracing: &Tracing, array: &Array, ring: &dyn Ring, name: &str) -> Vec<(String, EnvValue)> {
    let overrun = ring.cpus().iter().map(|cpu| cpu.stats.overrun).sum::<u64>();
    let text = |key: &str, value: &str| (key.to_owned(), EnvValue::Text(value.to_owned()));
    vec![
        text("domain", "kernel"),
        text("kernel_release", &tracing.release),
        text("machine", &tracing.machine),
        ("overwritten_events".to_owned(), EnvValue::Integer(i64::try_from(overrun).unwrap_or(i64::MAX))),
        text("trace_clock", &array.clock),
        text("trace_name", name),
        text("tracer", &array.tracer),
        text("tracer_name", "ftrace"),
        text("uname", &tracing.uname),
    ]
}

fn clock(array: &Array, beside: &Beside) -> Clock {
    let since = beside.moment.filter(|_| is_since_boot(array)).and_then(|(boot, wall)| wall.checked_sub(boot));
    Clock {
        id: lastwords_ctf::names::identifier(&array.clock),
        identity: Identity { name: Some(array.clock.clone()), ..Identity::default() },
        frequency: SECOND,
        offset_seconds: since.map_or(0, |ns| i64::try_from(ns / SECOND).unwrap_or(0)),
        offset_cycles: since.map_or(0, |ns| ns % SECOND),
        origin: if since.is_some() { Origin::UnixEpoch } else { Origin::Unknown },
        precision: None,
        accuracy: None,
        description: format!("ftrace's clock {}", array.clock),
        attributes: Attributes::default(),
    }
}

/// The clock counts nanoseconds from about the boot on.
fn is_since_boot(array: &Array) -> bool {
    array.clock_in_ns && array.clock != "tai"
}

/// What is to be said of the clock, if anything.
pub(super) fn remark(array: &Array) -> Option<String> {
    let clock = &array.clock;
    (!array.clock_in_ns).then(|| {
        format!("the trace's clock is {clock}, whose frequency is not known: its readings stand as nanoseconds")
    })
}
