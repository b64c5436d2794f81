//! Fields whose values are hidden: a decoder with them passes texts to visitors in place of the
//! values, so that no writer ever has these.

use super::op::Code;
use super::{Program, SchemaError, build};
use lastwords_trace::schema::EnvValue;
use lastwords_trace::visit::{Node, NodeId, Shape, Visitor};
use std::collections::hash_map::RandomState;
use std::fmt::{self, Write as _};
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, OnceLock};

/// How the value of a field is hidden.
#[derive(Clone)]
pub enum How {
    /// It is [`REDACTED`].
    Drop,
    /// It is a [`hash`] of its text.
    Hash,
    /// It is what the function makes of its text.
    Rewrite(Arc<dyn Fn(&str) -> String + Send + Sync>),
}

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Drop => "Drop",
            Self::Hash => "Hash",
            Self::Rewrite(_) => "Rewrite",
        })
    }
}

/// Chooses the fields that are hidden.
pub trait Hides: Send + Sync {
    /// Returns how a field of an event is hidden, if it is. The name of the event is empty for a
    /// property of the trace.
    fn field(&self, event: &str, field: &str) -> Option<How>;
}

/// What is shown in place of a value that is dropped.
pub const REDACTED: &str = "<redacted>";

/// Returns the keyed hash that is shown in place of a text: `#` and 16 hexadecimal digits. The key
/// is a random one of this process. So equal values have equal hashes within one run of a program,
/// and nobody can try a list of values afterwards.
#[must_use]
pub fn hash(text: &[u8]) -> String {
    static KEY: OnceLock<RandomState> = OnceLock::new();
    let mut hasher = KEY.get_or_init(RandomState::new).build_hasher();
    hasher.write(text);
    format!("#{:016x}", hasher.finish())
}

impl How {
    /// Returns what is shown in place of a text.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        match self {
            Self::Drop => REDACTED.to_owned(),
            Self::Hash => hash(text.as_bytes()),
            Self::Rewrite(rewrite) => rewrite(text),
        }
    }
}

/// A hidden field: the code that decodes it.
#[derive(Debug, Clone)]
pub(super) struct Hidden {
    pub(super) code: Code,
    pub(super) how: How,
}

/// Collects the text of a value: that of a number, the bytes of a text, the parts of others one
/// after the other.
pub(super) struct Gathered<'a> {
    nodes: &'a [Node],
    text: String,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(hidden: &'a Hidden) -> Self {
        Self { nodes: &hidden.code.nodes, text: String::new() }
    }

    /// Returns what is shown in place of the value.
    pub(super) fn shown(&self, how: &How) -> String {
        how.text(&self.text)
    }

    /// Adds a part. Writing to a text does not fail.
    fn add(&mut self, part: fmt::Arguments<'_>) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        let _ = self.text.write_fmt(part);
    }
}

impl Visitor for Gathered<'_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        match usize::try_from(node).ok().and_then(|at| self.nodes.get(at)).map(|node| &node.shape) {
            Some(Shape::Integer { signed: true, .. }) => {
                self.add(format_args!("{}", value.cast_signed()))
            }
            _ => self.add(format_args!("{value}")),
        }
    }

    fn float(&mut self, _: NodeId, value: f64) {
        self.add(format_args!("{value}"));
    }

    fn text(&mut self, _: NodeId, bytes: &[u8]) {
        // Bytes after the first NUL are no part of a text.
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        self.add(format_args!("{}", String::from_utf8_lossy(bytes.get(..end).unwrap_or_default())));
    }

    fn blob(&mut self, _: NodeId, bytes: &[u8]) {
        self.add(format_args!("{bytes:02x?}"));
    }
}

impl Program {
    /// Returns a decoder of the same packets in which fields are hidden: a visitor gets a text in
    /// place of each of their values. Properties of the trace that are text are hidden, too. What
    /// copies packets copies the values.
    ///
    /// # Errors
    /// The budget is spent.
    pub fn hiding(&self, hides: &dyn Hides) -> Result<Self, SchemaError> {
        let mut class = self.class.clone();
        for (key, value) in &mut class.env {
            if let EnvValue::Text(text) = value
                && let Some(how) = hides.field("", key)
            {
                *text = how.text(text);
            }
        }
        build::program(class, &self.budget, Some(hides))
    }
}
