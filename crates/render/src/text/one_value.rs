//! Takes one value out of a scope.

use super::columns::Values;
use crate::filter::names::Target;
use lastwords_trace::visit::{NodeId, Visitor};

/// Passes on one value of a scope, which may be an array or a structure.
pub(super) struct One<'a, 't> {
    pub(super) target: &'a Target,
    pub(super) values: Values<'a, 't>,
    /// The position in each array that the decoder is in.
    pub(super) elements: Vec<u64>,
    /// Number of levels of the value that the decoder is in.
    pub(super) inside: usize,
    pub(super) is_there: bool,
}

impl One<'_, '_> {
    /// Returns true if the node is the value, or a part of it.
    fn takes(&mut self, node: NodeId) -> bool {
        let is_value =
            node == self.target.node && self.elements == self.target.elements && self.inside == 0;
        self.is_there |= is_value;
        is_value || self.inside > 0
    }

    fn enter(&mut self, is_taken: bool) {
        self.inside = self.inside.saturating_add(usize::from(is_taken));
    }

    /// Leaves a level. Returns true if it is one of the value.
    fn leave(&mut self) -> bool {
        let is_inside = self.inside > 0;
        self.inside = self.inside.saturating_sub(1);
        is_inside
    }
}

impl Visitor for One<'_, '_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        if self.takes(node) {
            self.values.integer(node, value);
        }
    }

    fn float(&mut self, node: NodeId, value: f64) {
        if self.takes(node) {
            self.values.float(node, value);
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        if self.takes(node) {
            self.values.text(node, bytes);
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if self.takes(node) {
            self.values.blob(node, bytes);
        }
    }

    fn begin(&mut self, node: NodeId) {
        let is_taken = self.takes(node);
        if is_taken {
            self.values.begin(node);
        }
        self.enter(is_taken);
    }

    fn end(&mut self, node: NodeId) {
        if self.leave() {
            self.values.end(node);
        }
    }

    fn begin_array(&mut self, node: NodeId, length: u64) {
        let is_taken = self.takes(node);
        if is_taken {
            self.values.begin_array(node, length);
        }
        self.enter(is_taken);
        self.elements.push(0);
    }

    fn element(&mut self, index: u64) {
        if let Some(last) = self.elements.last_mut() {
            *last = index;
        }
        if self.inside > 0 {
            self.values.element(index);
        }
    }

    fn end_array(&mut self, node: NodeId) {
        self.elements.pop();
        if self.leave() {
            self.values.end_array(node);
        }
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        if self.inside > 0 {
            self.values.begin_case(node, case);
            // A case that is not there has no end.
            self.enter(case.is_some());
        }
    }

    fn end_case(&mut self, node: NodeId) {
        if self.inside > 0 {
            self.leave();
            self.values.end_case(node);
        }
    }
}
