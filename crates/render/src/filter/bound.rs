//! Reads the values of some names out of events.
//!
//! Each name is bound once for an event class: to nodes of its scopes, to a constant, or to what
//! the stream tells. For an event only the scopes up to the last that is read are decoded, and only
//! the bound values are kept.

use super::names::{Lookup, SCOPES, Source, Target, Targets};
use crate::decoded::decoded;
use crate::streams::scope_code;
use lastwords_ctf::program::Code;
use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_filter::{Filter, Value};
use lastwords_trace::class::Scope;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};
use std::ops::Range;

/// Names in an event class.
pub(crate) struct Bound<'t> {
    /// The source of each name; none if events of the class do not have it.
    sources: Vec<Option<Source<'t>>>,
    /// The scopes that must be decoded, with the nodes whose values are wanted.
    scopes: Vec<(&'t Code, Vec<Target>)>,
}

/// The values of one event.
#[derive(Default)]
pub(crate) struct Values<'t> {
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

impl<'t> Bound<'t> {
    /// Binds the names that a filter reads. `class` has the positions of the stream class and of
    /// the event class in it.
    pub(crate) fn from_filter(filter: &Filter, trace: &'t Trace, class: (usize, usize)) -> Self {
        let names = filter.names();
        Self::new(trace, class, names.len(), |lookup, slot| lookup.name(names.get(slot)?, slot))
    }

    /// Binds `count` names. `find` finds the source of the name at a position.
    pub(crate) fn new(
        trace: &'t Trace,
        class: (usize, usize),
        count: usize,
        find: impl Fn(&mut Lookup<'t, '_>, usize) -> Option<Source<'t>>,
    ) -> Self {
        let mut targets = Targets::default();
        let mut lookup = Lookup { trace, class, thread: count, targets: &mut targets };
        let sources = (0..count).map(|slot| find(&mut lookup, slot)).collect();
        let targets = targets.of;
        let last =
            targets.iter().rposition(|of| !of.is_empty()).map_or(0, |last| last.saturating_add(1));
        let code = |scope| scope_code(trace, scope, class.0, class.1);
        let scopes = SCOPES.into_iter().zip(targets).take(last);
        let scopes = scopes.filter_map(|(scope, targets)| Some((code(scope)?, targets))).collect();
        Self { sources, scopes }
    }

    /// Returns the nodes of a scope that are read.
    pub(crate) fn nodes(&self, trace: &Trace, class: (usize, usize), scope: Scope) -> Vec<NodeId> {
        let Some(code) = scope_code(trace, scope, class.0, class.1) else { return Vec::new() };
        let own = self.scopes.iter().filter(|(own, _)| std::ptr::eq(*own, code));
        own.flat_map(|(_, targets)| targets.iter().map(|target| target.node)).collect()
    }

    /// Reads the values of an event. Returns false if the event cannot be read.
    pub(crate) fn read(
        &self,
        reader: &mut Reader<'_>,
        event: &Due,
        values: &mut Values<'t>,
    ) -> bool {
        values.restart(self.sources.len().saturating_add(1));
        let (program, decoder, part) = reader.parts();
        let mut at = event.body;
        for (code, targets) in &self.scopes {
            let mut visitor = Wanted { nodes: code.nodes(), targets, values };
            // The reader has accepted the same bytes.
            let Ok(end) = program.visit(decoder, code, &part, at, &mut visitor) else {
                return false;
            };
            at = end;
        }
        true
    }

    /// Returns the value of the name at a position in the event that was read last. `cpu` is that
    /// of its stream.
    pub(crate) fn value<'v>(
        &'v self,
        position: usize,
        values: &'v Values<'t>,
        cpu: Option<u32>,
    ) -> Option<Value<'v>> {
        match self.sources.get(position)?.as_ref()? {
            Source::Field => values.value(position),
            Source::Text(text) => Some(Value::Text(text.as_bytes())),
            Source::Integer(number) => Some(Value::Signed(*number)),
            Source::Level(number, word) => {
                Some(Value::Enum { number: i128::from(*number), label: Some(word.as_bytes()) })
            }
            Source::Cpu => cpu.map(|cpu| Value::Unsigned(cpu.into())),
            Source::ThreadName(names) => {
                let thread = match values.value(self.sources.len())? {
                    Value::Signed(thread) => thread,
                    Value::Unsigned(thread) => i64::try_from(thread).ok()?,
                    _ => return None,
                };
                names.get(&thread).map(|name| Value::Text(name.as_bytes()))
            }
        }
    }
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
            let (wanted, elements) = (&target.elements, &self.values.elements);
            // Comparing two empty lists in memory takes glibc a hundred nanoseconds: the lists have
            // no address, and loading from there, although of no bytes, is slow.
            if wanted.is_empty() && elements.is_empty() || wanted == elements {
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
