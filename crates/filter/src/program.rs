//! The compiled form of an expression.

use crate::error::{Error, quoted};
use crate::name::Name;

/// A compiled expression. Two are equal if they have the same operations on the same names and
/// constants.
#[derive(Debug, Clone)]
pub struct Filter {
    pub(crate) ops: Vec<Op>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) globs: Vec<String>,
    pub(crate) names: Vec<Name>,
    /// Most values that wait for their operator at a time.
    pub(crate) height: usize,
    /// The offset of each name's first use in `text`.
    pub(crate) places: Vec<usize>,
    /// The expression as it was written.
    pub(crate) text: String,
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constant {
    /// Not negative: a minus is an operation.
    Integer(i128),
    /// Finite and not negative.
    Float(f64),
    Bool(bool),
    Text(Vec<u8>),
}

/// An operation on the stack of values. The order is that of postfix notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// Pushes the value of the name at this position.
    Name(u16),
    /// Pushes the constant at this position.
    Constant(u16),
    Unary(Unary),
    Binary(Binary),
    /// Matches the top against the glob at this position.
    Glob {
        glob: u16,
        /// The result is true if the glob does not match.
        is_negated: bool,
    },
    /// Turns the top into its truth. If that is `skips_on`, continues at the operation `to`, after
    /// the one that would use the right operand.
    Shortcut {
        skips_on: bool,
        to: u16,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Complement,
    Minus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
}

/// Precedence of `==`, `!=` and the globs.
pub(crate) const EQUALITY: u8 = 6;
/// Precedence of `<`, `<=`, `>` and `>=`.
pub(crate) const ORDER: u8 = 7;
/// Precedence of operators before their operand.
pub(crate) const PREFIX: u8 = 9;
/// Precedence of operands.
pub(crate) const OPERAND: u8 = 10;

impl Binary {
    /// Returns the precedence: a greater number binds more strongly.
    pub(crate) fn level(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And => 2,
            Self::BitOr => 3,
            Self::BitXor => 4,
            Self::BitAnd => 5,
            Self::Equal | Self::NotEqual => EQUALITY,
            Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual => ORDER,
            Self::ShiftLeft | Self::ShiftRight => 8,
        }
    }

    /// Returns the comparison that has its operands in the other order.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            other => other,
        }
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::BitAnd => "&",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
        }
    }

    /// Returns true for operators on the bits of integers.
    pub(crate) fn is_of_bits(self) -> bool {
        matches!(
            self,
            Self::BitOr | Self::BitXor | Self::BitAnd | Self::ShiftLeft | Self::ShiftRight
        )
    }
}

impl Unary {
    pub(crate) fn symbol(self) -> char {
        match self {
            Self::Not => '!',
            Self::Complement => '~',
            Self::Minus => '-',
        }
    }
}

impl Filter {
    /// Returns the names that the expression reads, each once. [`Filter::eval`] asks for values by
    /// positions in this list.
    #[must_use]
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Returns the expression as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns an error that points at the first use of a name, for a caller that does not know the
    /// name.
    #[must_use]
    pub fn unknown_name(&self, position: usize, expected: &str) -> Error {
        let offset = self.places.get(position).copied().unwrap_or(0);
        let name = self.names.get(position).map_or_else(String::new, ToString::to_string);
        *Error::new(&self.text, offset, format!("the name {}", quoted(&name)), expected)
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        let of = |filter: &Self| (filter.ops.clone(), filter.globs.clone(), filter.names.clone());
        self.constants == other.constants && of(self) == of(other)
    }
}

// No constant is NaN.
impl Eq for Filter {}
