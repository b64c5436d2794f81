//! Finds the stream with the next event. A tree of losers needs one comparison on each level when a
//! stream advances.

/// The time of a stream's next event, and the number of the stream, which decides between equal
/// times.
type Entry = (i64, usize);

/// The entry of a stream that has ended. It sorts after all events, also those at the end of time.
const ENDED: Entry = (i64::MAX, usize::MAX);

/// Streams by the time of their next event. Of equal times, the first stream wins.
pub(super) struct Tournament {
    /// The losers of the inner nodes, from index 1. The children of node n are 2n and 2n + 1. The
    /// leaves are the streams, padded to a power of two. Index 0 has the overall winner.
    losers: Vec<Entry>,
}

impl Tournament {
    /// Builds the tree from the times of the streams' next events; a stream without a time has
    /// ended.
    pub(super) fn new(times: &[Option<i64>]) -> Self {
        let leaves = times.len().next_power_of_two();
        let mut losers = vec![ENDED; leaves];
        // The winners by node, computed from the leaves upwards.
        let mut winners = vec![ENDED; leaves];
        winners
            .extend((0..leaves).map(|stream| entry(times.get(stream).copied().flatten(), stream)));
        for node in (1..leaves).rev() {
            let [a, b] = [0, 1].map(|child| {
                winners.get(node.saturating_mul(2).saturating_add(child)).copied().unwrap_or(ENDED)
            });
            if let (Some(winner), Some(loser)) = (winners.get_mut(node), losers.get_mut(node)) {
                (*winner, *loser) = if a <= b { (a, b) } else { (b, a) };
            }
        }
        if let Some(first) = losers.first_mut() {
            *first = winners.get(1).copied().unwrap_or(ENDED);
        }
        Self { losers }
    }

    /// Returns the stream with the earliest next event, unless all have ended.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        let (_, stream) = *self.losers.first()?;
        (stream != usize::MAX).then_some(stream)
    }

    /// Replaces the time of the first stream after it advanced; none if it has ended.
    #[inline]
    pub(super) fn replace(&mut self, time: Option<i64>) {
        let Some(stream) = self.first() else { return };
        let mut winner = entry(time, stream);
        let mut node = stream.wrapping_add(self.losers.len()) / 2;
        while let Some(loser) = self.losers.get_mut(node).filter(|_| node > 0) {
            if *loser < winner {
                std::mem::swap(loser, &mut winner);
            }
            node /= 2;
        }
        if let Some(first) = self.losers.first_mut() {
            *first = winner;
        }
    }
}

#[inline]
fn entry(time: Option<i64>, stream: usize) -> Entry {
    time.map_or(ENDED, |time| (time, stream))
}

#[cfg(test)]
mod tests {
    use super::Tournament;
    use lastwords_testkit::random::Random;

    #[test]
    fn streams_come_out_in_order() {
        let mut random = Random(7);
        for streams in 0..18 {
            let mut left: Vec<Vec<i64>> = (0..streams)
                .map(|_| {
                    let mut times: Vec<i64> =
                        (0..random.below(30)).map(|_| random.below(20) as i64).collect();
                    times.push(i64::MAX);
                    times.sort_unstable_by(|a, b| b.cmp(a));
                    times
                })
                .collect();
            let mut wanted: Vec<(i64, usize)> = left
                .iter()
                .enumerate()
                .flat_map(|(stream, times)| times.iter().map(move |time| (*time, stream)))
                .collect();
            wanted.sort_unstable();
            let firsts: Vec<Option<i64>> = left.iter_mut().map(Vec::pop).collect();
            let mut now = firsts.clone();
            let mut tournament = Tournament::new(&firsts);
            let mut got = Vec::new();
            while let Some(stream) = tournament.first() {
                got.push((now[stream].expect("it has not ended"), stream));
                now[stream] = left[stream].pop();
                tournament.replace(now[stream]);
            }
            assert_eq!(got, wanted, "{streams} streams");
        }
    }
}
