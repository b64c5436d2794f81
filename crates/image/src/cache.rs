//! A bounded cache that evicts with the clock algorithm: values used since the hand's last pass
//! stay.

use std::collections::HashMap;

/// Caches values that are computed from a number.
#[derive(Debug)]
pub struct Cache<V> {
    slots: Vec<Slot<V>>,
    places: HashMap<u64, usize>,
    hand: usize,
    most: usize,
}

#[derive(Debug)]
struct Slot<V> {
    key: u64,
    value: V,
    used: bool,
}

impl<V: Clone> Cache<V> {
    /// Creates an empty cache of at most `most` values (at least one).
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { slots: Vec::new(), places: HashMap::new(), hand: 0, most: most.max(1) }
    }

    /// Returns the cached value of `key`.
    pub fn find(&mut self, key: u64) -> Option<V> {
        let slot = self.slots.get_mut(*self.places.get(&key)?)?;
        slot.used = true;
        Some(slot.value.clone())
    }

    /// Stores the value of `key`; may evict a value that was not used recently.
    pub fn keep(&mut self, key: u64, value: V) {
        let slot = Slot { key, value, used: false };
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None if self.slots.len() < self.most => {
                self.places.insert(key, self.slots.len());
                self.slots.push(slot);
                return;
            }
            None => self.free(),
        };
        if let Some(old) = self.slots.get_mut(place) {
            self.places.remove(&old.key);
            self.places.insert(key, place);
            *old = slot;
        }
    }

    /// Index of a slot that was not used since the hand's last pass.
    fn free(&mut self) -> usize {
        // At most two rounds: the first clears all marks.
        for _ in 0..self.slots.len().saturating_mul(2) {
            let place = self.hand;
            self.hand = self.hand.saturating_add(1);
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            match self.slots.get_mut(place) {
                Some(slot) if slot.used => slot.used = false,
                _ => return place,
            }
        }
        self.hand
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_used_stays() {
        let mut cache = Cache::new(3);
        (0..3).for_each(|k| cache.keep(k, k));
        assert_eq!(cache.find(1), Some(1));
        cache.keep(7, 7);
        cache.keep(8, 8);
        assert_eq!((cache.find(1), cache.find(7), cache.find(8)), (Some(1), Some(7), Some(8)));
        assert_eq!((cache.find(0), cache.find(2)), (None, None));
    }

    proptest! {
        #[test]
        fn never_tells_another_value(most in 0usize..9, ops in proptest::collection::vec((0u64..20, any::<bool>()), 0..300)) {
            let mut cache = Cache::new(most);
            let mut newest = HashMap::new();
            for (i, (key, keep)) in ops.into_iter().enumerate() {
                if keep {
                    cache.keep(key, i);
                    newest.insert(key, i);
                    prop_assert_eq!(cache.find(key), Some(i));
                } else if let Some(value) = cache.find(key) {
                    prop_assert_eq!(newest.get(&key), Some(&value));
                }
                prop_assert!(cache.slots.len() <= most.max(1) && cache.places.len() == cache.slots.len());
            }
        }
    }
}
