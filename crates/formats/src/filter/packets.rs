//! Evaluates a filter on the events of packets.
//!
//! Each name of the filter is bound once for an event class: to nodes of its scopes, to a constant,
//! or to what the stream tells. For an event only the scopes up to the last that the filter reads
//! are decoded, and only the bound values are kept.

use crate::events::{StreamInfo, channel, scope_code};
use crate::json::level;
use crate::text::decoded;
use lastwords_ctf::program::Code;
use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_filter::BuiltIn;
use lastwords_filter::{Filter, Name, Step, Value};
use lastwords_trace::class::{FieldClass, Scope, Struct};
use lastwords_trace::schema::EnvValue;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// The scopes of an event, in the order in which they are decoded.
pub(crate) const SCOPES: [Scope; 3] =
    [Scope::CommonContext, Scope::SpecificContext, Scope::Payload];

/// Evaluates a filter on the events of some streams.
pub(crate) struct EventFilter<'t> {
    filter: &'t Filter,
    traces: &'t [Trace],
    streams: Vec<StreamInfo>,
    /// The event classes of each trace and stream class. A class is bound when its first event is
    /// read.
    classes: HashMap<(usize, usize), Vec<Option<Box<Bound<'t>>>>>,
    values: Values<'t>,
}

/// The value of a name in the events of a class.
pub(crate) enum Source<'t> {
    /// The value that [`Values`] has at the name's position.
    Field,
    Text(String),
    Integer(i64),
    Level(u8, &'static str),
    /// The CPU of the stream.
    Cpu,
    /// The name of the thread whose id is in the values, behind those of the names.
    ThreadName(HashMap<i64, &'t str>),
}

/// The names of a filter in an event class.
struct Bound<'t> {
    /// The source of each name; none if events of the class do not have it.
    sources: Vec<Option<Source<'t>>>,
    /// The scopes that must be decoded, with the nodes whose values are wanted.
    scopes: Vec<(&'t Code, Vec<Target>)>,
}

/// A node whose value is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) node: NodeId,
    /// Position among the values.
    pub(crate) slot: usize,
    /// The position in each array around the node, the outermost first.
    pub(crate) elements: Vec<u64>,
}

/// The nodes whose values are wanted, for each of [`SCOPES`].
#[derive(Default)]
pub(crate) struct Targets {
    pub(crate) of: [Vec<Target>; 3],
    /// Structures and arrays are wanted too, not only single values.
    pub(crate) with_containers: bool,
}

/// The values of one event.
#[derive(Default)]
struct Values<'t> {
    slots: Vec<Slot<'t>>,
    /// Text of the event. It is copied, because the decoder lends it.
    text: Vec<u8>,
    /// The position in each array that the decoder is in.
    elements: Vec<u64>,
}

#[derive(Clone)]
enum Slot<'t> {
    Missing,
    Value(Value<'t>),
    Text(Range<usize>),
}

impl<'t> EventFilter<'t> {
    pub(crate) fn new(traces: &'t [Trace], streams: &[StreamInfo], filter: &'t Filter) -> Self {
        Self {
            filter,
            traces,
            streams: streams.to_vec(),
            classes: HashMap::new(),
            values: Values::default(),
        }
    }

    /// Returns true if the filter is true for the event.
    pub(crate) fn matches(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let Some(facts) = self.streams.get(stream) else { return false };
        let Some(trace) = self.traces.get(facts.trace) else { return false };
        let classes = self.classes.entry((facts.trace, facts.class)).or_default();
        if classes.len() <= event.class {
            classes.resize_with(event.class.saturating_add(1), || None);
        }
        let Some(place) = classes.get_mut(event.class) else { return false };
        let bound = &**place.get_or_insert_with(|| {
            Box::new(Bound::new(self.filter, trace, facts.class, event.class))
        });
        self.values.restart(self.filter.names().len().saturating_add(1));
        let (program, decoder, part) = reader.parts();
        let mut at = event.body;
        for (code, targets) in &bound.scopes {
            let mut visitor = Wanted { nodes: code.nodes(), targets, values: &mut self.values };
            // The reader has accepted the same bytes.
            let Ok(end) = program.visit(decoder, code, &part, at, &mut visitor) else {
                return false;
            };
            at = end;
        }
        let (values, cpu) = (&self.values, facts.cpu);
        let result =
            self.filter.eval(&mut |position| match bound.sources.get(position)?.as_ref()? {
                Source::Field => values.value(position),
                Source::Text(text) => Some(Value::Text(text.as_bytes())),
                Source::Integer(number) => Some(Value::Signed(*number)),
                Source::Level(number, word) => {
                    Some(Value::Enum { number: i128::from(*number), label: Some(word.as_bytes()) })
                }
                Source::Cpu => cpu.map(|cpu| Value::Unsigned(cpu.into())),
                Source::ThreadName(names) => {
                    let thread = match values.value(values.slots.len().saturating_sub(1))? {
                        Value::Signed(thread) => thread,
                        Value::Unsigned(thread) => i64::try_from(thread).ok()?,
                        _ => return None,
                    };
                    names.get(&thread).map(|name| Value::Text(name.as_bytes()))
                }
            });
        result == Some(true)
    }
}

impl<'t> Bound<'t> {
    fn new(filter: &Filter, trace: &'t Trace, stream: usize, event: usize) -> Self {
        let mut targets = Targets::default();
        let names = filter.names();
        let source = |(slot, name): (usize, &Name)| {
            source(name, trace, stream, event, slot, names.len(), &mut targets)
        };
        let sources = names.iter().enumerate().map(source).collect();
        let targets = targets.of;
        let last =
            targets.iter().rposition(|of| !of.is_empty()).map_or(0, |last| last.saturating_add(1));
        let scopes = SCOPES.into_iter().zip(targets).take(last);
        let scopes = scopes
            .filter_map(|(scope, targets)| {
                Some((scope_code(trace, scope, stream, event)?, targets))
            })
            .collect();
        Self { sources, scopes }
    }
}

/// Finds the source of a name, and adds the nodes that have it to the targets of their scopes.
/// `slot` is the position of its value, `thread` that of the thread's id.
pub(crate) fn source<'t>(
    name: &Name,
    trace: &'t Trace,
    stream: usize,
    event: usize,
    slot: usize,
    thread: usize,
    targets: &mut Targets,
) -> Option<Source<'t>> {
    let Targets { of: [common, specific, payload], with_containers } = targets;
    let add = |root: Option<&Struct>, steps: &[Step], slot, of: &mut Vec<Target>| {
        add(root, steps, slot, *with_containers, of)
    };
    let class = trace.class();
    let scope = |scope| class.scope(scope, stream, event);
    let is_above = BuiltIn::is_above_fields(name);
    if !name.is_context() && !is_above && add(scope(Scope::Payload), name.steps(), slot, payload) {
        return Some(Source::Field);
    }
    let mut add_context = |steps: &[Step], slot| {
        add(scope(Scope::SpecificContext), steps, slot, specific)
            || add(scope(Scope::CommonContext), steps, slot, common)
    };
    if !is_above && add_context(name.steps(), slot) {
        return Some(Source::Field);
    }
    // Contexts of packets have their own names, but for the CPU, which is that of the stream.
    let built_in =
        BuiltIn::from_name(name).filter(|of| !name.is_context() || *of == BuiltIn::Cpu)?;
    let mut any_context = |of: &[&str], slot| {
        of.iter().any(|name| add_context(&[Step::Member((*name).to_owned())], slot))
    };
    let own = class.streams.get(stream)?;
    let described = own.events.get(event)?;
    let number = |key: &str| class.env.iter().find(|(own, _)| own == key).map(|(_, value)| value);
    match built_in {
        BuiltIn::Cpu => Some(Source::Cpu),
        BuiltIn::Comm if any_context(&["comm", "procname"], slot) => Some(Source::Field),
        BuiltIn::Comm => {
            let names = class.thread_names();
            (!names.is_empty() && any_context(&["tid", "vtid"], thread))
                .then_some(Source::ThreadName(names))
        }
        BuiltIn::Pid if any_context(&["pid", "vpid"], slot) => Some(Source::Field),
        BuiltIn::Pid => match number("vpid").or_else(|| number("pid"))? {
            EnvValue::Integer(pid) => Some(Source::Integer(*pid)),
            EnvValue::Text(_) => None,
        },
        // What ftrace calls a pid is the id of a thread.
        BuiltIn::Tid => {
            let is_there = any_context(&["tid", "vtid"], slot)
                || (class.is_ftrace() && any_context(&["pid"], slot));
            is_there.then_some(Source::Field)
        }
        BuiltIn::Level => {
            described.log_level.map(|severity| Source::Level(severity.number(), level(severity)))
        }
        BuiltIn::Event => {
            Some(Source::Text(described.name.clone().unwrap_or_else(|| "<unknown>".to_owned())))
        }
        BuiltIn::Channel => Some(Source::Text(channel(own))),
    }
}

/// Adds the nodes of a scope to which the steps lead. Returns true if there are any.
fn add(
    root: Option<&Struct>,
    steps: &[Step],
    slot: usize,
    with_containers: bool,
    targets: &mut Vec<Target>,
) -> bool {
    let Some(root) = root else { return false };
    let before = targets.len();
    let mut finder = Finder { next: 0, slot, elements: Vec::new(), with_containers, targets };
    finder.structure(root, Some(steps));
    targets.len() > before
}

/// Counts nodes as the compiler of programs does: one for each field, in order, before those inside
/// it.
struct Finder<'a> {
    next: NodeId,
    slot: usize,
    elements: Vec<u64>,
    with_containers: bool,
    targets: &'a mut Vec<Target>,
}

impl Finder<'_> {
    /// Adds a node if `steps` end at it.
    fn found(&mut self, node: NodeId, steps: Option<&[Step]>) {
        if steps.is_some_and(<[Step]>::is_empty) {
            self.targets.push(Target { node, slot: self.slot, elements: self.elements.clone() });
        }
    }

    /// Takes a structure. `steps` lead from there to the value; none if it is elsewhere.
    fn structure(&mut self, of: &Struct, steps: Option<&[Step]>) {
        if self.with_containers {
            self.found(self.next, steps);
        }
        self.next = self.next.saturating_add(1);
        for field in &of.fields {
            self.field(&field.class, steps.and_then(|steps| behind(steps, &field.name)));
        }
    }

    fn field(&mut self, class: &FieldClass, steps: Option<&[Step]>) {
        let node = self.next;
        match class {
            FieldClass::Struct(of) => return self.structure(of, steps),
            FieldClass::Array(array) => {
                if self.with_containers {
                    self.found(node, steps);
                }
                self.next = self.next.saturating_add(1);
                let inner = match steps.and_then(<[Step]>::split_first) {
                    Some((Step::Element(index), rest)) => Some((*index, rest)),
                    _ => None,
                };
                self.elements.extend(inner.map(|(index, _)| index));
                self.field(&array.element, inner.map(|(_, rest)| rest));
                inner.and_then(|_| self.elements.pop());
                return;
            }
            // An option has no name of its own in a path.
            FieldClass::Variant(variant) => {
                self.next = self.next.saturating_add(1);
                return variant.options.iter().for_each(|option| self.field(&option.class, steps));
            }
            FieldClass::Optional(optional) => {
                self.next = self.next.saturating_add(1);
                return self.field(&optional.class, steps);
            }
            _ => {}
        }
        self.next = self.next.saturating_add(1);
        self.found(node, steps);
    }
}

/// Returns the steps behind a member of this name, if they lead to it. A name may have dots
/// (`http.method`).
fn behind<'s>(steps: &'s [Step], name: &str) -> Option<&'s [Step]> {
    let mut rest = name;
    for (at, step) in steps.iter().enumerate() {
        let Step::Member(member) = step else { return None };
        rest = rest.strip_prefix(member.as_str())?;
        if rest.is_empty() {
            return steps.get(at.saturating_add(1)..);
        }
        rest = rest.strip_prefix('.')?;
    }
    None
}

impl<'t> Values<'t> {
    fn restart(&mut self, count: usize) {
        self.slots.clear();
        self.slots.resize(count, Slot::Missing);
        self.text.clear();
        self.elements.clear();
    }

    fn value(&self, slot: usize) -> Option<Value<'_>> {
        match self.slots.get(slot)? {
            Slot::Missing => None,
            Slot::Value(value) => Some(*value),
            Slot::Text(range) => self.text.get(range.clone()).map(Value::Text),
        }
    }
}

/// Keeps the values of the wanted nodes.
struct Wanted<'a, 't> {
    nodes: &'t [Node],
    targets: &'a [Target],
    values: &'a mut Values<'t>,
}

impl<'t> Wanted<'_, 't> {
    fn keep(&mut self, node: NodeId, value: impl Fn(&'t Node, &mut Values<'t>) -> Slot<'t>) {
        for target in self.targets.iter().filter(|target| target.node == node) {
            let Some(described) = self.nodes.get(node as usize) else { return };
            if target.elements == self.values.elements {
                let value = value(described, self.values);
                if let Some(slot) = self.values.slots.get_mut(target.slot) {
                    *slot = value;
                }
            }
        }
    }

    fn keep_text(&mut self, node: NodeId, text: &[u8]) {
        self.keep(node, |_, values| {
            let begin = values.text.len();
            values.text.extend_from_slice(text);
            Slot::Text(begin..values.text.len())
        });
    }
}

impl Visitor for Wanted<'_, '_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        self.keep(node, |node, _| {
            Slot::Value(match &node.shape {
                Shape::Bool => Value::Bool(value != 0),
                Shape::Integer { signed, mappings, .. } if !mappings.is_empty() => {
                    let number =
                        if *signed { i128::from(value.cast_signed()) } else { i128::from(value) };
                    Value::Enum {
                        number,
                        label: mappings.first(number).map(|mapping| mapping.label.as_bytes()),
                    }
                }
                Shape::Integer { signed: true, .. } => Value::Signed(value.cast_signed()),
                _ => Value::Unsigned(value),
            })
        });
    }

    fn float(&mut self, node: NodeId, value: f64) {
        self.keep(node, |_, _| Slot::Value(Value::Float(value)));
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        if self.targets.iter().any(|target| target.node == node)
            && let Some(Node { shape: Shape::Text(encoding), .. }) = self.nodes.get(node as usize)
        {
            self.keep_text(node, &decoded(bytes, *encoding));
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.targets.iter().any(|target| target.node == node) {
            self.keep_text(node, bytes);
        }
    }

    fn begin_array(&mut self, _: NodeId, _: u64) {
        self.values.elements.push(0);
    }

    fn element(&mut self, index: u64) {
        if let Some(last) = self.values.elements.last_mut() {
            *last = index;
        }
    }

    fn end_array(&mut self, _: NodeId) {
        self.values.elements.pop();
    }
}

/// Calls `each` with each event class until it returns true; the result says whether it did.
fn any_class(traces: &[Trace], mut each: impl FnMut(&Trace, usize, usize) -> bool) -> bool {
    traces.iter().any(|trace| {
        let streams = trace.class().streams.iter().enumerate();
        streams
            .flat_map(|(stream, class)| (0..class.events.len()).map(move |event| (stream, event)))
            .any(|(stream, event)| each(trace, stream, event))
    })
}

/// Returns true if an event class of the traces has a value of this name; `with_containers`: or a
/// structure or an array.
pub(super) fn is_known(name: &Name, traces: &[Trace], with_containers: bool) -> bool {
    any_class(traces, |trace, stream, event| {
        let mut targets = Targets { with_containers, ..Targets::default() };
        source(name, trace, stream, event, 0, 1, &mut targets).is_some()
    })
}

/// Adds the names that the event classes of the traces have. Names of contexts are added with
/// `$ctx.` too.
pub(super) fn add_names(traces: &[Trace], names: &mut BTreeSet<String>) {
    any_class(traces, |trace, stream, event| {
        for scope in SCOPES {
            let Some(root) = trace.class().scope(scope, stream, event) else { continue };
            let before = (scope != Scope::Payload).then_some("$ctx.");
            root.fields
                .iter()
                .for_each(|field| add_field(&field.class, &field.name, before, names));
        }
        false
    });
}

fn add_field(class: &FieldClass, name: &str, before: Option<&str>, names: &mut BTreeSet<String>) {
    match class {
        FieldClass::Struct(of) => {
            of.fields.iter().for_each(|field| {
                add_field(&field.class, &format!("{name}.{}", field.name), before, names)
            });
        }
        FieldClass::Array(array) => add_field(&array.element, &format!("{name}[0]"), before, names),
        FieldClass::Variant(of) => {
            of.options.iter().for_each(|option| add_field(&option.class, name, before, names))
        }
        FieldClass::Optional(optional) => add_field(&optional.class, name, before, names),
        _ => {
            names.extend(before.map(|before| format!("{before}{name}")));
            names.insert(name.to_owned());
        }
    }
}
