//! Values of fields as objects.

use crate::decoded::decoded;
use crate::fields::{Role, roles};
use lastwords_ctf::program::Code;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};
use std::fmt::{self, Display, Formatter};

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unsigned integer or bit array.
    Unsigned(u64),
    /// Signed integer.
    Signed(i64),
    /// Floating-point number of 64 or 16 bits.
    Float(f64),
    /// Floating-point number of 32 bits.
    Float32(f32),
    /// Boolean.
    Bool(bool),
    /// Text in UTF-8, unless the bytes that were recorded are not what their class says.
    Text(Vec<u8>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An enumeration's value, and its first label, if it has one.
    Enum(i128, Option<String>),
    /// The elements of an array.
    List(Vec<Self>),
    /// Members by name.
    Struct(Vec<(String, Self)>),
    /// An optional field that is absent.
    Absent,
}

impl Value {
    /// Returns the number if the value is one and is not negative.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => Some(*value),
            Self::Signed(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |f: &mut Formatter<'_>, values: &mut dyn Iterator<Item = &Self>| {
            values
                .enumerate()
                .try_for_each(|(at, value)| write!(f, "{}{value}", if at == 0 { "" } else { " " }))
        };
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Float32(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Text(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Enum(_, Some(label)) => f.write_str(label),
            Self::Enum(value, None) => value.fmt(f),
            Self::List(elements) => list(f, &mut elements.iter()),
            Self::Struct(members) => list(f, &mut members.iter().map(|(_, value)| value)),
            Self::Absent => Ok(()),
        }
    }
}

/// A context or a field of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The name.
    pub name: String,
    /// The value is an integer that is shown in hexadecimal digits.
    pub is_hexadecimal: bool,
    /// The value.
    pub value: Value,
}

impl Display for Field {
    /// Writes `name=value`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.value {
            Value::Unsigned(value) if self.is_hexadecimal => write!(f, "{}={value:#x}", self.name),
            _ => write!(f, "{}={}", self.name, self.value),
        }
    }
}

/// The fields of a scope, prepared for many events.
pub(super) struct Plan<'t> {
    pub(super) code: &'t Code,
    roles: Vec<Role>,
}

impl<'t> Plan<'t> {
    pub(super) fn new(code: &'t Code) -> Self {
        Self { code, roles: roles(code) }
    }

    fn role(&self, node: NodeId) -> Role {
        self.roles.get(node as usize).copied().unwrap_or(Role::Hidden)
    }
}

/// Collects the fields of a scope that are shown.
pub(super) struct Collector<'p, 't> {
    plan: &'p Plan<'t>,
    /// Nodes that are left out.
    without: &'p [NodeId],
    /// The values under construction, the outermost first. The first is the scope itself.
    open: Vec<Open>,
    pub(super) fields: Vec<Field>,
}

/// A value under construction.
struct Open {
    node: NodeId,
    value: Value,
    /// The event does not have the value.
    is_absent: bool,
}

impl<'p, 't> Collector<'p, 't> {
    pub(super) fn new(plan: &'p Plan<'t>, without: &'p [NodeId]) -> Self {
        Self { plan, without, open: Vec::new(), fields: Vec::new() }
    }

    fn node(&self, node: NodeId) -> Option<&'t Node> {
        self.plan.code.nodes().get(node as usize)
    }

    fn open(&mut self, node: NodeId, value: Value) {
        self.open.push(Open { node, value, is_absent: false });
    }

    fn put(&mut self, node: NodeId, value: Value) {
        let Some(described) = self.node(node) else { return };
        let is_hidden = self.plan.role(node) == Role::Hidden || self.without.contains(&node);
        let is_field = self.open.len() == 1;
        match self.open.last_mut().map(|open| &mut open.value) {
            Some(Value::Struct(_)) if is_hidden => {}
            Some(Value::Struct(_)) if is_field => {
                let is_hexadecimal = matches!(described.shape, Shape::Integer { base: 16, .. });
                self.fields.push(Field { name: described.name.clone(), is_hexadecimal, value });
            }
            Some(Value::Struct(members)) => members.push((described.name.clone(), value)),
            Some(Value::List(elements)) => elements.push(value),
            Some(Value::Bytes(bytes)) => {
                bytes.extend(value.number().map(lastwords_bytes::low_u8));
            }
            // The value is the option of a variant, or the field of an optional.
            Some(outer) => *outer = value,
            None => {}
        }
    }

    fn close(&mut self) {
        if let Some(Open { node, value, is_absent: false }) = self.open.pop() {
            self.put(node, value);
        }
    }
}

impl Visitor for Collector<'_, '_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        let made = match self.node(node).map(|node| &node.shape) {
            Some(Shape::Bool) => Value::Bool(value != 0),
            Some(Shape::Integer { signed, mappings, .. }) => {
                let wide =
                    if *signed { i128::from(value.cast_signed()) } else { i128::from(value) };
                let label = mappings.first(wide).map(|mapping| mapping.label.clone());
                match (mappings.is_empty(), signed) {
                    (false, _) => Value::Enum(wide, label),
                    (true, true) => Value::Signed(value.cast_signed()),
                    (true, false) => Value::Unsigned(value),
                }
            }
            _ => Value::Unsigned(value),
        };
        self.put(node, made);
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "a float of 32 bits was made larger, and becomes what it was"
    )]
    fn float(&mut self, node: NodeId, value: f64) {
        let is_short = self.node(node).is_some_and(|node| matches!(node.shape, Shape::Float(32)));
        let short = || Value::Float32(value as f32);
        self.put(node, if is_short { short() } else { Value::Float(value) });
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        if let Some(Node { shape: Shape::Text(encoding), .. }) = self.node(node) {
            self.put(node, Value::Text(decoded(bytes, *encoding).into_owned()));
        }
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        self.put(node, Value::Bytes(bytes.to_vec()));
    }

    fn begin(&mut self, node: NodeId) {
        self.open(node, Value::Struct(Vec::new()));
    }

    fn end(&mut self, _: NodeId) {
        self.close();
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        let is_bytes = self.plan.role(node) == Role::Bytes;
        let empty = if is_bytes { Value::Bytes(Vec::new()) } else { Value::List(Vec::new()) };
        self.open(node, empty);
    }

    fn end_array(&mut self, _: NodeId) {
        self.close();
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        let is_absent = self.plan.role(node).is_absent(case);
        match case {
            Some(_) => self.open.push(Open { node, value: Value::Absent, is_absent }),
            None => self.put(node, Value::Absent),
        }
    }

    fn end_case(&mut self, _: NodeId) {
        self.close();
    }
}
