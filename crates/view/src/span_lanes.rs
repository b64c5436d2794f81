//! Makes slices of spans from their opening to their end. Spans overlap as they like; each takes
//! the first free lane of its process below the lane of its parent.

use crate::names::NONE;
use crate::slices::{Begun, Of, Slices, SpanEnd, SpanOf, Track};
use lastwords_render::spans::SpanKey;
use std::collections::{BTreeSet, HashMap};

/// Most spans that are open at a time. Further ones are not drawn.
const MAX_OPEN: usize = 1 << 16;
/// Most lanes of a process. Spans that find none are not drawn.
const MAX_LANES: u32 = 256;

struct Open {
    process: u32,
    lane: u32,
    begun: Begun,
}

/// The spans that are open.
#[derive(Default)]
pub(crate) struct SpanLanes {
    open: HashMap<SpanKey, Open>,
    used: HashMap<u32, BTreeSet<u32>>,
    /// Number of spans that were opened.
    opened: u32,
    /// Number of spans that found no lane.
    pub(crate) not_drawn: u64,
}

impl SpanLanes {
    /// Opens a span. `process` is the number of a thread that stands for the process.
    pub(crate) fn open(&mut self, key: SpanKey, parent: u64, process: u32, begun: Begun) {
        if self.open.contains_key(&key) {
            return;
        }
        let outer = self.open.get(&(key.0, key.1, parent)).and_then(|open| open.begun.span);
        let numbers = (self.opened, outer.map_or(NONE, |outer| outer.numbers.0));
        self.opened = self.opened.saturating_add(1);
        let opening = SpanOf { id: key.2, parent, numbers, opening: begun.event, end: None };
        let span = SpanOf { numbers, ..begun.span.unwrap_or(opening) };
        let begun = Begun { span: Some(span), ..begun };
        let below = self.open.get(&(key.0, key.1, parent)).filter(|open| open.process == process);
        let first = below.map_or(0, |open| open.lane.saturating_add(1));
        let used = self.used.entry(process).or_default();
        let lane = (first..MAX_LANES)
            .find(|lane| !used.contains(lane))
            .filter(|_| self.open.len() < MAX_OPEN);
        let Some(lane) = lane else {
            self.not_drawn = self.not_drawn.saturating_add(1);
            return;
        };
        used.insert(lane);
        self.open.insert(key, Open { process, lane, begun });
    }

    /// Returns the span with this key for a slice of it. What opened it may not be known.
    pub(crate) fn span(&self, key: SpanKey) -> SpanOf {
        let known = self.open.get(&key).and_then(|open| open.begun.span);
        known.unwrap_or(SpanOf {
            id: key.2,
            parent: 0,
            numbers: (NONE, NONE),
            opening: u64::MAX,
            end: None,
        })
    }

    /// Sets the state of a span at the end. Returns false if the span was not opened in the traces,
    /// or has ended.
    pub(crate) fn describe(&mut self, key: SpanKey, end: SpanEnd) -> bool {
        let Some(open) = self.open.get_mut(&key) else { return false };
        if let Some(span) = &mut open.begun.span {
            span.end = Some(end);
        }
        true
    }

    /// Ends a span.
    pub(crate) fn close(&mut self, slices: &mut Slices, key: SpanKey, time: i64) {
        if let Some(open) = self.open.remove(&key) {
            self.used.entry(open.process).or_default().remove(&open.lane);
            slices.add(track(&open), open.begun, time, 0);
        }
    }

    /// Ends the spans that are open at the end of their traces. `end_of` returns none for a span
    /// whose end is not among the events that were read.
    pub(crate) fn finish(self, slices: &mut Slices, end_of: impl Fn(&Begun) -> Option<i64>) {
        for open in self.open.into_values() {
            slices.add_open(track(&open), open.begun, end_of(&open.begun));
        }
    }
}

fn track(open: &Open) -> Track {
    Track { of: Of::Spans, owner: open.process, depth: open.lane }
}

#[cfg(test)]
mod tests {
    use crate::losses_tests::{collected, slices};
    use lastwords_testkit::ctf::{Stream, write_folder};
    use lastwords_testkit::scheduling::{SPANS, metadata, span_event};

    #[test]
    fn spans_of_two_processes_with_the_same_id_are_two() {
        let folder = tempfile::tempdir().unwrap();
        let mut stream = Stream::default();
        for (time, id, pid) in [(10, 0, 7u32), (20, 0, 8), (30, 1, 8), (40, 1, 7)] {
            stream.put(time, &span_event(id, time, pid, 1));
        }
        write_folder(folder.path(), &metadata("ust", SPANS), &mut [stream]);
        let mut spans = slices(&collected(&[folder.path()]));
        spans.sort();
        assert_eq!(
            spans,
            [("7 svc::work".to_owned(), 10, 40, 0), ("8 svc::work".to_owned(), 20, 30, 0)]
        );
    }
}
