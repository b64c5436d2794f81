//! Finds those of many ranges that contain a value.

/// Finds the ranges that contain a value in logarithmic time, however they overlap, with a segment
/// tree. Each range has the position of its owner.
#[derive(Debug, Clone, Default)]
pub struct RangeIndex {
    /// Values at which a range begins or ends. Segment `n` contains the values from `bounds[n]` up
    /// to the next bound.
    bounds: Vec<i128>,
    /// Nodes of a binary tree whose root is 1 and whose leaves are the segments, from
    /// `bounds.len()` on. Each node has positions in ascending order: those whose ranges contain
    /// all values below the node, but not all values below its parent.
    nodes: Vec<Vec<u32>>,
}

impl RangeIndex {
    /// Makes the index of ranges, which must be in ascending order of their positions.
    pub fn new(ranges: impl Iterator<Item = (u32, Range)> + Clone) -> Self {
        let ends = |(_, range): (u32, Range)| {
            [Some(range.lower), range.upper.checked_add(1)].into_iter().flatten()
        };
        let mut bounds: Vec<i128> = ranges.clone().flat_map(ends).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut index = Self { nodes: vec![Vec::new(); bounds.len().saturating_mul(2)], bounds };
        ranges.for_each(|(position, range)| index.put(position, range));
        index
    }

    fn put(&mut self, position: u32, range: Range) {
        let leaf = |value: i128| {
            self.bounds.partition_point(|bound| *bound < value).saturating_add(self.bounds.len())
        };
        let behind = range.upper.checked_add(1).map_or(self.nodes.len(), leaf);
        let (mut from, mut to) = (leaf(range.lower), behind);
        let mut put = |node: usize| {
            if let Some(node) =
                self.nodes.get_mut(node).filter(|node| node.last() != Some(&position))
            {
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

    /// Returns the positions whose ranges contain a value, as lists that are each in ascending
    /// order.
    pub fn containing(&self, value: i128) -> impl Iterator<Item = &[u32]> {
        let segment = self.bounds.partition_point(|bound| *bound <= value).checked_sub(1);
        let leaf = segment.and_then(|segment| segment.checked_add(self.bounds.len()));
        let path = std::iter::successors(leaf, |node| Some(node / 2)).take_while(|node| *node > 0);
        path.filter_map(|node| self.nodes.get(node))
            .map(Vec::as_slice)
            .filter(|list| !list.is_empty())
    }

    /// Returns the first position whose ranges contain a value.
    #[must_use]
    pub fn first(&self, value: i128) -> Option<u32> {
        self.containing(value).filter_map(|list| list.first()).min().copied()
    }

    /// Returns the greatest sum of weights of positions whose ranges contain one value. A position
    /// may count more than once.
    #[must_use]
    pub fn heaviest(&self, weight: impl Fn(u32) -> u64) -> u64 {
        let mut sums: Vec<u64> = Vec::with_capacity(self.nodes.len());
        for (node, positions) in self.nodes.iter().enumerate() {
            let above = sums.get(node / 2).copied().unwrap_or(0);
            sums.push(
                positions.iter().map(|position| weight(*position)).fold(above, u64::saturating_add),
            );
        }
        sums.into_iter().max().unwrap_or(0)
    }
}

/// Values from `lower` to `upper`, both included. The type can contain signed and unsigned 64-bit
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// Least value.
    pub lower: i128,
    /// Greatest value.
    pub upper: i128,
}

impl Range {
    /// Returns true if the range contains the value.
    #[must_use]
    pub fn contains(&self, value: i128) -> bool {
        (self.lower..=self.upper).contains(&value)
    }
}
