//! Formats the lines of events in columns.

use super::super::batch::{Batch, Record, Window};
use super::super::chains::{Chains, SpanFields, SpanIds, short_name};
use super::super::escape::bare;
use super::super::line::Line;
use super::super::message::Piece;
use super::super::time::{TimeOfDay, Zone};
use super::super::value::based;
use super::values::{Mark, Thread, Values, Writing};
use super::{Class, Columns, ContextLayout, Plan};
use crate::evidence::seconds;
use crate::spans::Step;
use lastwords_bytes::low_u32;
use lastwords_ctf::program::{Decoder, Program};
use lastwords_ctf::read::Trace;
use lastwords_trace::nul;
use lastwords_trace::text::number::{Constant, signed, six, unsigned};
use lastwords_trace::text::page::{self, Page, Put};
use lastwords_trace::text::put_seconds;
use lastwords_trace::visit::{Ignore, NodeId};

const GIGA: i64 = 1_000_000_000;

/// The thread that recorded an event, and the CPU. The CPU is known from the stream or from the
/// context.
#[derive(Clone, Copy)]
struct Origin<'a> {
    name: Option<&'a [u8]>,
    thread: Option<i64>,
    /// The text `CPU]` of the stream.
    stream: Option<&'a Constant>,
    /// The CPU from the context.
    cpu: Option<i64>,
}

/// Formats the events of batches.
pub(in super::super) struct Lines<'p, 't> {
    origins: Origins<'p, 't>,
    time: TimeOfDay,
    traces: &'t [Trace],
    /// The decoder of each trace.
    decoders: Vec<Decoder>,
    line: Vec<u8>,
    context: Thread,
    values: Vec<u8>,
    marks: Vec<Mark>,
}

impl<'p, 't> Lines<'p, 't> {
    pub(in super::super) fn new(plan: &'p Plan<'t>, traces: &'t [Trace], zone: &Zone) -> Self {
        Self {
            origins: Origins { plan, cache: Box::new([const { None }; CACHE_SIZE]) },
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
            if self.put_flat(window, record, page).is_some() {
                continue;
            }
            self.line.clear();
            if self.visit(window, record, decoder).is_some() {
                self.line.push(b'\n');
                page.append(&self.line);
            }
        }
    }

    /// Appends the line of an event whose context fields are at fixed offsets and whose payload has
    /// a simple form. Uses no visitor. Appends nothing and returns none for other events.
    #[inline(always)]
    fn put_flat(&mut self, window: &Window, record: &Record, page: &mut Page) -> Option<()> {
        let columns = self.origins.plan.classes.get(window.plan)?;
        if !columns.frequent || !window.is_timed {
            return self.put_flat_parts(window, record, page);
        }
        let (layout, bytes) = contexts(columns, window, record)?;
        let payload = bytes.get(layout.len..)?;
        let origin = self.origins.text(window, record.class, columns, layout, bytes)?;
        let put = |line: &mut page::Line<'_>| {
            self.time.put(record.nanoseconds, line);
            origin.text.put(line);
            origin.line.put_values(payload, line).is_some()
        };
        page.line(put).then_some(())
    }

    /// Does the same for a context or a layout that is less frequent.
    #[inline(never)]
    fn put_flat_parts(&mut self, window: &Window, record: &Record, page: &mut Page) -> Option<()> {
        let plan = self.origins.plan;
        let columns = plan.classes.get(window.plan)?;
        let class = columns.events.get(record.class as usize)?;
        let flat = class.line.as_ref()?;
        let (layout, bytes) = contexts(columns, window, record)?;
        let payload = bytes.get(layout.len..)?;
        let known = self.origins.of_context(layout, bytes, window);
        let origin = Origin {
            name: known.name.or_else(|| self.origins.listed(window, known.thread)),
            ..known
        };
        let timed = (window.is_timed, columns.absolute);
        let put = |line: &mut page::Line<'_>| {
            head(plan.kernel, timed, &mut self.time, record.nanoseconds, line, |line| {
                put_origin(plan.kernel, class, &origin, line);
            });
            let is_whole = flat.put(payload, line).is_some();
            if !layout.others.is_empty() {
                others(line, layout, bytes);
                line.block(b"\n", 1);
            }
            is_whole
        };
        page.line(put).then_some(())
    }

    /// Formats the line of any event with visitors, without the line feed. Returns none if the
    /// event cannot be read.
    #[inline(never)]
    fn visit(
        &mut self,
        window: &Window,
        record: &Record,
        decoder: Option<&mut Decoder>,
    ) -> Option<()> {
        let plan = self.origins.plan;
        let columns = plan.classes.get(window.plan)?;
        let class = columns.events.get(record.class as usize)?;
        let program = &self.traces.get(window.trace)?.program;
        let decoder = match decoder {
            Some(decoder) => decoder,
            None => self.decoders.get_mut(window.trace)?,
        };
        let layout = contexts(columns, window, record);
        let mut at = record.body;
        let (origin, pid) = match (layout, &columns.context) {
            (Some((layout, bytes)), _) => {
                at = at.wrapping_add((layout.len as u64).wrapping_mul(8));
                let known = self.origins.of_context(layout, bytes, window);
                let name = known.name.or_else(|| self.origins.listed(window, known.thread));
                (Origin { name, ..known }, layout.process.and_then(|pid| pid.integer(bytes)))
            }
            (None, Some(fields)) => {
                self.context.clear();
                let mut values = Values::of_context(fields, &mut self.context);
                at = program.visit(decoder, fields.code, &window.part(), at, &mut values).ok()?;
                let thread = self.context.thread();
                let name = self.context.name().or_else(|| self.origins.listed(window, thread));
                let stream = self.origins.cpu(window);
                (Origin { name, thread, stream, cpu: self.context.cpu }, self.context.pid)
            }
            (None, None) => {
                let stream = self.origins.cpu(window);
                (Origin { name: None, thread: None, stream, cpu: None }, None)
            }
        };
        if let Some(fields) = &class.specific {
            // The specific context is shown after the payload, with the other contexts.
            at = program.visit(decoder, fields.code, &window.part(), at, &mut Ignore).ok()?;
        }
        self.values.clear();
        self.marks.clear();
        if let Some(fields) = &class.payload {
            let writing = Writing { out: &mut self.values, marks: &mut self.marks };
            let mut values = Values::of_payload(fields, class, writing);
            program.visit(decoder, fields.code, &window.part(), at, &mut values).ok()?;
        }
        let line = &mut self.line;
        let timed = (window.is_timed, columns.absolute);
        head(plan.kernel, timed, &mut self.time, record.nanoseconds, line, |line| {
            put_origin(plan.kernel, class, &origin, line);
        });
        let (values, marks) = (self.values.as_slice(), self.marks.as_slice());
        let chain = class.span.as_ref().map(|span| {
            let id = number_of(Some(span.id), marks);
            let pid = columns.pid.of_event(pid);
            let key = pid.zip(id).map(|(pid, id)| SpanIds { trace: window.trace, pid, id });
            Chain { chains: &plan.chains, span, key, time: record.nanoseconds }
        });
        chain.iter().for_each(|chain| chain.put(values, marks, line));
        class.name.put(line);
        chain.iter().for_each(|chain| chain.put_age(line));
        message(line, class, values, marks);
        if !plan.kernel {
            match (layout, &columns.context) {
                (Some((layout, bytes)), _) => others(line, layout, bytes),
                (None, Some(_)) => line.extend_from_slice(&self.context.others),
                (None, None) => {}
            }
            if let Some(fields) = &class.specific {
                self.context.clear();
                let mut values = Values::of_context(fields, &mut self.context);
                let begin = specific_context(program, decoder, columns, window, record)?;
                program.visit(decoder, fields.code, &window.part(), begin, &mut values).ok()?;
                line.extend_from_slice(&self.context.others);
            }
        }
        Some(())
    }
}

/// A cache of the origins of the last events, as text.
struct Origins<'p, 't> {
    plan: &'p Plan<'t>,
    cache: Box<[Option<Known<'p, 't>>; CACHE_SIZE]>,
}

/// Number of origins in the cache. It must be a power of two.
const CACHE_SIZE: usize = 64;

/// The key of an origin in the cache. It contains everything that the text depends on if the
/// context has no name: the stream, the event class, the thread, and the CPU.
type Key = (usize, u32, Option<i64>, Option<i64>);

/// An origin in the cache.
struct Known<'p, 't> {
    key: Key,
    /// The origin, followed by the text before the first value of the payload.
    text: Constant<64>,
    line: &'p Line<'t>,
}

impl<'p, 't> Origins<'p, 't> {
    /// Returns the text `CPU]` of a stream that is bound to a CPU.
    #[inline]
    fn cpu(&self, window: &Window) -> Option<&'p Constant> {
        self.plan.cpus.get(window.stream)?.as_ref()
    }

    /// Returns the name of a thread from the trace's list of threads.
    fn listed(&self, window: &Window, thread: Option<i64>) -> Option<&'t [u8]> {
        let name: &'t str = self.plan.names.get(window.trace)?.get(&thread?)?;
        Some(name.as_bytes())
    }

    /// Reads the origin of an event from its context, which begins at `bytes`. The name is none if
    /// the context has none.
    #[inline(always)]
    fn of_context<'a>(&self, layout: &ContextLayout, bytes: &'a [u8], window: &Window) -> Origin<'a>
    where
        'p: 'a,
    {
        let (thread, cpu) = layout.thread_and_cpu(bytes);
        let name = layout.name.and_then(|(at, len)| Some(nul::until(bytes.get(at..)?.get(..len)?)));
        Origin { name, thread, stream: self.cpu(window), cpu }
    }

    /// Returns the text of an origin whose name is not in the context, and the steps for the
    /// payload. Takes both from the cache, or adds them. Returns none for a payload that has no
    /// simple form.
    #[inline(always)]
    fn text(
        &mut self,
        window: &Window,
        number: u32,
        columns: &'p Columns<'t>,
        layout: &ContextLayout,
        bytes: &[u8],
    ) -> Option<&Known<'p, 't>> {
        let (thread, cpu) = layout.thread_and_cpu(bytes);
        let key = (window.stream, number, thread, cpu);
        let at = (low_u32(thread.unwrap_or(0).cast_unsigned()) as usize)
            .wrapping_add(number as usize)
            .wrapping_add(window.stream.wrapping_mul(CACHE_SIZE / 4))
            % CACHE_SIZE;
        if self.cache.get(at)?.as_ref().is_none_or(|known| known.key != key) {
            self.insert(at, key, window, columns)?;
        }
        self.cache.get(at)?.as_ref()
    }

    #[cold]
    fn insert(
        &mut self,
        at: usize,
        key: Key,
        window: &Window,
        columns: &'p Columns<'t>,
    ) -> Option<()> {
        let (_, number, thread, cpu) = key;
        let class = columns.events.get(number as usize)?;
        let line = class.line.as_ref()?;
        let origin =
            Origin { name: self.listed(window, thread), thread, stream: self.cpu(window), cpu };
        let mut text = Vec::new();
        put_origin(self.plan.kernel, class, &origin, &mut text);
        text.extend_from_slice(line.head().bytes());
        *self.cache.get_mut(at)? = Some(Known { key, text: Constant::new(&text), line });
        Some(())
    }
}

/// Appends an origin as text.
#[inline]
fn put_origin(kernel: bool, class: &Class<'_>, origin: &Origin<'_>, line: &mut impl Put) {
    if kernel { kernel_origin(line, class, origin) } else { own_origin(line, class, origin) }
}

/// Appends the time and the origin of an event, in the order of the layout.
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

/// Returns the layout of an event's context and the bytes from the context on. Returns none if the
/// fields have no fixed offsets.
#[inline]
fn contexts<'c, 'w>(
    columns: &'c Columns<'_>,
    window: &'w Window,
    record: &Record,
) -> Option<(&'c ContextLayout, &'w [u8])> {
    let within = record.body.wrapping_sub(window.base.wrapping_mul(8));
    let layout = columns.layout.as_ref().filter(|_| within.is_multiple_of(8))?;
    Some((layout, window.bytes.get((within / 8) as usize..).unwrap_or_default()))
}

/// Returns the begin of the specific context, in bits.
fn specific_context(
    program: &Program,
    decoder: &mut Decoder,
    columns: &Columns<'_>,
    window: &Window,
    record: &Record,
) -> Option<u64> {
    match &columns.context {
        Some(fields) => {
            program.visit(decoder, fields.code, &window.part(), record.body, &mut Ignore).ok()
        }
        None => Some(record.body),
    }
}

/// Appends the fields of the context that have no column.
#[inline(always)]
fn others(out: &mut impl Put, layout: &ContextLayout, context: &[u8]) {
    for (prefix, place) in &layout.others {
        if let Some(value) = place.integer(context) {
            prefix.put(out);
            if place.signed { signed(out, value) } else { unsigned(out, value.cast_unsigned()) }
        }
    }
}

/// Appends `            comm-tid     [cpu] LEVEL`, in the columns of the kernel's `trace` file.
fn kernel_origin(out: &mut impl Put, class: &Class<'_>, origin: &Origin<'_>) {
    let name = origin.name.unwrap_or(b"<...>");
    let width =
        if name.is_ascii() { name.len() } else { String::from_utf8_lossy(name).chars().count() };
    blanks(out, 16usize.saturating_sub(width));
    bare(out, name);
    out.block(b"-", 1);
    let width = match origin.thread {
        Some(id) => {
            signed(out, id);
            let more = id.unsigned_abs().checked_ilog10().unwrap_or(0) as usize;
            more.saturating_add(1).saturating_add(usize::from(id < 0))
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

/// Appends ` secs.usecs:`.
fn kernel_time(out: &mut impl Put, nanoseconds: i64) {
    out.block(b" ", 1);
    signed(out, nanoseconds.div_euclid(GIGA));
    let mut text = *b".000000:";
    text[1..7]
        .copy_from_slice(&six(low_u32((nanoseconds.rem_euclid(GIGA) / 1000).cast_unsigned())));
    out.block(&text, text.len());
}

/// Appends ` LEVEL [cpu] comm-tid`, without the parts that are unknown. It follows the time.
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

/// Appends `CPU]` with three digits: the CPU of the stream, or else the CPU from the context.
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

/// Appends the message, and the fields that the message does not show. `values` is the text of all
/// fields, with a mark for each.
pub(in super::super) fn message(
    out: &mut Vec<u8>,
    class: &Class<'_>,
    values: &[u8],
    marks: &[Mark],
) {
    for piece in &class.pieces {
        match piece {
            Piece::Text(text) => text.put(out),
            Piece::Value { field, base16 } => {
                let Some(mark) = marks.get(*field) else { continue };
                match mark.number.filter(|_| *base16) {
                    Some((value, length, signed)) => based(out, value, length, signed, 16),
                    None => out.extend_from_slice(
                        values.get(mark.value..end(values, marks, *field)).unwrap_or_default(),
                    ),
                }
            }
        }
    }
    if let Some(text) = class.message.and_then(|node| value_of(values, marks, node)) {
        out.push(b' ');
        out.extend_from_slice(text);
    }
    for (field, mark) in marks.iter().enumerate().filter(|(_, mark)| !mark.in_message) {
        out.extend_from_slice(
            values.get(mark.prefix..end(values, marks, field)).unwrap_or_default(),
        );
    }
}

/// Returns the end of a field in the text of all fields.
fn end(values: &[u8], marks: &[Mark], field: usize) -> usize {
    marks.get(field.wrapping_add(1)).map_or(values.len(), |next| next.prefix)
}

/// Returns the text of the value of a field; none if the event does not have the field.
fn value_of<'v>(values: &'v [u8], marks: &[Mark], node: NodeId) -> Option<&'v [u8]> {
    let at = marks.iter().position(|mark| mark.node == node)?;
    values.get(marks.get(at)?.value..end(values, marks, at))
}

/// Returns the number in a field of an event; none if the event does not have the field.
fn number_of(field: Option<NodeId>, marks: &[Mark]) -> Option<u64> {
    let mark = marks.iter().find(|mark| Some(mark.node) == field)?;
    mark.number.map(|(number, ..)| number)
}

/// The spans around an event.
struct Chain<'a> {
    chains: &'a Chains,
    span: &'a SpanFields,
    key: Option<SpanIds>,
    time: i64,
}

impl Chain<'_> {
    /// Appends the spans, the outermost first.
    fn put(&self, values: &[u8], marks: &[Mark], line: &mut Vec<u8>) {
        let own = self.span.text.and_then(|node| value_of(values, marks, node)).map(|text| {
            let head = text.iter().position(|byte| *byte == b'{').unwrap_or(text.len());
            let (head, fields) = text.split_at_checked(head).unwrap_or((text, b""));
            [short_name(head), fields].concat()
        });
        let own = own.or_else(|| self.opened(values, marks));
        let is_root = number_of(self.span.parent, marks) == Some(0);
        self.chains.put(self.key, self.time, (own.as_deref(), &self.span.name, is_root), line);
    }

    /// Returns the text of a span that the event itself opens: `order{id=202}`. It is known even if
    /// the process is not, on which all other texts of spans depend.
    fn opened(&self, values: &[u8], marks: &[Mark]) -> Option<Vec<u8>> {
        let parent = self.span.parent?;
        let is_field = |mark: &Mark| mark.node != self.span.id && mark.node != parent;
        let fields: Vec<&[u8]> = marks
            .iter()
            .enumerate()
            .filter(|(_, mark)| is_field(mark))
            // The prefix begins with a blank.
            .filter_map(|(at, mark)| values.get(mark.prefix..end(values, marks, at))?.get(1..))
            .collect();
        let (begin, end): (&[u8], &[u8]) =
            if fields.is_empty() { (b"", b"") } else { (b"{", b"}") };
        Some([&self.span.name, begin, &fields.join(&b' '), end].concat())
    }

    /// Appends how long a span was open that is closed.
    fn put_age(&self, line: &mut Vec<u8>) {
        if self.span.event != Some(Step::Close) {
            return;
        }
        line.extend_from_slice(b" after ");
        match self.chains.age(self.key, self.time) {
            Some(age) => line.extend_from_slice(seconds(age).as_bytes()),
            None => line.push(b'?'),
        }
    }
}
