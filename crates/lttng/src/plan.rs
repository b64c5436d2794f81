//! Computes from positions and commit counters which sub-buffers of a ring to keep, and how far
//! each was written.
//!
//! Positions count all bytes ever reserved. Sub-buffer `k` of a ring of `n` is in slot `k mod n`,
//! in lap `k / n`. The counters of a slot count the bytes committed there in all laps.

/// Policy of a tracer when a ring is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Overwrites the oldest sub-buffer.
    Overwrite,
    /// Discards new events.
    Discard,
}

impl Mode {
    /// Name of the mode, in lower case.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Discard => "discard",
        }
    }

    /// Index of the set of pages in a slot's word. In overwrite mode the index is the lower half of
    /// the word; the upper half has a flag and the lap of the last delivery (`backend_internal.h`:
    /// `SB_ID_INDEX_MASK`).
    #[must_use]
    pub fn set(self, id: u64, word: u8) -> u64 {
        match (self, word) {
            (Self::Discard, _) => id,
            (Self::Overwrite, 8) => id & 0xffff_ffff,
            (Self::Overwrite, _) => id & 0xffff,
        }
    }
}

/// Counters of one slot; none if the image lacks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Number of bytes committed without a hole (`commit_hot.seq`).
    pub contiguous: Option<u64>,
    /// Number of bytes in delivered sub-buffers (`commit_cold.cc_sb`).
    pub delivered: Option<u64>,
}

/// One slot of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// Counters of the slot.
    pub counters: Counters,
    /// Set of pages that writers use in this slot; none if the image lacks it.
    pub set: Option<u64>,
}

/// Geometry and positions of a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// Bytes of a sub-buffer: a power of two.
    pub sub_buffer_size: u64,
    /// Policy of the tracer when the ring is full.
    pub mode: Mode,
    /// Size of the tracer's `long`, the type of positions: 8 or 4 bytes.
    pub word: u8,
    /// Number of bytes reserved so far.
    pub produced: u64,
    /// Read position, bytes.
    pub consumed: u64,
    /// Mask of the counter bits to compare.
    pub counter_mask: u64,
    /// The slots: one for each sub-buffer, a power of two.
    pub slots: Vec<Slot>,
    /// Set of pages that the reader owns.
    pub reader: Option<u64>,
    /// Position of the sub-buffer that a reader held, bytes.
    pub held: Option<u64>,
}

/// Extent of the written part of a sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Written to the end and delivered: the tracer completed the header.
    Delivered,
    /// `committed`: bytes from the start that are committed without a hole. `reserved`: bytes
    /// reserved.
    Partly { committed: u64, reserved: u64 },
    /// The counters belong to another lap.
    OtherLap,
    /// The image lacks the counters.
    Unknown,
}

/// A sub-buffer to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeptSubBuffer {
    /// Number of the sub-buffer since the ring was created; it wraps with the positions if a
    /// `long` has 4 bytes.
    pub(super) number: u64,
    /// Set of pages that contains the sub-buffer.
    pub(super) set: Option<u64>,
    /// Extent of the written part.
    pub(super) written: Written,
    /// True for the newest sub-buffer.
    pub(super) is_last: bool,
}

impl Ring {
    /// Number of sub-buffers in the ring.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Mask of the bits of a position.
    fn position_mask(&self) -> u64 {
        if self.word == 8 { u64::MAX } else { u64::from(u32::MAX) }
    }

    /// Mask of the bits of a sub-buffer number that positions can represent.
    pub(super) fn number_mask(&self) -> u64 {
        self.position_mask() >> self.sub_buffer_size.trailing_zeros().min(63)
    }

    /// Number of the sub-buffer that contains a position.
    pub(super) fn number(&self, position: u64) -> u64 {
        (position & self.position_mask()) >> self.sub_buffer_size.trailing_zeros().min(63)
    }

    /// Returns the first sub-buffer to keep, how many there are, and whether the read position
    /// contradicts the write position.
    pub(super) fn range(&self) -> (u64, u64, bool) {
        let mask = self.number_mask();
        let begun = match self.produced & self.sub_buffer_size.wrapping_sub(1) {
            0 => self.number(self.produced),
            _ => self.number(self.produced).wrapping_add(1),
        };
        let count = begun.wrapping_sub(self.number(self.consumed)) & mask;
        // One more than the ring holds is possible: a writer that just took the next sub-buffer has
        // not yet moved the read position.
        let is_odd = count > self.count().saturating_add(1);
        let never_wrapped = self.produced >= self.consumed || is_odd;
        let most =
            if never_wrapped && self.word == 8 { self.count().min(begun) } else { self.count() };
        let count = count.min(most);
        (begun.wrapping_sub(count) & mask, count, is_odd)
    }

    /// Iterates over the sub-buffers to keep, oldest first.
    pub(super) fn places(&self) -> impl Iterator<Item = KeptSubBuffer> + '_ {
        let (first, count, _) = self.range();
        let last = count.saturating_sub(1);
        (0..count).map(move |n| self.place(first.wrapping_add(n) & self.number_mask(), n == last))
    }

    fn place(&self, number: u64, is_last: bool) -> KeptSubBuffer {
        let order = self.count().trailing_zeros();
        let slot = usize::try_from(number & self.count().wrapping_sub(1)).unwrap_or(usize::MAX);
        let slot = self.slots.get(slot).copied().unwrap_or_default();
        let is_held = self.held.is_some_and(|held| self.number(held) == number);
        let base = (number >> order).wrapping_mul(self.sub_buffer_size) & self.counter_mask;
        KeptSubBuffer {
            number,
            set: if is_held { self.reader } else { slot.set },
            written: self.written(slot.counters, base, is_last),
            is_last,
        }
    }

    fn written(&self, counters: Counters, base: u64, is_last: bool) -> Written {
        let (Some(contiguous), Some(delivered)) = (counters.contiguous, counters.delivered) else {
            return Written::Unknown;
        };
        let within = |counter: u64| counter.wrapping_sub(base) & self.counter_mask;
        if within(delivered) == self.sub_buffer_size {
            return Written::Delivered;
        }
        let inside = self.produced & self.sub_buffer_size.wrapping_sub(1);
        let reserved = if is_last && inside != 0 { inside } else { self.sub_buffer_size };
        match within(contiguous) {
            committed if committed <= self.sub_buffer_size => {
                Written::Partly { committed, reserved }
            }
            _ => Written::OtherLap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(produced: u64, consumed: u64, counters: &[(u64, u64)]) -> Ring {
        let slot = |(n, &(seq, cold)): (usize, &(u64, u64))| Slot {
            counters: Counters { contiguous: Some(seq), delivered: Some(cold) },
            set: Some(n as u64),
        };
        Ring {
            sub_buffer_size: 4096,
            mode: Mode::Overwrite,
            word: 8,
            produced,
            consumed,
            counter_mask: u64::MAX >> 2,
            slots: counters.iter().enumerate().map(slot).collect(),
            reader: Some(counters.len() as u64),
            held: None,
        }
    }

    fn numbers(ring: &Ring) -> Vec<(u64, Written)> {
        ring.places().map(|p| (p.number, p.written)).collect()
    }

    #[test]
    fn a_ring_that_came_round() {
        // Four slots; sub-buffers 0 to 4 are full, sub-buffer 5 has 100 bytes.
        let full = |laps: u64| (laps * 4096, laps * 4096);
        let ring = ring(5 * 4096 + 100, 2 * 4096, &[full(2), (4096 + 100, 4096), full(1), full(1)]);
        let partly = Written::Partly { committed: 100, reserved: 100 };
        let whole = Written::Delivered;
        assert_eq!(numbers(&ring), [(2, whole), (3, whole), (4, whole), (5, partly)]);
        // The read position is impossible: as many sub-buffers are taken as the ring can hold.
        let odd = Ring { consumed: 77 << 40, ..ring.clone() };
        assert_eq!(numbers(&odd).len(), 4);
        assert!(odd.range().2);
        // If the write position is on a boundary, the next sub-buffer is not started.
        let boundary = Ring { produced: 5 * 4096, consumed: 4096, ..ring };
        let numbers: Vec<u64> = boundary.places().map(|p| p.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
    }

    #[test]
    fn an_empty_ring_has_nothing() {
        assert_eq!(numbers(&ring(0, 0, &[(0, 0), (0, 0)])), []);
    }

    #[test]
    fn the_reader_has_what_it_holds() {
        let mut ring = ring(2 * 4096, 0, &[(4096, 4096), (4096, 4096)]);
        ring.held = Some(4096);
        let sets: Vec<_> = ring.places().map(|p| p.set).collect();
        assert_eq!(sets, [Some(0), Some(2)]);
    }

    #[test]
    fn what_is_committed_ends_at_the_first_hole() {
        // A writer was stopped in sub-buffer 0 while others went on in sub-buffer 1.
        let ring = ring(4096 + 300, 0, &[(500, 0), (300, 0)]);
        let torn = Written::Partly { committed: 500, reserved: 4096 };
        let open = Written::Partly { committed: 300, reserved: 300 };
        assert_eq!(numbers(&ring), [(0, torn), (1, open)]);
    }

    #[test]
    fn positions_of_four_bytes_wrap() {
        let mut ring = ring(0x1000, 0xffff_f000, &[(0, 0), (0, 0)]);
        ring.word = 4;
        ring.counter_mask = u64::from(u32::MAX >> 1);
        let numbers: Vec<u64> = ring.places().map(|p| p.number).collect();
        assert_eq!(numbers, [0xf_ffff, 0]);
    }

    #[test]
    fn counters_of_another_lap() {
        let ring = ring(100, 0, &[(9 * 4096, 9 * 4096), (0, 0)]);
        assert_eq!(numbers(&ring), [(0, Written::OtherLap)]);
    }

    #[test]
    fn words_of_slots() {
        assert_eq!(Mode::Overwrite.set(0x0005_0001_0000_0003, 8), 3);
        assert_eq!(Mode::Overwrite.set(0x0005_0003, 4), 3);
        assert_eq!(Mode::Discard.set(0x1_0000_0003, 8), 0x1_0000_0003);
    }
}
