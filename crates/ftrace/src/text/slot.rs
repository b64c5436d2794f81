//! The position of a field's value, found once for an event's format.

use crate::Format;
use lastwords_bytes::ByteOrder;
use lastwords_trace::integer::extend;

use crate::page::{long, short, word};

/// The position of a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) offset: u32,
    pub(crate) size: u32,
}

impl Slot {
    /// Finds a field by its name. Returns an empty slot if the format has no such field; an empty
    /// slot reads as 0.
    pub(crate) fn find(format: &Format, name: &str) -> Self {
        let field = format.fields.iter().find(|f| f.name == name);
        field.map(|f| Self { offset: f.offset, size: f.size }).unwrap_or_default()
    }

    /// Returns the value as an unsigned integer.
    #[inline]
    pub(crate) fn unsigned(self, payload: &[u8], order: ByteOrder) -> u64 {
        let at = self.offset as usize;
        match self.size {
            8 => long(payload, at, order),
            4 => u64::from(word(payload, at, order)),
            2 => u64::from(short(payload, at, order)),
            1 => u64::from(payload.get(at).copied().unwrap_or(0)),
            _ => 0,
        }
    }

    /// Returns the value as a signed integer.
    pub(crate) fn signed(self, payload: &[u8], order: ByteOrder) -> i64 {
        let value = self.unsigned(payload, order);
        extend(value, u8::try_from(self.size).unwrap_or(8))
    }

    /// Returns the text in an array of characters, without its NUL.
    pub(crate) fn text(self, payload: &[u8]) -> &[u8] {
        let all = self.rest(payload);
        let all = all.get(..self.size as usize).unwrap_or(all);
        all.split(|b| *b == 0).next().unwrap_or_default()
    }

    /// Returns the bytes from the field to the end of the payload.
    pub(crate) fn rest(self, payload: &[u8]) -> &[u8] {
        payload.get(self.offset as usize..).unwrap_or_default()
    }
}
