//! Adds what a stream lost to its plan, as gaps.

use super::plan::Planner;
use lastwords_abi::packet::HEADER_LEN;
use lastwords_trace::evidence::{Cause, Gap};

impl Planner<'_> {
    /// Number of the oldest sub-buffer to read, given the current one; adds gaps for overwritten
    /// and cleared events.
    pub(crate) fn oldest(&mut self, half: usize, current: u64, first: u64) -> u64 {
        let g = self.stream.geometry;
        let kept = current.saturating_add(1).saturating_sub(g.count);
        let begun = g.number(first);
        if kept > begun {
            let bytes = g.start(kept).saturating_sub(first);
            self.gap(
                format!("positions {first} to {}", g.start(kept)),
                self.overwritten(),
                Some(bytes),
            );
        } else {
            self.cleared(half, kept, begun, first);
        }
        kept.max(begun)
    }

    /// Cause of a gap that writers overwrote; in a consuming or following read, the reader had not
    /// read it.
    pub(super) fn overwritten(&self) -> Cause {
        if self.end.is_some_and(|end| !end.is_first_followed()) {
            Cause::Unread
        } else {
            Cause::Overwritten
        }
    }

    /// Adds a gap for a sub-buffer that writers overwrote while the stream was read. Several in a
    /// row make one gap.
    pub(crate) fn lost_to_writers(&mut self, half: usize, number: u64) {
        let g = self.stream.geometry;
        let words = self.words(half);
        let from = g.start(number).max(words.first);
        let to = g.start(number.saturating_add(1)).min(words.position(&g)).max(from);
        let run = self.lost_run.filter(|run| run.1 == from);
        let from = run.map_or(from, |run| run.0);
        if run.is_some() {
            self.out.gaps.pop();
        }
        let place = format!("positions {from} to {to}, while they were read");
        self.gap(place, self.overwritten(), Some(to.saturating_sub(from)));
        self.lost_run = Some((from, to));
    }

    /// Adds a gap for events before `first` that are still there: they were consumed or cleared.
    fn cleared(&mut self, half: usize, kept: u64, begun: u64, first: u64) {
        let g = self.stream.geometry;
        let here = |planner: &mut Self, n: u64| planner.number_in(half, n) == Some(n);
        if self.end.is_some() {
            // An earlier consuming read returned them.
            return;
        }
        let before = (kept..begun).find(|n| here(self, *n));
        let from = match before {
            Some(n) => g.start(n),
            None if g.within(first) > HEADER_LEN as u64 => g.start(begun),
            None => return,
        };
        let cause =
            if self.words(half).consumed >= first { Cause::Consumed } else { Cause::Cleared };
        self.gap(format!("positions {from} to {first}"), cause, Some(first.saturating_sub(from)));
    }

    /// Adds the counters of lost events as gaps.
    pub(super) fn lost(&mut self) {
        use lastwords_abi::stream as abi;
        let causes = [
            (abi::LOST_FULL, Cause::Discarded, "no room (discard mode)"),
            (abi::LOST_TOO_BIG, Cause::TooBig, "larger than a sub-buffer"),
            (
                abi::LOST_NO_ENTRY,
                Cause::Refused,
                "no free entry for the thread or for the description of the event, or nested too deep",
            ),
            (abi::LOST_BUSY, Cause::Refused, self.control.why_busy()),
            (abi::LOST_LOCK, Cause::Refused, "the lock was not had in bounded time"),
        ];
        for (index, cause, place) in causes {
            let events = self.control.lost.get(index).copied().unwrap_or(0);
            if events != 0 {
                let place = place.to_string();
                self.out
                    .gaps
                    .push(Gap::new(Some(self.index), cause, place).with_events(Some(events)));
            }
        }
        let count = |index: usize| self.control.lost.get(index).copied().unwrap_or(0);
        let (reclaimed, skipped) = (count(abi::RECLAIMED), count(abi::SKIPPED));
        let place = self.stream.region.place();
        if reclaimed != 0 {
            self.out
                .notes
                .push(format!("{place}: {reclaimed} sub-buffers with reservations of dead threads were overwritten"));
        }
        if skipped != 0 {
            self.out
                .notes
                .push(format!("{place}: {skipped} sub-buffers were skipped because a thread was writing in them, or because they got no memory"));
        }
    }
}
