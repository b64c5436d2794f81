//! Values of fields as JSON, as a visitor meets them.

use super::{float, octets, text};
use crate::fields::{Role, roles};
use crate::text::decoded;
use crate::text::number::{Constant, octet, signed, unsigned};
use lastwords_ctf::program::Code;
use lastwords_trace::class::Encoding;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};

/// The fields of a scope.
pub(super) struct Plan<'t> {
    pub(super) code: &'t Code,
    roles: Vec<Role>,
    /// `"name":` of each node, escaped; empty where it has no name.
    keys: Vec<Constant>,
}

impl<'t> Plan<'t> {
    pub(super) fn new(code: &'t Code) -> Self {
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
}

/// Writes the fields of a scope; the braces around all of them are the caller's.
pub(super) struct Fields<'a, 't> {
    out: &'a mut Vec<u8>,
    plan: &'a Plan<'t>,
    depth: usize,
    /// Levels that are not shown.
    hidden: usize,
    /// In an array that is shown as bytes.
    octets: bool,
}

impl<'a, 't> Fields<'a, 't> {
    pub(super) fn new(out: &'a mut Vec<u8>, plan: &'a Plan<'t>) -> Self {
        Self { out, plan, depth: 0, hidden: 0, octets: false }
    }

    /// Puts the field's name; what it is, if it is shown.
    fn name(&mut self, node: NodeId) -> Option<&'t Shape> {
        let role = *self.plan.roles.get(node as usize)?;
        let key = self.plan.keys.get(node as usize)?;
        let node = self.plan.code.nodes().get(node as usize)?;
        if self.hidden > 0 || role == Role::Hidden {
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
            return self.out.extend_from_slice(&octet(value as u8));
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
                self.out.extend_from_slice(b"{\"value\":");
                number(self.out);
                self.out.extend_from_slice(b",\"label\":");
                let value = if *is_signed { i128::from(value.cast_signed()) } else { i128::from(value) };
                match mappings.first(value) {
                    Some(mapping) => text(self.out, mapping.label.as_bytes()),
                    None => self.out.extend_from_slice(b"null"),
                }
                self.out.push(b'}');
            }
            Some(Shape::Bool) => self.out.extend_from_slice(if value == 0 { b"false" } else { b"true" }),
            Some(_) => unsigned(self.out, value),
            None => {}
        }
    }

    fn float(&mut self, node: NodeId, value: f64) {
        match self.name(node) {
            // The shortest digits that read back the same depend on the size.
            Some(Shape::Float(32)) => float(self.out, value.is_finite(), value as f32),
            Some(_) => float(self.out, value.is_finite(), value),
            None => {}
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        match self.name(node) {
            Some(Shape::Text(Encoding::Utf8)) => {
                let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
                text(self.out, bytes.get(..end).unwrap_or_default());
            }
            Some(Shape::Text(encoding)) => text(self.out, decoded(bytes, *encoding).as_bytes()),
            _ => {}
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.name(node).is_some() {
            octets(self.out, bytes);
        }
    }

    fn begin(&mut self, node: NodeId) {
        if self.depth > 0 {
            match self.name(node) {
                Some(_) => self.out.push(b'{'),
                None => self.hidden = self.hidden.saturating_add(1),
            }
        }
        self.depth = self.depth.saturating_add(1);
    }

    fn end(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
        match (self.depth, self.hidden) {
            (0, _) => {}
            (_, 0) => self.out.push(b'}'),
            _ => self.hidden = self.hidden.saturating_sub(1),
        }
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        let role = self.plan.roles.get(node as usize).copied();
        match self.name(node) {
            Some(_) if role == Some(Role::Bytes) => {
                self.octets = true;
                self.out.push(b'"');
            }
            Some(_) => self.out.push(b'['),
            None => self.hidden = self.hidden.saturating_add(1),
        }
        self.depth = self.depth.saturating_add(1);
    }

    fn element(&mut self, index: u64) {
        if index > 0 && self.hidden == 0 && !self.octets {
            self.out.push(b',');
        }
    }

    fn end_array(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
        match self.hidden {
            0 => self.out.push(if std::mem::take(&mut self.octets) { b'"' } else { b']' }),
            _ => self.hidden = self.hidden.saturating_sub(1),
        }
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        match (self.name(node), case) {
            (Some(_), Some(_)) => self.depth = self.depth.saturating_add(1),
            (Some(_), None) => self.out.extend_from_slice(b"null"),
            (None, Some(_)) => {
                self.hidden = self.hidden.saturating_add(1);
                self.depth = self.depth.saturating_add(1);
            }
            (None, None) => {}
        }
    }

    fn end_case(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
        self.hidden = self.hidden.saturating_sub(1);
    }
}
