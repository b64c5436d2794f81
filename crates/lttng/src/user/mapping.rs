//! The mapping of a stream in an image: bytes and numbers by their offsets.

use super::abi::{NumberAt, Table};
use lastwords_bytes::ByteOrder;
use lastwords_image::{Hole, HoleCause, Image};
use std::sync::Arc;

/// A mapping of a stream in an image.
#[derive(Clone)]
pub(super) struct Mapping {
    pub(super) image: Arc<dyn Image>,
    /// Address of the first byte in the image.
    pub(super) at: u64,
    pub(super) order: ByteOrder,
    /// Length of the mapping, bytes.
    pub(super) length: u64,
}

impl Mapping {
    /// Fills `buf` with the bytes from `offset` on.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let outside = Hole { address: self.at.saturating_add(offset), cause: HoleCause::Unmapped };
        let end = offset.checked_add(buf.len() as u64).ok_or(outside)?;
        if end > self.length {
            return Err(outside);
        }
        self.image.read(self.at.checked_add(offset).ok_or(outside)?, buf)
    }

    /// Reads a number.
    pub(super) fn number(&self, place: NumberAt) -> Option<u64> {
        let mut raw = [0u8; 8];
        self.read(place.at, raw.get_mut(..place.len)?).ok()?;
        if self.order == ByteOrder::Big {
            raw.rotate_right(8usize.saturating_sub(place.len));
        }
        Some(u64::from_le_bytes(self.order.little(raw)))
    }

    /// Reads a number in row `index` of a table.
    pub(super) fn row(&self, table: Table, index: u64, place: NumberAt) -> Option<u64> {
        let at = index.checked_mul(table.stride)?.checked_add(table.at)?.checked_add(place.at)?;
        self.number(NumberAt { at, ..place })
    }
}
