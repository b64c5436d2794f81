//! Decodes keys and values by BTF.

use lastwords_bytes::{Budget, ByteOrder};
use lastwords_kernel::btf::{Member, MemberKind, TypeId, Types};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Greatest nesting of structures and arrays that is decoded; what is deeper stays bytes.
const DEPTH: u32 = 32;

/// A key or value of a map.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned number.
    Unsigned(u64),
    /// A signed number.
    Signed(i64),
    /// A boolean.
    Bool(bool),
    /// An address.
    Address(u64),
    /// The name of an enumerator.
    Name(String),
    /// Characters up to their NUL.
    Text(String),
    /// An array.
    Array(Vec<Value>),
    /// A structure or union, or a section of variables: names and values.
    Structure(Vec<(String, Value)>),
    /// Bytes whose type is not known.
    Bytes(Vec<u8>),
}

/// The type of keys or values.
#[derive(Clone)]
pub(crate) struct Layout {
    pub(crate) types: Arc<Types>,
    pub(crate) id: TypeId,
    pub(crate) order: ByteOrder,
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.types.name(self.id))
    }
}

impl Value {
    /// Decodes bytes by their type. Without a type, or if the budget is spent, they stay bytes.
    pub(crate) fn new(layout: Option<&Layout>, bytes: &[u8], budget: &Budget) -> Self {
        let decoded = layout.and_then(|layout| {
            let whole = layout.types.member_of(layout.id, "").ok()?;
            // A section has no size of its own.
            let is_whole = whole.size == bytes.len() as u64 || whole.size == 0;
            layout.value(&whole, bytes, budget, DEPTH).filter(|_| is_whole)
        });
        decoded.unwrap_or_else(|| Self::Bytes(bytes.to_vec()))
    }
}

impl Layout {
    fn value(&self, member: &Member, bytes: &[u8], budget: &Budget, depth: u32) -> Option<Value> {
        budget.steps("value", 1).ok()?;
        let below = depth.checked_sub(1)?;
        match member.kind {
            MemberKind::Number { signed } => self.number(member, bytes, signed),
            MemberKind::Pointer => Some(Value::Address(unsigned(bytes.get(..8)?, self.order))),
            MemberKind::Array { count, element_size } => {
                self.array(member.type_id, count, element_size, bytes, budget, below)
            }
            MemberKind::Structure => {
                let names = self.types.members(member.type_id).into_iter();
                let row = |name: String| {
                    let inner = self.types.member_of(member.type_id, &name).ok()?;
                    let value = self.at(&inner, bytes, budget, below)?;
                    Some((name, value))
                };
                names.map(row).collect::<Option<_>>().map(Value::Structure)
            }
            MemberKind::Other => {
                let variables = self.types.variables(member.type_id).into_iter();
                let row = |variable: lastwords_kernel::btf::Variable| {
                    let inner = self.types.member_of(variable.type_id, "").ok()?;
                    let inner = Member { offset: variable.offset, ..inner };
                    let value = self.at(&inner, bytes, budget, below)?;
                    Some((variable.name, value))
                };
                let rows: Vec<_> = variables.map(row).collect::<Option<_>>()?;
                (!rows.is_empty()).then_some(Value::Structure(rows))
            }
        }
    }

    /// Decodes a member at its offset. A kind that is not known stays bytes.
    fn at(&self, member: &Member, bytes: &[u8], budget: &Budget, depth: u32) -> Option<Value> {
        let size = match member.bits {
            Some((bit, bits)) => u64::from(bit).saturating_add(bits.into()).div_ceil(8),
            None => member.size,
        };
        let from = usize::try_from(member.offset).ok()?;
        let to = from.checked_add(usize::try_from(size).ok()?)?;
        let own = bytes.get(from..to)?;
        let value = self.value(member, own, budget, depth);
        Some(value.unwrap_or_else(|| Value::Bytes(own.to_vec())))
    }

    fn number(&self, member: &Member, bytes: &[u8], signed: bool) -> Option<Value> {
        let (mut number, mut bits) = match bytes.len() {
            1..=8 => (unsigned(bytes, self.order), bytes.len().checked_mul(8)?),
            _ => return None,
        };
        if let Some((bit, width)) = member.bits {
            bits = width.into();
            let shift = match self.order {
                ByteOrder::Little => u32::from(bit),
                ByteOrder::Big => u32::try_from(bytes.len().checked_mul(8)?)
                    .ok()?
                    .checked_sub(u32::from(bit).checked_add(width.into())?)?,
            };
            number = number.checked_shr(shift)?
                & u64::MAX.checked_shr(64u32.checked_sub(width.into())?)?;
        }
        let unused = u32::try_from(bits).ok().and_then(|bits| 64u32.checked_sub(bits))?;
        let extended = number.checked_shl(unused)?.cast_signed().checked_shr(unused)?;
        let name = self.types.name(member.type_id);
        let enumerators = self.types.enumeration(&name);
        let wanted = if signed { extended } else { number.cast_signed() };
        let known = enumerators.into_iter().find(|(_, value)| *value == wanted);
        Some(match (known, name.as_str(), signed) {
            (Some((name, _)), ..) => Value::Name(name),
            (None, "_Bool" | "bool", _) if number <= 1 => Value::Bool(number == 1),
            (None, _, true) => Value::Signed(extended),
            (None, _, false) => Value::Unsigned(number),
        })
    }

    fn array(
        &self,
        id: TypeId,
        count: u64,
        element_size: u64,
        bytes: &[u8],
        budget: &Budget,
        depth: u32,
    ) -> Option<Value> {
        let element = self.types.member_of(self.types.target(id)?, "").ok()?;
        if self.types.name(element.type_id) == "char"
            && let Some(text) = text(bytes)
        {
            return Some(Value::Text(text));
        }
        let size = usize::try_from(element_size).ok().filter(|size| *size > 0)?;
        let parts = bytes.chunks_exact(size).take(usize::try_from(count).ok()?);
        let value = |part: &[u8]| self.at(&element, part, budget, depth);
        parts.map(value).collect::<Option<_>>().map(Value::Array)
    }
}

/// Returns the text of characters that end with NULs, if all of it can be printed.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at_checked(end)?;
    let is_text =
        text.iter().all(|byte| matches!(byte, b' '..=b'~')) && rest.iter().all(|b| *b == 0);
    String::from_utf8(text.to_vec()).ok().filter(|_| is_text)
}

/// Returns the number in up to 8 bytes.
pub(crate) fn unsigned(bytes: &[u8], order: ByteOrder) -> u64 {
    let add = |number: u64, byte: &u8| number.wrapping_shl(8) | u64::from(*byte);
    match order {
        ByteOrder::Little => bytes.iter().rev().fold(0, add),
        ByteOrder::Big => bytes.iter().fold(0, add),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(number) => write!(f, "{number}"),
            Self::Signed(number) => write!(f, "{number}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Address(address) => write!(f, "{address:#x}"),
            Self::Name(name) => f.write_str(name),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Array(values) => {
                f.write_str("[")?;
                for (at, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Structure(rows) => {
                f.write_str("{")?;
                for (at, (name, value)) in rows.iter().enumerate() {
                    write!(f, "{}{name}={value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unsigned(number) => serializer.serialize_u64(*number),
            Self::Signed(number) => serializer.serialize_i64(*number),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Name(text) | Self::Text(text) => serializer.serialize_str(text),
            Self::Array(values) => serializer.collect_seq(values),
            Self::Structure(rows) => {
                serializer.collect_map(rows.iter().map(|(name, value)| (name, value)))
            }
            Self::Address(_) | Self::Bytes(_) => serializer.collect_str(self),
        }
    }
}
