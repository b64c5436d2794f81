//! Evaluates a filter on the events of packets.

use super::bound::{Bound, Values};
use crate::streams::StreamInfo;
use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_filter::Filter;
use std::collections::HashMap;

/// Evaluates a filter on the events of some streams.
pub(crate) struct EventFilter<'t> {
    filter: &'t Filter,
    traces: &'t [Trace],
    streams: Vec<StreamInfo>,
    /// The event classes of each trace and stream class. A class is bound when its first event is
    /// read.
    classes: HashMap<(usize, usize), Vec<Option<Box<Bound<'t>>>>>,
    values: Values<'t>,
}

impl<'t> EventFilter<'t> {
    pub(crate) fn new(traces: &'t [Trace], streams: &[StreamInfo], filter: &'t Filter) -> Self {
        Self {
            filter,
            traces,
            streams: streams.to_vec(),
            classes: HashMap::new(),
            values: Values::default(),
        }
    }

    /// Returns true if the filter is true for the event.
    pub(crate) fn matches(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let Some(facts) = self.streams.get(stream) else { return false };
        let Some(trace) = self.traces.get(facts.trace) else { return false };
        let classes = self.classes.entry((facts.trace, facts.class)).or_default();
        if classes.len() <= event.class {
            classes.resize_with(event.class.saturating_add(1), || None);
        }
        let Some(place) = classes.get_mut(event.class) else { return false };
        let bound = &**place.get_or_insert_with(|| {
            Box::new(Bound::from_filter(self.filter, trace, (facts.class, event.class)))
        });
        if !bound.read(reader, event, &mut self.values) {
            return false;
        }
        let value = &mut |position| bound.value(position, &self.values, facts.cpu);
        self.filter.eval(value) == Some(true)
    }
}
