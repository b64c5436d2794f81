//! The table of a histogram (`struct tracing_map`): a slot for each key, with the key's hash and a
//! pointer to its element. Elements are taken in order from a pool, which finds them where slots
//! are missing.
//!
//! Source of the facts: kernel/trace/tracing_map.{c,h} of Linux 5.10 to 7.3.

use super::damaged;
use super::hash::hash;
use lastwords_bytes::ByteOrder;
use lastwords_kernel::btf::MemberKind;
use lastwords_kernel::{Error, Kernel, Object};
use std::collections::HashSet;

/// Bits of the number of elements (`TRACING_MAP_BITS_MIN`, `TRACING_MAP_BITS_MAX`).
const BITS: std::ops::RangeInclusive<u64> = 7..=17;
/// Longest key that is accepted, bytes; the kernel's is 384 (5.10 to 7.3).
const KEY_MAX: usize = 1 << 14;

/// The table of a histogram.
pub(super) struct Map<'k> {
    kernel: &'k Kernel,
    pub(super) object: Object<'k>,
    key_size: usize,
    slots: u64,
    /// Occurrences that were counted in a row, and those that had no room.
    pub(super) hits: u64,
    pub(super) dropped: u64,
    /// Rows that were begun.
    pub(super) claimed: u64,
}

/// A row as the table has it.
#[derive(Debug, Clone)]
pub(super) struct Entry<'k> {
    pub(super) key: Vec<u8>,
    /// The sums by index; none if the image lacks it.
    pub(super) sums: Vec<Option<u64>>,
    pub(super) element: Object<'k>,
}

/// The elements that were found in a table.
#[derive(Debug, Default)]
pub(super) struct Entries<'k> {
    pub(super) found: Vec<Entry<'k>>,
    /// A loss for each element or run of slots that cannot be read, and the rows that it has; none
    /// if the number is not known.
    pub(super) lost: Vec<(Error, Option<u64>)>,
}

impl<'k> Map<'k> {
    /// Reads what describes a table. `from_zero`: as [`Map::counts_from_zero`] says.
    pub(super) fn new(
        kernel: &'k Kernel,
        object: Object<'k>,
        from_zero: bool,
    ) -> Result<Self, Error> {
        let bits = object.u64("map_bits")?;
        let (slots, elements) = (object.u64("map_size")?, object.u64("max_elts")?);
        let is_table = BITS.contains(&bits)
            && elements.checked_shr(u32::try_from(bits).unwrap_or(64)) == Some(1)
            && elements.is_power_of_two()
            && slots == elements.saturating_mul(2);
        if !is_table {
            return Err(damaged(&object, slots, "the size of a histogram's table"));
        }
        let key_size = object.fit("key_size")?;
        if !(1..=KEY_MAX).contains(&key_size) {
            return Err(damaged(&object, key_size as u64, "the size of a key"));
        }
        let next = object.i64("next_elt")?.saturating_add(i64::from(!from_zero));
        Ok(Self {
            kernel,
            key_size,
            slots,
            hits: object.u64("hits")?,
            dropped: object.u64("drops")?,
            claimed: u64::try_from(next).unwrap_or_default().min(elements),
            object,
        })
    }

    /// Returns true if `next_elt` is the number of elements that were taken, as in newer kernels, and
    /// false if it is the last of them. None if this table does not tell.
    pub(super) fn counts_from_zero(kernel: &'k Kernel, object: Object<'k>) -> Option<bool> {
        let next = object.i64("next_elt").ok()?;
        let map = Self::new(kernel, object, false).ok()?;
        // All are taken.
        if i64::try_from(map.claimed).ok()? != next.checked_add(1)? {
            return None;
        }
        let mut place = None;
        map.each("elts", map.claimed, &mut |at| place = Some(at)).ok()?;
        let Some(place) = place else { return Some(false) };
        let element = kernel.object("tracing_map_elt", kernel.memory.pointer(place).ok()?).ok()?;
        Some(map.sum(&element, 0).ok()? == 0)
    }

    /// Reads all rows, in the order of the slots. `sums` is the number of sums of a row.
    pub(super) fn entries(&self, sums: usize) -> Entries<'k> {
        let mut entries = Entries::default();
        let (mut seen, mut holes) = (HashSet::new(), Vec::new());
        let slots = self.each("map", self.slots, &mut |slot| {
            let (hash, element) = match self.slot(slot) {
                Ok(Some(slot)) => slot,
                Ok(None) => return,
                Err(error) => return holes.push(error),
            };
            if !seen.insert(element.place()) {
                return holes.push(damaged(&element, 0, "an element of its own for each slot"));
            }
            match self.entry(element, Some(hash), sums) {
                Ok(entry) => entries.found.push(entry),
                Err(error) => entries.lost.push((error, Some(1))),
            }
        });
        holes.extend(slots.err());
        let known = entries.found.len().saturating_add(entries.lost.len()) as u64;
        // A page of slots may read as zero. Elements that were taken in vain are in the pool, too.
        if holes.is_empty() && known >= self.claimed {
            return entries;
        }
        if let Err(error) = self.add_from_pool(sums, &seen, &mut entries) {
            // The first hole tells the cause; those of one page are many.
            let first = holes.into_iter().next().unwrap_or(error);
            let known = (entries.found.len() as u64).saturating_add(entries.lost.len() as u64);
            let left = self.claimed.saturating_sub(known);
            if left > 0 {
                entries.lost.push((first, Some(left)));
            }
        }
        entries
    }

    /// Adds the elements of the pool to which no slot leads.
    fn add_from_pool(
        &self,
        sums: usize,
        seen: &HashSet<u64>,
        entries: &mut Entries<'k>,
    ) -> Result<(), Error> {
        let mut hole = None;
        self.each("elts", self.claimed, &mut |place| {
            let element = self.kernel.memory.pointer(place).map_err(Error::hole("elements"));
            let element = element.and_then(|at| self.kernel.object("tracing_map_elt", at));
            match element {
                Ok(element) if seen.contains(&element.place()) => {}
                Ok(element) => match self.entry(element, None, sums) {
                    // An element whose row was only begun has counted nothing.
                    Ok(entry) if entry.sums.first() == Some(&Some(0)) => {}
                    Ok(entry) => entries.found.push(entry),
                    Err(error) => entries.lost.push((error, Some(1))),
                },
                Err(error) => hole = hole.take().or(Some(error)),
            }
        })?;
        hole.map_or(Ok(()), Err)
    }

    /// Calls `take` with the addresses of the first `count` entries of an array of pages (`struct
    /// tracing_map_array`).
    fn each(&self, member: &str, count: u64, take: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let array = self.object.pointer(member)?;
        let [size_shift, shift]: [u32; 2] =
            [array.fit("entry_size_shift")?, array.fit("entry_shift")?];
        let page_size = self.kernel.memory.page_size();
        let per_page = array.u64("entries_per_page")?;
        let fits = 1u64.checked_shl(shift) == Some(per_page)
            && per_page.checked_shl(size_shift).is_some_and(|bytes| bytes <= page_size)
            && size_shift >= 2;
        if !fits {
            return Err(damaged(&array, per_page, "the entries of a page"));
        }
        // In Linux 7.3, the pages are an array at the end of the structure.
        let pages = match array.member("pages")?.kind {
            MemberKind::Pointer => array.address("pages")?,
            _ => array.at("pages")?.place(),
        };
        let word = u64::from(self.kernel.memory.word_size());
        let mut hole = None;
        for at in 0..count.div_ceil(per_page) {
            self.kernel.budget().steps("histogram", per_page)?;
            let page = self.kernel.memory.pointer(pages.wrapping_add(at.wrapping_mul(word)));
            match page {
                Ok(0) => hole = hole.or(Some(damaged(&array, 0, "the address of a page"))),
                Ok(page) => {
                    let first = at.saturating_mul(per_page);
                    for entry in 0..count.saturating_sub(first).min(per_page) {
                        take(page.wrapping_add(entry.wrapping_shl(size_shift)));
                    }
                }
                Err(error) => hole = hole.or(Some(Error::hole("pages of a histogram")(error))),
            }
        }
        hole.map_or(Ok(()), Err)
    }

    /// Reads a slot: the hash of its key, and its element. None is in an empty one, or in one that
    /// is being filled.
    fn slot(&self, place: u64) -> Result<Option<(u32, Object<'k>)>, Error> {
        let slot = self.kernel.object("tracing_map_entry", place)?;
        let (hash, element) = (slot.fit("key")?, slot.pointer_or_null("val")?);
        Ok(element.filter(|_| hash != 0).map(|element| (hash, element)))
    }

    fn entry(
        &self,
        element: Object<'k>,
        expected: Option<u32>,
        sums: usize,
    ) -> Result<Entry<'k>, Error> {
        let owner = element.address("map")?;
        if owner != self.object.place() {
            return Err(damaged(&element, owner, "the address of its table"));
        }
        let place = element.address("key")?;
        if place == 0 {
            return Err(damaged(&element, place, "the address of a key"));
        }
        self.kernel.budget().bytes("histogram", self.key_size as u64)?;
        let mut key = vec![0; self.key_size];
        self.kernel.memory.read(place, &mut key).map_err(Error::hole("the key of a row"))?;
        if self.kernel.memory.byte_order() == ByteOrder::Little
            && let Some(expected) = expected
        {
            // 0 is an empty slot.
            let own = hash(&key).max(1);
            if own != expected {
                let wanted = format!("a key with the hash {expected:#x}");
                return Err(damaged(&element, own.into(), &wanted));
            }
        }
        let sums = (0..sums as u64).map(|at| self.sum(&element, at).ok()).collect();
        Ok(Entry { key, sums, element })
    }

    /// Reads a sum of an element. The address of the function that compares it proves that it is
    /// one.
    pub(super) fn sum(&self, element: &Object<'k>, at: u64) -> Result<u64, Error> {
        let field = element.element("fields", at)?;
        let [own, expected] =
            [field.address("cmp_fn")?, self.object.element("fields", at)?.address("cmp_fn")?];
        if own != expected || own == 0 {
            return Err(damaged(&field, own, "the function that compares a sum"));
        }
        field.u64("sum")
    }

    /// Reads a variable of an element.
    pub(super) fn variable(&self, element: &Object<'k>, index: u64) -> Result<u64, Error> {
        let place = element.address("vars")?;
        if place == 0 || index >= self.object.u64("n_vars")? {
            return Err(damaged(element, index, "a variable"));
        }
        let place = place.wrapping_add(index.wrapping_mul(8));
        self.kernel.memory.number(place, 8).map_err(Error::hole("a variable of a row"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{BASE, Made, TEXT, Types};
    use super::*;

    const MAP: u64 = BASE;
    const SLOT_PAGES: u64 = BASE + 0x400;
    const POOL_PAGES: u64 = BASE + 0x800;
    const SLOTS: u64 = BASE + 0x1000;
    const POOL: u64 = BASE + 0x2000;
    const ELEMENTS: u64 = BASE + 0x3000;
    const COMPARE: u64 = TEXT + 0x100;
    const ROWS: u64 = 5;
    const TYPES: Types = Types {
        structures: "tracing_map_array 32: u64 entry_size_shift@0, u64 entry_shift@8,
                 u64 entries_per_page@16, void** pages@24
             tracing_map_field 16: void* cmp_fn@0, u64 sum@8
             tracing_map_elt 64: void* map@0, void* key@8, tracing_map_field* fields@16
             tracing_map_entry 16: u64 key@0, tracing_map_elt* val@8
             tracing_map 88: u64 map_bits@0, u64 map_size@8, u64 max_elts@16, u64 key_size@24,
                 u64 next_elt@32, u64 hits@40, u64 drops@48, tracing_map_array* map@56,
                 tracing_map_array* elts@64, tracing_map_field[1] fields@72",
        enumerations: &[],
    };

    /// A table in memory.
    struct Table(Made);

    impl Table {
        /// A table of 128 elements, of which the first are taken.
        fn new(from_zero: bool) -> Self {
            let mut made = Made::new(0x8000);
            let next = if from_zero { ROWS } else { ROWS - 1 };
            // map_bits, map_size, max_elts, key_size, next_elt, hits, drops, map, elts, fields.
            for (n, value) in [7, 256, 128, 8, next, 15, 0, SLOT_PAGES, POOL_PAGES, COMPARE]
                .into_iter()
                .enumerate()
            {
                made.put(MAP + n as u64 * 8, value);
            }
            for (array, shift, page) in [(SLOT_PAGES, 4, SLOTS), (POOL_PAGES, 3, POOL)] {
                let entries = 4096 >> shift;
                for (n, value) in [shift, 12 - shift, entries, array + 64].into_iter().enumerate() {
                    made.put(array + n as u64 * 8, value);
                }
                made.put(array + 64, page);
            }
            for n in 0..128 {
                let element = ELEMENTS + n * 64;
                made.put(POOL + n * 8, element);
                // map, key, fields: the function and the sum.
                for (at, value) in [(0, MAP), (8, element + 48), (16, element + 24), (24, COMPARE)]
                {
                    made.put(element + at, value);
                }
                if n < ROWS {
                    made.put(element + 32, n + 1);
                    made.put(element + 48, n + 70);
                    made.put(SLOTS + n * 7 * 16, hash(&(n + 70).to_le_bytes()).into());
                    made.put(SLOTS + n * 7 * 16 + 8, element);
                }
            }
            Self(made)
        }

        /// The keys that are found, the number of losses, and the rows that were begun.
        fn read(&self) -> (Vec<u64>, usize, u64) {
            let kernel = self.0.kernel(&TYPES, &[]);
            let object = kernel.object("tracing_map", MAP).unwrap();
            let from_zero = Map::counts_from_zero(&kernel, object).unwrap();
            let map = Map::new(&kernel, object, from_zero).unwrap();
            let entries = map.entries(1);
            let number = |entry: &Entry<'_>| u64::from_le_bytes(entry.key[..8].try_into().unwrap());
            let mut keys: Vec<u64> = entries.found.iter().map(number).collect();
            keys.sort_unstable();
            (keys, entries.lost.len(), map.claimed)
        }
    }

    /// Rows whose slots read as zero are found in the pool, whichever way the kernel counts them.
    #[test]
    fn a_page_of_slots_that_reads_as_zero_costs_no_rows() {
        for from_zero in [false, true] {
            let mut made = Table::new(from_zero);
            let whole = ((70..75).collect::<Vec<u64>>(), 0, ROWS);
            assert_eq!(made.read(), whole, "from zero: {from_zero}");
            made.0.zero(SLOTS, 0x1000);
            assert_eq!(made.read(), whole, "from zero: {from_zero}");
            // The first elements, too.
            made.0.zero(ELEMENTS, 0x80);
            assert_eq!(made.read(), ((72..75).collect(), 2, ROWS), "from zero: {from_zero}");
        }
    }
}
