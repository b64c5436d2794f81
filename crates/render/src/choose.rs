//! Chooses streams and events of traces.

use crate::duplicates::Deduplicator;
use crate::filter::packets::EventFilter;
use crate::select::Selection;
use crate::streams::{StreamInfo, channel, stream_infos};
use lastwords_ctf::read::{Due, Reader, Skip, Trace, Watch, readers};
use lastwords_trace::clock::Rounding;

/// The streams of some traces that a selection wants, and a filter for their events.
pub(crate) struct Chosen<'t> {
    pub(crate) traces: &'t [Trace],
    pub(crate) readers: Vec<(usize, Reader<'t>)>,
    /// Facts about each stream, in the order of `readers`.
    pub(crate) facts: Vec<StreamInfo>,
    pub(crate) filter: Filter<'t>,
    /// The packets that are passed over before the last events.
    pub(crate) passed: Passed,
}

/// The packets that are passed over before the last events.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// Those of each stream.
    pub(crate) skips: Vec<Skip>,
    /// They were read, and they have nothing to tell but events that are not wanted.
    pub(crate) is_checked: bool,
}

/// Returns true if all events of the stream are wanted because they were selected when the trace
/// was made.
fn is_selected(traces: &[Trace], facts: &StreamInfo) -> bool {
    traces.get(facts.trace).is_some_and(|trace| trace.is_selected)
}

impl<'t> Chosen<'t> {
    /// Returns the streams that `selection` wants. `rounding` sets how times are computed from
    /// clock readings.
    pub(crate) fn new(
        traces: &'t [Trace],
        selection: &'t Selection,
        rounding: Rounding,
        watch: Watch<'t>,
    ) -> Self {
        let all: Vec<_> = readers(traces);
        let facts = stream_infos(traces, &all);
        let wanted = |facts: &StreamInfo| {
            let class = facts.class(traces);
            is_selected(traces, facts)
                || selection.wants_cpu(facts.cpu)
                    && class.is_none_or(|class| selection.wants_channel(&channel(class)))
        };
        let kept = all.into_iter().zip(facts).filter(|(_, facts)| wanted(facts));
        let (readers, facts): (Vec<_>, Vec<_>) = kept.unzip();
        let readers = readers
            .into_iter()
            .map(|(trace, reader)| (trace, reader.rounded(rounding).watched(watch)));
        let (filter, passed) = (Filter::new(traces, &facts, selection), Passed::default());
        Self { traces, readers: readers.collect(), filter, facts, passed }
    }

    /// Returns the number of bytes of packets to be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.readers.iter().map(|(_, reader)| reader.stream().bytes()).fold(0, u64::saturating_add)
    }
}

/// Decides which events of the chosen streams are wanted.
pub(crate) struct Filter<'t> {
    selection: &'t Selection,
    /// True for each stream whose events are all wanted.
    takes_all: Vec<bool>,
    /// True for each stream whose events accompany those of another trace and are not counted.
    is_uncounted: Vec<bool>,
    /// True for each stream and event class whose events are wanted.
    classes: Vec<Vec<bool>>,
    deduplicator: Option<Deduplicator<'t>>,
    /// The expression that events must match.
    expression: Option<EventFilter<'t>>,
    /// Number of events to skip before the first of the last events that are wanted.
    pub(crate) to_skip: u64,
}

impl<'t> Filter<'t> {
    fn new(traces: &'t [Trace], facts: &[StreamInfo], selection: &'t Selection) -> Self {
        let deduplicator = selection.deduplicate.then(|| Deduplicator::new(traces, facts));
        let deduplicator = deduplicator.filter(|deduplicator| !deduplicator.is_idle());
        let expression =
            selection.filter.as_deref().map(|filter| EventFilter::new(traces, facts, filter));
        let timeless =
            selection.since.is_none() && selection.until.is_none() && expression.is_none();
        let classes = |facts: &StreamInfo| -> Vec<bool> {
            let events = facts.class(traces).map_or(&[][..], |class| &class.events);
            events
                .iter()
                .map(|event| selection.wants_name(event.name.as_deref().unwrap_or("<unknown>")))
                .collect()
        };
        let classes: Vec<Vec<bool>> = facts.iter().map(classes).collect();
        let is_whole =
            |of: &Vec<bool>| timeless && deduplicator.is_none() && of.iter().all(|wanted| *wanted);
        let takes_all = facts
            .iter()
            .zip(&classes)
            .map(|(facts, of)| is_selected(traces, facts) || is_whole(of));
        let takes_all = takes_all.collect();
        let is_uncounted =
            |facts: &StreamInfo| traces.get(facts.trace).is_some_and(|trace| trace.is_beside);
        let is_uncounted = facts.iter().map(is_uncounted).collect();
        Self { selection, takes_all, is_uncounted, classes, deduplicator, expression, to_skip: 0 }
    }

    /// Returns true if the event is wanted. The caller must pass every event, in order.
    #[inline]
    pub(crate) fn wants(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let is_wanted = self.takes_all.get(stream).copied().unwrap_or(true)
            || self.matches(stream, reader, event);
        is_wanted && (self.to_skip == 0 || self.skip(stream))
    }

    #[cold]
    fn skip(&mut self, stream: usize) -> bool {
        self.to_skip = self.to_skip.saturating_sub(self.count(stream));
        false
    }

    /// Prepares for reading that begins behind the first events.
    pub(crate) fn begin_late(&mut self) {
        self.deduplicator.iter_mut().for_each(Deduplicator::begin_late);
    }

    /// Returns true if the event that was asked for last may be a copy of one that was not read.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.deduplicator.as_ref().is_some_and(Deduplicator::is_doubtful)
    }

    /// Returns 1 if events of the stream are counted, or 0 if they are not.
    #[inline]
    pub(crate) fn count(&self, stream: usize) -> u64 {
        u64::from(!self.is_uncounted.get(stream).copied().unwrap_or(false))
    }

    fn matches(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let deduplicator = self.deduplicator.as_mut();
        let is_copy =
            deduplicator.is_some_and(|deduplicator| deduplicator.is_copy(stream, reader, event));
        let named = self
            .classes
            .get(stream)
            .and_then(|classes| classes.get(event.class))
            .copied()
            .unwrap_or(true);
        let timed = || event.nanoseconds.is_none_or(|moment| self.selection.wants_time(moment));
        if is_copy || !named || !timed() {
            return false;
        }
        self.expression.as_mut().is_none_or(|expression| expression.matches(stream, reader, event))
    }
}
