//! Writes the values of fields in columns: ` name=value`.

use super::super::escape::bare;
use super::super::line::word;
use super::super::message::Piece;
use super::super::value::number;
use super::super::value_format::ValueFormat;
use super::{Class, Fields};
use crate::decoded::decoded;
use crate::fields::{Nesting, Role};
use lastwords_bytes::low_u8;
use lastwords_trace::nul;
use lastwords_trace::text::number::{exact, octet, signed, unsigned};
use lastwords_trace::visit::{NodeId, Shape, Visitor};

/// Positions of a payload field in the text of all values.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Mark {
    /// The field.
    pub(in super::super) node: NodeId,
    /// Where ` name=` begins.
    pub(in super::super) prefix: usize,
    /// Where the value begins.
    pub(in super::super) value: usize,
    /// The message shows the field, or it is not shown with its name.
    pub(super) in_message: bool,
    /// The value if it is an integer, its length in bits, and true if it is signed.
    pub(in super::super) number: Option<(u64, u8, bool)>,
}

/// The thread that a context names, and the other fields of the context.
#[derive(Debug, Default)]
pub(super) struct Thread {
    tid: Option<i64>,
    pub(super) pid: Option<i64>,
    pub(super) cpu: Option<i64>,
    name: Vec<u8>,
    /// ` name=value` for each field that has no column.
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
pub(in super::super) struct Values<'a, 't> {
    fields: &'a Fields<'t>,
    out: Out<'a>,
    nesting: Nesting,
    /// The visitor is in an array that is shown as bytes.
    octets: bool,
}

enum Out<'a> {
    Context(&'a mut Thread),
    Payload {
        pieces: &'a [Piece],
        taken: &'a [NodeId],
        out: &'a mut Vec<u8>,
        marks: &'a mut Vec<Mark>,
    },
    /// One value, without its name.
    Value(&'a mut Vec<u8>),
}

/// Where the values of a payload are written.
pub(in super::super) struct Writing<'a> {
    pub(in super::super) out: &'a mut Vec<u8>,
    pub(in super::super) marks: &'a mut Vec<Mark>,
}

impl<'a, 't> Values<'a, 't> {
    pub(super) fn of_context(fields: &'a Fields<'t>, thread: &'a mut Thread) -> Self {
        Self { fields, out: Out::Context(thread), nesting: Nesting::default(), octets: false }
    }

    pub(in super::super) fn of_payload(
        fields: &'a Fields<'t>,
        class: &'a Class<'_>,
        Writing { out, marks }: Writing<'a>,
    ) -> Self {
        let (pieces, taken) = (class.pieces.as_slice(), class.taken.as_slice());
        Self {
            fields,
            out: Out::Payload { pieces, taken, out, marks },
            nesting: Nesting::default(),
            octets: false,
        }
    }

    /// Writes one value of the scope, without its name. The caller passes nothing but this value.
    pub(in super::super) fn of_value(fields: &'a Fields<'t>, out: &'a mut Vec<u8>) -> Self {
        let nesting = Nesting { depth: 1, hidden: 0 };
        Self { fields, out: Out::Value(out), nesting, octets: false }
    }

    fn out(&mut self) -> &mut Vec<u8> {
        match &mut self.out {
            Out::Context(thread) => &mut thread.others,
            Out::Payload { out, .. } => out,
            Out::Value(out) => out,
        }
    }

    /// Appends the prefix of a field, and returns the format of the value, and true if a message
    /// shows the field. Returns none if the field is not shown.
    fn begin_field(&mut self, node: NodeId) -> Option<(ValueFormat<'t>, bool)> {
        let at = node as usize;
        let format = *self.fields.formats.get(at)?;
        if self.nesting.hidden > 0 || matches!(format, ValueFormat::Hidden) {
            return None;
        }
        let (depth, fields) = (self.nesting.depth, self.fields);
        let name = fields.code.nodes().get(at)?.name.as_str();
        let prefix = self.out().len();
        if depth == 1 && matches!(self.out, Out::Value(_)) {
            return Some((format, true));
        }
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
        let Out::Payload { pieces, taken, out, marks } = &mut self.out else {
            return Some((format, false));
        };
        if depth != 1 {
            return Some((format, marks.last().is_some_and(|mark| mark.in_message) && depth == 0));
        }
        let field = marks.len();
        let in_message = taken.contains(&node)
            || pieces
                .iter()
                .any(|piece| matches!(piece, Piece::Value { field: of, .. } if *of == field));
        marks.push(Mark { node, prefix, value: out.len(), in_message, number: None });
        Some((format, in_message))
    }

    /// Stores a context field that has its own column. Returns false for other fields.
    fn keep(&mut self, node: NodeId, value: u64) -> bool {
        let (depth, fields) = (self.nesting.depth, self.fields);
        let Out::Context(thread) = &mut self.out else { return false };
        let Some(of) = fields.code.nodes().get(node as usize).filter(|_| depth == 1) else {
            return false;
        };
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
            self.out().extend_from_slice(&octet(low_u8(value)));
            return;
        }
        if self.keep(node, value) {
            return;
        }
        let top = self.nesting.depth == 1;
        let Some((format, in_message)) = self.begin_field(node) else { return };
        if let Out::Payload { marks, .. } = &mut self.out
            && top
            && let Some(mark) = marks.last_mut()
        {
            mark.number = match self.fields.code.nodes().get(node as usize).map(|node| &node.shape)
            {
                Some(Shape::Integer { length, signed, .. }) => Some((value, *length, *signed)),
                _ => None,
            };
        }
        match format {
            ValueFormat::Unsigned => unsigned(self.out(), value),
            ValueFormat::Signed => signed(self.out(), value.cast_signed()),
            ValueFormat::Enum(mappings, _, is_signed, _) => {
                let wide =
                    if is_signed { i128::from(value.cast_signed()) } else { i128::from(value) };
                match mappings.first(wide) {
                    Some(mapping) => self.put_text(mapping.label.as_bytes(), in_message),
                    None if is_signed => signed(self.out(), value.cast_signed()),
                    None => unsigned(self.out(), value),
                }
            }
            format => number(self.out(), format, value),
        }
    }

    fn float(&mut self, node: NodeId, value: f64) {
        if self.begin_field(node).is_some() {
            let shape = self.fields.code.nodes().get(node as usize).map(|node| &node.shape);
            exact(self.out(), value, matches!(shape, Some(Shape::Float(32))));
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        let named = |name: &str| {
            self.fields.code.nodes().get(node as usize).is_some_and(|node| node.name == name)
        };
        if self.nesting.depth == 1 && named("procname") && matches!(self.out, Out::Context(_)) {
            if let Out::Context(thread) = &mut self.out {
                thread.name = nul::until(bytes).to_vec();
            }
            return;
        }
        if let Some((ValueFormat::Text(encoding), in_message)) = self.begin_field(node) {
            self.put_text(&decoded(bytes, encoding), in_message);
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.begin_field(node).is_some() {
            bytes.iter().for_each(|byte| self.out().extend_from_slice(&octet(*byte)));
        }
    }

    fn begin(&mut self, node: NodeId) {
        let is_outermost = self.nesting.depth == 0;
        let is_shown = is_outermost || self.begin_field(node).is_some();
        if is_shown && !is_outermost {
            self.out().push(b'{');
        }
        self.nesting.enter(is_shown);
    }

    fn end(&mut self, _: NodeId) {
        if self.nesting.leave() && self.nesting.depth > 0 {
            self.out().push(b'}');
        }
    }

    fn begin_array(&mut self, node: NodeId, count: u64) {
        let role = self.fields.roles.get(node as usize).copied();
        let mut is_shown = self.begin_field(node).is_some();
        if is_shown && self.fields.counted == Some(node) {
            is_shown = false;
            self.out().push(b'{');
            unsigned(self.out(), count);
            let what: &[u8] = if count == 1 { b" address}" } else { b" addresses}" };
            self.out().extend_from_slice(what);
        } else if is_shown {
            self.octets = role == Some(Role::Bytes);
            if !self.octets {
                self.out().push(b'{');
            }
        }
        self.nesting.enter(is_shown);
    }

    fn element(&mut self, index: u64) {
        if index > 0 && self.nesting.hidden == 0 && !self.octets {
            self.out().push(b',');
        }
    }

    fn end_array(&mut self, _: NodeId) {
        if self.nesting.leave() && !std::mem::take(&mut self.octets) {
            self.out().push(b'}');
        }
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        if self.fields.roles.get(node as usize).is_some_and(|role| role.is_absent(case)) {
            return self.nesting.enter(false);
        }
        match (self.begin_field(node), case) {
            (field, Some(_)) => self.nesting.enter(field.is_some()),
            (Some(_), None) => self.out().extend_from_slice(b"none"),
            (None, None) => {}
        }
    }

    fn end_case(&mut self, _: NodeId) {
        self.nesting.leave();
    }
}
