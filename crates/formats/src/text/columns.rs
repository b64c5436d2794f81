//! Lines for people: the kernel's layout, and ours.

mod values;

use super::batch::{Batch, Record, Window};
use super::escape::bare;
use super::line::Line;
use super::message::{self, Piece, pieces, shown_name};
use super::number::{Constant, signed, six};
use super::page::Page;
use super::plan::Look;
use super::time::{TimeOfDay, Zone, put_seconds};
use super::value::based;
use crate::events::Facts;
use crate::fields::{self, Role};
use lastwords_bytes::ByteOrder;
use lastwords_ctf::program::{Code, Decoder, Flat};
use lastwords_ctf::read::Trace;
use lastwords_trace::class::{EventClass, LogLevel, Origin as ClockOrigin, Scope, StreamClass};
use lastwords_trace::integer::{extend, take_integer};
use lastwords_trace::visit::{Ignore, Shape};
use std::collections::HashMap;
use values::{Mark, Thread, Values};

const GIGA: i64 = 1_000_000_000;

/// What is known of some traces before the first event.
pub(super) struct Plan<'t> {
    kernel: bool,
    /// By stream class, those of all traces one behind the other.
    classes: Vec<Columns<'t>>,
    /// By trace: names by thread id, for events whose contexts have none.
    names: Vec<HashMap<i64, &'t str>>,
    /// By stream.
    cpus: Vec<Option<Constant>>,
}

/// A stream class.
struct Columns<'t> {
    /// The clock leads to the time of day.
    absolute: bool,
    context: Option<Fields<'t>>,
    /// The context, where its fields are at fixed offsets.
    places: Option<Places>,
    events: Vec<Class<'t>>,
}

/// The fields of a scope.
struct Fields<'t> {
    code: &'t Code,
    /// By node: ` name=`, if it is shown.
    prefixes: Vec<Option<Constant>>,
    looks: Vec<Look<'t>>,
    roles: Vec<Role>,
}

/// Fields of a context at fixed offsets.
#[derive(Default)]
struct Places {
    /// Bytes of the whole context.
    len: usize,
    name: Option<(usize, usize)>,
    thread: Option<Place>,
    cpu: Option<Place>,
    others: Vec<(Constant, Place)>,
}

/// An integer at a fixed offset.
#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    size: u8,
    signed: bool,
    order: ByteOrder,
}

/// An event class.
struct Class<'t> {
    /// Five columns of severity.
    level: &'static str,
    /// ` LEVEL [`.
    before_cpu: Constant,
    /// ` provider:name:`.
    name: Constant,
    /// The message, where there is a format string.
    pieces: Vec<Piece>,
    specific: Option<Fields<'t>>,
    payload: Option<Fields<'t>>,
    /// The payload, where its fields are of simple forms and no message shows them.
    line: Option<Line<'t>>,
}

/// Five columns for a severity.
fn level(level: Option<LogLevel>) -> &'static str {
    match level.map(LogLevel::number) {
        Some(0..=3) => "ERROR",
        Some(4) => "WARN ",
        Some(5 | 6) => "INFO ",
        Some(7..=12 | 14) => "DEBUG",
        Some(_) => "TRACE",
        None => "-    ",
    }
}

impl<'t> Plan<'t> {
    /// `kernel`: the layout of the kernel's `trace` file.
    pub(super) fn new(traces: &'t [Trace], streams: &[Facts], kernel: bool) -> Self {
        let cpu = |facts: &Facts| facts.cpu.map(|cpu| Constant::new(format!("{cpu:03}").as_bytes()));
        Self {
            kernel,
            classes: traces.iter().flat_map(columns).collect(),
            names: traces.iter().map(|trace| trace.class().thread_names()).collect(),
            cpus: streams.iter().map(cpu).collect(),
        }
    }
}

fn columns(trace: &Trace) -> Vec<Columns<'_>> {
    let class = trace.class();
    let of = |(position, stream): (usize, &StreamClass)| {
        let clock = stream.clock.and_then(|clock| class.clocks.get(clock));
        let scope = |scope, event| {
            class.scope(scope, position, event)?;
            trace.program.code(scope, position, event).map(fields)
        };
        let context = scope(Scope::CommonContext, 0);
        Columns {
            absolute: clock.is_some_and(|clock| clock.origin == ClockOrigin::UnixEpoch),
            places: match &context {
                None => Some(Places::default()),
                Some(context) => places(context),
            },
            context,
            events: stream
                .events
                .iter()
                .enumerate()
                .map(|(at, event)| {
                    let specific = scope(Scope::SpecificContext, at);
                    of_event(event, specific, scope(Scope::Payload, at))
                })
                .collect(),
        }
    };
    class.streams.iter().enumerate().map(of).collect()
}

fn fields(code: &Code) -> Fields<'_> {
    let roles = fields::roles(code);
    let prefix = |(node, role): (&lastwords_trace::visit::Node, &Role)| {
        let mut text = vec![b' '];
        bare(&mut text, node.name.as_bytes());
        text.push(b'=');
        (*role != Role::Hidden).then(|| Constant::new(&text))
    };
    Fields {
        code,
        prefixes: code.nodes().iter().zip(&roles).map(prefix).collect(),
        looks: code
            .nodes()
            .iter()
            .zip(&roles)
            .map(|(node, role)| if *role == Role::Hidden { Look::Hidden } else { super::plan::look(node) })
            .collect(),
        roles,
    }
}

fn of_event<'t>(event: &EventClass, specific: Option<Fields<'t>>, payload: Option<Fields<'t>>) -> Class<'t> {
    let event_name = event.name.as_deref().unwrap_or("<unknown>");
    let format = message::format(event);
    let mut name = vec![b' '];
    bare(&mut name, shown_name(event_name, &format).as_bytes());
    name.push(b':');
    let shown = payload.as_ref().map_or_else(Vec::new, members);
    let pieces = pieces(&format, &shown);
    let level = level(event.log_level);
    let line = match &payload {
        Some(fields) if pieces.is_empty() => Line::of_columns(fields.code, &fields.prefixes, &fields.looks),
        _ => None,
    };
    Class {
        level,
        before_cpu: Constant::new(format!(" {level} [").as_bytes()),
        name: Constant::new(&name),
        pieces,
        specific,
        payload,
        line,
    }
}

/// The names of a scope's own members that are shown.
fn members<'f>(fields: &Fields<'f>) -> Vec<&'f str> {
    let nodes = fields.code.nodes().iter().zip(&fields.roles);
    let own = nodes.filter(|(node, role)| node.depth == 1 && !node.name.is_empty() && **role != Role::Hidden);
    own.map(|(node, _)| node.name.as_str()).collect()
}

/// The places of a context's fields; none where one has no fixed place.
fn places(context: &Fields<'_>) -> Option<Places> {
    let mut places = Places::default();
    let mut process = None;
    for (number, flat) in context.code.flat()?.into_iter().enumerate() {
        let offset = places.len;
        match flat {
            Flat::Begin(_) if number == 0 => {}
            Flat::End => {}
            Flat::Begin(_) | Flat::Text(_) => return None,
            Flat::Skip(bytes) => places.len = places.len.checked_add(usize::try_from(bytes).ok()?)?,
            Flat::Chars(node, bytes) => {
                let bytes = usize::try_from(bytes).ok()?;
                if context.code.nodes().get(node as usize)?.name != "procname" {
                    return None;
                }
                places.name = Some((offset, bytes));
                places.len = places.len.checked_add(bytes)?;
            }
            Flat::Integer { node, size, signed, order } => {
                let at = node as usize;
                let place = Place { offset, size, signed, order };
                match context.code.nodes().get(at)?.name.as_str() {
                    "vtid" | "tid" => places.thread = Some(place),
                    "cpu" | "cpu_id" => places.cpu = Some(place),
                    name => {
                        if matches!(name, "vpid" | "pid") {
                            process = Some(place);
                        }
                        match (context.prefixes.get(at)?, context.looks.get(at)?) {
                            (Some(prefix), Look::Signed | Look::Unsigned) => {
                                places.others.push((prefix.clone(), place));
                            }
                            (None, _) => {}
                            _ => return None,
                        }
                    }
                }
                places.len = places.len.checked_add(usize::from(size))?;
            }
        }
    }
    places.thread = places.thread.or(process);
    Some(places)
}

impl Place {
    /// The integer here.
    #[inline]
    fn integer(self, context: &[u8]) -> Option<i64> {
        let raw = take_integer(&mut context.get(self.offset..)?, self.size, self.order)?;
        Some(if self.signed { extend(raw, self.size) } else { raw.cast_signed() })
    }
}

/// The thread that recorded an event, and the CPU: of the stream, or of the contexts.
struct Origin<'a> {
    name: Option<&'a [u8]>,
    thread: Option<i64>,
    stream: Option<&'a Constant>,
    cpu: Option<i64>,
}

/// Makes the lines of batches.
pub(super) struct Lines<'p, 't> {
    plan: &'p Plan<'t>,
    traces: &'t [Trace],
    /// By trace.
    decoders: Vec<Decoder>,
    time: TimeOfDay,
    line: Vec<u8>,
    context: Thread,
    values: Vec<u8>,
    marks: Vec<Mark>,
}

impl<'p, 't> Lines<'p, 't> {
    pub(super) fn new(plan: &'p Plan<'t>, traces: &'t [Trace], zone: &Zone) -> Self {
        Self {
            plan,
            traces,
            decoders: traces.iter().map(|trace| trace.program.decoder()).collect(),
            time: TimeOfDay::new(zone, b"", b""),
            line: Vec::new(),
            context: Thread::default(),
            values: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Appends a line for each event.
    pub(super) fn put(&mut self, batch: &mut Batch, page: &mut Page) {
        let mut decoders = batch.decoders.iter_mut().peekable();
        for (position, record) in batch.records.iter().enumerate() {
            let Some(window) = batch.windows.get(record.window as usize) else { continue };
            let decoder = decoders.next_if(|(of, _)| *of == position).map(|(_, decoder)| decoder);
            self.line.clear();
            if self.event(window, record, decoder).is_some() {
                self.line.push(b'\n');
                page.append(&self.line);
            }
        }
    }

    fn event(&mut self, window: &Window, record: &Record, decoder: Option<&mut Decoder>) -> Option<()> {
        let plan = self.plan;
        let columns = plan.classes.get(window.plan)?;
        let class = columns.events.get(record.class as usize)?;
        let program = &self.traces.get(window.trace)?.program;
        let decoder = match decoder {
            Some(decoder) => decoder,
            None => self.decoders.get_mut(window.trace)?,
        };
        let within = record.body.wrapping_sub(window.base.wrapping_mul(8));
        let places = columns.places.as_ref().filter(|_| within.is_multiple_of(8));
        let bytes = window.bytes.get((within / 8) as usize..).unwrap_or_default();
        let mut at = record.body;
        let names = plan.names.get(window.trace);
        let listed = |thread: Option<i64>| names?.get(&thread?).map(|name| name.as_bytes());
        let stream = plan.cpus.get(window.stream).and_then(Option::as_ref);
        let origin = match (places, &columns.context) {
            (Some(places), _) => {
                at = at.wrapping_add((places.len as u64).wrapping_mul(8));
                let thread = places.thread.and_then(|place| place.integer(bytes));
                let name = places.name.and_then(|(at, len)| until_nul(bytes.get(at..)?.get(..len)?));
                let cpu = places.cpu.and_then(|place| place.integer(bytes));
                Origin { name: name.or_else(|| listed(thread)), thread, stream, cpu }
            }
            (None, Some(fields)) => {
                self.context.clear();
                let mut values = Values::of_context(fields, &mut self.context);
                at = program.visit(decoder, fields.code, &window.part(), at, &mut values).ok()?;
                let thread = self.context.thread();
                let name = self.context.name().or_else(|| listed(thread));
                Origin { name, thread, stream, cpu: self.context.cpu }
            }
            (None, None) => Origin { name: None, thread: None, stream, cpu: None },
        };
        let line = &mut self.line;
        if plan.kernel {
            kernel_head(line, class, &origin);
            kernel_time(line, record.nanoseconds);
        } else {
            match (window.is_timed, columns.absolute) {
                (true, true) => self.time.put(record.nanoseconds, line),
                (true, false) => put_seconds(record.nanoseconds, line),
                (false, _) => line.extend_from_slice(b"-"),
            }
            own_head(line, class, &origin);
        }
        class.name.put(line);
        if let Some(fields) = &class.specific {
            // The specific context is shown behind the payload, with the other contexts.
            at = program.visit(decoder, fields.code, &window.part(), at, &mut Ignore).ok()?;
        }
        match (&class.line, &class.payload) {
            (Some(flat), _) if places.is_some() && class.specific.is_none() => {
                flat.put(bytes.get(places.map_or(0, |places| places.len)..)?, line)?;
            }
            (_, Some(fields)) => {
                self.values.clear();
                self.marks.clear();
                let mut values = Values::of_payload(fields, &class.pieces, &mut self.values, &mut self.marks);
                program.visit(decoder, fields.code, &window.part(), at, &mut values).ok()?;
                message(line, class, &self.values, &self.marks);
            }
            (_, None) => message(line, class, &[], &[]),
        }
        if !plan.kernel {
            match (places, &columns.context) {
                (Some(places), _) => others(line, places, bytes),
                (None, Some(_)) => line.extend_from_slice(&self.context.others),
                (None, None) => {}
            }
            if let Some(fields) = &class.specific {
                self.context.clear();
                let mut values = Values::of_context(fields, &mut self.context);
                let begin = behind_context(program, decoder, columns, window, record)?;
                program.visit(decoder, fields.code, &window.part(), begin, &mut values).ok()?;
                line.extend_from_slice(&self.context.others);
            }
        }
        Some(())
    }
}

/// Where the specific context begins.
fn behind_context(
    program: &lastwords_ctf::program::Program,
    decoder: &mut Decoder,
    columns: &Columns<'_>,
    window: &Window,
    record: &Record,
) -> Option<u64> {
    match &columns.context {
        Some(fields) => program.visit(decoder, fields.code, &window.part(), record.body, &mut Ignore).ok(),
        None => Some(record.body),
    }
}

fn until_nul(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()))
}

/// Fields of the context that no column shows.
#[inline]
fn others(out: &mut Vec<u8>, places: &Places, context: &[u8]) {
    for (prefix, place) in &places.others {
        if let Some(value) = place.integer(context) {
            prefix.put(out);
            if place.signed { signed(out, value) } else { super::number::unsigned(out, value.cast_unsigned()) }
        }
    }
}

/// `            comm-tid     [cpu] LEVEL`, in the columns of the kernel's `trace`.
fn kernel_head(out: &mut Vec<u8>, class: &Class<'_>, origin: &Origin<'_>) {
    let name = origin.name.unwrap_or(b"<...>");
    let width = if name.is_ascii() { name.len() } else { String::from_utf8_lossy(name).chars().count() };
    blanks(out, 16usize.saturating_sub(width));
    bare(out, name);
    out.push(b'-');
    let begin = out.len();
    match origin.thread {
        Some(id) => signed(out, id),
        None => out.push(b'?'),
    }
    blanks(out, 7usize.saturating_sub(out.len().wrapping_sub(begin)));
    out.extend_from_slice(b" [");
    cpu(out, origin);
    out.extend_from_slice(b"] ");
    out.extend_from_slice(class.level.as_bytes());
}

/// ` secs.usecs:`.
fn kernel_time(out: &mut Vec<u8>, nanoseconds: i64) {
    out.push(b' ');
    signed(out, nanoseconds.div_euclid(GIGA));
    let mut text = *b".000000:";
    text[1..7].copy_from_slice(&six((nanoseconds.rem_euclid(GIGA) / 1000) as u32));
    out.extend_from_slice(&text);
}

/// ` LEVEL [cpu] comm-tid`, or what is known of it, behind the time.
#[inline]
fn own_head(out: &mut Vec<u8>, class: &Class<'_>, origin: &Origin<'_>) {
    class.before_cpu.put(out);
    cpu(out, origin);
    out.push(b']');
    if origin.name.is_some() || origin.thread.is_some() {
        out.push(b' ');
        bare(out, origin.name.unwrap_or_default());
        if let Some(id) = origin.thread {
            if origin.name.is_some() {
                out.push(b'-');
            }
            signed(out, id);
        }
    }
}

/// Three digits of the CPU of the stream, else of the context.
#[inline]
fn cpu(out: &mut Vec<u8>, origin: &Origin<'_>) {
    if let Some(stream) = origin.stream {
        stream.put(out);
        return;
    }
    match origin.cpu {
        Some(cpu) => {
            let pad: &[u8] = match cpu {
                0..10 => b"00",
                10..100 => b"0",
                _ => b"",
            };
            out.extend_from_slice(pad);
            signed(out, cpu);
        }
        None => out.extend_from_slice(b"---"),
    }
}

fn blanks(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(b"                ".get(..count).unwrap_or_default());
}

/// The message, and the fields that it does not show. `values` are the fields one behind the other, with a mark for each.
fn message(out: &mut Vec<u8>, class: &Class<'_>, values: &[u8], marks: &[Mark]) {
    for piece in &class.pieces {
        match piece {
            Piece::Text(text) => text.put(out),
            Piece::Value { field, base16 } => {
                let Some(mark) = marks.get(*field) else { continue };
                match mark.number.filter(|_| *base16) {
                    Some((value, length, signed)) => based(out, value, length, signed, 16),
                    None => {
                        out.extend_from_slice(values.get(mark.value..end(values, marks, *field)).unwrap_or_default())
                    }
                }
            }
        }
    }
    for (field, mark) in marks.iter().enumerate().filter(|(_, mark)| !mark.in_message) {
        out.extend_from_slice(values.get(mark.prefix..end(values, marks, field)).unwrap_or_default());
    }
}

/// Where a field ends.
fn end(values: &[u8], marks: &[Mark], field: usize) -> usize {
    marks.get(field.wrapping_add(1)).map_or(values.len(), |next| next.prefix)
}

/// A number's bits and sign, by its node.
fn number_of(fields: &Fields<'_>, node: usize) -> Option<(u8, bool)> {
    match fields.code.nodes().get(node)?.shape {
        Shape::Integer { length, signed, .. } => Some((length, signed)),
        _ => None,
    }
}
