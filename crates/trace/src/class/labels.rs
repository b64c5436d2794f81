//! The labels of an enumeration or a bit map, and which of them name a value.

use super::{Mapping, Range};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Labels and the values that they name, in the order in which they are shown. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct Labels(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    mappings: Vec<Mapping>,
    /// Made when a label is first looked up.
    index: OnceLock<Index>,
}

impl Labels {
    /// The labels of a value, in order.
    pub fn of(&self, value: i128) -> impl Iterator<Item = &Mapping> {
        self.of_any(std::iter::once(value))
    }

    /// The labels that name at least one of the values, in order.
    pub fn of_any(&self, values: impl Iterator<Item = i128> + Clone) -> impl Iterator<Item = &Mapping> {
        let shared = self.0.as_deref();
        let index = shared.map(|shared| shared.index.get_or_init(|| Index::new(&shared.mappings)));
        let mut next = 0;
        std::iter::from_fn(move || {
            let found = values.clone().filter_map(|value| index?.from(value, next)).min()?;
            next = found.saturating_add(1);
            shared?.mappings.get(usize::try_from(found).ok()?)
        })
    }

    /// The first label of a value.
    #[must_use]
    pub fn first(&self, value: i128) -> Option<&Mapping> {
        self.of(value).next()
    }
}

impl From<Vec<Mapping>> for Labels {
    fn from(mappings: Vec<Mapping>) -> Self {
        let shared = |mappings| Arc::new(Shared { mappings, index: OnceLock::new() });
        Self((!mappings.is_empty()).then(|| shared(mappings)))
    }
}

impl FromIterator<Mapping> for Labels {
    fn from_iter<I: IntoIterator<Item = Mapping>>(mappings: I) -> Self {
        mappings.into_iter().collect::<Vec<_>>().into()
    }
}

impl Deref for Labels {
    type Target = [Mapping];

    fn deref(&self) -> &[Mapping] {
        self.0.as_ref().map_or(&[], |shared| &shared.mappings)
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.mappings == other.mappings,
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// Finds the labels of a value in logarithmic time, however their ranges overlap: a segment tree.
#[derive(Debug)]
struct Index {
    /// Where the labels change: segment `n` holds the values from `bounds[n]` up to the next bound.
    bounds: Vec<i128>,
    /// Nodes of a binary tree whose root is 1 and whose leaves are the segments, from `bounds.len()` on. Each node has the positions,
    /// ascending, of labels that name all values below it and not all below its parent.
    nodes: Vec<Vec<u32>>,
}

impl Index {
    fn new(mappings: &[Mapping]) -> Self {
        let ranges = || mappings.iter().flat_map(|mapping| &mapping.ranges).filter(|range| range.lower <= range.upper);
        let ends = |range: &Range| [Some(range.lower), range.upper.checked_add(1)].into_iter().flatten();
        let mut bounds: Vec<i128> = ranges().flat_map(ends).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut index = Self { nodes: vec![Vec::new(); bounds.len().saturating_mul(2)], bounds };
        for (position, mapping) in (0u32..).zip(mappings) {
            for range in &mapping.ranges {
                index.put(position, *range);
            }
        }
        index
    }

    fn put(&mut self, position: u32, range: Range) {
        let leaf = |value: i128| self.bounds.partition_point(|bound| *bound < value).saturating_add(self.bounds.len());
        let behind = range.upper.checked_add(1).map_or(self.nodes.len(), leaf);
        let (mut from, mut to) = (leaf(range.lower), behind);
        let mut put = |node: usize| {
            if let Some(node) = self.nodes.get_mut(node).filter(|node| node.last() != Some(&position)) {
                node.push(position);
            }
        };
        while from < to {
            if from % 2 == 1 {
                put(from);
                from = from.saturating_add(1);
            }
            if to % 2 == 1 {
                to = to.saturating_sub(1);
                put(to);
            }
            (from, to) = (from / 2, to / 2);
        }
    }

    /// The first position from `next` on whose label names a value.
    fn from(&self, value: i128, next: u32) -> Option<u32> {
        let segment = self.bounds.partition_point(|bound| *bound <= value).checked_sub(1)?;
        let leaf = segment.checked_add(self.bounds.len())?;
        let path = std::iter::successors(Some(leaf), |node| Some(node / 2)).take_while(|node| *node > 0);
        let first = |node: &Vec<u32>| node.get(node.partition_point(|position| *position < next)).copied();
        path.filter_map(|node| self.nodes.get(node)).filter_map(first).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random labels of up to three ranges, some of which overlap, name all the values that their ranges contain, in order.
    #[test]
    fn labels_are_those_whose_ranges_contain_the_value() {
        let mut state = 1u64;
        let mut random = |below: i128| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i128::from(state >> 33) % below
        };
        for count in 0..40 {
            let mut ranges = || {
                let lower = random(60) - 20;
                Range { lower, upper: if random(9) == 0 { i128::MAX } else { lower + random(12) - 1 } }
            };
            let mapping = |n: i128| Mapping { label: n.to_string(), ranges: (0..n % 4).map(|_| ranges()).collect() };
            let labels: Labels = (0..count).map(mapping).collect();
            for value in -25..60 {
                let wanted: Vec<&Mapping> = labels.iter().filter(|mapping| mapping.names(value)).collect();
                assert_eq!(labels.of(value).collect::<Vec<_>>(), wanted, "{value} of {labels:?}");
                assert_eq!(labels.first(value), wanted.first().copied());
                let values = [value, value + 7];
                let wanted: Vec<&Mapping> =
                    labels.iter().filter(|mapping| values.iter().any(|value| mapping.names(*value))).collect();
                assert_eq!(labels.of_any(values.into_iter()).collect::<Vec<_>>(), wanted);
            }
        }
    }
}
