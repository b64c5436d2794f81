//! Values during evaluation, and reads from the payload.

use super::arith::{Int, Typed};
use super::tree::Locator;
use super::{Env, Fault, Machine};
use lastwords_bytes::ByteOrder;
use std::ops::Range;

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Value<'p> {
    /// An integer, or an address of the kernel's.
    Int(Typed),
    /// A string of the format.
    Text(&'p [u8]),
    /// Text in the scratch buffer.
    Made(Range<usize>),
    /// An address in the payload.
    Payload(PayloadRange),
}

/// An address in the payload, and the end of the object that it points into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadRange {
    pub(crate) at: usize,
    pub(crate) end: usize,
    pub(crate) element: Int,
}

impl Value<'_> {
    /// Returns true if the value counts as true. Every address does.
    pub(crate) fn truth(&self) -> bool {
        !matches!(self, Self::Int((0, _)))
    }

    /// Returns the value as an integer.
    pub(crate) fn int(&self) -> Result<Typed, Fault> {
        match self {
            Self::Int(typed) => Ok(*typed),
            Self::Payload(_) => Err(Fault::KernelPointer),
            Self::Text(_) | Self::Made(_) => Err(Fault::Kind),
        }
    }
}

/// Reads an integer of a type.
#[inline]
pub(crate) fn read(payload: &[u8], at: usize, kind: Int, order: ByteOrder) -> Result<u64, Fault> {
    let raw = at
        .checked_add(usize::from(kind.size))
        .and_then(|end| payload.get(at..end))
        .ok_or(Fault::Outside)?;
    let mut eight = [0u8; 8];
    let value = match order {
        ByteOrder::Little => {
            eight.get_mut(..raw.len()).ok_or(Fault::Kind)?.copy_from_slice(raw);
            u64::from_le_bytes(eight)
        }
        ByteOrder::Big => {
            let from = eight.len().checked_sub(raw.len()).ok_or(Fault::Kind)?;
            eight.get_mut(from..).ok_or(Fault::Kind)?.copy_from_slice(raw);
            u64::from_be_bytes(eight)
        }
    };
    Ok(kind.wrap(value))
}

/// Returns the place that a locator points to, bounded by the payload.
pub(crate) fn locate(
    payload: &[u8],
    locator: Locator,
    machine: Machine,
) -> Result<PayloadRange, Fault> {
    let packed = read(payload, locator.offset as usize, Int::UINT, machine.order)?;
    let base = if locator.relative { (locator.offset as usize).saturating_add(4) } else { 0 };
    let at = base.saturating_add((packed & 0xffff) as usize);
    let end = at.saturating_add((packed >> 16) as usize);
    if end > payload.len() {
        return Err(Fault::Outside);
    }
    Ok(PayloadRange { at, end, element: locator.element })
}

impl PayloadRange {
    /// Returns `length` bytes at the place.
    pub(crate) fn bytes<'a>(&self, env: &Env<'a, '_>, length: usize) -> Result<&'a [u8], Fault> {
        let end =
            self.at.checked_add(length).filter(|end| *end <= self.end).ok_or(Fault::Outside)?;
        env.payload.get(self.at..end).ok_or(Fault::Outside)
    }

    /// Returns all bytes from the place to the end of the object that it points into.
    pub(crate) fn rest<'a>(&self, env: &Env<'a, '_>) -> &'a [u8] {
        env.payload.get(self.at..self.end.max(self.at)).unwrap_or_default()
    }

    /// Returns the place moved by this number of elements.
    pub(crate) fn moved(self, elements: u64) -> Result<Self, Fault> {
        let bytes = elements
            .cast_signed()
            .checked_mul(i64::from(self.element.size))
            .ok_or(Fault::Outside)?;
        let at = isize::try_from(bytes)
            .ok()
            .and_then(|bytes| self.at.checked_add_signed(bytes))
            .ok_or(Fault::Outside)?;
        if at > self.end { Err(Fault::Outside) } else { Ok(Self { at, ..self }) }
    }
}

/// Returns `length` bytes at an address.
pub(super) fn slice<'a>(
    value: Value<'_>,
    env: &Env<'a, '_>,
    length: u64,
) -> Result<&'a [u8], Fault> {
    match value {
        // A negative length counts as 0, as in the kernel's loop.
        Value::Payload(_) if length.cast_signed() <= 0 => Ok(&[]),
        Value::Payload(place) => {
            place.bytes(env, usize::try_from(length).map_err(|_| Fault::Outside)?)
        }
        Value::Int(_) => Err(Fault::KernelPointer),
        Value::Text(_) | Value::Made(_) => Err(Fault::Kind),
    }
}

/// Returns the value of bytes that are an integer of their length.
pub(crate) fn integer(bytes: &[u8], order: ByteOrder) -> u64 {
    let join = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    if order == ByteOrder::Little {
        bytes.iter().rev().fold(0, join)
    } else {
        bytes.iter().fold(0, join)
    }
}
