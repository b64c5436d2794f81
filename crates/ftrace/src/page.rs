//! Decodes the events of one sub-buffer (`kernel/trace/ring_buffer.c`).
//!
//! A sub-buffer has a `u64` time stamp, a `commit` word, then events. An event has a word with 5
//! bits of kind and 27 bits of time since the previous event, in bit-field order of the machine,
//! then its payload. Kinds 1 to 28 are the payload's length in words; 0 has the length in the next
//! word; 29 is padding, 30 more bits of time, 31 an absolute time stamp of 59 bits.

use std::ops::Range;

use super::{HeaderPage, SubBufferInfo};
use lastwords_bytes::ByteOrder;

/// Flag in the commit word of a sub-buffer that was read: events are missing before the sub-buffer.
pub const MISSED_EVENTS: u64 = 1 << 31;
/// Flag in the commit word: the number of missing events follows the last event.
pub const MISSED_STORED: u64 = 1 << 30;

/// Length of the longest payload that a kind can express, in words.
pub(super) const LONGEST_SHORT: u32 = 28;
pub(super) const PADDING: u32 = 29;
pub(super) const TIME_EXTEND: u32 = 30;
pub(super) const TIME_STAMP: u32 = 31;
/// Bits of an absolute time stamp. The bits above are those of the previous time.
pub(super) const STAMP_BITS: u32 = 59;

/// An error in the contents of a sub-buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Offset in the sub-buffer.
    pub offset: usize,
    /// The value found there.
    pub value: u64,
    /// Description of the expected value.
    pub expected: String,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "offset {}: {}, expected {}", self.offset, self.value, self.expected)
    }
}

impl std::error::Error for Misfit {}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Clock value.
    pub time: u64,
    /// Range of the payload (`common_type` first) in the sub-buffer.
    pub payload: Range<usize>,
}

/// The contents of a sub-buffer's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Clock value to which the first event's delta is added.
    pub time: u64,
    /// Bytes of events.
    pub committed: usize,
    /// Events are missing before the sub-buffer: `Some(None)` if their number is not stored.
    pub missed: Option<Option<u64>>,
}

/// Reads an integer of 4 bytes; returns 0 beyond the end.
#[must_use]
pub fn word(bytes: &[u8], at: usize, order: ByteOrder) -> u32 {
    let raw = bytes.get(at..).and_then(|b| b.first_chunk::<4>()).copied().unwrap_or_default();
    u32::from_le_bytes(order.little(raw))
}

/// Reads an integer of 8 bytes; returns 0 beyond the end.
#[must_use]
pub fn long(bytes: &[u8], at: usize, order: ByteOrder) -> u64 {
    let raw = bytes.get(at..).and_then(|b| b.first_chunk::<8>()).copied().unwrap_or_default();
    u64::from_le_bytes(order.little(raw))
}

/// Reads an integer of 2 bytes; returns 0 beyond the end. An event's id (`common_type`) is one at
/// the beginning of its payload.
#[must_use]
pub fn short(bytes: &[u8], at: usize, order: ByteOrder) -> u16 {
    let raw = bytes.get(at..).and_then(|b| b.first_chunk::<2>()).copied().unwrap_or_default();
    u16::from_le_bytes(order.little(raw))
}

/// Reads an integer of a machine's `long`.
#[must_use]
pub fn native(bytes: &[u8], at: usize, size: u8, order: ByteOrder) -> u64 {
    if size == 8 { long(bytes, at, order) } else { u64::from(word(bytes, at, order)) }
}

/// Writes an integer of up to 8 bytes; nothing where it would reach behind the end.
pub fn put_native(bytes: &mut [u8], at: usize, value: u64, size: usize, order: ByteOrder) {
    let raw = order.little(value.to_le_bytes());
    let raw = if order == ByteOrder::Little {
        raw.get(..size)
    } else {
        raw.get(8usize.saturating_sub(size)..)
    };
    let place = at.checked_add(size).and_then(|end| bytes.get_mut(at..end));
    if let (Some(place), Some(raw)) = (place, raw) {
        place.copy_from_slice(raw);
    }
}

/// Reads the header of a sub-buffer.
///
/// # Errors
/// There are fewer bytes than a header has, or than the header says are committed.
pub fn header(bytes: &[u8], layout: HeaderPage, order: ByteOrder) -> Result<Header, Misfit> {
    let begin = layout.data_offset as usize;
    if bytes.len() < begin || begin < 8 + usize::from(layout.commit_size) {
        return Err(Misfit {
            offset: 0,
            value: bytes.len() as u64,
            expected: "the bytes of a header".into(),
        });
    }
    let commit = native(bytes, 8, layout.commit_size, order);
    // The flags are bits 30 and 31 for either size of the word. Bit 31 may be sign-extended into
    // the bits above.
    let committed = usize::try_from(commit & 0x3fff_ffff).unwrap_or(usize::MAX);
    let top = commit >> 32;
    let is_sign = top == u64::from(u32::MAX) && commit & MISSED_EVENTS != 0;
    let room = bytes.len().saturating_sub(begin);
    if (top != 0 && !is_sign) || committed > room {
        let expected = format!("at most {room} bytes committed");
        return Err(Misfit { offset: 8, value: commit, expected });
    }
    let behind = begin.saturating_add(committed);
    let is_whole = behind.saturating_add(usize::from(layout.commit_size)) <= bytes.len();
    let stored = commit & MISSED_STORED != 0 && is_whole;
    let count = stored.then(|| native(bytes, behind, layout.commit_size, order));
    let missed = (commit & MISSED_EVENTS != 0).then_some(count);
    Ok(Header { time: long(bytes, 0, order), committed, missed })
}

/// A position in a sub-buffer, without the bytes. Each call of [`Cursor::next`] advances it by at
/// least four bytes.
#[derive(Debug, Clone)]
pub struct Cursor {
    at: usize,
    end: usize,
    time: u64,
    order: ByteOrder,
    /// Offset of the first committed bytes that the cursor skipped although no writer leaves such
    /// bytes.
    irregular: Option<usize>,
}

impl Cursor {
    /// Returns a cursor at the first event of a sub-buffer in which `committed` bytes after the
    /// header are events.
    #[must_use]
    pub fn new(bytes: &[u8], layout: HeaderPage, order: ByteOrder, committed: usize) -> Self {
        let at = layout.data_offset as usize;
        let end = at.saturating_add(committed).min(bytes.len());
        Self { at, end, time: long(bytes, 0, order), order, irregular: None }
    }

    /// Returns a cursor at the first event of a sub-buffer that [`super::Ring::sub_buffer`] has
    /// read.
    #[must_use]
    pub fn in_sub_buffer(
        bytes: &[u8],
        layout: HeaderPage,
        order: ByteOrder,
        info: &SubBufferInfo,
    ) -> Self {
        Self::new(bytes, layout, order, info.committed)
    }

    /// Returns the next event of the sub-buffer with these bytes; none at its end.
    ///
    /// # Errors
    /// A length exceeds the committed bytes. The cursor is at the end of the sub-buffer then.
    #[inline]
    pub fn next(&mut self, bytes: &[u8]) -> Option<Result<Event, Misfit>> {
        match self.short(bytes) {
            Some(event) => Some(Ok(event)),
            None => self.any(bytes),
        }
    }

    /// Decodes the next event if its head contains its length and the event fits. Nearly all events
    /// do.
    #[inline]
    fn short(&mut self, bytes: &[u8]) -> Option<Event> {
        let head = bytes.get(self.at..self.end)?.first_chunk()?;
        let (kind, delta) = match self.order {
            ByteOrder::Little => (u32::from_le_bytes(*head) & 31, u32::from_le_bytes(*head) >> 5),
            ByteOrder::Big => {
                (u32::from_be_bytes(*head) >> 27, u32::from_be_bytes(*head) & 0x07ff_ffff)
            }
        };
        // `at` lies in the bytes, and a kind is below 32.
        let begin = self.at.wrapping_add(4);
        let end = begin.wrapping_add((kind as usize).wrapping_mul(4));
        if !(1..=LONGEST_SHORT).contains(&kind) || end > self.end {
            return None;
        }
        self.time = self.time.wrapping_add(u64::from(delta));
        self.at = end;
        Some(Event { time: self.time, payload: begin..end })
    }

    /// Decodes the next event, of any kind.
    fn any(&mut self, bytes: &[u8]) -> Option<Result<Event, Misfit>> {
        while self.at.wrapping_add(4) <= self.end {
            let behind = self.at.wrapping_add(4);
            let head = word(bytes, self.at, self.order);
            let (kind, delta) = match self.order {
                ByteOrder::Little => (head & 31, head >> 5),
                ByteOrder::Big => (head >> 27, head & 0x07ff_ffff),
            };
            let (begin, length) = match kind {
                1..=LONGEST_SHORT => (behind, (kind as usize).wrapping_mul(4)),
                0 => {
                    let length = word(bytes, behind, self.order) as usize;
                    let begin = behind.wrapping_add(4);
                    let Some(length) = length.checked_sub(4).filter(|_| begin <= self.end) else {
                        return Some(Err(
                            self.misfit(length, "a length of 4 or more in the word after the head")
                        ));
                    };
                    (begin, length)
                }
                PADDING if delta == 0 => {
                    self.irregular = self.irregular.or(Some(self.at));
                    self.at = self.end;
                    return None;
                }
                PADDING => {
                    // This is a discarded event: its word has the number of bytes after the head,
                    // and its delta does not count.
                    let length = word(bytes, behind, self.order) as usize;
                    let end = behind.saturating_add(length.max(4));
                    if length < 4 || end > self.end {
                        self.irregular = self.irregular.or(Some(self.at));
                    }
                    self.at = end.min(self.end);
                    continue;
                }
                TIME_EXTEND => {
                    let more = u64::from(word(bytes, behind, self.order)) << 27;
                    self.time = self.time.wrapping_add(more | u64::from(delta));
                    self.at = behind.wrapping_add(4);
                    continue;
                }
                _ => {
                    debug_assert_eq!(kind, TIME_STAMP);
                    let more = u64::from(word(bytes, behind, self.order)) << 27;
                    self.time = whole_stamp(more | u64::from(delta), self.time);
                    self.at = behind.wrapping_add(4);
                    continue;
                }
            };
            if length > self.end.saturating_sub(begin) {
                return Some(Err(
                    self.misfit(length, "an event that ends within what is committed")
                ));
            }
            self.time = self.time.wrapping_add(u64::from(delta));
            let end = begin.wrapping_add(length);
            self.at = end.next_multiple_of(4);
            return Some(Ok(Event { time: self.time, payload: begin..end }));
        }
        if self.at != self.end {
            self.irregular = self.irregular.or(Some(self.at.min(self.end)));
        }
        None
    }

    /// Returns the offset of the first committed bytes that the cursor skipped although no writer
    /// leaves such bytes: padding without a length, or a last entry that does not end where the
    /// committed bytes end.
    #[must_use]
    pub fn irregular(&self) -> Option<usize> {
        self.irregular
    }

    /// Returns the offset in the sub-buffer of what follows the last event.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the time of the last event, or of a later entry that changed the time.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    #[cold]
    fn misfit(&mut self, length: usize, expected: &str) -> Misfit {
        let offset = self.at;
        self.at = self.end;
        Misfit { offset, value: length as u64, expected: expected.into() }
    }
}

/// Completes an absolute time stamp, which has 59 bits, with the upper bits of the previous time.
/// `rb_fix_abs_ts` of the kernel does the same.
pub(super) fn whole_stamp(stamp: u64, before: u64) -> u64 {
    let top = before >> STAMP_BITS << STAMP_BITS;
    if top == 0 {
        return stamp;
    }
    let whole = top | stamp;
    if whole < before { whole.wrapping_add(1 << STAMP_BITS) } else { whole }
}

/// Iterator over the events of a sub-buffer.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    bytes: &'a [u8],
    cursor: Cursor,
}

impl<'a> Events<'a> {
    /// Returns the time of the last event, or of a later entry that changed the time.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.cursor.time()
    }

    /// Returns the offset of the first committed bytes that no writer leaves so
    /// ([`Cursor::irregular`]).
    #[must_use]
    pub fn irregular(&self) -> Option<usize> {
        self.cursor.irregular()
    }

    /// Iterates over the events of a complete sub-buffer with its header. `committed` bytes after
    /// the header are events.
    #[must_use]
    pub fn new(bytes: &'a [u8], layout: HeaderPage, order: ByteOrder, committed: usize) -> Self {
        Self { bytes, cursor: Cursor::new(bytes, layout, order, committed) }
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, Misfit>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: HeaderPage = HeaderPage { commit_size: 8, data_offset: 16 };

    fn page(order: ByteOrder, events: &[u32]) -> Vec<u8> {
        let put = |out: &mut Vec<u8>, word: u32| {
            out.extend_from_slice(&order.little(word.to_le_bytes()));
        };
        let mut out = Vec::new();
        let long =
            |n: u64| if order == ByteOrder::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        out.extend_from_slice(&long(1000));
        out.extend_from_slice(&long(events.len() as u64 * 4));
        events.iter().for_each(|word| put(&mut out, *word));
        out.resize(256, 0);
        out
    }

    fn head(order: ByteOrder, kind: u32, delta: u32) -> u32 {
        if order == ByteOrder::Little { kind | delta << 5 } else { kind << 27 | delta }
    }

    #[test]
    fn all_kinds_in_both_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let h = |kind, delta| head(order, kind, delta);
            let words = [
                h(2, 5),
                7,
                8,
                h(30, 1),
                1,
                h(0, 0),
                8,
                9,
                h(29, 3),
                12,
                0,
                0,
                h(31, 4),
                2,
                h(1, 1),
                6,
                h(29, 0),
                0,
            ];
            let bytes = page(order, &words);
            let header = header(&bytes, LAYOUT, order).unwrap();
            assert_eq!(
                (header.time, header.committed, header.missed),
                (1000, words.len() * 4, None)
            );
            let events: Vec<Event> =
                Events::new(&bytes, LAYOUT, order, header.committed).map(Result::unwrap).collect();
            let second = 1005 + 1 + (1 << 27);
            assert_eq!(
                events,
                [
                    Event { time: 1005, payload: 20..28 },
                    Event { time: second, payload: 44..48 },
                    Event { time: (2 << 27) + 5, payload: 76..80 },
                ]
            );
        }
    }

    #[test]
    fn missed_events_are_counted() {
        let order = ByteOrder::Little;
        let mut bytes = page(order, &[head(order, 1, 0), 1]);
        bytes[8..16].copy_from_slice(&(8 | MISSED_EVENTS).to_le_bytes());
        assert_eq!(header(&bytes, LAYOUT, order).unwrap().missed, Some(None));
        bytes[8..16].copy_from_slice(&(8 | MISSED_EVENTS | MISSED_STORED).to_le_bytes());
        bytes[24..32].copy_from_slice(&77u64.to_le_bytes());
        assert_eq!(header(&bytes, LAYOUT, order).unwrap().missed, Some(Some(77)));
        bytes[8..16].copy_from_slice(&(8u64.wrapping_sub(1 << 31) | MISSED_STORED).to_le_bytes());
        assert_eq!(header(&bytes, LAYOUT, order).unwrap().missed, Some(Some(77)));
        bytes[8..16].copy_from_slice(&241u64.to_le_bytes());
        let error = header(&bytes, LAYOUT, order).unwrap_err();
        assert_eq!((error.offset, error.value), (8, 241));
    }

    #[test]
    fn an_event_that_does_not_fit_ends_the_page() {
        let order = ByteOrder::Little;
        let bytes = page(order, &[head(order, 1, 0), 1, head(order, 9, 0), 2]);
        let mut events = Events::new(&bytes, LAYOUT, order, 16);
        assert!(events.next().unwrap().is_ok());
        let error = events.next().unwrap().unwrap_err();
        assert_eq!((error.offset, error.value), (24, 36));
        assert!(events.next().is_none());
    }

    #[test]
    fn bytes_that_no_writer_leaves_are_told() {
        let order = ByteOrder::Little;
        let h = |kind, delta| head(order, kind, delta);
        let irregular = |words: &[u32], committed| {
            let bytes = page(order, words);
            let mut events = Events::new(&bytes, LAYOUT, order, committed);
            assert!(events.by_ref().all(|event| event.is_ok()));
            events.irregular()
        };
        assert_eq!(irregular(&[h(1, 0), 1, h(29, 1), 4], 16), None);
        assert_eq!(irregular(&[h(1, 0), 1, h(29, 1), 8], 16), Some(24));
        assert_eq!(irregular(&[h(1, 0), 1, h(29, 0), 4], 16), Some(24));
        assert_eq!(irregular(&[h(1, 0), 1, h(30, 0)], 12), Some(28));
        assert_eq!(irregular(&[h(1, 0), 1, 0], 10), Some(24));
    }

    #[test]
    fn stamps_take_their_top_bits_from_the_time_before() {
        let top = 3u64 << STAMP_BITS;
        assert_eq!(whole_stamp(7, 9), 7);
        assert_eq!(whole_stamp(7, top | 5), top | 7);
        assert_eq!(whole_stamp(7, top | 9), (4 << STAMP_BITS) | 7);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..512), big in any::<bool>(), committed in 0usize..1024) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let _ = header(&bytes, LAYOUT, order);
            let mut count = 0;
            for event in Events::new(&bytes, LAYOUT, order, committed).flatten() {
                count += 1;
                prop_assert!(event.payload.end <= bytes.len());
            }
            prop_assert!(count <= bytes.len() / 4);
        }
    }
}
