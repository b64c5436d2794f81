//! Writes the values of fields as JSON.

use super::{float, octets, text};
use crate::decoded::decoded;
use crate::fields::{Nesting, Role, roles};
use lastwords_bytes::low_u8;
use lastwords_ctf::program::Code;
use lastwords_trace::text::number::{Constant, octet, signed, unsigned};
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};

/// The fields of a scope.
pub struct Plan<'t> {
    /// The code that decodes the scope.
    pub code: &'t Code,
    roles: Vec<Role>,
    /// The text `"name":` of each node, escaped. The text is empty if the node has no name.
    keys: Vec<Constant>,
}

impl<'t> Plan<'t> {
    /// Prepares the fields of the scope that `code` decodes.
    #[must_use]
    pub fn new(code: &'t Code) -> Self {
        let key = |node: &Node| {
            let mut key = Vec::new();
            if !node.name.is_empty() {
                text(&mut key, node.name.as_bytes());
                key.push(b':');
            }
            Constant::new(&key)
        };
        Self { code, roles: roles(code), keys: code.nodes().iter().map(key).collect() }
    }

    /// Returns true if the field of a node is written. Fields that only serve the decoding are not.
    #[must_use]
    pub fn shows(&self, node: usize) -> bool {
        self.roles.get(node).is_some_and(|role| *role != Role::Hidden)
    }
}

/// Writes the fields of a scope as members of a JSON object. The caller writes the braces around
/// them.
pub struct Fields<'a, 't> {
    out: &'a mut Vec<u8>,
    plan: &'a Plan<'t>,
    nesting: Nesting,
    /// The visitor is in an array that is shown as bytes.
    octets: bool,
    /// Members without a name mark the values that JSON has no form for.
    is_marked: bool,
    /// A text that is not UTF-8 keeps its bytes.
    is_exact: bool,
}

impl<'a, 't> Fields<'a, 't> {
    /// Appends the fields of one event to `out`.
    pub fn new(out: &'a mut Vec<u8>, plan: &'a Plan<'t>) -> Self {
        Self {
            out,
            plan,
            nesting: Nesting::default(),
            octets: false,
            is_marked: false,
            is_exact: false,
        }
    }

    /// As [`Fields::new`], but a text that is not UTF-8 is `{"bytes":"66ff"}`, its bytes in
    /// hexadecimal digits, so that no value is changed.
    pub fn exact(out: &'a mut Vec<u8>, plan: &'a Plan<'t>) -> Self {
        Self { is_exact: true, ..Self::new(out, plan) }
    }

    /// As [`Fields::new`], but an enumeration is `{"":[value,label]}`, and a float that is not
    /// finite is `{"":"inf"}`. A structure has no member without a name, so that no structure and
    /// no text looks like these.
    pub fn marked(out: &'a mut Vec<u8>, plan: &'a Plan<'t>) -> Self {
        Self { is_marked: true, ..Self::new(out, plan) }
    }

    /// Appends the name of a field, and returns the field's shape. Returns none if the field is not
    /// shown.
    fn name(&mut self, node: NodeId) -> Option<&'t Shape> {
        let role = *self.plan.roles.get(node as usize)?;
        let key = self.plan.keys.get(node as usize)?;
        let node = self.plan.code.nodes().get(node as usize)?;
        if self.nesting.hidden > 0 || role == Role::Hidden {
            return None;
        }
        if !node.name.is_empty() {
            if !self.out.ends_with(b"{") {
                self.out.push(b',');
            }
            key.put(self.out);
        }
        Some(&node.shape)
    }
}

impl Visitor for Fields<'_, '_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        if self.octets {
            return self.out.extend_from_slice(&octet(low_u8(value)));
        }
        match self.name(node) {
            Some(Shape::Integer { signed: is_signed, mappings, .. }) => {
                let number = |out: &mut Vec<u8>| match is_signed {
                    true => signed(out, value.cast_signed()),
                    false => unsigned(out, value),
                };
                if mappings.is_empty() {
                    return number(self.out);
                }
                let [begin, middle, end]: [&[u8]; 3] = if self.is_marked {
                    [b"{\"\":[", b",", b"]}"]
                } else {
                    [b"{\"value\":", b",\"label\":", b"}"]
                };
                self.out.extend_from_slice(begin);
                number(self.out);
                self.out.extend_from_slice(middle);
                let value =
                    if *is_signed { i128::from(value.cast_signed()) } else { i128::from(value) };
                match mappings.first(value) {
                    Some(mapping) => text(self.out, mapping.label.as_bytes()),
                    None => self.out.extend_from_slice(b"null"),
                }
                self.out.extend_from_slice(end);
            }
            Some(Shape::Bool) => {
                self.out.extend_from_slice(if value == 0 { b"false" } else { b"true" })
            }
            Some(_) => unsigned(self.out, value),
            None => {}
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "a float of 32 bits was made larger, and becomes what it was"
    )]
    fn float(&mut self, node: NodeId, value: f64) {
        let Some(shape) = self.name(node) else { return };
        let [begin, end]: [&[u8]; 2] =
            if self.is_marked && !value.is_finite() { [b"{\"\":", b"}"] } else { [b"", b""] };
        self.out.extend_from_slice(begin);
        match shape {
            // The shortest digits depend on the size of the float.
            Shape::Float(32) => float(self.out, value.is_finite(), value as f32),
            _ => float(self.out, value.is_finite(), value),
        }
        self.out.extend_from_slice(end);
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        let Some(Shape::Text(encoding)) = self.name(node) else { return };
        let value = decoded(bytes, *encoding);
        if self.is_exact && std::str::from_utf8(&value).is_err() {
            self.out.extend_from_slice(b"{\"bytes\":");
            octets(self.out, &value);
            return self.out.push(b'}');
        }
        text(self.out, &value);
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.name(node).is_some() {
            octets(self.out, bytes);
        }
    }

    fn begin(&mut self, node: NodeId) {
        let is_outermost = self.nesting.depth == 0;
        let is_shown = is_outermost || self.name(node).is_some();
        if is_shown && !is_outermost {
            self.out.push(b'{');
        }
        self.nesting.enter(is_shown);
    }

    fn end(&mut self, _: NodeId) {
        if self.nesting.leave() && self.nesting.depth > 0 {
            self.out.push(b'}');
        }
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        let role = self.plan.roles.get(node as usize).copied();
        let is_shown = self.name(node).is_some();
        if is_shown {
            self.octets = role == Some(Role::Bytes);
            self.out.push(if self.octets { b'"' } else { b'[' });
        }
        self.nesting.enter(is_shown);
    }

    fn element(&mut self, index: u64) {
        if index > 0 && self.nesting.hidden == 0 && !self.octets {
            self.out.push(b',');
        }
    }

    fn end_array(&mut self, _: NodeId) {
        if self.nesting.leave() {
            self.out.push(if std::mem::take(&mut self.octets) { b'"' } else { b']' });
        }
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        if self.plan.roles.get(node as usize).is_some_and(|role| role.is_absent(case)) {
            return self.nesting.enter(false);
        }
        match (self.name(node), case) {
            (shape, Some(_)) => self.nesting.enter(shape.is_some()),
            (Some(_), None) => self.out.extend_from_slice(b"null"),
            (None, None) => {}
        }
    }

    fn end_case(&mut self, _: NodeId) {
        self.nesting.leave();
    }
}
