//! Reads the parts of the registry that determine the length of an event.

use std::collections::BTreeMap;

use crate::checksum::checksum;
use crate::layout::{registry as at, session as se};
use crate::put::Order;

/// Size of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Size {
    /// A fixed number of bytes.
    Fixed(usize),
    /// Text up to and including a NUL.
    String,
    /// A count, then elements of this many bytes.
    Counted(usize),
    /// Nothing, or a value of this size: the bits in front of the payload tell.
    Optional(Box<Size>),
    /// Unknown.
    Unknown,
}

/// Sizes of all fields: the contexts of each channel, the payload fields of each event class.
#[derive(Debug, Clone)]
pub struct Classes {
    order: Order,
    contexts: Vec<Vec<Size>>,
    fields: BTreeMap<(u16, u16), Vec<Size>>,
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

    fn str(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    fn ty(&mut self) -> Option<Size> {
        Some(match self.u8()? {
            at::UNSIGNED | at::SIGNED => Size::Fixed(usize::from(self.take(2)?[0])),
            at::FLOAT => Size::Fixed(usize::from(self.u8()?)),
            at::BOOL => Size::Fixed(1),
            at::STRING => Size::String,
            at::SEQUENCE => Size::Counted(self.scalar()?),
            at::ARRAY => {
                let count = usize::try_from(self.u32()?).ok()?;
                Size::Fixed(count.checked_mul(self.scalar()?)?)
            }
            at::ENUM => {
                let size = usize::from(self.take(3)?[1]);
                for _ in 0..self.u16()? {
                    self.take(8)?;
                    self.str()?;
                }
                Size::Fixed(size)
            }
            at::TEXT => Size::Fixed(usize::try_from(self.u32()?).ok()?),
            at::BYTES => Size::Counted(1),
            at::OPTIONAL => Size::Optional(Box::new(self.ty()?)),
            _ => Size::Unknown,
        })
    }

    fn scalar(&mut self) -> Option<usize> {
        match self.ty()? {
            Size::Fixed(n) => Some(n),
            _ => None,
        }
    }
}

impl Classes {
    /// Reads a registry region. `contexts` has the context bits of each channel.
    pub fn read(region: &[u8], order: Order, contexts: &[u32]) -> Self {
        let mut user: BTreeMap<(u16, u16), Size> = BTreeMap::new();
        let mut fields = BTreeMap::new();
        let end = order.at64(region, at::END_AT).and_then(|e| usize::try_from(e).ok()).unwrap_or(0);
        let mut from = at::RECORDS_AT;
        while from + at::RECORD_HEADER_LEN <= end.min(region.len()) {
            let len = order.at32(region, from).unwrap_or(0) as usize;
            let Some(record) = region.get(from..end).and_then(|r| r.get(..len)) else { break };
            if len < at::RECORD_HEADER_LEN {
                break;
            }
            from += len.next_multiple_of(8);
            let body = &record[at::RECORD_HEADER_LEN..];
            if order.at64(record, at::RECORD_CHECK_AT) != Some(checksum(body)) {
                continue;
            }
            let mut body = Body { order, rest: body };
            match order.at16(record, at::RECORD_KIND_AT) {
                Some(kind @ (at::EVENT | at::EVENT_MANY)) => {
                    if let Some((key, sizes)) = event(kind, &mut body) {
                        fields.entry(key).or_insert(sizes);
                    }
                }
                Some(at::CONTEXT) => {
                    if let Some((key, size)) = context(&mut body) {
                        user.entry(key).or_insert(size);
                    }
                }
                _ => {}
            }
        }
        let of_channel = |(channel, bits): (usize, &u32)| {
            let mut sizes = Vec::new();
            for (bit, size) in [(1, 4), (2, 4), (4, 16), (8, 4)] {
                if bits & bit != 0 {
                    sizes.push(Size::Fixed(size));
                }
            }
            if bits & se::CONTEXT_USER != 0 {
                sizes.extend(
                    user.iter()
                        .filter(|((c, _), _)| usize::from(*c) == channel)
                        .map(|(_, s)| s.clone()),
                );
            }
            sizes
        };
        Self { order, contexts: contexts.iter().enumerate().map(of_channel).collect(), fields }
    }

    /// Length of an event's contexts and fields, bytes; `bytes` begins after the event header.
    pub fn body_len(&self, channel: u32, id: u16, bytes: &[u8]) -> Option<usize> {
        let contexts = self.contexts.get(channel as usize)?;
        let fields = self.fields.get(&(u16::try_from(channel).ok()?, id))?;
        let mut len = 0usize;
        for size in contexts {
            len += self.len_of(size, bytes.get(len..)?)?;
        }
        let bits = bytes.get(len..)?;
        let optional = fields.iter().filter(|size| matches!(size, Size::Optional(_))).count();
        len += optional.div_ceil(8);
        let mut at = 0;
        for size in fields {
            let size = match size {
                Size::Optional(inner) => {
                    let place = if self.order == Order::Little { at % 8 } else { 7 - at % 8 };
                    let is_present = bits.get(at / 8)? >> place & 1 == 1;
                    at += 1;
                    if !is_present {
                        continue;
                    }
                    &**inner
                }
                size => size,
            };
            len += self.len_of(size, bytes.get(len..)?)?;
        }
        (len <= bytes.len()).then_some(len)
    }

    fn len_of(&self, size: &Size, rest: &[u8]) -> Option<usize> {
        Some(match size {
            Size::Fixed(n) => *n,
            Size::String => rest.iter().position(|b| *b == 0)? + 1,
            Size::Counted(n) => {
                (self.order.at32(rest, 0)? as usize).checked_mul(*n)?.checked_add(4)?
            }
            Size::Optional(_) | Size::Unknown => return None,
        })
    }
}

fn event(kind: u16, body: &mut Body<'_>) -> Option<((u16, u16), Vec<Size>)> {
    let key = (body.u16()?, body.u16()?);
    body.u8()?;
    let count = if kind == at::EVENT_MANY { body.u16()? } else { u16::from(body.u8()?) };
    for _ in 0..4 {
        body.str()?;
    }
    body.u32()?;
    let mut sizes = Vec::new();
    for _ in 0..count {
        body.str()?;
        sizes.push(body.ty()?);
    }
    Some((key, sizes))
}

fn context(body: &mut Body<'_>) -> Option<((u16, u16), Size)> {
    let key = (body.u16()?, body.u16()?);
    body.str()?;
    Some((key, body.ty()?))
}
