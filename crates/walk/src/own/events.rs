//! Walking events to find where a packet's structure breaks.

use lastwords_bytes::ByteOrder;
use lastwords_trace::decode::{ChannelDecoder, DecodeError, Position, TAG_FULL};

/// What a walk came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walked {
    /// Offset behind the last event that decodes.
    pub(crate) end: usize,
    /// Its clock, or that of the beginning.
    pub(crate) clock: u64,
    /// Events that decode.
    pub(crate) events: u64,
    /// Offset of the first event that is not before `from`, or the end.
    pub(crate) cut: usize,
    /// Clock of the event before that.
    pub(crate) cut_clock: u64,
    /// Why it ended before the end.
    pub(crate) error: Option<DecodeError>,
}

/// Walks the events of `bytes` from offset `at` on, where the clock is `begin`. `from` is where the events that are wanted
/// begin.
pub(crate) fn walk(decoder: &ChannelDecoder, bytes: &[u8], at: usize, begin: u64, from: usize) -> Walked {
    let mut position = Position { offset: at, clock: begin };
    let mut walked = Walked { end: at, clock: begin, events: 0, cut: at, cut_clock: begin, error: None };
    let mut reached = false;
    loop {
        if !reached {
            (walked.cut, walked.cut_clock) = (position.offset, position.clock);
            reached = position.offset >= from;
        }
        match decoder.step(&mut position, bytes) {
            Ok(Some(_)) => walked.events = walked.events.saturating_add(1),
            Ok(None) => break,
            Err(error) => {
                walked.error = Some(error);
                break;
            }
        }
    }
    (walked.end, walked.clock) = (position.offset.min(bytes.len()), position.clock);
    walked
}

/// Walks as [`walk`] does, up to the first event that `is_likely` does not take: it is given the header's first bytes, the clock
/// before and the event's.
pub(crate) fn walk_while(
    decoder: &ChannelDecoder,
    bytes: &[u8],
    at: usize,
    begin: u64,
    mut is_likely: impl FnMut([u8; 4], u64, u64) -> bool,
) -> Walked {
    let mut walked = Walked { end: at, clock: begin, events: 0, cut: at, cut_clock: begin, error: None };
    let mut position = Position { offset: at, clock: begin };
    loop {
        match decoder.step(&mut position, bytes) {
            Ok(Some(event)) => {
                let word = bytes.get(event.start..).and_then(|b| b.first_chunk()).copied().unwrap_or_default();
                if event.clock < walked.clock || !is_likely(word, walked.clock, event.clock) {
                    break;
                }
                walked.events = walked.events.saturating_add(1);
                (walked.end, walked.clock) = (position.offset.min(bytes.len()), position.clock);
            }
            Ok(None) => break,
            Err(error) => {
                walked.error = Some(error);
                break;
            }
        }
    }
    walked
}

/// The clock of an event header with a full time stamp at the beginning of `bytes`.
pub(crate) fn full_clock(bytes: &[u8], order: ByteOrder) -> Option<u64> {
    let reader = lastwords_bytes::Reader::new("event", bytes, order);
    if reader.u32_at(0).ok()? & 31 != TAG_FULL {
        return None;
    }
    reader.u64_at(10).ok()
}
