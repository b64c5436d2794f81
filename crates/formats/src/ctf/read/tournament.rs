//! Which stream is next: a tree of losers, so that a stream that goes on meets one rival on each level.

/// Streams by the time of their next event; of one time, the first.
pub(super) struct Tournament {
    /// By stream, padded to a power of two: the time of its next event, and its rank among those of one time.
    keys: Vec<(i64, usize)>,
    /// By inner node from 1 on, whose children are 2n and 2n + 1: the stream that lost there. At 0, who lost nowhere.
    losers: Vec<usize>,
}

impl Tournament {
    /// Of streams whose next events are at these times; those without have ended.
    pub(super) fn new(times: &[Option<i64>]) -> Self {
        let leaves = times.len().next_power_of_two();
        let mut this = Self { keys: vec![(i64::MAX, usize::MAX); leaves], losers: vec![0; leaves] };
        for (stream, time) in times.iter().enumerate() {
            this.set(stream, *time);
        }
        // From the leaves upwards: who won, by node.
        let mut winners: Vec<usize> = (0..2 * leaves).map(|node| node.saturating_sub(leaves)).collect();
        for node in (1..leaves).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if this.keys[a] <= this.keys[b] { (a, b) } else { (b, a) };
            (winners[node], this.losers[node]) = (winner, loser);
        }
        this.losers[0] = winners.get(1).copied().unwrap_or(0);
        this
    }

    fn set(&mut self, stream: usize, time: Option<i64>) {
        if let Some(key) = self.keys.get_mut(stream) {
            // Behind all that are at the end of time.
            *key = time.map_or((i64::MAX, usize::MAX), |time| (time, stream));
        }
    }

    /// The stream whose next event is the first, unless all have ended.
    #[inline]
    pub(super) fn first(&self) -> Option<usize> {
        let first = *self.losers.first()?;
        (self.keys.get(first)?.1 != usize::MAX).then_some(first)
    }

    /// The first has gone on: to an event of this time, or to its end.
    #[inline]
    pub(super) fn replace(&mut self, time: Option<i64>) {
        let Some(mut winner) = self.losers.first().copied() else { return };
        self.set(winner, time);
        let Some(mut key) = self.keys.get(winner).copied() else { return };
        let mut node = (winner + self.keys.len()) / 2;
        while let Some(loser) = self.losers.get_mut(node).filter(|_| node > 0) {
            let rival = self.keys.get(*loser).copied().unwrap_or((i64::MAX, usize::MAX));
            if rival < key {
                std::mem::swap(loser, &mut winner);
                key = rival;
            }
            node /= 2;
        }
        if let Some(first) = self.losers.first_mut() {
            *first = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tournament;

    #[test]
    fn streams_come_out_in_order() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for streams in 0..18 {
            let mut left: Vec<Vec<i64>> = (0..streams)
                .map(|_| {
                    let mut times: Vec<i64> = (0..random(30)).map(|_| random(20) as i64).collect();
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
