//! Finds the events' records by a hash of their bodies. The index is in memory of its own, not on
//! the heap.

use lastwords_ring::os;

/// Bytes of the registry for each slot: less than half of the smallest record of an event.
const BYTES_A_SLOT: u64 = 16;

/// A hash table with open addressing. A slot has the hash in its upper half and an eighth of the
/// offset in its lower half; 0 is empty.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The slots: a power of two, or none. [`Index::is_there`] maps them, and dropping this unmaps
    /// them.
    slots: &'static mut [u64],
    /// Offset up to which records were examined; 0 = none.
    pub(super) scanned: u64,
}

impl Index {
    /// Returns true if the index can be used. At first it is created for a registry of `len` bytes.
    pub(super) fn is_there(&mut self, len: u64) -> bool {
        if self.slots.is_empty() {
            let slots = (len / BYTES_A_SLOT).next_power_of_two() as usize;
            if let Some(memory) = os::private_memory(slots * 8) {
                // SAFETY: this many slots were just mapped, zeroed and page-aligned; they belong to
                // this table alone.
                self.slots =
                    unsafe { std::slice::from_raw_parts_mut(memory.cast().as_ptr(), slots) };
            }
        }
        !self.slots.is_empty()
    }

    /// Iterates over the slots that may have a record of this hash, in the order in which they are
    /// filled.
    fn chain(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let count = self.slots.len();
        (0..count).map(move |step| (hash as usize).wrapping_add(step) & (count - 1))
    }

    /// Adds a record with this hash at this offset, a multiple of 8.
    pub(super) fn add(&mut self, hash: u32, at: u64) {
        if let Some(free) = self.chain(hash).find(|slot| self.slots[*slot] == 0) {
            self.slots[free] = u64::from(hash) << 32 | (at / 8);
        }
    }

    /// Returns the first result of `look` for the offsets of records with this hash.
    pub(super) fn find<T>(&self, hash: u32, mut look: impl FnMut(u64) -> Option<T>) -> Option<T> {
        let used = self.chain(hash).map(|slot| self.slots[slot]).take_while(|slot| *slot != 0);
        used.filter(|slot| slot >> 32 == u64::from(hash))
            .find_map(|slot| look((slot & 0xffff_ffff) * 8))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        if !self.slots.is_empty() {
            // SAFETY: `is_there` mapped the slots with this length. Their only user is being
            // dropped.
            unsafe { libc::munmap(self.slots.as_mut_ptr().cast(), size_of_val(self.slots)) };
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
        // The records begin at one slot, and continue beyond the end of the table.
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
