//! The expression tree of an argument of a print format.

use super::arith::{Int, Op};

/// Names for values, in the order of the format.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rows: Box<[(u64, Box<[u8]>)]>,
    /// False if the value of a row is not known.
    pub(crate) is_complete: bool,
}

/// The position of a `__data_loc` or `__rel_loc` field in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Locator {
    pub(crate) offset: u32,
    /// True if the offset in it counts from the locator's end.
    pub(crate) relative: bool,
    /// Type of the elements.
    pub(crate) element: Int,
}

/// An expression.
#[derive(Debug)]
pub(crate) enum Expr {
    /// A constant.
    Int(u64, Int),
    /// A string.
    Text(Box<[u8]>),
    /// A field that is an integer.
    Field { offset: u32, kind: Int },
    /// The address of bytes in the payload. A length of 0 reaches to the end of the payload.
    Payload { offset: u32, length: u32, element: Int },
    /// The address that a locator points to.
    Located(Locator),
    /// The length in bytes that a locator has.
    Length(Locator),
    /// Conversion to an integer type.
    Cast(Int, Box<Expr>),
    /// Conversion to a pointer to elements of a type.
    PointerCast(Int, Box<Expr>),
    /// An address of the kernel's memory that points to structures of this size in bytes.
    Structure(u64, Box<Expr>),
    /// `-`, `~`, `+`.
    Unary(u8, Box<Expr>),
    /// `!`.
    Not(Box<Expr>),
    /// An operator on two operands.
    Binary(Op, Box<[Expr; 2]>),
    /// `&&`.
    Both(Box<[Expr; 2]>),
    /// `||`.
    Either(Box<[Expr; 2]>),
    /// `?:`.
    Choice(Box<[Expr; 3]>),
    /// `base[index]`; `*base` has index 0.
    Index(Box<[Expr; 2]>),
    /// A helper that makes text.
    Helper(Box<Helper>),
    /// A value that only the kernel can compute, of these fields of the event.
    Unknown(Box<[Expr]>),
}

impl Expr {
    /// Returns the operands of the expression.
    pub(crate) fn operands(&self) -> Vec<&Self> {
        match self {
            Self::Int(..)
            | Self::Text(_)
            | Self::Field { .. }
            | Self::Payload { .. }
            | Self::Located(_)
            | Self::Length(_) => Vec::new(),
            Self::Cast(_, inner)
            | Self::PointerCast(_, inner)
            | Self::Structure(_, inner)
            | Self::Unary(_, inner)
            | Self::Not(inner) => vec![inner],
            Self::Binary(_, parts)
            | Self::Both(parts)
            | Self::Either(parts)
            | Self::Index(parts) => parts.iter().collect(),
            Self::Choice(parts) => parts.iter().collect(),
            Self::Helper(helper) => helper.operands(),
            Self::Unknown(fields) => fields.iter().collect(),
        }
    }

    /// Returns true if a part of the expression is known to the kernel alone.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_)) || self.operands().into_iter().any(Self::is_unknown)
    }
}

/// A helper that makes text.
#[derive(Debug)]
pub(crate) enum Helper {
    /// `__print_flags(value, delimiter, {mask, name}…)`.
    Flags { value: Expr, delimiter: Box<[u8]>, table: Table },
    /// `__print_symbolic(value, {value, name}…)`.
    Symbolic { value: Expr, table: Table },
    /// `__print_hex(buffer, length)`, `__print_hex_str`.
    Hex { buffer: Expr, length: Expr, joined: bool },
    /// `__print_array(buffer, count, element size)`.
    Array { buffer: Expr, count: Expr, size: Expr },
    /// `__print_hex_dump(prefix, prefix type, row size, group size, buffer, length, ascii)`.
    Dump { prefix: Expr, numbers: [Expr; 5], buffer: Expr },
    /// `__get_bitmask(field)`, `__get_cpumask(field)`.
    Bitmask(Locator),
    /// A text between two others, or nothing if it is empty.
    Around { before: &'static [u8], text: Expr, after: &'static [u8] },
    /// A command of SCSI.
    Cdb { buffer: Expr, length: Expr },
}

impl Helper {
    fn operands(&self) -> Vec<&Expr> {
        match self {
            Self::Flags { value, .. } | Self::Symbolic { value, .. } => vec![value],
            Self::Hex { buffer, length, .. } | Self::Cdb { buffer, length } => vec![buffer, length],
            Self::Around { text, .. } => vec![text],
            Self::Array { buffer, count, size } => vec![buffer, count, size],
            Self::Dump { prefix, numbers, buffer } => {
                [prefix, buffer].into_iter().chain(numbers).collect()
            }
            Self::Bitmask(_) => Vec::new(),
        }
    }
}
