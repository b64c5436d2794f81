//! Names that an expression reads.

use std::fmt::{self, Display, Formatter};

/// A name that an expression reads: a field, a member or an element of one, or a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    is_context: bool,
    steps: Vec<Step>,
}

/// A part of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The member of this name. It is the first step of every name.
    Member(String),
    /// The element at this position, from 0.
    Element(u64),
}

impl Name {
    pub(crate) fn new(is_context: bool, steps: Vec<Step>) -> Self {
        Self { is_context, steps }
    }

    /// Returns true if the name was written as `$ctx.NAME`: only a context may have it.
    #[must_use]
    pub fn is_context(&self) -> bool {
        self.is_context
    }

    /// Returns the steps from the event to the value, without `$ctx`: `a.b[3]` is the member `a`,
    /// in it the member `b`, and in that the element 3.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the name if it is that of a field as a whole: one without members and elements.
    #[must_use]
    pub fn plain(&self) -> Option<&str> {
        match self.steps.as_slice() {
            [Step::Member(name)] => Some(name),
            _ => None,
        }
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut dot = "";
        if self.is_context {
            f.write_str("$ctx")?;
            dot = ".";
        }
        for step in &self.steps {
            match step {
                Step::Member(name) => write!(f, "{dot}{name}")?,
                Step::Element(index) => write!(f, "[{index}]")?,
            }
            dot = ".";
        }
        Ok(())
    }
}
