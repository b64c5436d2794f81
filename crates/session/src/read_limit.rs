//! Reads a living session up to an end that its reader chose; later events are left for the next
//! read.

use super::data::Stream;
use super::end::{Begin, End};
use super::freeze::Wanted;
use super::frozen::Frozen;
use super::layout::ThreadTable;
use super::plan::Planner;
use super::region::Region;
use lastwords_abi::stream::POSITION_BITS;
use lastwords_bytes::{Budget, Error};
use lastwords_trace::evidence::Cause;
use lastwords_trace::parallel;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The ends for reading the streams of one session. Other sessions are read to their end.
#[derive(Clone, Copy)]
pub struct ReadLimit<'a> {
    /// UUID of the session.
    pub session: [u8; 16],
    /// Returns the current end of each stream, by index of the stream; streams without an end are
    /// not read. It is called right before the streams are copied, and again if writers overtook
    /// the copying: the last result counts.
    pub look: &'a (dyn Fn() -> Vec<Option<End>> + Sync),
}

impl std::fmt::Debug for ReadLimit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadLimit").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Most attempts to copy the streams if writers overtake the copying, and the longest time spent on
/// attempts.
const COPIES: usize = 16;
const PATIENCE: Duration = Duration::from_millis(200);
/// Size of the streams, in bytes, from which copying on several threads is faster than on one.
const WORTH_THREADS: u64 = 4 << 20;

impl ReadLimit<'_> {
    /// Copies all streams and returns their ends. The smallest rings are copied first, because they
    /// wrap soonest.
    pub(crate) fn freeze(
        &self,
        streams: &mut [Stream],
        threads: Option<(&Region, ThreadTable)>,
        budget: &Budget,
    ) -> Result<Vec<Option<End>>, Error> {
        let mut order: Vec<usize> = (0..streams.len()).collect();
        order.sort_by_key(|index| {
            streams.get(*index).map_or(0, |stream| stream.geometry.half_size())
        });
        let held = streams.iter().fold(0u64, |n, stream| n.saturating_add(stream.region.held));
        let workers = if held < WORTH_THREADS { 1 } else { parallel::cpus() };
        let begun = Instant::now();
        let mut copies = 0usize;
        loop {
            copies = copies.saturating_add(1);
            let files = order
                .iter()
                .map(|index| Ok((*index, Frozen::file()?)))
                .collect::<Result<Vec<_>, Error>>()?;
            let ends = (self.look)();
            let end = |stream: &Stream| {
                usize::try_from(stream.region.index)
                    .ok()
                    .and_then(|index| ends.get(index))
                    .copied()
                    .flatten()
            };
            let copy = |_: usize, (index, file): &(usize, Arc<File>)| {
                let Some((stream, end)) =
                    streams.get(*index).and_then(|stream| Some((stream, end(stream)?)))
                else {
                    return Ok((None, false));
                };
                let wanted =
                    Wanted { halves: &[end.half], new_from: Some(end.begin_position()), threads };
                let frozen = match Frozen::take(stream, file, &wanted, budget) {
                    // Planning finds the same error and reports it.
                    Err(error) if error.kind == lastwords_bytes::ErrorKind::Short => {
                        return Ok((None, false));
                    }
                    frozen => frozen?,
                };
                let clock = end.clock.unwrap_or(u64::MAX);
                let is_hollow = frozen.is_hollow(stream, end.half, end.begin_position(), clock);
                Ok((Some(Arc::new(frozen)), is_hollow))
            };
            let copied = parallel::map(&files, workers, copy)
                .into_iter()
                .collect::<Result<Vec<_>, Error>>()?;
            let is_hollow = copied.iter().any(|(_, is_hollow)| *is_hollow);
            if !is_hollow || copies >= COPIES || begun.elapsed() > PATIENCE {
                let ends = streams.iter().map(end).collect();
                for (index, (frozen, _)) in order.iter().zip(copied) {
                    streams
                        .get_mut(*index)
                        .into_iter()
                        .for_each(|stream| stream.frozen.clone_from(&frozen));
                }
                return Ok(ends);
            }
        }
    }
}

impl Planner<'_> {
    /// Sets the control words to their state at `end`. False if there is nothing to read.
    pub(crate) fn stop_at(&mut self, end: &End) -> bool {
        self.control.lost = end.lost_since();
        let g = self.stream.geometry;
        let Some(words) = self.control.half.get_mut(end.half) else { return false };
        if words.position(&g) > end.position {
            let keep = if g.is_lockless() { u64::MAX.wrapping_shl(POSITION_BITS) } else { 0 };
            words.reserve = (words.reserve & keep) | end.position;
            words.attempt = end.position;
        }
        if !g.is_lockless() && !end.is_over {
            // Events in flight lie after the end; the next read returns them.
            words.attempt = end.position;
        }
        // It may be the clock of an event after the end.
        words.last_clock = 0;
        if let Some(begin) = end.begin.filter(|_| !end.is_first_followed()) {
            self.begin_at(end.half, begin);
        }
        let first = self.words(end.half).first;
        if first > end.position {
            self.gap(
                format!("positions up to {}, while they were read", end.position),
                Cause::Cleared,
                None,
            );
        }
        first < end.position
    }

    /// Begins a half where the reader's last read ended. What was cleared since then is a gap.
    fn begin_at(&mut self, half: usize, begin: Begin) {
        let Some(words) = self.control.half.get_mut(half) else { return };
        let more = words.first.saturating_sub(begin.position);
        words.first = words.first.max(begin.position);
        // An earlier read reported it.
        words.dropped = 0;
        let (to, is_consumed) = (words.first, words.consumed >= words.first);
        let skipped = begin.skipped.saturating_add(more);
        if skipped > 0 {
            let cause = if is_consumed { Cause::Consumed } else { Cause::Cleared };
            let place =
                format!("positions {} to {to}, before they were read", to.saturating_sub(skipped));
            self.gap(place, cause, Some(skipped));
        }
    }
}
