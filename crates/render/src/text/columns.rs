//! Formats lines for people, in the layout of the kernel's `trace` file and in the layout of
//! lastwords.

mod lines;
mod values;

use super::chains::{Chains, Pid, SpanFields, is_ours};
use super::escape::bare;
use super::line::Line;
use super::message::{self, Piece, pieces, shown_name};
use super::value_format::ValueFormat;
use crate::fields::{self, Role};
use crate::spans::Step;
use crate::streams::{StreamInfo, scope_code};
use lastwords_bytes::ByteOrder;
use lastwords_ctf::program::{Code, Flat};
use lastwords_ctf::read::Trace;
use lastwords_trace::class::{EventClass, LogLevel, Origin as ClockOrigin, Scope, StreamClass};
use lastwords_trace::integer::{extend, take_integer};
use lastwords_trace::text::number::Constant;
use lastwords_trace::visit::{Node, NodeId, Shape};
use std::collections::HashMap;

pub(super) use lines::{Lines, message};
pub(super) use values::{Mark, Values, Writing};

/// The forms of lines in columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The layout of the kernel's `trace` file.
    Kernel,
    /// The layout of lastwords. Sessions of lastwords read like the log of their program: the spans
    /// around an event stand before its name, and a message before the other fields.
    Own {
        /// The fields of an event include the ids of spans, and are all shown.
        with_ids: bool,
    },
    /// Name and fields, as an event of any other source has them.
    Plain,
}

/// The layout of the lines of all traces, which is computed before the first event.
pub(super) struct Plan<'t> {
    kernel: bool,
    /// The spans of all traces.
    chains: Chains,
    /// The stream classes of all traces, trace after trace.
    classes: Vec<Columns<'t>>,
    /// The thread names of each trace by thread id. They serve events whose contexts have no name.
    names: Vec<HashMap<i64, &'t str>>,
    /// The text `CPU]` of each stream that is bound to a CPU.
    cpus: Vec<Option<Constant>>,
}

/// A stream class.
struct Columns<'t> {
    /// The stream's clock is related to the time of day.
    absolute: bool,
    context: Option<Fields<'t>>,
    /// The layout of the context, if all of its fields are at fixed offsets.
    layout: Option<ContextLayout>,
    /// The lines have the frequent form: the time of day, an origin that the cache of origins can
    /// keep, and the payload.
    frequent: bool,
    events: Vec<Class<'t>>,
    /// Where events have their process, for events inside spans.
    pid: Pid,
}

/// The fields of a scope.
pub(super) struct Fields<'t> {
    pub(super) code: &'t Code,
    /// The text ` name=` of each node; none if the node is not shown.
    prefixes: Vec<Option<Constant>>,
    formats: Vec<ValueFormat<'t>>,
    roles: Vec<Role>,
    /// An array of which only the number of elements is shown.
    counted: Option<NodeId>,
}

impl Fields<'_> {
    /// Returns the members of the outermost structure that are shown.
    pub(super) fn members(&self) -> impl Iterator<Item = NodeId> {
        let nodes = (0..).zip(self.code.nodes()).zip(&self.roles);
        let own = nodes.filter(|((_, node), role)| {
            node.depth == 1 && !node.name.is_empty() && **role != Role::Hidden
        });
        own.map(|((id, _), _)| id)
    }

    /// Returns the member of this name, if it is shown.
    fn member(&self, name: &str) -> Option<(NodeId, &Node)> {
        let mut members =
            self.members().filter_map(|id| Some((id, self.code.nodes().get(id as usize)?)));
        members.find(|(_, node)| node.name == name)
    }

    /// Returns true if the node is shown.
    pub(super) fn shows(&self, node: NodeId) -> bool {
        self.roles.get(node as usize).is_some_and(|role| *role != Role::Hidden)
    }
}

/// The layout of a context whose fields are at fixed offsets.
#[derive(Default)]
struct ContextLayout {
    /// Size of the context in bytes.
    len: usize,
    /// Offset and size of the thread's name.
    name: Option<(usize, usize)>,
    thread: Option<IntegerLayout>,
    process: Option<IntegerLayout>,
    cpu: Option<IntegerLayout>,
    /// The fields that have no column, each with the text ` name=`.
    others: Vec<(Constant, IntegerLayout)>,
}

/// An integer at a fixed offset.
#[derive(Clone, Copy)]
struct IntegerLayout {
    offset: usize,
    size: u8,
    signed: bool,
    order: ByteOrder,
}

/// An event class.
pub(super) struct Class<'t> {
    /// Five characters for the severity.
    level: &'static [u8; 5],
    /// The text ` LEVEL [`.
    before_cpu: [u8; 8],
    /// The text ` provider:name:`.
    name: Constant,
    /// The pieces of the message, if the event class has a format string.
    pub(super) pieces: Vec<Piece>,
    /// A field whose text stands before the other fields, without its name.
    message: Option<NodeId>,
    /// The fields that are not shown with their names.
    pub(super) taken: Vec<NodeId>,
    /// The fields that lead to the spans around the event.
    pub(super) span: Option<SpanFields>,
    specific: Option<Fields<'t>>,
    pub(super) payload: Option<Fields<'t>>,
    /// Formats the name and the payload without a visitor; none if a field has no simple form or a
    /// message shows fields. The line feed is included if no context is shown after the payload.
    line: Option<Line<'t>>,
}

/// Returns five characters for a severity.
fn level(level: Option<LogLevel>) -> &'static [u8; 5] {
    match level.map(LogLevel::number) {
        Some(0..=3) => b"ERROR",
        Some(4) => b"WARN ",
        Some(5 | 6) => b"INFO ",
        Some(7..=12 | 14) => b"DEBUG",
        Some(_) => b"TRACE",
        None => b"-    ",
    }
}

impl<'t> Plan<'t> {
    /// Computes the layout. Lines of traces that are not ours have no form [`Form::Own`].
    pub(super) fn new(traces: &'t [Trace], streams: &[StreamInfo], form: Form) -> Self {
        let cpu = |facts: &StreamInfo| {
            facts.cpu.map(|cpu| Constant::new(format!("{cpu:03}]").as_bytes()))
        };
        let of =
            |trace: &Trace| if form == Form::Kernel || is_ours(trace) { form } else { Form::Plain };
        Self {
            kernel: form == Form::Kernel,
            chains: if form == Form::Kernel { Chains::default() } else { Chains::new(traces) },
            classes: traces.iter().flat_map(|trace| columns(trace, of(trace))).collect(),
            names: traces.iter().map(|trace| trace.class().thread_names()).collect(),
            cpus: streams.iter().map(cpu).collect(),
        }
    }
}

fn columns(trace: &Trace, form: Form) -> Vec<Columns<'_>> {
    let class = trace.class();
    let kernel = form == Form::Kernel;
    let of = |(position, stream): (usize, &StreamClass)| {
        let clock = stream.clock.and_then(|clock| class.clocks.get(clock));
        let scope = |scope, event| scope_code(trace, scope, position, event).map(fields);
        let context = scope(Scope::CommonContext, 0);
        let mut layout = match &context {
            None => Some(ContextLayout::default()),
            Some(context) => context_layout(context),
        };
        if let Some(layout) = layout.as_mut().filter(|_| kernel) {
            // The kernel's layout does not show the other fields of the context.
            layout.others.clear();
        }
        let is_last = layout.as_ref().is_none_or(|layout| layout.others.is_empty());
        let tail: &[u8] = if is_last { b"\n" } else { b"" };
        let absolute = clock.is_some_and(|clock| clock.origin == ClockOrigin::UnixEpoch);
        Columns {
            absolute,
            frequent: !kernel
                && absolute
                && is_last
                && layout.as_ref().is_some_and(|layout| layout.name.is_none()),
            layout,
            context,
            pid: Pid::new(trace, (position, 0)),
            events: stream
                .events
                .iter()
                .enumerate()
                .map(|(at, event)| {
                    let specific = scope(Scope::SpecificContext, at);
                    of_event(event, specific, scope(Scope::Payload, at), tail, form)
                })
                .collect(),
        }
    };
    class.streams.iter().enumerate().map(of).collect()
}

pub(super) fn fields(code: &Code) -> Fields<'_> {
    let roles = fields::roles(code);
    let prefix = |(node, role): (&Node, &Role)| {
        let mut text = vec![b' '];
        bare(&mut text, node.name.as_bytes());
        text.push(b'=');
        (*role != Role::Hidden).then(|| Constant::new(&text))
    };
    let format = |(node, role): (_, &Role)| {
        if *role == Role::Hidden { ValueFormat::Hidden } else { ValueFormat::from_node(node) }
    };
    Fields {
        code,
        prefixes: code.nodes().iter().zip(&roles).map(prefix).collect(),
        formats: code.nodes().iter().zip(&roles).map(format).collect(),
        roles,
        counted: None,
    }
}

pub(super) fn of_event<'t>(
    event: &EventClass,
    specific: Option<Fields<'t>>,
    mut payload: Option<Fields<'t>>,
    tail: &[u8],
    form: Form,
) -> Class<'t> {
    let event_name = event.name.as_deref().unwrap_or("<unknown>");
    let format = message::format(event);
    let mut own = match (form, &mut payload) {
        (Form::Own { with_ids }, Some(fields)) => OwnForm::new(event, fields, with_ids),
        _ => OwnForm::default(),
    };
    let shown = payload.as_ref().map_or_else(Vec::new, members);
    let pieces = pieces(&format, &shown);
    if !pieces.is_empty() {
        own.message = None;
    }
    own.taken.extend(own.message);
    let mut name = vec![b' '];
    bare(&mut name, own.name.as_deref().unwrap_or(shown_name(event_name, &format)).as_bytes());
    if !own.is_bare {
        name.push(b':');
    }
    let level = level(event.log_level);
    let mut before_cpu = *b" -     [";
    before_cpu[1..6].copy_from_slice(level);
    let is_simple =
        pieces.is_empty() && specific.is_none() && own.taken.is_empty() && own.span.is_none();
    let line = match &payload {
        Some(fields) if is_simple => {
            Line::of_columns(&name, fields.code, &fields.prefixes, &fields.formats, tail)
        }
        _ => None,
    };
    let OwnForm { message, taken, span, .. } = own;
    let name = Constant::new(&name);
    Class { level, before_cpu, name, pieces, message, taken, span, specific, payload, line }
}

/// How an event of ours differs from those of others.
#[derive(Default)]
struct OwnForm {
    /// The name that is shown.
    name: Option<String>,
    /// No colon follows the name, because no fields follow.
    is_bare: bool,
    message: Option<NodeId>,
    taken: Vec<NodeId>,
    span: Option<SpanFields>,
}

impl OwnForm {
    fn new(event: &EventClass, payload: &mut Fields<'_>, with_ids: bool) -> Self {
        let name = event.name.as_deref().unwrap_or_default();
        let mut own = Self { span: SpanFields::new(name, payload), ..Self::default() };
        own.taken.extend(own.span.as_ref().and_then(|span| span.text));
        let is_text = |(_, node): &(NodeId, &Node)| matches!(node.shape, Shape::Text(_));
        own.message = payload.member("message").filter(is_text).map(|(id, _)| id);
        if with_ids {
            return own;
        }
        if let Some(provider) = message::provider_of_place(event).filter(|_| own.message.is_some())
        {
            own.name = Some(provider.to_owned());
        }
        if name.starts_with("crash:") {
            let backtrace = payload.member("backtrace");
            payload.counted =
                backtrace.filter(|(_, node)| matches!(node.shape, Shape::Array)).map(|(id, _)| id);
        }
        let Some(span) = &own.span else { return own };
        own.taken.extend([Some(span.id), span.parent].into_iter().flatten());
        if let Some(event) = span.event {
            own.name = name.split(' ').next().map(str::to_owned);
            own.is_bare = event != Step::Record;
        }
        if matches!(span.event, Some(Step::New)) {
            // The chain has the fields.
            own.taken = payload.members().collect();
            own.message = None;
        }
        own
    }
}

/// Returns the names of the members of the outermost structure that are shown.
fn members<'f>(fields: &Fields<'f>) -> Vec<&'f str> {
    let nodes = fields.code.nodes();
    fields.members().filter_map(|id| Some(nodes.get(id as usize)?.name.as_str())).collect()
}

/// Returns the layout of a context, or none if a field has no fixed offset.
fn context_layout(context: &Fields<'_>) -> Option<ContextLayout> {
    let mut layout = ContextLayout::default();
    for (number, flat) in context.code.flat()?.into_iter().enumerate() {
        let offset = layout.len;
        match flat {
            Flat::Begin(_) if number == 0 => {}
            Flat::End => {}
            Flat::Begin(_) | Flat::Text(_) => return None,
            Flat::Skip(bytes) => {
                layout.len = layout.len.checked_add(usize::try_from(bytes).ok()?)?
            }
            Flat::Chars(node, bytes) => {
                let bytes = usize::try_from(bytes).ok()?;
                if context.code.nodes().get(node as usize)?.name != "procname" {
                    return None;
                }
                layout.name = Some((offset, bytes));
                layout.len = layout.len.checked_add(bytes)?;
            }
            Flat::Integer { node, size, signed, order } => {
                let at = node as usize;
                let place = IntegerLayout { offset, size, signed, order };
                match context.code.nodes().get(at)?.name.as_str() {
                    "vtid" | "tid" => layout.thread = Some(place),
                    "cpu" | "cpu_id" => layout.cpu = Some(place),
                    name => {
                        if matches!(name, "vpid" | "pid") {
                            layout.process = Some(place);
                        }
                        match (context.prefixes.get(at)?, context.formats.get(at)?) {
                            (Some(prefix), ValueFormat::Signed | ValueFormat::Unsigned) => {
                                layout.others.push((prefix.clone(), place));
                            }
                            (None, _) => {}
                            _ => return None,
                        }
                    }
                }
                layout.len = layout.len.checked_add(usize::from(size))?;
            }
        }
    }
    layout.thread = layout.thread.or(layout.process);
    Some(layout)
}

impl ContextLayout {
    /// Reads the thread and the CPU from the bytes of the context.
    #[inline(always)]
    fn thread_and_cpu(&self, context: &[u8]) -> (Option<i64>, Option<i64>) {
        let read = |place: Option<IntegerLayout>| place.and_then(|place| place.integer(context));
        (read(self.thread), read(self.cpu))
    }
}

impl IntegerLayout {
    /// Reads the integer from the bytes of the context.
    #[inline]
    fn integer(self, context: &[u8]) -> Option<i64> {
        let raw = take_integer(&mut context.get(self.offset..)?, self.size, self.order)?;
        Some(if self.signed { extend(raw, self.size) } else { raw.cast_signed() })
    }
}
