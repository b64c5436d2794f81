//! The fields of an event as objects, for callers that look at few events or at single fields.

use super::merge::Due;
use super::stream::Reader;
use crate::program::Code;
use lastwords_trace::class::{EventClass, Scope};
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unsigned integer or bit array.
    Unsigned(u64),
    /// Signed integer.
    Signed(i64),
    /// Floating-point number.
    Float(f64),
    /// Boolean.
    Bool(bool),
    /// Text, up to its NUL. It should be UTF-8, but that is not checked.
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

/// A member of a context or of the payload.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// The scope of the member: a context, or the payload.
    pub scope: Scope,
    /// Name of the member.
    pub name: String,
    /// The member is an integer that is shown in hexadecimal digits.
    pub is_hexadecimal: bool,
    /// Value of the member.
    pub value: Value,
}

impl Reader<'_> {
    /// Returns the class of an event that is in the window.
    #[must_use]
    pub fn class_of(&self, event: &Due) -> Option<&EventClass> {
        self.program().class().streams.get(self.stream().class)?.events.get(event.class)
    }

    /// Returns the contexts and fields of an event that is in the window, in their order. Unsigned
    /// integers with roles are left out, because they only serve the decoding.
    pub fn members(&mut self, event: &Due) -> Vec<Member> {
        let class = self.stream().class;
        let (program, decoder, part) = self.parts();
        let mut members = Vec::new();
        let mut at = event.body;
        for scope in [Scope::CommonContext, Scope::SpecificContext, Scope::Payload] {
            let Some(code) = program.code(scope, class, event.class) else { continue };
            let mut builder = Builder { code, open: Vec::new(), done: None };
            match program.visit(decoder, code, &part, at, &mut builder) {
                Ok(end) => at = end,
                // The reader has accepted the same bytes, so this does not happen.
                Err(_) => break,
            }
            let Some(Value::Struct(fields)) = builder.done else { continue };
            let is_hexadecimal =
                |name: &str| code.nodes().iter().any(|node| is_hexadecimal(node, name));
            members.extend(fields.into_iter().map(|(name, value)| Member {
                scope,
                is_hexadecimal: is_hexadecimal(&name),
                name,
                value,
            }));
        }
        members
    }
}

fn is_hexadecimal(node: &Node, name: &str) -> bool {
    node.depth == 1 && node.name == name && matches!(node.shape, Shape::Integer { base: 16, .. })
}

/// Builds the value of a scope.
struct Builder<'c> {
    code: &'c Code,
    /// The values under construction, the outermost first, each with its node.
    open: Vec<(NodeId, Value)>,
    done: Option<Value>,
}

impl Builder<'_> {
    fn node(&self, node: NodeId) -> Option<&Node> {
        self.code.nodes().get(node as usize)
    }

    fn put(&mut self, node: NodeId, value: Value) {
        let (name, shown) =
            self.node(node).map_or((String::new(), true), |node| (node.name.clone(), node.shown));
        match self.open.last_mut() {
            Some((_, Value::Struct(members))) if shown => members.push((name, value)),
            Some((_, Value::Struct(_))) => {}
            Some((_, Value::List(elements))) => elements.push(value),
            // The value is the option of a variant, or the field of an optional.
            Some((_, outer)) => *outer = value,
            None => self.done = Some(value),
        }
    }

    fn close(&mut self) {
        if let Some((node, value)) = self.open.pop() {
            self.put(node, value);
        }
    }
}

impl Visitor for Builder<'_> {
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

    fn float(&mut self, node: NodeId, value: f64) {
        self.put(node, Value::Float(value));
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        self.put(node, Value::Text(bytes.get(..end).unwrap_or_default().to_vec()));
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        self.put(node, Value::Bytes(bytes.to_vec()));
    }

    fn begin(&mut self, node: NodeId) {
        self.open.push((node, Value::Struct(Vec::new())));
    }

    fn end(&mut self, _: NodeId) {
        self.close();
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        self.open.push((node, Value::List(Vec::new())));
    }

    fn end_array(&mut self, _: NodeId) {
        self.close();
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        match case {
            Some(_) => self.open.push((node, Value::Absent)),
            None => self.put(node, Value::Absent),
        }
    }

    fn end_case(&mut self, _: NodeId) {
        self.close();
    }
}
