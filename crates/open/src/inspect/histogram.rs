//! Counts events over time without knowing their span before: bins become wider as the span grows.

/// The most bins. Sixty columns made of so many bins are exact to a thirtieth of a column.
const MOST: usize = 4096;

/// Counts of events in bins of 2^`shift` nanoseconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    shift: u32,
    /// The number of the first bin: the times of a bin are those that begin with its number.
    first: i64,
    bins: Vec<u64>,
}

impl Histogram {
    /// Counts events at a time.
    #[inline]
    pub(super) fn add(&mut self, time: i64, count: u64) {
        let at = usize::try_from((time >> self.shift).wrapping_sub(self.first));
        match at.ok().and_then(|at| self.bins.get_mut(at)) {
            Some(bin) => *bin = bin.saturating_add(count),
            None => self.grow(time, count),
        }
    }

    /// Adds the bin of a time, and makes all bins wider until there are few enough.
    fn grow(&mut self, time: i64, count: u64) {
        loop {
            let at = time >> self.shift;
            if self.bins.is_empty() {
                self.first = at;
            }
            let last = self.first.saturating_add_unsigned(self.bins.len().saturating_sub(1) as u64);
            let first = self.first.min(at);
            let len =
                usize::try_from(last.max(at).abs_diff(first)).unwrap_or(MOST).saturating_add(1);
            if len <= MOST {
                let before = usize::try_from(self.first.abs_diff(first)).unwrap_or(0);
                self.bins.splice(0..0, std::iter::repeat_n(0, before));
                self.bins.resize(len, 0);
                self.first = first;
                return self.add(time, count);
            }
            self.widen();
        }
    }

    /// Doubles the width of the bins.
    fn widen(&mut self) {
        let of = std::mem::take(self);
        self.shift = of.shift.saturating_add(1);
        of.each(|time, count| self.add(time, count));
    }

    /// Adds the counts of another histogram.
    pub(super) fn merge(&mut self, other: &Self) {
        while self.shift < other.shift {
            self.widen();
        }
        other.each(|time, count| self.add(time, count));
    }

    /// Calls `take` with the begin of each bin that counts events, and with its count.
    fn each(&self, mut take: impl FnMut(i64, u64)) {
        for (at, count) in self.bins.iter().enumerate().filter(|(_, count)| **count > 0) {
            take(self.first.saturating_add_unsigned(at as u64) << self.shift, *count);
        }
    }

    /// Returns the counts in at most `most` columns of equal width from `begin` to `end`, and that
    /// width in nanoseconds.
    pub(super) fn columns(&self, begin: i64, end: i64, most: u64) -> (u64, Vec<u64>) {
        let span = end.abs_diff(begin).saturating_add(1);
        let width = span.div_ceil(most.max(1)).max(1);
        let mut columns = vec![0u64; usize::try_from(span.div_ceil(width)).unwrap_or(0)];
        let half = 1i64 << self.shift.min(62) >> 1;
        self.each(|time, count| {
            let middle = time.saturating_add(half).clamp(begin, end);
            let at =
                middle.abs_diff(begin).checked_div(width).and_then(|at| usize::try_from(at).ok());
            if let Some(column) = at.and_then(|at| columns.get_mut(at)) {
                *column = column.saturating_add(count);
            }
        });
        (width, columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns that are counted with the span known.
    fn plain(times: &[i64], most: u64) -> (u64, Vec<u64>) {
        let (begin, end) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
        let span = end.abs_diff(begin) + 1;
        let width = span.div_ceil(most);
        let mut columns = vec![0; span.div_ceil(width) as usize];
        times.iter().for_each(|time| columns[(time.abs_diff(begin) / width) as usize] += 1);
        (width, columns)
    }

    fn counted(times: &[i64], most: u64) -> (u64, Vec<u64>) {
        // Every third event is counted apart, as those of another stream.
        let (mut all, mut other) = (Histogram::default(), Histogram::default());
        times
            .iter()
            .enumerate()
            .for_each(|(n, time)| if n % 3 == 0 { &mut other } else { &mut all }.add(*time, 1));
        all.merge(&other);
        all.columns(*times.iter().min().unwrap(), *times.iter().max().unwrap(), most)
    }

    #[test]
    fn short_spans_are_exact_in_any_order() {
        for times in [&[5, 5, 9, 1000, 7][..], &[-3, 4000, 0, 12], &[7]] {
            assert_eq!(counted(times, 60), plain(times, 60), "{times:?}");
        }
    }

    #[test]
    fn long_spans_lose_no_event_and_few_change_columns() {
        let times: Vec<i64> =
            (0..100_000).map(|n: i64| 1_790_000_000_000_000_000 + n * n * 31).collect();
        let (mut backwards, (width, right)) = (times.clone(), plain(&times, 60));
        backwards.reverse();
        for times in [times, backwards] {
            let (own_width, own) = counted(&times, 60);
            assert_eq!((own_width, own.len(), own.iter().sum()), (width, right.len(), 100_000u64));
            let moved: u64 = own.iter().zip(&right).map(|(a, b)| a.abs_diff(*b)).sum();
            assert!(moved < 5000, "{moved}");
        }
    }

    /// One event, all at one moment, a span of 1 ns, and events exactly at the first and the last
    /// edge of a column.
    #[test]
    fn edges_of_columns_belong_to_one() {
        for (times, expected) in [
            (&[i64::MIN][..], (1, vec![1u64])),
            (&[7, 7, 7], (1, vec![3])),
            (&[7, 8], (1, vec![1, 1])),
            (&[0, 59], (1, [vec![1], vec![0; 58], vec![1]].concat())),
            (&[0, 60], (2, [vec![1], vec![0; 29], vec![1]].concat())),
            (&[0, 1, 2, 119], (2, [vec![2, 1], vec![0; 57], vec![1]].concat())),
        ] {
            assert_eq!(counted(times, 60), expected, "{times:?}");
            assert_eq!(plain(times, 60), expected, "{times:?}");
        }
    }

    #[test]
    fn the_longest_span_has_its_ends_in_the_first_and_the_last_column() {
        for times in [&[i64::MIN, i64::MAX][..], &[i64::MAX, i64::MIN], &[i64::MIN, i64::MAX - 1]] {
            let (width, columns) = counted(times, 60);
            assert_eq!((width, columns.len()), (u64::MAX.div_ceil(60), 60));
            assert_eq!(
                (columns[0], columns[59], columns.iter().sum::<u64>()),
                (1, 1, 2),
                "{times:?}: {columns:?}"
            );
        }
    }

    #[test]
    fn extreme_times_are_counted() {
        let times = [i64::MIN, 0, i64::MAX, -1, 17];
        let (_, columns) = counted(&times, 60);
        assert_eq!((columns.len(), columns.iter().sum()), (60, 5u64));
    }
}
