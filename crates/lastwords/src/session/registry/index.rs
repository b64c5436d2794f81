//! Where the events' records are, by a hash of their bodies: in memory of its own, not of the heap.

use std::ptr::NonNull;

use lastwords_ring::os;

/// Bytes of the registry for each slot: less than half of the smallest record of an event.
const BYTES_A_SLOT: u64 = 16;

/// A hash table with open addressing. A slot has the hash above and an eighth of the offset below; 0 is empty.
#[derive(Debug, Default)]
pub(super) struct Index {
    slots: Option<NonNull<u64>>,
    /// Slots, a power of two, less 1.
    mask: usize,
    /// Offset up to which records were looked at; 0 = none.
    pub(super) scanned: u64,
}

// SAFETY: the memory is this table's alone.
unsafe impl Send for Index {}

impl Index {
    /// Whether it can be used; makes it for a registry of `len` bytes where it was not made yet.
    pub(super) fn is_there(&mut self, len: u64) -> bool {
        if self.slots.is_none() {
            let slots = (len / BYTES_A_SLOT).next_power_of_two() as usize;
            if let Some(memory) = os::private_memory(slots * 8) {
                (self.slots, self.mask) = (Some(memory.cast()), slots - 1);
            }
        }
        self.slots.is_some()
    }

    fn slots(&mut self) -> &mut [u64] {
        match self.slots {
            // SAFETY: as many slots were mapped, zeroed; the memory is unmapped only when this is dropped.
            Some(slots) => unsafe { std::slice::from_raw_parts_mut(slots.as_ptr(), self.mask + 1) },
            None => &mut [],
        }
    }

    /// Adds a record of that hash at that offset, a multiple of 8.
    pub(super) fn add(&mut self, hash: u32, at: u64) {
        let mask = self.mask;
        let slots = self.slots();
        let free = (0..slots.len()).map(|step| (hash as usize).wrapping_add(step) & mask).find(|n| slots[*n] == 0);
        if let Some(n) = free {
            slots[n] = u64::from(hash) << 32 | (at / 8);
        }
    }

    /// The first that `look` finds among the offsets of records of that hash.
    pub(super) fn find<T>(&mut self, hash: u32, mut look: impl FnMut(u64) -> Option<T>) -> Option<T> {
        let mask = self.mask;
        let slots = self.slots();
        let chain = (0..slots.len()).map(|step| slots[(hash as usize).wrapping_add(step) & mask]);
        chain
            .take_while(|slot| *slot != 0)
            .filter(|slot| slot >> 32 == u64::from(hash))
            .find_map(|slot| look((slot & 0xffff_ffff) * 8))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if let Some(slots) = self.slots {
            // SAFETY: mapped by `is_there` with this length, and this was its only user.
            unsafe { libc::munmap(slots.as_ptr().cast(), (self.mask + 1) * 8) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_added_and_only_that() {
        let mut index = Index::default();
        assert!(index.is_there(1 << 16));
        // All in one place, and over the end of the table.
        for n in 1..=100u64 {
            index.add(4095, n * 8);
            index.add(n as u32, n * 800);
        }
        for n in 1..=100u64 {
            assert_eq!(index.find(4095, |at| (at == n * 8).then_some(at)), Some(n * 8));
            assert_eq!(index.find(n as u32, Some), Some(n * 800));
        }
        assert_eq!(index.find(4096, Some), None);
        assert_eq!(index.find(200, Some), None);
    }
}
