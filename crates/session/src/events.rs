//! Walks the events of a packet to find where its structure breaks.

use lastwords_bytes::ByteOrder;
use lastwords_ctf::session::{ChannelDecoder, DecodeError, Expected, Position, TAG_FULL};

/// Result of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walked {
    /// Offset after the last event that decodes.
    pub(crate) end: usize,
    /// Clock of that event, or the start clock if there is none.
    pub(crate) clock: u64,
    /// Number of events that decode.
    pub(crate) events: u64,
    /// Offset of the first event at or after `from`, or the end.
    pub(crate) cut: usize,
    /// Clock of the event before `cut`.
    pub(crate) cut_clock: u64,
    /// The error that stopped the walk before the end.
    pub(crate) error: Option<DecodeError>,
    /// The walk stopped before an event that is later than [`Rules::wanted`].
    pub(crate) is_late: bool,
}

impl Walked {
    /// An empty walk that starts at an offset.
    fn from(at: usize, begin: u64) -> Self {
        Self {
            end: at,
            clock: begin,
            events: 0,
            cut: at,
            cut_clock: begin,
            error: None,
            is_late: false,
        }
    }
}

/// Treatment of an event header of zeros. Such a header can be a real event: id 0 at a clock whose
/// low 27 bits are 0. In memory that was never written, or was erased, it is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zeros {
    /// The header is an event: a checksum covers it.
    Event,
    /// The header is an event if the next event has another header or the walk ends there.
    Doubted,
    /// The header is the end of the written memory.
    Unwritten,
}

/// Conditions for accepting an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) zeros: Zeros,
    /// Latest plausible clock; a later event is an error.
    pub(crate) not_after: Option<u64>,
    /// Latest wanted clock: later events are valid, but the walk stops there.
    pub(crate) wanted: Option<u64>,
}

impl Rules {
    pub(crate) fn new(zeros: Zeros) -> Self {
        Self { zeros, not_after: None, wanted: None }
    }
}

/// Walks the events of `bytes` from offset `at` on, where the clock is `begin`. `from` is the
/// offset from which events are wanted.
pub(crate) fn walk(
    decoder: &ChannelDecoder,
    bytes: &[u8],
    at: usize,
    begin: u64,
    from: usize,
    rules: Rules,
) -> Walked {
    let mut position = Position { offset: at, clock: begin };
    let mut steps = decoder.steps();
    let mut walked = Walked::from(at, begin);
    let mut reached = false;
    // Position of the previous event, if its header is all zeros.
    let mut doubted: Option<Position> = None;
    // Position of the last event whose header is not all zeros.
    let mut last: Option<Position> = None;
    loop {
        if !reached {
            (walked.cut, walked.cut_clock) = (position.offset, position.clock);
            reached = position.offset >= from;
        }
        let before = position;
        let error = match steps.step(&mut position, bytes) {
            Ok(None) => break,
            Err(error) => error,
            Ok(Some(event)) if rules.wanted.is_some_and(|last| event.clock > last) => {
                walked.is_late = true;
                position = before;
                break;
            }
            Ok(Some(event)) => {
                let is_zero = bytes.get(event.start..).is_some_and(|b| b.starts_with(&[0; 4]));
                let late = rules.not_after.filter(|last| event.clock > *last);
                if is_zero && (rules.zeros == Zeros::Unwritten || doubted.is_some()) {
                    unwritten(before)
                } else if let Some(last) = late {
                    DecodeError {
                        offset: event.start,
                        value: event.clock,
                        expected: Expected::NotAfter(last),
                    }
                } else {
                    walked.events = walked.events.saturating_add(1);
                    doubted = (is_zero && rules.zeros == Zeros::Doubted).then_some(before);
                    last = if doubted.is_some() { last } else { Some(before) };
                    continue;
                }
            }
        };
        walked.error = Some(doubted.map_or(error, unwritten));
        walked.events = walked.events.saturating_sub(u64::from(doubted.is_some()));
        position = doubted.unwrap_or(before);
        if let Some(last) = last
            && walked.error.is_some_and(|error| error.expected == Expected::Written)
            && ends_in_lost_page(bytes, last.offset, position.offset)
        {
            walked.events = walked.events.saturating_sub(1);
            position = last;
        }
        break;
    }
    (walked.end, walked.clock) = (position.offset.min(bytes.len()), position.clock);
    if walked.cut > walked.end {
        (walked.cut, walked.cut_clock) = (walked.end, walked.clock);
    }
    walked
}

/// Bytes of the smallest page of memory that can be missing.
const PAGE: usize = 4096;

/// Returns true if an event from `start` to `end` may have its last bytes in a page that is missing
/// and reads as zero: there, all bytes of the page that has the event's end are zero, so that
/// nothing shows which of them were written.
fn ends_in_lost_page(bytes: &[u8], start: usize, end: usize) -> bool {
    let page = end.saturating_sub(end % PAGE);
    let inside = bytes.get(page..bytes.len().min(page.saturating_add(PAGE))).unwrap_or_default();
    start < page && page < end && inside.iter().all(|byte| *byte == 0)
}

fn unwritten(at: Position) -> DecodeError {
    DecodeError { offset: at.offset, value: 0, expected: Expected::Written }
}

/// Walks like [`walk`], up to the first event that `is_likely` rejects. Its arguments are the first
/// four bytes of the event header, the clock before the event and the event's clock.
pub(crate) fn walk_while(
    decoder: &ChannelDecoder,
    bytes: &[u8],
    at: usize,
    begin: u64,
    mut is_likely: impl FnMut([u8; 4], u64, u64) -> bool,
) -> Walked {
    let mut walked = Walked::from(at, begin);
    let mut position = Position { offset: at, clock: begin };
    let mut steps = decoder.steps();
    loop {
        match steps.step(&mut position, bytes) {
            Ok(Some(event)) => {
                let word = bytes
                    .get(event.start..)
                    .and_then(|b| b.first_chunk())
                    .copied()
                    .unwrap_or_default();
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

/// The clock of an event header with a full time stamp at the start of `bytes`; none for other
/// headers.
pub(crate) fn full_clock(bytes: &[u8], order: ByteOrder) -> Option<u64> {
    let reader = lastwords_bytes::Reader::new("event", bytes, order);
    if reader.u32_at(0).ok()? & 31 != TAG_FULL {
        return None;
    }
    reader.u64_at(10).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event that reaches into a page of zeros is not proven; one that ends in front of the
    /// page, or in a page of which other bytes are there, is.
    #[test]
    fn events_that_end_in_a_lost_page() {
        let mut bytes = vec![1u8; 3 * PAGE];
        bytes[PAGE..2 * PAGE].fill(0);
        assert!(ends_in_lost_page(&bytes, PAGE - 20, PAGE + 12));
        assert!(!ends_in_lost_page(&bytes, PAGE - 20, PAGE), "it ends in front of the page");
        bytes[PAGE + 100] = 7;
        assert!(!ends_in_lost_page(&bytes, PAGE - 20, PAGE + 12), "the page is there");
        bytes.truncate(PAGE + 40);
        assert!(ends_in_lost_page(&bytes, PAGE - 20, PAGE + 12), "as far as it was written");
        assert!(!ends_in_lost_page(&bytes, PAGE + 4, PAGE + 12), "no page begins inside");
    }
}
