//! Which sub-buffers of a ring count, and how far each was written: positions and commit counters.
//!
//! Positions count bytes that were ever reserved, so that sub-buffer `k` of a ring of `n` lies in slot `k mod n` and lap
//! `k / n`. A slot's counters count the bytes committed in it in all laps.

/// What happens when a ring is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The oldest sub-buffer is given up.
    Overwrite,
    /// New events are.
    Discard,
}

impl Mode {
    /// One lower-case word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Discard => "discard",
        }
    }

    /// The set of pages that a slot's word names. In overwrite mode it is the lower half of the word; above stand a flag and
    /// the lap of the last delivery (`backend_internal.h`: `SB_ID_INDEX_MASK`).
    #[must_use]
    pub fn set(self, id: u64, word: u8) -> u64 {
        match (self, word) {
            (Self::Discard, _) => id,
            (Self::Overwrite, 8) => id & 0xffff_ffff,
            (Self::Overwrite, _) => id & 0xffff,
        }
    }
}

/// Counters of one slot; none where the image does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes up to which everything is committed (`commit_hot.seq`).
    pub contiguous: Option<u64>,
    /// Bytes of sub-buffers that were delivered (`commit_cold.cc_sb`).
    pub delivered: Option<u64>,
}

/// One slot of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slot {
    /// Its counters.
    pub counters: Counters,
    /// The set of pages that writers use there; none where the image does not tell.
    pub set: Option<u64>,
}

/// A ring's geometry and positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// Bytes of a sub-buffer: a power of two.
    pub sub_buffer_size: u64,
    /// What happens when it is full.
    pub mode: Mode,
    /// Bytes of the tracer's `long`, in which positions are counted: 8 or 4.
    pub word: u8,
    /// Bytes reserved so far.
    pub produced: u64,
    /// Where reading goes on, bytes.
    pub consumed: u64,
    /// Which bits of counters count.
    pub counter_mask: u64,
    /// Its slots: as many as it has sub-buffers, a power of two.
    pub slots: Vec<Slot>,
    /// The reader's set of pages.
    pub reader: Option<u64>,
    /// Position of the sub-buffer that a reader held, bytes.
    pub held: Option<u64>,
}

/// How far a sub-buffer was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// To its end, and delivered: the tracer completed its header.
    Delivered,
    /// So many bytes from its beginning are committed without a hole, and so many were reserved.
    Partly { committed: u64, reserved: u64 },
    /// The counters are of another lap.
    OtherLap,
    /// The image lacks the counters.
    Unknown,
}

/// A sub-buffer that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeptSubBuffer {
    /// Its number since the ring was begun (modulo the number of positions, where a `long` has 4 bytes).
    pub(super) number: u64,
    /// The set of pages that holds it.
    pub(super) set: Option<u64>,
    /// How far it was written.
    pub(super) written: Written,
    /// It is the newest.
    pub(super) is_last: bool,
}

impl Ring {
    /// Sub-buffers of the ring.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Bits of a position that count.
    fn position_mask(&self) -> u64 {
        if self.word == 8 { u64::MAX } else { u64::from(u32::MAX) }
    }

    /// Bits of a sub-buffer's number that positions can tell.
    pub(super) fn number_mask(&self) -> u64 {
        self.position_mask() >> self.sub_buffer_size.trailing_zeros().min(63)
    }

    /// A position's sub-buffer.
    pub(super) fn number(&self, position: u64) -> u64 {
        (position & self.position_mask()) >> self.sub_buffer_size.trailing_zeros().min(63)
    }

    /// The first sub-buffer that counts and how many there are; the third says that the read position is none of this ring's.
    pub(super) fn range(&self) -> (u64, u64, bool) {
        let mask = self.number_mask();
        let begun = match self.produced & self.sub_buffer_size.wrapping_sub(1) {
            0 => self.number(self.produced),
            _ => self.number(self.produced).wrapping_add(1),
        };
        let count = begun.wrapping_sub(self.number(self.consumed)) & mask;
        // A writer that has just taken the next sub-buffer has yet to push the reader out of its way.
        let is_odd = count > self.count().saturating_add(1);
        let never_wrapped = self.produced >= self.consumed || is_odd;
        let most = if never_wrapped && self.word == 8 { self.count().min(begun) } else { self.count() };
        let count = count.min(most);
        (begun.wrapping_sub(count) & mask, count, is_odd)
    }

    /// The sub-buffers that count, oldest first.
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
            committed if committed <= self.sub_buffer_size => Written::Partly { committed, reserved },
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
        // Four slots; sub-buffers 0 to 4 are full, 5 has 100 bytes.
        let full = |laps: u64| (laps * 4096, laps * 4096);
        let ring = ring(5 * 4096 + 100, 2 * 4096, &[full(2), (4096 + 100, 4096), full(1), full(1)]);
        let partly = Written::Partly { committed: 100, reserved: 100 };
        let whole = Written::Delivered;
        assert_eq!(numbers(&ring), [(2, whole), (3, whole), (4, whole), (5, partly)]);
        // The reader's position is beyond all reason: what the ring can hold is taken.
        let odd = Ring { consumed: 77 << 40, ..ring.clone() };
        assert_eq!(numbers(&odd).len(), 4);
        assert!(odd.range().2);
        // On a boundary the next sub-buffer is not begun.
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
        // A writer was stopped in sub-buffer 0 while others went on in 1.
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
