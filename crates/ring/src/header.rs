//! Encodes the event header and id.

use lastwords_abi::header as abi;

use crate::channel::Channel;
use crate::record::Record;

/// Returns the header of `record` at this clock, and its length. `last` is the clock of an event in
/// the ring, at most that of the newest event. `full` requests the full time stamp in any case, as
/// a channel of full headers does for all events.
#[inline]
pub(crate) fn encode(
    channel: &Channel,
    record: &Record<'_>,
    clock: u64,
    last: u64,
    full: bool,
) -> ([u8; abi::LEN_FULL], usize) {
    // The clock has moved forward by more than 27 bits can express, or it has moved back.
    let overflows = clock.wrapping_sub(last) >> abi::CLOCK_BITS != 0;
    let (tag, len) = if channel.full_headers || full || overflows {
        (abi::TAG_FULL, abi::LEN_FULL)
    } else if channel.payload_size {
        (abi::TAG_SIZE, abi::LEN_SIZE)
    } else if record.id > abi::MAX_COMPACT_ID {
        (abi::TAG_ID, abi::LEN_ID)
    } else {
        (u32::from(record.id), abi::LEN_COMPACT)
    };
    let size = if channel.payload_size {
        u32::try_from(record.len).unwrap_or(u32::MAX)
    } else {
        abi::NO_SIZE
    };
    // Each form begins with the fields of the shorter forms, so the code writes all fields for
    // every form.
    let mut header = [0; abi::LEN_FULL];
    header[..4].copy_from_slice(&(((clock as u32) << abi::TAG_BITS) | tag).to_ne_bytes());
    header[4..6].copy_from_slice(&record.id.to_ne_bytes());
    header[6..10].copy_from_slice(&size.to_ne_bytes());
    header[10..].copy_from_slice(&clock.to_ne_bytes());
    (header, len)
}
