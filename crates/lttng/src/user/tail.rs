//! Reads fields after the crash ABI in a stream's mapping: the rest of `struct
//! lttng_ust_ring_buffer` (`frontend_types.h`).
//!
//! These fields are not part of the ABI. They are used only if the reference to the table of slots
//! is at the expected offset and agrees with the ABI.

use super::abi::{Abi, NumberAt};
use super::mapping::Mapping;

/// Length of the padding in `struct lttng_ust_ring_buffer_backend`, bytes.
const PADDING: u64 = 64;

/// Fields beyond the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tail {
    /// Clock of the newest event, ticks; none if words have 4 bytes, because the field then has
    /// only the upper bits.
    pub(super) last_time: Option<u64>,
    /// The reader's set of pages, in the form of a slot's word.
    pub(super) reader: Option<u64>,
    /// Position of the sub-buffer that a reader held.
    pub(super) held: Option<u64>,
    /// Offset of the first set of pages; the others follow.
    pub(super) data: Option<u64>,
    /// Lost events: ring full, nested writer wrapped, event too big.
    pub(super) full: u64,
    pub(super) wrap: u64,
    pub(super) big: u64,
}

impl Tail {
    pub(super) fn read(mapping: &Mapping, abi: &Abi) -> Option<Self> {
        let word = u64::from(abi.word);
        let len = usize::from(abi.word);
        let number = |at: u64| mapping.number(NumberAt { at, len });
        let after = |at: u64, words: u64| at.checked_add(words.checked_mul(word)?);
        // Skipped fields: consumed, record_disabled (an int), last time stamp.
        let time = after(abi.consumed.at, 1)?.checked_add(4)?.checked_next_multiple_of(word)?;
        // A reference is the index of a mapping and an offset in it.
        let slots = after(time, 1)?;
        let (object, at) = (number(slots)?, number(after(slots, 1)?)?);
        if at != abi.slots.at {
            return None;
        }
        let reader = after(slots, 2)?;
        // Skipped fields: buf_cnt, array, memory_map, chan; then cpu (an int), records_read,
        // allocated (an int), padding.
        let (sets, data) = (number(after(reader, 4)?), number(after(reader, 6)?));
        let cpu = after(reader, 9)?;
        let read = cpu.checked_add(4)?.checked_next_multiple_of(word)?;
        let padding = after(read, 1)?.checked_add(4)?;
        let cold = padding.checked_add(PADDING)?.checked_next_multiple_of(word)?;
        if number(cold)? != object {
            return None;
        }
        let cold_at = number(after(cold, 1)?)?;
        // Up to 2.14 there was a table of packet ends.
        let mut readers = after(cold, 2)?;
        let ends = (number(readers)?, number(after(readers, 1)?)?);
        if abi.major == 0 && ends.0 == object && (cold_at..abi.length).contains(&ends.1) {
            readers = after(readers, 2)?;
        }
        // Skipped fields: active_readers; lost events by cause; records_count, records_overrun;
        // finalized (an int).
        let lost = after(readers, 1)?;
        let consumed = after(lost, 5)?.checked_add(4)?.checked_next_multiple_of(word)?;
        let flags = after(consumed, 3)?;
        let is_held = mapping.number(NumberAt { at: flags, len: 4 })? & held_bit(abi) != 0;
        Some(Self {
            last_time: number(time).filter(|_| abi.word == 8),
            reader: number(reader),
            held: number(consumed).filter(|_| is_held),
            data: data.filter(|_| sets == Some(abi.sets.at)),
            full: number(lost)?,
            wrap: number(after(lost, 1)?)?,
            big: number(after(lost, 2)?)?,
        })
    }
}

/// Mask of the first bit field of an `unsigned int`.
fn held_bit(abi: &Abi) -> u64 {
    match abi.order {
        lastwords_bytes::ByteOrder::Little => 1,
        lastwords_bytes::ByteOrder::Big => 1 << 31,
    }
}
