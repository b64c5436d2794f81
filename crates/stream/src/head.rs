//! The begin of a stream's region of a session, as docs/ABI.md has it: its header, geometry and
//! control words.

use crate::error::{WireError, check, refuse};
use anyhow::ensure;
use lastwords_abi::packet;
use lastwords_abi::region::{
    BYTE_ORDER_MARK, HEADER_SIZE, MAGIC, REGION_ALIGN, RegionHeader, checksum,
};
use lastwords_abi::stream::{CONTROL_OFF, HalfControl, Slot, StreamControl, StreamInfo};
use lastwords_bytes::ByteOrder;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;

/// Bytes of the begin of a stream's region.
pub(crate) const HEAD: usize = CONTROL_OFF.saturating_add(size_of::<StreamControl>());
/// Offset of the geometry.
const INFO: usize = HEADER_SIZE as usize;
/// Offset of the control words of the first half.
const HALF: usize = CONTROL_OFF.saturating_add(offset_of!(StreamControl, half));
/// Counters of events that were lost before they were in the ring.
const LOST: usize = 5;
/// Most sub-buffers of a ring.
pub(crate) const MOST: u64 = 1 << 20;
/// Offset of the data in the region that a receiver makes: in front, so that it has its place
/// before the number of sub-buffers is known.
pub(crate) const DATA_OFF: u64 = REGION_ALIGN;

/// The begin of a stream's region, with the values of it that a receiver needs.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    order: ByteOrder,
    /// Bytes of a sub-buffer.
    pub(crate) size: u64,
    /// The position where the sent stream begins.
    pub(crate) first: u64,
    /// The position where it ends.
    pub(crate) end: u64,
    /// Events that were lost before they were in the ring.
    pub(crate) lost: u64,
}

impl Head {
    /// Reads the begin of a region.
    ///
    /// # Errors
    /// It is none of a stream, or one that no recorder makes.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, WireError> {
        check!(
            Content,
            bytes.len() == HEAD && bytes.starts_with(&MAGIC),
            "the bytes are not the begin of a region"
        );
        let order = byte_order(bytes)?;
        let number = |at: usize| word(bytes, at, order);
        let size = number(INFO.saturating_add(offset_of!(StreamInfo, sub_buffer_size)));
        check!(
            Content,
            size.is_power_of_two() && (128..=1 << 30).contains(&size),
            "sub-buffers of {size} bytes"
        );
        let counter =
            |index: usize| offset_of!(StreamControl, lost).saturating_add(index.saturating_mul(8));
        let lost = (0..LOST).map(|index| number(CONTROL_OFF.saturating_add(counter(index))));
        Ok(Self {
            order,
            size,
            first: number(HALF.saturating_add(offset_of!(HalfControl, first))),
            end: number(HALF.saturating_add(offset_of!(HalfControl, reserve))),
            lost: lost.fold(0, u64::saturating_add),
            bytes: bytes.to_vec(),
        })
    }

    /// Reads the number of sub-buffers from the file of a region.
    ///
    /// # Errors
    /// It is no region.
    pub(crate) fn read_count(file: &File) -> anyhow::Result<u64> {
        let mut bytes = [0; HEAD];
        file.read_exact_at(&mut bytes, 0)?;
        let order = Self::read(&bytes)?.order;
        let count = read::<4>(&bytes, INFO.saturating_add(offset_of!(StreamInfo, sub_buffers)))
            .unwrap_or_default();
        let count = u32::from_le_bytes(order.little(count));
        ensure!(count.is_power_of_two(), "a region of {count} sub-buffers");
        Ok(u64::from(count))
    }

    /// Returns the number of the sub-buffer in which the sent stream begins.
    #[must_use]
    pub(crate) fn begin(&self) -> u64 {
        self.first.checked_div(self.size).unwrap_or(0)
    }

    /// Returns true if the bytes are those of the closed sub-buffer of this number, by its header
    /// and its checksum (docs/ABI.md, section 5).
    #[must_use]
    pub(crate) fn is_closed(&self, number: u64, bytes: &[u8]) -> bool {
        let trailer = bytes.len().saturating_sub(8);
        let bits = word(bytes, packet::at::CONTENT_SIZE, self.order);
        let content = usize::try_from(bits.checked_div(8).unwrap_or(0)).unwrap_or(usize::MAX);
        let is_it = word(bytes, packet::at::PACKET_SEQ_NUM, self.order) == number;
        let covered =
            bytes.get(..content.min(trailer)).filter(|_| content <= trailer && content > 0);
        is_it
            && covered.is_some_and(|covered| checksum(covered) == word(bytes, trailer, self.order))
    }

    /// Makes the region one that has room for the sub-buffers from `first` up to the position
    /// `end`, which replaces that of the stream. Its data are in front of its slots.
    ///
    /// # Errors
    /// No ring has as many sub-buffers.
    pub(crate) fn region(&self, first: u64, end: u64) -> anyhow::Result<Region> {
        let used = end.div_ceil(self.size).saturating_sub(first);
        let count = used.max(2).next_power_of_two();
        ensure!(count <= MOST, "{used} sub-buffers of {} bytes; {MOST} are the most", self.size);
        let half = count.saturating_mul(self.size).next_multiple_of(REGION_ALIGN);
        let data = |number: u64| DATA_OFF.saturating_add(half.saturating_mul(number));
        let table = count.saturating_mul(size_of::<Slot>() as u64);
        let slots = |number: u64| data(2).saturating_add(table.saturating_mul(number));
        let size = slots(2).next_multiple_of(REGION_ALIGN);
        let mut bytes = self.bytes.clone();
        let mut put = |at: usize, value: u64, width: usize| {
            let little = value.to_le_bytes();
            let field = bytes.get_mut(at..at.saturating_add(width)).unwrap_or_default();
            field.iter_mut().zip(little).for_each(|(byte, value)| *byte = value);
            if self.order == ByteOrder::Big {
                field.reverse();
            }
        };
        put(offset_of!(RegionHeader, size), size, 8);
        put(INFO.saturating_add(offset_of!(StreamInfo, sub_buffers)), count, 4);
        put(INFO.saturating_add(offset_of!(StreamInfo, page_size)), 0, 4);
        for number in 0..2u64 {
            let pair = usize::try_from(number)
                .map_or(0, |number| number.saturating_mul(8))
                .saturating_add(INFO);
            put(pair.saturating_add(offset_of!(StreamInfo, slots_off)), slots(number), 8);
            put(pair.saturating_add(offset_of!(StreamInfo, data_off)), data(number), 8);
        }
        put(HALF.saturating_add(offset_of!(HalfControl, reserve)), end, 8);
        put(HALF.saturating_add(offset_of!(HalfControl, attempt)), end, 8);
        let check = offset_of!(RegionHeader, check);
        let fixed = INFO..INFO.saturating_add(size_of::<StreamInfo>());
        let covered =
            [bytes.get(..check), bytes.get(fixed)].map(Option::unwrap_or_default).concat();
        let sum = checksum(&covered);
        let sum = self.order.little(sum.to_le_bytes());
        bytes
            .get_mut(check..)
            .unwrap_or_default()
            .iter_mut()
            .zip(sum)
            .for_each(|(byte, value)| *byte = value);
        Ok(Region { bytes, count, size })
    }
}

/// The begin and the geometry of a region that a receiver makes.
#[derive(Debug)]
pub(crate) struct Region {
    /// The first bytes.
    bytes: Vec<u8>,
    /// Number of sub-buffers.
    pub(crate) count: u64,
    /// Bytes of the region.
    size: u64,
}

impl Region {
    /// Writes the begin into the region's file, and gives that its size.
    pub(crate) fn write(&self, file: &File) -> std::io::Result<()> {
        file.write_all_at(&self.bytes, 0)?;
        file.set_len(self.size)
    }
}

/// Returns the byte order of the region that begins so.
///
/// # Errors
/// It has none.
pub(crate) fn byte_order(bytes: &[u8]) -> Result<ByteOrder, WireError> {
    let mark = read::<4>(bytes, offset_of!(RegionHeader, byte_order)).map(u32::from_le_bytes);
    match mark {
        Some(BYTE_ORDER_MARK) => Ok(ByteOrder::Little),
        Some(mark) if mark.swap_bytes() == BYTE_ORDER_MARK => Ok(ByteOrder::Big),
        mark => refuse!(Content, "a region of the byte order {mark:x?}"),
    }
}

/// Reads a `u64`, which is 0 behind the end.
pub(crate) fn word(bytes: &[u8], at: usize, order: ByteOrder) -> u64 {
    read(bytes, at).map_or(0, |raw| u64::from_le_bytes(order.little(raw)))
}

/// Reads bytes of a number; none behind the end.
pub(crate) fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sub_buffer_is_known_by_its_number_and_its_checksum() {
        let head = Head {
            bytes: Vec::new(),
            order: ByteOrder::Little,
            size: 512,
            first: 0,
            end: 0,
            lost: 0,
        };
        // docs/ABI.md, section 5: the content in bits at 48, the number at 64, the checksum in the
        // last 8 bytes.
        let mut bytes = vec![0x5a; 512];
        bytes[48..56].copy_from_slice(&(200u64 * 8).to_le_bytes());
        bytes[64..72].copy_from_slice(&7u64.to_le_bytes());
        let sum = checksum(&bytes[..200]);
        bytes[504..].copy_from_slice(&sum.to_le_bytes());
        assert!(head.is_closed(7, &bytes));
        assert!(
            !head.is_closed(6, &bytes)
                && !head.is_closed(7, &bytes[..504])
                && !head.is_closed(7, &[])
        );
        for at in (0..200).chain(504..512) {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(!head.is_closed(7, &other), "byte {at}");
        }
    }
}
