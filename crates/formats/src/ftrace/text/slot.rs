//! A field of an event's format, found once: where its value lies.

use lastwords_bytes::ByteOrder;
use lastwords_trace::ftrace::Format;

use crate::ftrace::page::{long, word};

/// Where a field lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) offset: u32,
    pub(crate) size: u32,
}

impl Slot {
    /// The field of a name; an empty slot where there is none, which reads as 0.
    pub(crate) fn of(format: &Format, name: &str) -> Self {
        let field = format.fields.iter().find(|f| f.name == name);
        field.map(|f| Self { offset: f.offset, size: f.size }).unwrap_or_default()
    }

    /// Its value without sign.
    #[inline]
    pub(crate) fn unsigned(self, payload: &[u8], order: ByteOrder) -> u64 {
        let at = self.offset as usize;
        match self.size {
            8 => long(payload, at, order),
            4 => u64::from(word(payload, at, order)),
            2 => {
                let raw = payload.get(at..).and_then(|b| b.first_chunk::<2>()).copied().unwrap_or_default();
                u64::from(if order == ByteOrder::Little { u16::from_le_bytes(raw) } else { u16::from_be_bytes(raw) })
            }
            1 => u64::from(payload.get(at).copied().unwrap_or(0)),
            _ => 0,
        }
    }

    /// Its value with sign.
    pub(crate) fn signed(self, payload: &[u8], order: ByteOrder) -> i64 {
        let value = self.unsigned(payload, order);
        match self.size {
            4 => i64::from(value as u32 as i32),
            2 => i64::from(value as u16 as i16),
            1 => i64::from(value as u8 as i8),
            _ => value as i64,
        }
    }

    /// The text in an array of letters, without its NUL.
    pub(crate) fn text(self, payload: &[u8]) -> &[u8] {
        let all = self.rest(payload);
        let all = all.get(..self.size as usize).unwrap_or(all);
        all.split(|b| *b == 0).next().unwrap_or_default()
    }

    /// The bytes from it to the end.
    pub(crate) fn rest(self, payload: &[u8]) -> &[u8] {
        payload.get(self.offset as usize..).unwrap_or_default()
    }
}
