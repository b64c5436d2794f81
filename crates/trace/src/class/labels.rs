//! The labels of an enumeration or a bit map, and the search for the labels of a value.

use super::ranges::{Range, RangeIndex};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Bytes around each label if a value has several.
const QUOTES: u64 = 16;

/// Labels and the values that they name, in the order in which they are shown. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct Labels(Option<Arc<Shared>>);

#[derive(Debug)]
struct Index {
    ranges: RangeIndex,
    /// Result of [`Labels::longest`].
    longest: u64,
}

#[derive(Debug)]
struct Shared {
    mappings: Vec<Mapping>,
    /// The index, which is created when a label is first looked up.
    index: OnceLock<Index>,
}

impl Labels {
    /// Returns the labels of a value, in order.
    pub fn containing(&self, value: i128) -> impl Iterator<Item = &Mapping> {
        self.of_any(std::iter::once(value))
    }

    /// Returns the labels that name at least one of the values, in order.
    pub fn of_any(&self, values: impl Iterator<Item = i128>) -> impl Iterator<Item = &Mapping> {
        let index = self.index();
        let lists = values.flat_map(|value| {
            index.into_iter().flat_map(move |index| index.ranges.containing(value))
        });
        let mut positions: Vec<u32> = lists.flatten().copied().collect();
        // The lists are sorted, so this sort merges them.
        positions.sort();
        positions.dedup();
        positions.into_iter().filter_map(|position| self.get(usize::try_from(position).ok()?))
    }

    /// Returns the largest number of bytes of text that the labels of one value become.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.index().map_or(0, |index| index.longest)
    }

    /// Returns the first label of a value.
    #[must_use]
    pub fn first(&self, value: i128) -> Option<&Mapping> {
        self.get(usize::try_from(self.index()?.ranges.first(value)?).ok()?)
    }

    fn index(&self) -> Option<&Index> {
        let shared = self.0.as_deref()?;
        Some(shared.index.get_or_init(|| Index::new(&shared.mappings)))
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

impl Index {
    fn new(mappings: &[Mapping]) -> Self {
        let labels = (0u32..).zip(mappings);
        let ranges = labels
            .flat_map(|(label, mapping)| mapping.ranges.iter().map(move |range| (label, *range)));
        let ranges = RangeIndex::new(ranges);
        let length = |label| {
            mappings
                .get(label as usize)
                .map_or(0, |mapping| (mapping.label.len() as u64).saturating_add(QUOTES))
        };
        Self { longest: ranges.heaviest(length), ranges }
    }
}

/// A label and the values that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Label.
    pub label: String,
    /// Values, or positions of bits.
    pub ranges: Vec<Range>,
}

impl Mapping {
    /// Returns true if the label names this value.
    #[must_use]
    pub fn names(&self, value: i128) -> bool {
        self.ranges.iter().any(|range| range.contains(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_testkit::random::Random;

    /// Random labels of up to three ranges, some of which overlap, name all the values that their
    /// ranges contain, in order.
    #[test]
    fn labels_are_those_whose_ranges_contain_the_value() {
        let mut random = Random(1);
        let mut random = |below: u64| i128::from(random.below(below));
        for count in 0..40 {
            let mut ranges = || {
                let lower = random(60) - 20;
                Range {
                    lower,
                    upper: if random(9) == 0 { i128::MAX } else { lower + random(12) - 1 },
                }
            };
            let mapping = |n: i128| Mapping {
                label: n.to_string(),
                ranges: (0..n % 4).map(|_| ranges()).collect(),
            };
            let labels: Labels = (0..count).map(mapping).collect();
            for value in -25..60 {
                let wanted: Vec<&Mapping> =
                    labels.iter().filter(|mapping| mapping.names(value)).collect();
                assert_eq!(
                    labels.containing(value).collect::<Vec<_>>(),
                    wanted,
                    "{value} of {labels:?}"
                );
                assert!(
                    wanted.iter().map(|mapping| mapping.label.len() as u64).sum::<u64>()
                        <= labels.longest()
                );
                assert_eq!(labels.first(value), wanted.first().copied());
                let values = [value, value + 7];
                let wanted: Vec<&Mapping> = labels
                    .iter()
                    .filter(|mapping| values.iter().any(|value| mapping.names(*value)))
                    .collect();
                assert_eq!(labels.of_any(values.into_iter()).collect::<Vec<_>>(), wanted);
            }
        }
    }
}
