//! The lines of events in columns.

use super::super::batch::{Batch, Record, Window};
use super::super::escape::bare;
use super::super::message::Piece;
use super::super::number::{Constant, signed, six, unsigned};
use super::super::page::{self, Page, Put};
use super::super::time::{TimeOfDay, Zone, put_seconds};
use super::super::value::based;
use super::values::{Mark, Thread, Values};
use super::{Class, Columns, Places, Plan};
use lastwords_ctf::program::{Decoder, Program};
use lastwords_ctf::read::Trace;
use lastwords_trace::nul;
use lastwords_trace::visit::Ignore;

const GIGA: i64 = 1_000_000_000;

/// The thread that recorded an event, and the CPU: of the stream, or of the contexts.
#[derive(Clone, Copy)]
struct Origin<'a> {
    name: Option<&'a [u8]>,
    thread: Option<i64>,
    stream: Option<&'a Constant>,
    cpu: Option<i64>,
}

/// Makes the lines of batches.
pub(in super::super) struct Lines<'p, 't> {
    origins: Origins<'p, 't>,
    time: TimeOfDay,
    traces: &'t [Trace],
    /// By trace.
    decoders: Vec<Decoder>,
    line: Vec<u8>,
    context: Thread,
    values: Vec<u8>,
    marks: Vec<Mark>,
}

impl<'p, 't> Lines<'p, 't> {
    pub(in super::super) fn new(plan: &'p Plan<'t>, traces: &'t [Trace], zone: &Zone) -> Self {
        Self {
            origins: Origins { plan, ready: vec![None; READY] },
            time: TimeOfDay::new(zone, b"", b""),
            traces,
            decoders: traces.iter().map(|trace| trace.program.decoder()).collect(),
            line: Vec::new(),
            context: Thread::default(),
            values: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Appends a line for each event.
    pub(in super::super) fn put(&mut self, batch: &mut Batch, page: &mut Page) {
        let mut decoders = batch.decoders.iter_mut().peekable();
        for (position, record) in batch.records.iter().enumerate() {
            let Some(window) = batch.windows.get(record.window as usize) else { continue };
            let decoder = decoders.next_if(|(of, _)| *of == position).map(|(_, decoder)| decoder);
            if self.in_place(window, record, page).is_some() {
                continue;
            }
            self.line.clear();
            if self.visited(window, record, decoder).is_some() {
                self.line.push(b'\n');
                page.append(&self.line);
            }
        }
    }

    /// Appends the line of an event whose fields are at known places, without a visitor. Returns none, and appends
    /// nothing, for any other event.
    #[inline(always)]
    fn in_place(&mut self, window: &Window, record: &Record, page: &mut Page) -> Option<()> {
        let plan = self.origins.plan;
        let columns = plan.classes.get(window.plan)?;
        let class = columns.events.get(record.class as usize)?;
        let flat = class.line.as_ref()?;
        let (places, bytes) = contexts(columns, window, record)?;
        let payload = bytes.get(places.len..)?;
        let origin = self.origins.known(places, bytes, window);
        let ready = match places.name {
            None => Some(self.origins.ready(window, record.class, class, &origin)?),
            Some(_) => None,
        };
        let timed = (window.is_timed, columns.absolute);
        let put = |line: &mut page::Line<'_>| {
            head(plan.kernel, timed, &mut self.time, record.nanoseconds, line, |line| match ready {
                Some(text) => text.put(line),
                None => put_origin(plan.kernel, class, &origin, line),
            });
            let is_whole = flat.put(payload, line).is_some();
            if !places.others.is_empty() {
                others(line, places, bytes);
                line.block(b"\n", 1);
            }
            is_whole
        };
        page.line(put).then_some(())
    }

    /// Writes the line of any event by visitors, without the line feed. Returns none where the event cannot be read.
    fn visited(&mut self, window: &Window, record: &Record, decoder: Option<&mut Decoder>) -> Option<()> {
        let plan = self.origins.plan;
        let columns = plan.classes.get(window.plan)?;
        let class = columns.events.get(record.class as usize)?;
        let program = &self.traces.get(window.trace)?.program;
        let decoder = match decoder {
            Some(decoder) => decoder,
            None => self.decoders.get_mut(window.trace)?,
        };
        let places = contexts(columns, window, record);
        let mut at = record.body;
        let origin = match (places, &columns.context) {
            (Some((places, bytes)), _) => {
                at = at.wrapping_add(8 * places.len as u64);
                let known = self.origins.known(places, bytes, window);
                Origin { name: known.name.or_else(|| self.origins.listed(window, known.thread)), ..known }
            }
            (None, Some(fields)) => {
                self.context.clear();
                let mut values = Values::of_context(fields, &mut self.context);
                at = program.visit(decoder, fields.code, &window.part(), at, &mut values).ok()?;
                let thread = self.context.thread();
                let name = self.context.name().or_else(|| self.origins.listed(window, thread));
                Origin { name, thread, stream: self.origins.cpu(window), cpu: self.context.cpu }
            }
            (None, None) => Origin { name: None, thread: None, stream: self.origins.cpu(window), cpu: None },
        };
        let line = &mut self.line;
        let timed = (window.is_timed, columns.absolute);
        head(plan.kernel, timed, &mut self.time, record.nanoseconds, line, |line| {
            put_origin(plan.kernel, class, &origin, line);
        });
        class.name.put(line);
        if let Some(fields) = &class.specific {
            // The specific context is shown behind the payload, with the other contexts.
            at = program.visit(decoder, fields.code, &window.part(), at, &mut Ignore).ok()?;
        }
        self.values.clear();
        self.marks.clear();
        if let Some(fields) = &class.payload {
            let mut values = Values::of_payload(fields, &class.pieces, &mut self.values, &mut self.marks);
            program.visit(decoder, fields.code, &window.part(), at, &mut values).ok()?;
        }
        message(line, class, &self.values, &self.marks);
        if !plan.kernel {
            match (places, &columns.context) {
                (Some((places, bytes)), _) => others(line, places, bytes),
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

/// The origins of the events that came last, as text.
struct Origins<'p, 't> {
    plan: &'p Plan<'t>,
    ready: Vec<Option<(Key, Constant<64>)>>,
}

/// The number of origins that are kept: a power of two.
const READY: usize = 64;

/// What the text of an origin depends on, where the contexts have no name: the stream, its classes, the event class, the
/// thread, and the CPU.
type Key = (usize, usize, u32, Option<i64>, Option<i64>);

impl<'p, 't> Origins<'p, 't> {
    /// The CPU of the stream.
    #[inline]
    fn cpu(&self, window: &Window) -> Option<&'p Constant> {
        self.plan.cpus.get(window.stream)?.as_ref()
    }

    /// The name that the trace's list of threads has for a thread.
    fn listed(&self, window: &Window, thread: Option<i64>) -> Option<&'t [u8]> {
        let name: &'t str = self.plan.names.get(window.trace)?.get(&thread?)?;
        Some(name.as_bytes())
    }

    /// The origin of an event whose contexts, which begin at `bytes`, are at known places; but for a name that these do
    /// not have.
    #[inline(always)]
    fn known<'a>(&self, places: &Places, bytes: &'a [u8], window: &Window) -> Origin<'a>
    where
        'p: 'a,
    {
        let thread = places.thread.and_then(|place| place.integer(bytes));
        let name = places.name.and_then(|(at, len)| Some(nul::until(bytes.get(at..)?.get(..len)?)));
        let cpu = places.cpu.and_then(|place| place.integer(bytes));
        Origin { name, thread, stream: self.cpu(window), cpu }
    }

    /// The text of an origin that has no name of its own.
    #[inline(always)]
    fn ready(&mut self, window: &Window, number: u32, class: &Class<'_>, origin: &Origin<'_>) -> Option<&Constant<64>> {
        let key = (window.stream, window.plan, number, origin.thread, origin.cpu);
        let thread = origin.thread.unwrap_or(0) as usize;
        let at = thread.wrapping_add(number as usize).wrapping_add(window.stream.wrapping_mul(READY / 4)) % READY;
        if self.ready.get(at)?.as_ref().is_none_or(|(of, _)| *of != key) {
            self.make(at, key, window, class, origin);
        }
        self.ready.get(at)?.as_ref().map(|(_, text)| text)
    }

    #[cold]
    fn make(&mut self, at: usize, key: Key, window: &Window, class: &Class<'_>, origin: &Origin<'_>) {
        let mut text = Vec::new();
        let name = self.listed(window, origin.thread);
        put_origin(self.plan.kernel, class, &Origin { name, ..*origin }, &mut text);
        if let Some(place) = self.ready.get_mut(at) {
            *place = Some((key, Constant::new(&text)));
        }
    }
}

/// Appends an origin as text.
#[inline]
fn put_origin(kernel: bool, class: &Class<'_>, origin: &Origin<'_>, line: &mut impl Put) {
    if kernel { kernel_origin(line, class, origin) } else { own_origin(line, class, origin) }
}

/// Appends the time and the origin of an event in their order.
#[inline(always)]
fn head<P: Put>(
    kernel: bool,
    (is_timed, absolute): (bool, bool),
    time: &mut TimeOfDay,
    nanoseconds: i64,
    line: &mut P,
    origin: impl FnOnce(&mut P),
) {
    if kernel {
        origin(line);
        return kernel_time(line, nanoseconds);
    }
    match (is_timed, absolute) {
        (true, true) => time.put(nanoseconds, line),
        (true, false) => put_seconds(nanoseconds, line),
        (false, _) => line.block(b"-", 1),
    }
    origin(line);
}

/// Where the contexts of an event are at known places: these, and the bytes that they begin at.
#[inline]
fn contexts<'c, 'w>(columns: &'c Columns<'_>, window: &'w Window, record: &Record) -> Option<(&'c Places, &'w [u8])> {
    let within = record.body.wrapping_sub(8 * window.base);
    let places = columns.places.as_ref().filter(|_| within.is_multiple_of(8))?;
    Some((places, window.bytes.get((within / 8) as usize..).unwrap_or_default()))
}

/// Where the specific context begins.
fn behind_context(
    program: &Program,
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

/// Fields of the context that no column shows.
#[inline(always)]
fn others(out: &mut impl Put, places: &Places, context: &[u8]) {
    for (prefix, place) in &places.others {
        if let Some(value) = place.integer(context) {
            prefix.put(out);
            if place.signed { signed(out, value) } else { unsigned(out, value.cast_unsigned()) }
        }
    }
}

/// `            comm-tid     [cpu] LEVEL`, in the columns of the kernel's `trace`.
fn kernel_origin(out: &mut impl Put, class: &Class<'_>, origin: &Origin<'_>) {
    let name = origin.name.unwrap_or(b"<...>");
    let width = if name.is_ascii() { name.len() } else { String::from_utf8_lossy(name).chars().count() };
    blanks(out, 16usize.saturating_sub(width));
    bare(out, name);
    out.block(b"-", 1);
    let width = match origin.thread {
        Some(id) => {
            signed(out, id);
            let digits = id.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
            digits + usize::from(id < 0)
        }
        None => {
            out.block(b"?", 1);
            1
        }
    };
    blanks(out, 7usize.saturating_sub(width));
    out.block(b" [", 2);
    cpu(out, origin);
    out.block(b" ", 1);
    out.block(class.level, 5);
}

/// ` secs.usecs:`.
fn kernel_time(out: &mut impl Put, nanoseconds: i64) {
    out.block(b" ", 1);
    signed(out, nanoseconds.div_euclid(GIGA));
    let mut text = *b".000000:";
    text[1..7].copy_from_slice(&six((nanoseconds.rem_euclid(GIGA) / 1000) as u32));
    out.block(&text, text.len());
}

/// ` LEVEL [cpu] comm-tid`, or what is known of it, behind the time.
#[inline(always)]
fn own_origin(out: &mut impl Put, class: &Class<'_>, origin: &Origin<'_>) {
    out.block(&class.before_cpu, 8);
    cpu(out, origin);
    if origin.name.is_none() && origin.thread.is_none() {
        return;
    }
    out.block(b" ", 1);
    if let Some(name) = origin.name {
        bare(out, name);
        out.block(b"-", usize::from(origin.thread.is_some()));
    }
    if let Some(id) = origin.thread {
        signed(out, id);
    }
}

/// `CPU]`: three digits, of the CPU of the stream, else of the context.
#[inline(always)]
fn cpu(out: &mut impl Put, origin: &Origin<'_>) {
    if let Some(stream) = origin.stream {
        stream.put(out);
        return;
    }
    match origin.cpu {
        Some(cpu) => {
            let pad = match cpu {
                0..10 => 2,
                10..100 => 1,
                _ => 0,
            };
            out.block(b"00", pad);
            signed(out, cpu);
            out.block(b"]", 1);
        }
        None => out.block(b"---]", 4),
    }
}

fn blanks(out: &mut impl Put, count: usize) {
    out.block(b"                ", count.min(16));
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
    marks.get(field + 1).map_or(values.len(), |next| next.prefix)
}
