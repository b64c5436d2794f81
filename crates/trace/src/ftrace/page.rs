//! The events of one sub-buffer.
//!
//! A sub-buffer begins with a u64 time stamp and the `commit` word; its events are a u32 each (type_len in the low 5 bits,
//! the time since the event before in the other 27; a big-endian machine has them from the top) and what follows:
//! `type_len` 1 to 28 is the payload's length in words, 0 says that the next word is its length with that word itself, 29 is
//! padding (an event given up, whose length stands in the next word; with delta 0 all that is left), 30 extends the delta by
//! the next word << 27, 31 is an absolute time of 59 bits.

use super::HeaderPage;
use crate::schema::ByteOrder;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a delta.
const DELTA_BITS: u32 = 27;
/// An absolute time has 59 bits; those above stay as they were.
const ABSOLUTE_BITS: u32 = 59;
/// Flags in the commit word: events were lost before this sub-buffer; their count is stored behind the data.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;

/// One event: its time and where its payload lies in the sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Reading of the ring's clock.
    pub time: u64,
    /// Offset of its payload, which begins with the event's id.
    pub at: usize,
    /// Bytes of its payload, padding to a word included.
    pub len: usize,
}

/// What does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Misfit {
    /// Offset in the sub-buffer of the event.
    pub at: usize,
    /// Bytes that it claims to have.
    pub claimed: u64,
    /// Bytes that are left.
    pub left: usize,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "offset {}: an event of {} bytes, {} are left", self.at, self.claimed, self.left)
    }
}

/// The beginning of a sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Time of its first event, before that event's delta.
    pub time_stamp: u64,
    /// Bytes of data that are committed, as the word says.
    pub commit: u64,
    /// Events were lost before it: `Some(None)` where the flag alone is there.
    pub missed: Option<Option<u64>>,
}

impl Header {
    /// Reads the beginning of a sub-buffer; none where it is shorter than that.
    #[must_use]
    pub fn read(bytes: &[u8], order: ByteOrder, page: HeaderPage) -> Option<Self> {
        let time_stamp = word64(bytes, 0, order)?;
        let word = match page.commit_size {
            4 => u64::from(word32(bytes, 8, order)?),
            _ => word64(bytes, 8, order)?,
        };
        let commit = word & 0x3fff_ffff;
        let stored = || {
            let at = (page.data_offset as usize).checked_add(usize::try_from(commit).ok()?)?;
            if page.commit_size == 4 { word32(bytes, at, order).map(u64::from) } else { word64(bytes, at, order) }
        };
        let missed = (word & MISSED != 0).then(|| if word & MISSED_STORED != 0 { stored() } else { None });
        Some(Self { time_stamp, commit, missed })
    }
}

/// The events of a sub-buffer, in order; an event that does not fit is the last item.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
    at: usize,
    time: u64,
}

impl<'a> Events<'a> {
    /// Of a sub-buffer whose committed data ends at `end` and whose time stamp is `time_stamp`.
    #[must_use]
    pub fn new(bytes: &'a [u8], order: ByteOrder, page: HeaderPage, time_stamp: u64, end: usize) -> Self {
        let bytes = bytes.get(..end.min(bytes.len())).unwrap_or(bytes);
        Self { bytes, order, at: page.data_offset as usize, time: time_stamp }
    }

    /// Where the next event begins.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Time of the last event.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    fn misfit(&mut self, claimed: u64) -> Misfit {
        let misfit = Misfit { at: self.at, claimed, left: self.bytes.len().saturating_sub(self.at) };
        self.at = self.bytes.len();
        misfit
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, Misfit>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.at >= self.bytes.len() {
                return None;
            }
            let Some(head) = word32(self.bytes, self.at, self.order) else { return Some(Err(self.misfit(4))) };
            let (kind, delta) = match self.order {
                ByteOrder::Little => (head & 31, head >> 5),
                ByteOrder::Big => (head >> DELTA_BITS, head & ((1 << DELTA_BITS) - 1)),
            };
            let next = word32(self.bytes, self.at + 4, self.order);
            let (begin, len) = match kind {
                PADDING if delta == 0 => {
                    self.at = self.bytes.len();
                    return None;
                }
                0 | PADDING => (8, u64::from(next.unwrap_or(0)).saturating_sub(if kind == 0 { 4 } else { 0 })),
                TIME_EXTEND | TIME_STAMP => (8, 0),
                words => (4, u64::from(words) * 4),
            };
            let whole = if kind == PADDING { 4 + len } else { begin + len };
            let left = (self.bytes.len() - self.at) as u64;
            if whole > left || (begin == 8 && next.is_none()) || (kind == 0 && next < Some(4)) {
                return Some(Err(self.misfit(whole)));
            }
            let high = u64::from(next.unwrap_or(0));
            match kind {
                TIME_EXTEND => self.time = self.time.wrapping_add((high << DELTA_BITS) + u64::from(delta)),
                TIME_STAMP => {
                    let low = (high << DELTA_BITS) + u64::from(delta);
                    self.time = (self.time >> ABSOLUTE_BITS << ABSOLUTE_BITS) | low;
                }
                // The kernel's own readers do not count the delta of an event that was given up.
                PADDING => {}
                _ => self.time = self.time.wrapping_add(u64::from(delta)),
            }
            let at = self.at + begin as usize;
            // A word's length may be no multiple of 4; what follows is.
            self.at += (whole as usize).next_multiple_of(4);
            if (1..=28).contains(&kind) || kind == 0 {
                return Some(Ok(Event { time: self.time, at, len: len as usize }));
            }
        }
    }
}

fn word32(bytes: &[u8], at: usize, order: ByteOrder) -> Option<u32> {
    let raw = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(match order {
        ByteOrder::Little => u32::from_le_bytes(raw),
        ByteOrder::Big => u32::from_be_bytes(raw),
    })
}

fn word64(bytes: &[u8], at: usize, order: ByteOrder) -> Option<u64> {
    let raw = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
    Some(match order {
        ByteOrder::Little => u64::from_le_bytes(raw),
        ByteOrder::Big => u64::from_be_bytes(raw),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sub_buffer(time_stamp: u64, words: &[u32]) -> Vec<u8> {
        let mut bytes = time_stamp.to_le_bytes().to_vec();
        bytes.extend((words.len() as u64 * 4).to_le_bytes());
        words.iter().for_each(|w| bytes.extend(w.to_le_bytes()));
        bytes
    }

    fn events(bytes: &[u8]) -> Vec<Result<Event, Misfit>> {
        let page = HeaderPage::of_word_size(8);
        let header = Header::read(bytes, ByteOrder::Little, page).expect("a header");
        Events::new(bytes, ByteOrder::Little, page, header.time_stamp, 16 + header.commit as usize).collect()
    }

    #[test]
    fn every_kind() {
        let words = [
            (5 << 5) | 1,
            0xaa,
            (7 << 5) | 30,
            2,
            3 << 5,
            12,
            1,
            2,
            (1 << 5) | 29,
            4,
            (4 << 5) | 31,
            8,
            2 << 5 | 2,
            1,
            2,
            29,
        ];
        let got: Vec<_> = events(&sub_buffer(1000, &words)).into_iter().map(|e| e.expect("fits")).collect();
        let extended = 1005 + (2 << 27) + 7;
        let absolute = (8 << 27) + 4;
        let expected = [(1005, 20, 4), (extended + 3, 40, 8), (absolute + 2, 68, 8)];
        assert_eq!(got, expected.map(|(time, at, len)| Event { time, at, len }));
    }

    #[test]
    fn an_event_that_does_not_fit_is_the_last() {
        let got = events(&sub_buffer(0, &[1, 9, 28, 1]));
        assert_eq!(got.len(), 2);
        assert_eq!(got[1], Err(Misfit { at: 24, claimed: 116, left: 8 }));
        assert_eq!(events(&sub_buffer(0, &[0, 3])), [Err(Misfit { at: 16, claimed: 8, left: 8 })]);
        assert_eq!(events(&sub_buffer(0, &[30])), [Err(Misfit { at: 16, claimed: 8, left: 4 })]);
    }

    #[test]
    fn lost_events_are_told() {
        let mut bytes = sub_buffer(1, &[1, 2]);
        bytes[8..16].copy_from_slice(&((3u64 << 30) | 8).to_le_bytes());
        bytes.extend(77u64.to_le_bytes());
        let header = Header::read(&bytes, ByteOrder::Little, HeaderPage::of_word_size(8)).expect("a header");
        assert_eq!(header, Header { time_stamp: 1, commit: 8, missed: Some(Some(77)) });
    }
}
