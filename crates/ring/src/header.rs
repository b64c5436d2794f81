//! Event header and id. The feature `full-headers` chooses between the two forms when the recorder is built.

use lastwords_abi::header as abi;

use crate::channel::Channel;
use crate::record::Record;

/// Every event has its id and the whole clock, in 18 bytes, so that it can be read whatever became of those before it. Without
/// it most events have the 4 bytes of the compact header, which the fast path writes itself.
pub(crate) const ALWAYS_FULL: bool = cfg!(feature = "full-headers");

/// The header of `record` at this clock, and its length. `last` is the reading of an event that is in the ring and not newer than
/// the newest; `full` asks for the full time stamp in any case.
#[inline]
pub(crate) fn encode(
    channel: &Channel,
    record: &Record<'_>,
    clock: u64,
    last: u64,
    full: bool,
) -> ([u8; abi::LEN_FULL], usize) {
    // The clock has moved by more than 27 bits can tell, or back.
    let overflows = clock.wrapping_sub(last) >> abi::CLOCK_BITS != 0;
    let (tag, len) = if ALWAYS_FULL || full || overflows {
        (abi::TAG_FULL, abi::LEN_FULL)
    } else if channel.payload_size {
        (abi::TAG_SIZE, abi::LEN_SIZE)
    } else if record.id > abi::MAX_COMPACT_ID {
        (abi::TAG_ID, abi::LEN_ID)
    } else {
        (u32::from(record.id), abi::LEN_COMPACT)
    };
    let size = if channel.payload_size { u32::try_from(record.len).unwrap_or(u32::MAX) } else { abi::NO_SIZE };
    // Each form begins with the fields of the shorter ones, so that all fields are written whichever it is.
    let mut header = [0; abi::LEN_FULL];
    header[..4].copy_from_slice(&(((clock as u32) << abi::TAG_BITS) | tag).to_ne_bytes());
    header[4..6].copy_from_slice(&record.id.to_ne_bytes());
    header[6..10].copy_from_slice(&size.to_ne_bytes());
    header[10..].copy_from_slice(&clock.to_ne_bytes());
    (header, len)
}
