//! Writes the fields of events as annotations of Perfetto.

use super::proto::Message;
use crate::decoded::decoded;
use crate::fields::{Nesting, Role};
use lastwords_bytes::low_u8;
use lastwords_ctf::program::Code;
use lastwords_trace::class::Encoding;
use lastwords_trace::text::number::octet;
use lastwords_trace::visit::{NodeId, Shape, Visitor};

/// Fields of `DebugAnnotation`.
pub(super) mod annotation {
    pub(in crate::perfetto) const BOOL: u32 = 2;
    pub(in crate::perfetto) const UNSIGNED: u32 = 3;
    pub(in crate::perfetto) const SIGNED: u32 = 4;
    pub(in crate::perfetto) const DOUBLE: u32 = 5;
    pub(in crate::perfetto) const TEXT: u32 = 6;
    /// A number that is shown with hexadecimal digits.
    pub(in crate::perfetto) const POINTER: u32 = 7;
    pub(in crate::perfetto) const NAME: u32 = 10;
    pub(in crate::perfetto) const MEMBER: u32 = 11;
    pub(in crate::perfetto) const ELEMENT: u32 = 12;
}

/// `TrackEvent.debug_annotations`.
pub(super) const ANNOTATIONS: u32 = 4;

/// Thread and span, from the fields of an event.
#[derive(Default)]
pub(super) struct Thread {
    pub(super) pid: Option<i64>,
    pub(super) tid: Option<i64>,
    pub(super) name: Vec<u8>,
    /// The payload's field `span_id`.
    pub(super) span: Option<u64>,
}

/// Converts the fields of a scope to annotations.
pub(super) struct Annotations<'a, 't> {
    pub(super) event: &'a mut Message,
    pub(super) code: &'t Code,
    pub(super) roles: &'a [Role],
    pub(super) thread: &'a mut Thread,
    pub(super) is_payload: bool,
    /// The structures and arrays that contain the current field, and the number of the field that
    /// holds their members.
    pub(super) stack: Vec<(Message, u32)>,
    pub(super) nesting: Nesting,
    /// The digits of an array that is shown as bytes.
    pub(super) octets: Option<Vec<u8>>,
    /// The optional field whose value follows: the annotation of the value has its name.
    pub(super) optional: Option<NodeId>,
}

impl<'t> Annotations<'_, 't> {
    /// Returns the shape of a node, and an annotation with the node's name. Returns none if the
    /// node is not shown.
    fn annotation(&self, node: NodeId) -> Option<(&'t Shape, Message)> {
        let at = node as usize;
        if self.nesting.hidden > 0 || *self.roles.get(at)? == Role::Hidden {
            return None;
        }
        let node = self.code.nodes().get(at)?;
        let mut note = Message::default();
        let optional = self.optional.and_then(|node| self.code.nodes().get(node as usize));
        let name = &optional.unwrap_or(node).name;
        if !name.is_empty() {
            note.text(annotation::NAME, name.as_bytes());
        }
        Some((&node.shape, note))
    }

    fn put(&mut self, note: &Message) {
        match self.stack.last_mut() {
            Some((outer, field)) => outer.message(*field, note),
            None => self.event.message(ANNOTATIONS, note),
        }
    }

    /// Returns the name of a member of the outermost structure, or nothing for other nodes.
    fn own_name(&self, node: NodeId) -> &'t str {
        let node = self.code.nodes().get(node as usize).filter(|_| self.nesting.depth == 1);
        node.map_or("", |node| node.name.as_str())
    }

    /// Begins a structure, an array or an option, whose members go into this field of the
    /// annotation.
    fn enter(&mut self, node: NodeId, members: u32) {
        let note = self.annotation(node).map(|(_, note)| (note, members));
        self.nesting.enter(note.is_some());
        self.stack.extend(note);
    }

    fn leave(&mut self) {
        if self.nesting.leave()
            && let Some((note, _)) = self.stack.pop()
        {
            self.put(&note);
        }
    }
}

impl Visitor for Annotations<'_, '_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        if let Some(octets) = &mut self.octets {
            return octets.extend_from_slice(&octet(low_u8(value)));
        }
        match self.own_name(node) {
            "vpid" if !self.is_payload => self.thread.pid = Some(value.cast_signed()),
            "span_id" if self.is_payload => self.thread.span = Some(value),
            "vtid" | "tid" if !self.is_payload => self.thread.tid = Some(value.cast_signed()),
            _ => {}
        }
        let Some((shape, mut note)) = self.annotation(node) else { return };
        match shape {
            Shape::Bool => note.number(annotation::BOOL, u64::from(value != 0)),
            Shape::Integer { signed, mappings, base, .. } => {
                let wide =
                    if *signed { i128::from(value.cast_signed()) } else { i128::from(value) };
                match mappings.first(wide) {
                    Some(mapping) => note.text(annotation::TEXT, mapping.label.as_bytes()),
                    None if *signed => note.signed(annotation::SIGNED, value.cast_signed()),
                    None if *base == 16 => note.number(annotation::POINTER, value),
                    None => note.number(annotation::UNSIGNED, value),
                }
            }
            _ => note.number(annotation::UNSIGNED, value),
        }
        self.put(&note);
    }

    fn float(&mut self, node: NodeId, value: f64) {
        let Some((_, mut note)) = self.annotation(node) else { return };
        note.double(annotation::DOUBLE, value);
        self.put(&note);
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        let Some((shape, mut note)) = self.annotation(node) else { return };
        let text = match shape {
            Shape::Text(encoding) => decoded(bytes, *encoding).into_owned(),
            Shape::Blob => decoded(bytes, Encoding::Utf8).into_owned(),
            _ => return,
        };
        note.text(annotation::TEXT, &text);
        self.put(&note);
        match self.own_name(node) {
            "procname" if !self.is_payload => self.thread.name = text,
            _ => {}
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        let Some((_, mut note)) = self.annotation(node) else { return };
        let digits: Vec<u8> = bytes.iter().flat_map(|byte| octet(*byte)).collect();
        note.text(annotation::TEXT, &digits);
        self.put(&note);
    }

    fn begin(&mut self, node: NodeId) {
        match self.nesting.depth {
            0 => self.nesting.enter(true),
            _ => self.enter(node, annotation::MEMBER),
        }
    }

    fn end(&mut self, _: NodeId) {
        // The outermost structure has no annotation, so the stack is empty at its end.
        self.leave();
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        let is_bytes = self.roles.get(node as usize) == Some(&Role::Bytes);
        self.enter(node, annotation::ELEMENT);
        self.octets = (is_bytes && self.nesting.hidden == 0).then(Vec::new);
    }

    fn end_array(&mut self, _: NodeId) {
        if let (Some(digits), Some((note, _))) = (self.octets.take(), self.stack.last_mut()) {
            note.text(annotation::TEXT, &digits);
        }
        self.leave();
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        if self.roles.get(node as usize) == Some(&Role::Present) {
            let is_absent = Role::Present.is_absent(case);
            self.optional = (!is_absent).then_some(node);
            if is_absent {
                self.nesting.enter(false);
            }
            return;
        }
        // The annotation of an option has the name of the variant. An absent optional has no
        // annotation.
        if case.is_some() {
            self.enter(node, annotation::MEMBER);
        }
    }

    fn end_case(&mut self, node: NodeId) {
        if self.roles.get(node as usize) == Some(&Role::Present) {
            if self.optional.take().is_none() {
                self.nesting.leave();
            }
            return;
        }
        self.leave();
    }
}
