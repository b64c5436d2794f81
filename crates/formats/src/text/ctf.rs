//! Any CTF trace in babeltrace2's default form, as version 2.1.1 prints it.

use super::babeltrace::delta;
use super::escape::{bare, quoted};
use super::number::{Constant, general, hexadecimal, signed, unsigned};
use super::time::{TimeOfDay, Zone};
use crate::ctf::read::{Error, Loss, Reader, Sink, Trace};
use crate::ctf::uuid_text;
use crate::select::Selection;
use lastwords_trace::ctf::{Code, Encoding, Event, Mapping, Node, NodeId, Scope, Shape, TraceClass, Visitor};
use lastwords_trace::schema::EnvValue;
use std::io::Write;

/// Bytes of text that are collected before they are written.
const FLUSH: usize = 64 << 10;

/// Prints events; what is missing and what cannot be read goes to `notes`.
pub struct Printer<'t, 'o> {
    traces: &'t [Trace],
    plans: Vec<TracePlan<'t>>,
    /// By stream: the trace, the stream class, and the packet context of the packet that is read.
    streams: Vec<StreamState>,
    out: &'o mut dyn Write,
    notes: &'o mut dyn FnMut(Note),
    selection: &'o Selection,
    text: Vec<u8>,
    time: TimeOfDay,
    /// For remarks.
    moments: TimeOfDay,
    previous: Option<i64>,
    /// Events printed.
    pub events: u64,
    /// Why writing ended.
    pub failed: Option<std::io::Error>,
}

/// Something besides events.
#[derive(Debug)]
pub enum Note {
    /// Events or packets are missing, in babeltrace2's words.
    Loss(String),
    /// Something cannot be read.
    Fault(Error),
}

#[derive(Default)]
struct StreamState {
    trace: usize,
    class: usize,
    context: Vec<u8>,
}

struct TracePlan<'t> {
    streams: Vec<StreamPlan<'t>>,
}

struct StreamPlan<'t> {
    context: Option<ScopePlan<'t>>,
    common: Option<ScopePlan<'t>>,
    events: Vec<EventPlan<'t>>,
}

struct EventPlan<'t> {
    /// The trace's header, the name and a colon.
    head: Constant,
    wanted: bool,
    specific: Option<ScopePlan<'t>>,
    payload: Option<ScopePlan<'t>>,
}

struct ScopePlan<'t> {
    code: &'t Code,
    parts: Vec<Part<'t>>,
}

/// What stands before a field's value, and how the value looks.
struct Part<'t> {
    prefix: Constant,
    look: Look<'t>,
}

#[derive(Clone, Copy)]
enum Look<'t> {
    Hidden,
    Unsigned,
    Signed,
    /// Another base: bits of the field, whether it is signed, the base.
    Based(u8, bool, u8),
    Enum(&'t [Mapping], u8, bool, u8),
    Bool,
    /// Names of bits.
    Bits(&'t [Mapping]),
    Text(Encoding),
    Other,
}

impl<'t, 'o> Printer<'t, 'o> {
    /// Prints what is selected of `traces`; `streams` gives the trace and stream class of each reader, by position.
    pub fn new(
        traces: &'t [Trace],
        streams: &[(usize, Reader<'_>)],
        selection: &'o Selection,
        zone: &Zone,
        out: &'o mut dyn Write,
        notes: &'o mut dyn FnMut(Note),
    ) -> Self {
        let state = |(trace, reader): &(usize, Reader<'_>)| StreamState {
            trace: *trace,
            class: reader.stream().class,
            context: Vec::new(),
        };
        Self {
            traces,
            plans: traces.iter().map(|trace| plan(trace, selection)).collect(),
            streams: streams.iter().map(state).collect(),
            out,
            notes,
            selection,
            text: Vec::with_capacity(2 * FLUSH),
            time: TimeOfDay::new(zone, b"[", b"] (+"),
            moments: TimeOfDay::new(zone, b"[", b"]"),
            previous: None,
            events: 0,
            failed: None,
        }
    }

    /// Writes what is left.
    pub fn finish(&mut self) {
        self.flush();
    }

    fn flush(&mut self) -> bool {
        if self.failed.is_none()
            && let Err(e) = self.out.write_all(&self.text)
        {
            self.failed = Some(e);
        }
        self.text.clear();
        self.failed.is_none()
    }

    fn moment(&mut self, nanoseconds: Option<i64>) -> String {
        let mut text = Vec::new();
        match nanoseconds {
            Some(nanoseconds) => self.moments.put(nanoseconds, &mut text),
            None => text.extend_from_slice(b"[??:??:??.?????????]"),
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn plan<'t>(trace: &'t Trace, selection: &Selection) -> TracePlan<'t> {
    let class = trace.class();
    let header = header(class);
    let scope = |scope, stream, event| {
        class.scope(scope, stream, event)?;
        trace.program.code(scope, stream, event).map(scope_plan)
    };
    let streams = class.streams.iter().enumerate().map(|(stream, of)| StreamPlan {
        // babeltrace2 shows no packet context of which it shows no field.
        context: scope(Scope::PacketContext, stream, 0)
            .filter(|scope| scope.code.nodes().iter().any(|node| node.shown && !node.name.is_empty())),
        common: scope(Scope::CommonContext, stream, 0),
        events: of
            .events
            .iter()
            .enumerate()
            .map(|(number, event)| {
                let name = event.name.as_deref().unwrap_or("<unknown>");
                let mut head = header.clone();
                bare(&mut head, name.as_bytes());
                head.extend_from_slice(b": ");
                EventPlan {
                    head: Constant::new(&head),
                    wanted: selection.wants_name(name),
                    specific: scope(Scope::SpecificContext, stream, number),
                    payload: scope(Scope::Payload, stream, number),
                }
            })
            .collect(),
    });
    TracePlan { streams: streams.collect() }
}

/// `hostname:procname:(vpid) `, whichever the environment has.
fn header(class: &TraceClass) -> Vec<u8> {
    let mut text = Vec::new();
    for key in ["hostname", "procname", "vpid"] {
        let mut piece = Vec::new();
        match class.property(key) {
            Some(EnvValue::Text(value)) if key != "vpid" => bare(&mut piece, value.as_bytes()),
            Some(EnvValue::Integer(value)) if key == "vpid" => piece = format!("({value})").into_bytes(),
            _ => continue,
        }
        if !text.is_empty() {
            text.push(b':');
        }
        text.extend_from_slice(&piece);
    }
    if !text.is_empty() {
        text.push(b' ');
    }
    text
}

fn scope_plan(code: &Code) -> ScopePlan<'_> {
    ScopePlan { code, parts: code.nodes().iter().map(part).collect() }
}

fn part(node: &Node) -> Part<'_> {
    let mut prefix = Vec::new();
    if !node.name.is_empty() {
        prefix.extend_from_slice(if node.position == 0 { b" " } else { b", " });
        bare(&mut prefix, node.name.as_bytes());
        prefix.extend_from_slice(b" = ");
    }
    let look = match &node.shape {
        _ if !node.shown => Look::Hidden,
        Shape::Integer { length, signed, base, mappings } if !mappings.is_empty() => {
            Look::Enum(mappings, *length, *signed, *base)
        }
        Shape::Integer { signed: false, base: 10, .. } => Look::Unsigned,
        Shape::Integer { signed: true, base: 10, .. } => Look::Signed,
        Shape::Integer { length, signed, base, .. } => Look::Based(*length, *signed, *base),
        Shape::Bool => Look::Bool,
        Shape::BitArray { flags } => Look::Bits(flags),
        Shape::Text(encoding) => Look::Text(*encoding),
        _ => Look::Other,
    };
    Part { prefix: Constant::new(&prefix), look }
}

impl Sink for Printer<'_, '_> {
    #[inline]
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Event, nanoseconds: Option<i64>) -> bool {
        let Some(state) = self.streams.get(stream) else { return true };
        let plan = self.plans.get(state.trace).and_then(|plan| plan.streams.get(state.class));
        let Some(plan) = plan else { return true };
        let Some(class) = plan.events.get(event.class) else { return true };
        if !class.wanted || nanoseconds.is_some_and(|moment| !self.selection.wants_time(moment)) {
            return true;
        }
        let out = &mut self.text;
        if let Some(nanoseconds) = nanoseconds {
            self.time.put(nanoseconds, out);
            match self.previous.replace(nanoseconds) {
                Some(previous) => delta(nanoseconds.wrapping_sub(previous).cast_unsigned(), out),
                None => out.extend_from_slice(b"?.?????????) "),
            }
        }
        class.head.put(out);
        out.extend_from_slice(&state.context);
        let mut first = state.context.is_empty();
        let mut at = event.body;
        let (program, decoder, bytes) = reader.parts();
        for scope in [&plan.common, &class.specific, &class.payload].into_iter().flatten() {
            if !first {
                out.extend_from_slice(b", ");
            }
            first = false;
            let mut writer = Writer { out, parts: &scope.parts, hidden: 0 };
            match program.visit(decoder, scope.code, &bytes, at, &mut writer) {
                Ok(end) => at = end,
                Err(_) => break,
            }
        }
        out.push(b'\n');
        self.events += 1;
        self.text.len() < FLUSH || self.flush()
    }

    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>) {
        let Some(state) = self.streams.get_mut(stream) else { return };
        state.context.clear();
        let plan = self.plans.get(state.trace).and_then(|plan| plan.streams.get(state.class));
        let Some(scope) = plan.and_then(|plan| plan.context.as_ref()) else { return };
        let Some(packet) = reader.packet().copied() else { return };
        let mut writer = Writer { out: &mut state.context, parts: &scope.parts, hidden: 0 };
        let (program, decoder, bytes) = reader.parts();
        // The packet's own reading of the same bytes went well.
        let _ = program.visit_context(decoder, &packet, bytes.bytes, &mut writer);
    }

    fn loss(&mut self, stream: usize, reader: &mut Reader<'_>, loss: Loss) {
        let Some(state) = self.streams.get(stream) else { return };
        let Some(trace) = self.traces.get(state.trace) else { return };
        let class = trace.class();
        let what = if loss.packets { "packet" } else { "event" };
        let plural = if loss.count == 1 { "" } else { "s" };
        let range = match loss.between {
            Some((begin, end)) => {
                let (begin, end) = (reader.nanoseconds(begin), reader.nanoseconds(end));
                format!("between {} and {}", self.moment(begin), self.moment(end))
            }
            None => "(unknown time range)".to_owned(),
        };
        let uuid = class.uuid.map_or("(no UUID)".to_owned(), |uuid| format!("(UUID: {})", uuid_text(&uuid)));
        let id = class.streams.get(reader.stream().class).map_or(0, |class| class.id);
        let own = reader.stream().id.map_or("no stream ID".to_owned(), |id| format!("stream ID: {id}"));
        let file = reader.stream().files.first().map(|file| file.display().to_string()).unwrap_or_default();
        (self.notes)(Note::Loss(format!(
            "Tracer discarded {} {what}{plural} {range} in trace \"{}\" {uuid} within stream \"{file}\" (stream class ID: \
             {id}, {own}).",
            loss.count,
            trace.name()
        )));
    }

    fn fault(&mut self, _: usize, fault: Error) {
        self.flush();
        (self.notes)(Note::Fault(fault));
    }
}

struct Writer<'a, 't> {
    out: &'a mut Vec<u8>,
    parts: &'a [Part<'t>],
    /// Levels of arrays that are not shown.
    hidden: usize,
}

impl<'t> Writer<'_, 't> {
    /// Puts what stands before a field; how its value looks, if it is shown.
    #[inline]
    fn begin_field(&mut self, node: NodeId) -> Option<Look<'t>> {
        let part = self.parts.get(node as usize)?;
        if matches!(part.look, Look::Hidden) || self.hidden > 0 {
            return None;
        }
        part.prefix.put(self.out);
        Some(part.look)
    }
}

impl Visitor for Writer<'_, '_> {
    #[inline]
    fn integer(&mut self, node: NodeId, value: u64) {
        match self.begin_field(node) {
            Some(Look::Unsigned) => unsigned(self.out, value),
            Some(Look::Signed) => signed(self.out, value.cast_signed()),
            Some(look) => number(self.out, look, value),
            None => {}
        }
    }

    fn float(&mut self, node: NodeId, value: f64) {
        if self.begin_field(node).is_some() {
            general(self.out, value);
        }
    }

    #[inline]
    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        match self.begin_field(node) {
            Some(Look::Text(Encoding::Utf8)) => {
                let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
                quoted(self.out, bytes.get(..end).unwrap_or_default());
            }
            Some(Look::Text(encoding)) => quoted(self.out, decoded(bytes, encoding).as_bytes()),
            _ => {}
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.begin_field(node).is_some() {
            self.out.extend_from_slice(b"{ ");
            for byte in bytes {
                let digit = |value: u8| b"0123456789abcdef".get(usize::from(value)).copied().unwrap_or(b'0');
                self.out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15), b' ']);
            }
            self.out.push(b'}');
        }
    }

    #[inline]
    fn begin(&mut self, node: NodeId) {
        if self.begin_field(node).is_some() {
            self.out.push(b'{');
        }
    }

    #[inline]
    fn end(&mut self, _: NodeId) {
        if self.hidden == 0 {
            self.out.extend_from_slice(b" }");
        }
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        match self.begin_field(node) {
            Some(_) => self.out.push(b'['),
            None => self.hidden += 1,
        }
    }

    fn element(&mut self, index: u64) {
        if self.hidden == 0 {
            self.out.extend_from_slice(if index == 0 { b" [" } else { b", [" });
            unsigned(self.out, index);
            self.out.extend_from_slice(b"] = ");
        }
    }

    fn end_array(&mut self, _: NodeId) {
        if self.hidden == 0 {
            self.out.extend_from_slice(b" ]");
        } else {
            self.hidden -= 1;
        }
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        match (self.begin_field(node), case) {
            (Some(_), Some(_)) => self.out.extend_from_slice(b"{ "),
            (Some(_), None) => self.out.extend_from_slice(b"<none>"),
            (None, Some(_)) => self.hidden += 1,
            (None, None) => {}
        }
    }

    fn end_case(&mut self, _: NodeId) {
        if self.hidden == 0 {
            self.out.extend_from_slice(b" }");
        } else {
            self.hidden -= 1;
        }
    }
}

/// Numbers that are not plain decimal ones.
fn number(out: &mut Vec<u8>, look: Look<'_>, value: u64) {
    match look {
        Look::Based(length, is_signed, base) => based(out, value, length, is_signed, base),
        Look::Enum(mappings, length, is_signed, base) => {
            let wide = if is_signed { i128::from(value.cast_signed()) } else { i128::from(value) };
            out.extend_from_slice(b"( ");
            let mut matching = mappings.iter().filter(|m| m.ranges.iter().any(|r| r.contains(wide)));
            match (matching.next(), matching.next()) {
                (None, _) => out.extend_from_slice(b"<unknown>"),
                (Some(only), None) => quoted(out, only.label.as_bytes()),
                (Some(first), Some(second)) => {
                    out.extend_from_slice(b"{ ");
                    quoted(out, first.label.as_bytes());
                    for mapping in std::iter::once(second).chain(matching) {
                        out.extend_from_slice(b", ");
                        quoted(out, mapping.label.as_bytes());
                    }
                    out.extend_from_slice(b" }");
                }
            }
            out.extend_from_slice(b" : container = ");
            based(out, value, length, is_signed, base);
            out.extend_from_slice(b" )");
        }
        Look::Bool => out.extend_from_slice(if value == 0 { b"false" } else { b"true" }),
        Look::Bits(flags) => bit_map(out, value, flags),
        _ => unsigned(out, value),
    }
}

/// The number, and the names of the bits that are set.
fn bit_map(out: &mut Vec<u8>, value: u64, flags: &[Mapping]) {
    hexadecimal(out, value);
    let is_set = |flag: &&Mapping| {
        (0..64).any(|bit| value >> bit & 1 == 1 && flag.ranges.iter().any(|range| range.contains(bit)))
    };
    for (i, flag) in flags.iter().filter(is_set).enumerate() {
        out.extend_from_slice(if i == 0 { b" { " } else { b", " });
        quoted(out, flag.label.as_bytes());
    }
    if flags.iter().any(|flag| is_set(&flag)) {
        out.extend_from_slice(b" }");
    }
}

fn based(out: &mut Vec<u8>, value: u64, length: u8, is_signed: bool, base: u8) {
    let rounded = |unit: u32| {
        let bits = u32::from(length).next_multiple_of(unit);
        if bits >= 64 || length == 64 { u64::MAX } else { (1 << bits) - 1 }
    };
    match base {
        2 => {
            out.extend_from_slice(b"0b");
            out.extend((0..length).rev().map(|bit| if value >> bit & 1 == 1 { b'1' } else { b'0' }));
        }
        8 => {
            let value = if is_signed { value & rounded(3) } else { value };
            // Writing to memory cannot fail.
            let _ = write!(out, "0{value:o}");
        }
        16 => hexadecimal(out, value & rounded(4)),
        _ if is_signed => signed(out, value.cast_signed()),
        _ => unsigned(out, value),
    }
}

/// Text of an encoding, up to its NUL; what is not of it is replaced.
fn decoded(bytes: &[u8], encoding: Encoding) -> String {
    let mut text: String = match encoding {
        Encoding::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
        Encoding::Utf16Be | Encoding::Utf16Le => {
            let unit = |pair: &[u8]| match (pair, encoding) {
                ([a, b], Encoding::Utf16Be) => u16::from_be_bytes([*a, *b]),
                ([a, b], _) => u16::from_le_bytes([*a, *b]),
                _ => 0,
            };
            let units = bytes.chunks_exact(2).map(unit);
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        Encoding::Utf32Be | Encoding::Utf32Le => {
            let unit = |four: &[u8]| match (four, encoding) {
                ([a, b, c, d], Encoding::Utf32Be) => u32::from_be_bytes([*a, *b, *c, *d]),
                ([a, b, c, d], _) => u32::from_le_bytes([*a, *b, *c, *d]),
                _ => 0,
            };
            let units = bytes.chunks_exact(4).map(unit);
            units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
    };
    if let Some(end) = text.find('\0') {
        text.truncate(end);
    }
    text
}
