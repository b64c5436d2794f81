//! Layer 1: event header and id.

use lastwords_abi::header as abi;

/// Writes event headers.
pub trait EventHeader {
    /// Bytes of the longest header.
    const MAX: usize;
    /// Most events have the 4 bytes of id and clock, which the shortest sections write themselves.
    const IS_COMPACT: bool;
    /// Puts the header of an event into `out` and returns its length. `last_clock` is the reading of an event that is
    /// in the ring and not newer than the newest; `full` asks for the full time stamp in any case; `size` is the payload's
    /// size where headers carry it.
    fn encode(id: u16, clock: u64, last_clock: u64, full: bool, size: Option<u32>, out: &mut [u8; 24]) -> usize;
}

/// The headers that recorders of this build write: the feature `full-headers` chooses.
#[cfg(not(feature = "full-headers"))]
pub type Header = Compact;
/// The headers that recorders of this build write: the feature `full-headers` chooses.
#[cfg(feature = "full-headers")]
pub type Header = Full;

/// 5 bits of id, 27 of clock, and the extended forms.
#[derive(Debug, Clone, Copy)]
pub struct Compact;

/// The clock has moved by more than 27 bits can tell (or back) since `last`.
#[inline]
#[must_use]
pub fn overflows(clock: u64, last: u64) -> bool {
    clock.wrapping_sub(last) >> abi::CLOCK_BITS != 0
}

impl EventHeader for Compact {
    const MAX: usize = abi::LEN_FULL;
    const IS_COMPACT: bool = true;

    #[inline]
    fn encode(id: u16, clock: u64, last_clock: u64, full: bool, size: Option<u32>, out: &mut [u8; 24]) -> usize {
        let word = |tag: u32| ((clock as u32) << abi::TAG_BITS) | tag;
        if full || overflows(clock, last_clock) {
            Full::encode(id, clock, last_clock, full, size, out)
        } else if let Some(size) = size {
            out[..4].copy_from_slice(&word(abi::TAG_SIZE).to_ne_bytes());
            out[4..6].copy_from_slice(&id.to_ne_bytes());
            out[6..10].copy_from_slice(&size.to_ne_bytes());
            abi::LEN_SIZE
        } else if id > abi::MAX_COMPACT_ID {
            out[..4].copy_from_slice(&word(abi::TAG_ID).to_ne_bytes());
            out[4..6].copy_from_slice(&id.to_ne_bytes());
            abi::LEN_ID
        } else {
            out[..4].copy_from_slice(&word(u32::from(id)).to_ne_bytes());
            abi::LEN_COMPACT
        }
    }
}

/// Every event with its id and the whole clock, in 18 bytes: it can be read whatever became of those before it.
#[derive(Debug, Clone, Copy)]
pub struct Full;

impl EventHeader for Full {
    const MAX: usize = abi::LEN_FULL;
    const IS_COMPACT: bool = false;

    #[inline]
    fn encode(id: u16, clock: u64, _: u64, _: bool, size: Option<u32>, out: &mut [u8; 24]) -> usize {
        let word = ((clock as u32) << abi::TAG_BITS) | abi::TAG_FULL;
        out[..4].copy_from_slice(&word.to_ne_bytes());
        out[4..6].copy_from_slice(&id.to_ne_bytes());
        out[6..10].copy_from_slice(&size.unwrap_or(abi::NO_SIZE).to_ne_bytes());
        out[10..18].copy_from_slice(&clock.to_ne_bytes());
        abi::LEN_FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_header_is_the_compact_one_that_overflowed() {
        fn of<H: EventHeader>(last: u64) -> alloc::vec::Vec<u8> {
            let mut out = [0; 24];
            let len = H::encode(7, 5 << 27 | 3, last, false, None, &mut out);
            out[..len].to_vec()
        }
        assert_eq!(of::<Compact>(5 << 27).len(), abi::LEN_COMPACT);
        assert_eq!(of::<Full>(5 << 27), of::<Compact>(1));
    }
}
