//! How fields look to people, whatever the format: which are left out, and which are bytes.

use lastwords_ctf::program::Code;
use lastwords_trace::visit::{Node, Shape};

/// How a node looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A value that is shown.
    Shown,
    /// It serves the decoding only: a number with a role, or the length of the array behind it.
    Hidden,
    /// An array of bytes, which is shown as one text of hexadecimal digits.
    Bytes,
}

/// The role of each node of a scope, by position.
pub(crate) fn roles(code: &Code) -> Vec<Role> {
    let nodes = code.nodes();
    let next = |at: usize| nodes.get(at.saturating_add(1));
    let role = |(at, node): (usize, &Node)| match &node.shape {
        _ if !node.shown => Role::Hidden,
        Shape::Integer { signed: false, .. } if next(at).is_some_and(|next| is_length(node, next)) => Role::Hidden,
        Shape::Array if next(at).is_some_and(is_octet) => Role::Bytes,
        _ => Role::Shown,
    };
    nodes.iter().enumerate().map(role).collect()
}

/// The number is the length of the array that follows it, by the name that LTTng and our sessions give such.
fn is_length(node: &Node, next: &Node) -> bool {
    let named = |rest: &str| rest.strip_prefix(next.name.as_str()).is_some_and(|rest| rest.starts_with("_length"));
    let counted = matches!(next.shape, Shape::Array | Shape::Blob | Shape::Text(_));
    counted && !next.name.is_empty() && node.name.strip_prefix('_').is_some_and(named)
}

fn is_octet(node: &Node) -> bool {
    matches!(&node.shape, Shape::Integer { length: 8, signed: false, base: 16, mappings } if mappings.is_empty())
        && node.name.is_empty()
}
