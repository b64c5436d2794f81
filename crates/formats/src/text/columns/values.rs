//! Values of fields in columns: ` name=value`, as a visitor meets them.

use super::super::escape::bare;
use super::super::line::word;
use super::super::look::Look;
use super::super::message::Piece;
use super::super::number::{general, signed, unsigned};
use super::super::value::{decoded, number};
use super::{Fields, number_of};
use crate::fields::Role;
use lastwords_trace::class::Encoding;
use lastwords_trace::nul;
use lastwords_trace::visit::{NodeId, Visitor};

/// A field of the payload among the values that were written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// Where ` name=` begins, and behind it.
    pub(super) prefix: usize,
    pub(super) value: usize,
    /// The message shows it.
    pub(super) in_message: bool,
    /// An integer, its bits, and whether it is signed.
    pub(super) number: Option<(u64, u8, bool)>,
}

/// What a context says of its thread, and its other fields.
#[derive(Debug, Default)]
pub(super) struct Thread {
    tid: Option<i64>,
    pid: Option<i64>,
    pub(super) cpu: Option<i64>,
    name: Vec<u8>,
    /// ` name=value` for each field that no column shows.
    pub(super) others: Vec<u8>,
}

impl Thread {
    pub(super) fn clear(&mut self) {
        (self.tid, self.pid, self.cpu) = (None, None, None);
        self.name.clear();
        self.others.clear();
    }

    pub(super) fn thread(&self) -> Option<i64> {
        self.tid.or(self.pid)
    }

    pub(super) fn name(&self) -> Option<&[u8]> {
        (!self.name.is_empty()).then_some(self.name.as_slice())
    }
}

/// Writes the fields of a scope.
pub(super) struct Values<'a, 't> {
    fields: &'a Fields<'t>,
    out: Out<'a>,
    depth: usize,
    /// Levels that are not shown.
    hidden: usize,
    /// In an array that is shown as bytes.
    octets: bool,
}

enum Out<'a> {
    Context(&'a mut Thread),
    Payload { pieces: &'a [Piece], out: &'a mut Vec<u8>, marks: &'a mut Vec<Mark> },
}

impl<'a, 't> Values<'a, 't> {
    pub(super) fn of_context(fields: &'a Fields<'t>, thread: &'a mut Thread) -> Self {
        Self { fields, out: Out::Context(thread), depth: 0, hidden: 0, octets: false }
    }

    pub(super) fn of_payload(
        fields: &'a Fields<'t>,
        pieces: &'a [Piece],
        out: &'a mut Vec<u8>,
        marks: &'a mut Vec<Mark>,
    ) -> Self {
        Self { fields, out: Out::Payload { pieces, out, marks }, depth: 0, hidden: 0, octets: false }
    }

    fn out(&mut self) -> &mut Vec<u8> {
        match &mut self.out {
            Out::Context(thread) => &mut thread.others,
            Out::Payload { out, .. } => out,
        }
    }

    /// Puts what stands before a field; how its value looks, if it is shown, and whether it is in a message.
    fn begin_field(&mut self, node: NodeId) -> Option<(Look<'t>, bool)> {
        let at = node as usize;
        let look = *self.fields.looks.get(at)?;
        if self.hidden > 0 || matches!(look, Look::Hidden) {
            return None;
        }
        let (depth, fields) = (self.depth, self.fields);
        let name = fields.code.nodes().get(at)?.name.as_str();
        let prefix = self.out().len();
        if depth == 1 {
            fields.prefixes.get(at)?.as_ref()?.put(self.out());
        } else if !name.is_empty() {
            let out = self.out();
            if !out.ends_with(b"{") {
                out.push(b',');
            }
            bare(out, name.as_bytes());
            out.push(b'=');
        }
        let Out::Payload { pieces, out, marks } = &mut self.out else { return Some((look, false)) };
        if depth != 1 {
            return Some((look, marks.last().is_some_and(|mark| mark.in_message) && depth == 0));
        }
        let field = marks.len();
        let in_message = pieces.iter().any(|piece| matches!(piece, Piece::Value { field: of, .. } if *of == field));
        marks.push(Mark { prefix, value: out.len(), in_message, number: None });
        Some((look, in_message))
    }

    /// Keeps a field of a context that has a column of its own. Returns false for others.
    fn keep(&mut self, node: NodeId, value: u64) -> bool {
        let (depth, fields) = (self.depth, self.fields);
        let Out::Context(thread) = &mut self.out else { return false };
        let Some(of) = fields.code.nodes().get(node as usize).filter(|_| depth == 1) else { return false };
        let place = match of.name.as_str() {
            "vtid" | "tid" => &mut thread.tid,
            "cpu" | "cpu_id" => &mut thread.cpu,
            "vpid" | "pid" => {
                thread.pid = Some(value.cast_signed());
                return false;
            }
            _ => return false,
        };
        *place = Some(value.cast_signed());
        true
    }

    fn put_text(&mut self, text: &[u8], in_message: bool) {
        let out = self.out();
        if in_message { bare(out, text) } else { word(out, text) }
    }
}

impl Visitor for Values<'_, '_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        if self.octets {
            let digit = |value: u64| b"0123456789abcdef"[(value & 15) as usize];
            self.out().extend_from_slice(&[digit(value >> 4), digit(value)]);
            return;
        }
        if self.keep(node, value) {
            return;
        }
        let top = self.depth == 1;
        let Some((look, in_message)) = self.begin_field(node) else { return };
        if let Out::Payload { marks, .. } = &mut self.out
            && top
            && let Some(mark) = marks.last_mut()
        {
            mark.number = number_of(self.fields, node as usize).map(|(length, signed)| (value, length, signed));
        }
        match look {
            Look::Unsigned => unsigned(self.out(), value),
            Look::Signed => signed(self.out(), value.cast_signed()),
            Look::Enum(mappings, _, is_signed, _) => {
                let wide = if is_signed { i128::from(value.cast_signed()) } else { i128::from(value) };
                match mappings.first(wide) {
                    Some(mapping) => self.put_text(mapping.label.as_bytes(), in_message),
                    None if is_signed => signed(self.out(), value.cast_signed()),
                    None => unsigned(self.out(), value),
                }
            }
            look => number(self.out(), look, value),
        }
    }

    fn float(&mut self, node: NodeId, value: f64) {
        if self.begin_field(node).is_some() {
            general(self.out(), value);
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        let named = |name: &str| self.fields.code.nodes().get(node as usize).is_some_and(|node| node.name == name);
        if self.depth == 1 && named("procname") && matches!(self.out, Out::Context(_)) {
            if let Out::Context(thread) = &mut self.out {
                thread.name = nul::until(bytes).to_vec();
            }
            return;
        }
        match self.begin_field(node) {
            Some((Look::Text(Encoding::Utf8), in_message)) => {
                self.put_text(nul::until(bytes), in_message);
            }
            Some((Look::Text(encoding), in_message)) => {
                self.put_text(decoded(bytes, encoding).as_bytes(), in_message);
            }
            _ => {}
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.begin_field(node).is_some() {
            let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
            bytes.iter().for_each(|byte| self.out().extend_from_slice(&[digit(byte >> 4), digit(*byte)]));
        }
    }

    fn begin(&mut self, node: NodeId) {
        if self.depth > 0 {
            match self.begin_field(node) {
                Some(_) => self.out().push(b'{'),
                None => self.hidden += 1,
            }
        }
        self.depth += 1;
    }

    fn end(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
        match (self.depth, self.hidden) {
            (0, _) => {}
            (_, 0) => self.out().push(b'}'),
            _ => self.hidden -= 1,
        }
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        let role = self.fields.roles.get(node as usize).copied();
        match self.begin_field(node) {
            Some(_) if role == Some(Role::Bytes) => self.octets = true,
            Some(_) => self.out().push(b'{'),
            None => self.hidden += 1,
        }
        self.depth += 1;
    }

    fn element(&mut self, index: u64) {
        if index > 0 && self.hidden == 0 && !self.octets {
            self.out().push(b',');
        }
    }

    fn end_array(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
        match self.hidden {
            0 if std::mem::take(&mut self.octets) => {}
            0 => self.out().push(b'}'),
            _ => self.hidden -= 1,
        }
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        match (self.begin_field(node), case) {
            (Some(_), Some(_)) => self.depth += 1,
            (Some(_), None) => self.out().extend_from_slice(b"none"),
            (None, Some(_)) => {
                self.hidden += 1;
                self.depth += 1;
            }
            (None, None) => {}
        }
    }

    fn end_case(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
        self.hidden = self.hidden.saturating_sub(1);
    }
}
