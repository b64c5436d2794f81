//! Counts the events of a trace by stream and class, with their bytes. Events are skipped, not
//! decoded, and not merged by time.

use lastwords_ctf::program::Event;
use lastwords_ctf::read::{Next, Reader, Stream, Trace};
use lastwords_trace::clock::Rounding;
use lastwords_trace::parallel;
use std::cell::RefCell;

/// A number of events and their bytes, with their headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Count {
    /// Number of events.
    pub events: u64,
    /// Bytes of the events.
    pub bytes: u64,
}

impl Count {
    /// Adds other events.
    pub fn add(&mut self, other: Self) {
        self.events = self.events.saturating_add(other.events);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// The events of one stream.
#[derive(Debug, Clone, Default)]
pub struct StreamCounts {
    /// Position of its stream class in the trace.
    pub class: usize,
    /// The events of each event class, by position in the stream class.
    pub events: Vec<Count>,
    /// Those of them that are later than the moment that was asked for.
    pub recent: Vec<Count>,
    /// The parts of packets that could not be read, as messages.
    pub faults: Vec<String>,
}

/// Counts the events of a trace, a stream on each CPU. `after` is a moment in nanoseconds since the
/// epoch for [`StreamCounts::recent`].
#[must_use]
pub fn counts(trace: &Trace, after: Option<i64>) -> Vec<StreamCounts> {
    parallel::map(&trace.streams, parallel::cpus(), |_, stream| of_stream(trace, stream, after))
}

fn of_stream(trace: &Trace, stream: &Stream, after: Option<i64>) -> StreamCounts {
    let classes = trace.class().streams.get(stream.class).map_or(0, |class| class.events.len());
    let none = vec![Count::default(); classes];
    let counts = StreamCounts {
        class: stream.class,
        events: none.clone(),
        recent: none,
        faults: Vec::new(),
    };
    let add = |counts: &mut StreamCounts, event: &Event, time: Option<i64>| {
        let StreamCounts { events, recent, .. } = counts;
        let is_recent = after.is_some_and(|after| time.is_some_and(|time| time > after));
        let one = Count { events: 1, bytes: event.end.saturating_sub(event.at) / 8 };
        let of = [Some(events), Some(recent).filter(|_| is_recent)];
        of.into_iter()
            .flatten()
            .filter_map(|of| of.get_mut(event.class))
            .for_each(|count| count.add(one));
    };
    fold(Reader::new(trace, stream).rounded(Rounding::Floor), counts, add, |counts, next| {
        if let Next::Fault(fault) = next {
            counts.faults.push(fault.to_string());
        }
    })
}

/// Reads a stream to its end. Passes each event with its time to `take`, and all else that the
/// reader returns to `other`. Returns the state that both have changed.
pub(crate) fn fold<S>(
    reader: Reader<'_>,
    state: S,
    take: impl Fn(&mut S, &Event, Option<i64>),
    other: impl Fn(&mut S, &Next),
) -> S {
    let state = RefCell::new(state);
    let ahead = |reader: &mut Reader<'_>| {
        let mut state = state.borrow_mut();
        reader.ahead(usize::MAX, |event, time| take(&mut state, &event, time));
    };
    reader.each(ahead, |reader, next| {
        let mut state = state.borrow_mut();
        match next {
            Next::Event(event) => take(&mut state, event, reader.nanoseconds(event.clock)),
            next => other(&mut state, next),
        }
        false
    });
    state.into_inner()
}
