//! Event header and id. The feature `full-headers` chooses between the two forms when the recorder is built.

use lastwords_abi::header as abi;

/// Every event has its id and the whole clock, in 18 bytes, so that it can be read whatever became of those before it. Without
/// it most events have the 4 bytes of the compact header, which the fast path writes itself.
pub(crate) const ALWAYS_FULL: bool = cfg!(feature = "full-headers");

/// The clock has moved by more than 27 bits can tell (or back) since `last`.
#[inline]
fn overflows(clock: u64, last: u64) -> bool {
    clock.wrapping_sub(last) >> abi::CLOCK_BITS != 0
}

/// Puts the header of an event into `out` and returns its length. `last_clock` is the reading of an event that is in the ring
/// and not newer than the newest; `full` asks for the full time stamp in any case; `size` is the payload's size where headers
/// carry it.
#[inline]
pub(crate) fn encode(id: u16, clock: u64, last_clock: u64, full: bool, size: Option<u32>, out: &mut [u8; 24]) -> usize {
    let word = |tag: u32| (((clock as u32) << abi::TAG_BITS) | tag).to_ne_bytes();
    if ALWAYS_FULL || full || overflows(clock, last_clock) {
        out[..4].copy_from_slice(&word(abi::TAG_FULL));
        out[4..6].copy_from_slice(&id.to_ne_bytes());
        out[6..10].copy_from_slice(&size.unwrap_or(abi::NO_SIZE).to_ne_bytes());
        out[10..18].copy_from_slice(&clock.to_ne_bytes());
        abi::LEN_FULL
    } else if let Some(size) = size {
        out[..4].copy_from_slice(&word(abi::TAG_SIZE));
        out[4..6].copy_from_slice(&id.to_ne_bytes());
        out[6..10].copy_from_slice(&size.to_ne_bytes());
        abi::LEN_SIZE
    } else if id > abi::MAX_COMPACT_ID {
        out[..4].copy_from_slice(&word(abi::TAG_ID));
        out[4..6].copy_from_slice(&id.to_ne_bytes());
        abi::LEN_ID
    } else {
        out[..4].copy_from_slice(&word(u32::from(id)));
        abi::LEN_COMPACT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_overflowed_needs_the_full_header() {
        let of = |last: u64| {
            let mut out = [0; 24];
            let len = encode(7, 5 << 27 | 3, last, false, None, &mut out);
            out[..len].to_vec()
        };
        let compact = if ALWAYS_FULL { abi::LEN_FULL } else { abi::LEN_COMPACT };
        assert_eq!(of(5 << 27).len(), compact);
        assert_eq!(of(1).len(), abi::LEN_FULL);
    }
}
