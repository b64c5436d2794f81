//! Decides how fields are shown, whatever the format: which fields are omitted, and which are
//! bytes.

use lastwords_ctf::PADDING;
use lastwords_ctf::program::Code;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};
use std::collections::{HashMap, HashSet};

/// How a node is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The value is shown.
    Shown,
    /// The value only serves decoding: it is a number with a role, or the length of the array that
    /// follows it.
    Hidden,
    /// The node is an array of bytes, which is shown as one text of hexadecimal digits.
    Bytes,
    /// The node is a field that an event of ours may lack: it is shown only if the event has it.
    Present,
}

impl Role {
    /// Returns true if the case of a variant means that the event lacks the field: the first option
    /// is empty.
    pub(crate) fn is_absent(self, case: Option<usize>) -> bool {
        self == Self::Present && case == Some(0)
    }
}

/// Returns the role of each node of a scope, by position.
pub(crate) fn roles(code: &Code) -> Vec<Role> {
    let nodes = code.nodes();
    let optional = optional(nodes);
    let next = |at: usize| nodes.get(at.saturating_add(1));
    let role = |(at, node): (usize, &Node)| match &node.shape {
        _ if !node.shown => Role::Hidden,
        _ if optional.bits.contains(&at) => Role::Hidden,
        _ if optional.fields.contains(&at) => Role::Present,
        Shape::Integer { signed: false, .. }
            if next(at).is_some_and(|next| is_length(node, next)) =>
        {
            Role::Hidden
        }
        Shape::Array if next(at).is_some_and(is_octet) => Role::Bytes,
        _ => Role::Shown,
    };
    nodes.iter().enumerate().map(role).collect()
}

/// The positions of nodes that belong to optional fields of our own sessions.
#[derive(Default)]
struct OptionalNodes {
    /// The fields.
    fields: HashSet<usize>,
    /// The bits that say whether an event has them, and the bits that fill the last byte.
    bits: HashSet<usize>,
}

/// Returns the optional fields among the members of the scope. Their names say which bits select
/// them.
fn optional(nodes: &[Node]) -> OptionalNodes {
    let members =
        nodes.iter().enumerate().filter(|(_, node)| node.depth == 1 && !node.name.is_empty());
    let is_bit =
        |node: &Node| matches!(node.shape, Shape::Integer { length: 1, signed: false, .. });
    let bits: HashMap<&str, usize> = members
        .clone()
        .filter(|(_, node)| is_bit(node))
        .map(|(at, node)| (node.name.as_str(), at))
        .collect();
    let mut found = OptionalNodes::default();
    for (at, node) in members.clone() {
        let is_empty = |node: &Node| node.name.is_empty() && matches!(node.shape, Shape::Struct);
        let is_optional = matches!(node.shape, Shape::Variant)
            && nodes.get(at.saturating_add(1)).is_some_and(is_empty);
        let bit = || {
            let named = format!("_{}_present", node.name);
            // A name that another field has got a number.
            bits.iter()
                .find(|(name, _)| name.strip_prefix(&named).is_some_and(is_number))
                .map(|(_, at)| *at)
        };
        if is_optional
            && let Some(bit) =
                bits.get(format!("_{}_present", node.name).as_str()).copied().or_else(bit)
        {
            found.fields.insert(at);
            found.bits.insert(bit);
        }
    }
    if !found.fields.is_empty() {
        let is_padding = |node: &Node| {
            node.name == PADDING
                && matches!(node.shape, Shape::Integer { length: 1..=7, signed: false, .. })
        };
        found.bits.extend(members.filter(|(_, node)| is_padding(node)).map(|(at, _)| at));
    }
    found
}

/// Returns true for `_2`, `_3`, ….
fn is_number(rest: &str) -> bool {
    rest.strip_prefix('_').is_some_and(|digits| digits.parse::<u32>().is_ok())
}

/// Returns true if the name of the number says that it is the length of the array that follows it.
/// LTTng and lastwords name lengths so.
fn is_length(node: &Node, next: &Node) -> bool {
    let named = |rest: &str| {
        rest.strip_prefix(next.name.as_str()).is_some_and(|rest| rest.starts_with("_length"))
    };
    let counted = matches!(next.shape, Shape::Array | Shape::Blob | Shape::Text(_));
    counted && !next.name.is_empty() && node.name.strip_prefix('_').is_some_and(named)
}

fn is_octet(node: &Node) -> bool {
    matches!(&node.shape, Shape::Integer { length: 8, signed: false, base: 16, mappings } if mappings.is_empty())
        && node.name.is_empty()
}

/// The structures, arrays and variants that contain the value that a visitor is at.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    /// Number of levels.
    pub(crate) depth: usize,
    /// Number of the innermost levels that are not shown.
    pub(crate) hidden: usize,
}

impl Nesting {
    /// Enters a level.
    pub(crate) fn enter(&mut self, is_shown: bool) {
        self.depth = self.depth.saturating_add(1);
        self.hidden = self.hidden.saturating_add(usize::from(!is_shown));
    }

    /// Leaves a level. Returns true if the level was shown.
    pub(crate) fn leave(&mut self) -> bool {
        let is_shown = self.hidden == 0;
        self.depth = self.depth.saturating_sub(1);
        self.hidden = self.hidden.saturating_sub(1);
        is_shown
    }
}

/// Takes the value of one integer field.
pub(crate) struct IntegerField {
    /// The field; none if the scope does not have the field.
    pub(crate) node: Option<NodeId>,
    pub(crate) value: Option<u64>,
}

impl Visitor for IntegerField {
    fn integer(&mut self, node: NodeId, value: u64) {
        if self.node == Some(node) {
            self.value = Some(value);
        }
    }
}
