//! Reads the descriptions of events: their names, and their fields, which determine the length of an
//! event.

use std::collections::BTreeMap;

use crate::checksum::checksum;
use crate::layout::{registry as at, session as se};
use crate::put::Order;

/// Type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// An integer: whether it has a sign, its bytes, and the base in which it is shown.
    Integer(bool, usize, u8),
    /// A float of so many bytes.
    Float(usize),
    /// A byte that is 0 or 1.
    Bool,
    /// Text up to and including a NUL.
    String,
    /// Text of so many bytes, padded with NULs.
    Text(usize),
    /// A count and that many bytes.
    Bytes,
    /// A count and that many elements of a fixed size.
    Sequence(Box<Type>),
    /// So many elements of a fixed size.
    Array(usize, Box<Type>),
    /// An integer, as [`Type::Integer`], with names for values.
    Enum(bool, usize, Vec<(i64, String)>),
    /// Nothing, or a value of this type: the bits in front of the payload tell.
    Optional(Box<Type>),
    /// Unknown.
    Unknown,
}

impl Type {
    /// Bytes of each value, if all values have the same size.
    fn fixed(&self) -> Option<usize> {
        match self {
            Self::Integer(_, bytes, _) | Self::Float(bytes) | Self::Enum(_, bytes, _) => {
                Some(*bytes)
            }
            Self::Bool => Some(1),
            Self::Text(bytes) => Some(*bytes),
            Self::Array(count, of) => count.checked_mul(of.fixed()?),
            _ => None,
        }
    }
}

/// A class of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Level, from 1 for errors to 5.
    pub level: u8,
    /// Provider.
    pub provider: String,
    /// Name.
    pub name: String,
    /// `FILE:LINE` of the callsite.
    pub place: String,
    /// Names and types of the fields, in their order.
    pub fields: Vec<(String, Type)>,
}

/// All classes, and the contexts of each channel.
#[derive(Debug, Clone)]
pub struct Classes {
    order: Order,
    contexts: Vec<Vec<Type>>,
    classes: BTreeMap<(u16, u16), Class>,
}

/// Reads a record's body sequentially.
struct Body<'a> {
    order: Order,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).and_then(|b| self.order.at16(b, 0))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|b| self.order.at32(b, 0))
    }

    fn str(&mut self) -> Option<String> {
        let len = self.u16()?;
        Some(String::from_utf8_lossy(self.take(usize::from(len))?).into_owned())
    }

    fn ty(&mut self) -> Option<Type> {
        Some(match self.u8()? {
            kind @ (at::UNSIGNED | at::SIGNED) => {
                Type::Integer(kind == at::SIGNED, usize::from(self.u8()?), self.u8()?)
            }
            at::FLOAT => Type::Float(usize::from(self.u8()?)),
            at::BOOL => Type::Bool,
            at::STRING => Type::String,
            at::SEQUENCE => Type::Sequence(self.element()?),
            at::ARRAY => {
                let count = usize::try_from(self.u32()?).ok()?;
                let array = Type::Array(count, self.element()?);
                array.fixed()?;
                array
            }
            at::ENUM => {
                let [kind, bytes, _base] = *self.take(3)?.first_chunk()?;
                let labels = (0..self.u16()?).map(|_| {
                    let value = self.take(8).and_then(|bytes| self.order.at64(bytes, 0))?;
                    Some((value.cast_signed(), self.str()?))
                });
                let labels = labels.collect::<Option<_>>()?;
                Type::Enum(kind == at::SIGNED, usize::from(bytes), labels)
            }
            at::TEXT => Type::Text(usize::try_from(self.u32()?).ok()?),
            at::BYTES => Type::Bytes,
            at::OPTIONAL => Type::Optional(Box::new(self.ty()?)),
            _ => Type::Unknown,
        })
    }

    fn element(&mut self) -> Option<Box<Type>> {
        self.ty().filter(|ty| ty.fixed().is_some()).map(Box::new)
    }
}

/// Returns the sound records of a registry region: the kind of each, and its body.
pub fn records(region: &[u8], order: Order) -> Vec<(u16, &[u8])> {
    let end = order.at64(region, at::END_AT).and_then(|e| usize::try_from(e).ok()).unwrap_or(0);
    let mut records = Vec::new();
    let mut from = at::RECORDS_AT;
    while from + at::RECORD_HEADER_LEN <= end.min(region.len()) {
        let len = order.at32(region, from).unwrap_or(0) as usize;
        let Some(record) = region.get(from..end).and_then(|r| r.get(..len)) else { break };
        let Some(body) = record.get(at::RECORD_HEADER_LEN..) else { break };
        from += len.next_multiple_of(8);
        if order.at64(record, at::RECORD_CHECK_AT) == Some(checksum(body)) {
            records.extend(order.at16(record, at::RECORD_KIND_AT).map(|kind| (kind, body)));
        }
    }
    records
}

impl Classes {
    /// Reads a registry region. `contexts` has the context bits of each channel.
    pub fn read(region: &[u8], order: Order, contexts: &[u32]) -> Self {
        let mut user: BTreeMap<(u16, u16), Type> = BTreeMap::new();
        let mut classes = BTreeMap::new();
        for (kind, body) in records(region, order) {
            let mut body = Body { order, rest: body };
            match kind {
                at::EVENT | at::EVENT_MANY => {
                    if let Some((key, class)) = event(kind, &mut body) {
                        classes.entry(key).or_insert(class);
                    }
                }
                at::CONTEXT => {
                    if let Some((key, ty)) = context(&mut body) {
                        user.entry(key).or_insert(ty);
                    }
                }
                _ => {}
            }
        }
        let of_channel = |(channel, bits): (usize, &u32)| {
            let own = [(1, 4), (2, 4), (4, 16), (8, 4)].into_iter();
            let own = own.filter(|(bit, _)| bits & bit != 0).map(|(_, bytes)| Type::Text(bytes));
            let is_there = |((c, _), _): &(&(u16, u16), &Type)| {
                bits & se::CONTEXT_USER != 0 && usize::from(*c) == channel
            };
            own.chain(user.iter().filter(is_there).map(|(_, ty)| ty.clone())).collect()
        };
        Self { order, contexts: contexts.iter().enumerate().map(of_channel).collect(), classes }
    }

    /// The class of an event.
    pub fn class(&self, channel: u32, id: u16) -> Option<&Class> {
        self.classes.get(&(u16::try_from(channel).ok()?, id))
    }

    /// All classes, in the order of channels and ids.
    pub fn all(&self) -> impl Iterator<Item = &Class> {
        self.classes.values()
    }

    /// Length of an event's contexts and fields, bytes; `bytes` begins after the event header.
    pub fn body_len(&self, channel: u32, id: u16, bytes: &[u8]) -> Option<usize> {
        let contexts = self.contexts.get(channel as usize)?;
        let fields = self.class(channel, id)?.fields.iter().map(|(_, ty)| ty);
        let mut len = 0usize;
        for ty in contexts {
            len += self.len_of(ty, bytes.get(len..)?)?;
        }
        let bits = bytes.get(len..)?;
        let optional = fields.clone().filter(|ty| matches!(ty, Type::Optional(_))).count();
        len += optional.div_ceil(8);
        let mut at = 0;
        for ty in fields {
            let ty = match ty {
                Type::Optional(inner) => {
                    let place = if self.order == Order::Little { at % 8 } else { 7 - at % 8 };
                    let is_present = bits.get(at / 8)? >> place & 1 == 1;
                    at += 1;
                    if !is_present {
                        continue;
                    }
                    &**inner
                }
                ty => ty,
            };
            len += self.len_of(ty, bytes.get(len..)?)?;
        }
        (len <= bytes.len()).then_some(len)
    }

    fn len_of(&self, ty: &Type, rest: &[u8]) -> Option<usize> {
        let counted =
            |bytes: usize| (self.order.at32(rest, 0)? as usize).checked_mul(bytes)?.checked_add(4);
        match ty {
            Type::String => Some(rest.iter().position(|b| *b == 0)? + 1),
            Type::Bytes => counted(1),
            Type::Sequence(of) => counted(of.fixed()?),
            ty => ty.fixed(),
        }
    }
}

fn event(kind: u16, body: &mut Body<'_>) -> Option<((u16, u16), Class)> {
    let key = (body.u16()?, body.u16()?);
    let level = body.u8()?;
    let count = if kind == at::EVENT_MANY { body.u16()? } else { u16::from(body.u8()?) };
    let (provider, name, _format, file) = (body.str()?, body.str()?, body.str()?, body.str()?);
    let place = format!("{file}:{}", body.u32()?);
    let fields = (0..count).map(|_| Some((body.str()?, body.ty()?))).collect::<Option<_>>()?;
    Some((key, Class { level, provider, name, place, fields }))
}

fn context(body: &mut Body<'_>) -> Option<((u16, u16), Type)> {
    let key = (body.u16()?, body.u16()?);
    body.str()?;
    Some((key, body.ty()?))
}
