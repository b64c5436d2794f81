//! Selects streams and events of traces. Every writer of events begins here.

use crate::Totals;
use crate::duplicates::Deduplicator;
use crate::filter::packets::EventFilter;
pub(crate) use crate::last::Passed;
use crate::select::Selection;
use lastwords_ctf::program::Code;
use lastwords_ctf::read::{Due, Error, Loss, Reader, Sink, Trace, Watch, cpu, readers, run};
use lastwords_trace::class::{Scope, StreamClass};
use lastwords_trace::clock::Rounding;
use std::io::{self, ErrorKind, Write};

/// Number of bytes that are buffered before they are written.
const CHUNK: usize = 128 << 10;

/// A loss, a fault or a remark that reading or writing events produced.
#[derive(Debug)]
pub enum Note {
    /// The packets of a trace that has no account report missing events or packets. The text is
    /// babeltrace2's message.
    Loss(Loss, String),
    /// A part of the input cannot be read.
    Fault(Error),
    /// The output differs from the input.
    Remark(String),
    /// The losses and faults of the trace at this position. Sent after all events, for each trace
    /// that has any.
    Read(usize, Totals),
}

/// Counts packets and events, and the losses and faults of each trace.
pub(crate) struct Tally {
    /// The position of each stream's trace.
    traces: Vec<usize>,
    /// The losses and faults of each trace.
    by_trace: Vec<Totals>,
    /// True for each stream of which a packet was read.
    used: Vec<bool>,
    /// The counts of all traces.
    pub(crate) totals: Totals,
}

impl Tally {
    pub(crate) fn new(streams: &[StreamInfo], passed: &Passed) -> Self {
        let traces: Vec<usize> = streams.iter().map(|stream| stream.trace).collect();
        let count = traces.iter().max().map_or(0, |last| last.saturating_add(1));
        let by_trace = vec![Totals::default(); count];
        let mut tally =
            Self { traces, by_trace, used: vec![false; streams.len()], totals: Totals::default() };
        for (stream, packets) in passed.skips.iter().map(|skip| skip.packets as u64).enumerate() {
            if !passed.is_checked {
                tally.count(stream, |totals| totals.unread = totals.unread.saturating_add(packets));
            } else if packets > 0 {
                tally.totals.packets = tally.totals.packets.saturating_add(packets);
                tally.used.get_mut(stream).into_iter().for_each(|used| *used = true);
            }
        }
        tally
    }

    /// Changes the counts of all traces and those of the stream's trace.
    fn count(&mut self, stream: usize, change: impl Fn(&mut Totals)) {
        change(&mut self.totals);
        let trace = self.traces.get(stream).and_then(|trace| self.by_trace.get_mut(*trace));
        trace.into_iter().for_each(change);
    }

    /// Counts a packet of the stream.
    pub(crate) fn packet(&mut self, stream: usize) {
        self.totals.packets = self.totals.packets.saturating_add(1);
        self.used.get_mut(stream).into_iter().for_each(|used| *used = true);
    }

    pub(crate) fn loss(&mut self, stream: usize, loss: Loss) {
        self.count(stream, |totals| totals.lose(loss));
    }

    pub(crate) fn fault(&mut self, stream: usize) {
        self.count(stream, |totals| totals.faults = totals.faults.saturating_add(1));
    }

    /// Reports the losses and faults of each trace to `notes`, and returns the counts of all
    /// traces. `bytes` is the number of bytes written.
    ///
    /// # Errors
    /// Writing has failed with the error `failed`.
    pub(crate) fn finish(
        self,
        failed: Option<io::Error>,
        bytes: u64,
        notes: &mut dyn FnMut(Note),
    ) -> crate::Result<Totals> {
        let damaged =
            self.by_trace.iter().enumerate().filter(|(_, totals)| **totals != Totals::default());
        damaged.for_each(|(trace, totals)| notes(Note::Read(trace, *totals)));
        let streams = self.used.iter().filter(|used| **used).count() as u64;
        failed.map_or(Ok(Totals { bytes, streams, ..self.totals }), |error| {
            Err(crate::Error::Output(error))
        })
    }
}

/// Facts about a stream that is read.
#[derive(Debug, Clone)]
pub struct StreamInfo {
    /// Position of the stream's trace.
    pub trace: usize,
    /// Position of the stream's class in the trace.
    pub class: usize,
    /// Number of the stream among the streams of its trace. Events of equal time are merged in the
    /// order of these numbers.
    pub number: u64,
    /// The CPU that the stream is bound to.
    pub cpu: Option<u32>,
}

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

/// Returns facts about all streams of some traces, in the order of [`readers`].
pub(crate) fn stream_infos(traces: &[Trace], readers: &[(usize, Reader<'_>)]) -> Vec<StreamInfo> {
    let mut counts = vec![0; traces.len()];
    let facts = readers.iter().map(|(position, reader)| {
        let count = counts.get_mut(*position);
        let number = count.as_deref().copied().unwrap_or(0);
        count.into_iter().for_each(|count| *count = u64::saturating_add(*count, 1));
        let cpu = traces.get(*position).and_then(|trace| cpu(trace, reader.stream()));
        StreamInfo { trace: *position, class: reader.stream().class, number, cpu }
    });
    facts.collect()
}

/// Returns true if all events of the stream are wanted because they were selected when the trace
/// was made.
fn is_selected(traces: &[Trace], facts: &StreamInfo) -> bool {
    traces.get(facts.trace).is_some_and(|trace| trace.is_selected)
}

/// Returns the name of a stream class, or its id if it has no name.
#[must_use]
pub fn channel(class: &StreamClass) -> String {
    if class.name.is_empty() { class.id.to_string() } else { class.name.clone() }
}

/// Returns the code that decodes a scope of an event class, or none if the event class has no such
/// scope.
#[must_use]
pub fn scope_code(trace: &Trace, scope: Scope, stream: usize, event: usize) -> Option<&Code> {
    trace.class().scope(scope, stream, event)?;
    trace.program.code(scope, stream, event)
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
            let class =
                traces.get(facts.trace).and_then(|trace| trace.class().streams.get(facts.class));
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
            let class =
                traces.get(facts.trace).and_then(|trace| trace.class().streams.get(facts.class));
            let events = class.map_or(&[][..], |class| &class.events);
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

/// Calls `visit` with each selected event in order of time, and with the reader that has the event
/// in its window. Errors of reading go to `notes`. `watch` receives the number of bytes that were
/// read.
pub fn each(
    traces: &[Trace],
    selection: &Selection,
    watch: Watch<'_>,
    visit: &mut dyn FnMut(&mut Reader<'_>, &Due),
    notes: &mut dyn FnMut(Note),
) {
    let Chosen { mut readers, filter, .. } =
        Chosen::last(traces, selection, Rounding::Floor, watch);
    let visit =
        |_: &Filter<'_>, _: usize, reader: &mut Reader<'_>, event: &Due| visit(reader, event);
    run(&mut readers, &mut Each { filter, visit, notes });
}

/// Calls `visit` with each selected event.
struct Each<'a, 't, F> {
    filter: Filter<'t>,
    visit: F,
    notes: &'a mut dyn FnMut(Note),
}

impl<F: FnMut(&Filter<'_>, usize, &mut Reader<'_>, &Due)> Sink for Each<'_, '_, F> {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if self.filter.wants(stream, reader, event) {
            (self.visit)(&self.filter, stream, reader, event);
        }
        true
    }

    fn packet(&mut self, _: usize, _: &mut Reader<'_>) {}

    fn loss(&mut self, _: usize, _: &mut Reader<'_>, _: Loss) {}

    fn fault(&mut self, _: usize, fault: Error) {
        (self.notes)(Note::Fault(fault));
    }
}

/// Takes the selected events of some traces in order of time, and what surrounds them.
pub trait Take {
    /// Takes an event. The reader has the event in its window.
    fn event(&mut self, stream: &StreamInfo, reader: &mut Reader<'_>, event: &Due);

    /// Takes the begin of a packet, which is [`Reader::packet`]. The stream's earlier events were
    /// taken before.
    fn packet(&mut self, _stream: &StreamInfo, _reader: &mut Reader<'_>) {}

    /// Takes a loss that the packets of a trace without an account report. It lies before the
    /// stream's next event.
    fn loss(&mut self, _stream: &StreamInfo, _reader: &mut Reader<'_>, _loss: Loss) {}

    /// Notes that a part of the stream cannot be decoded. The stream's earlier events were taken
    /// before.
    fn fault(&mut self, _stream: &StreamInfo) {}
}

/// Passes each selected event to `to`. Errors of reading go to `notes`. `watch` receives the number
/// of bytes that were read. Returns the counts of events, packets and losses; those of events
/// include the events that [`Selection::last`] skips.
///
/// # Errors
/// There are none so far.
pub fn take(
    traces: &[Trace],
    selection: &Selection,
    watch: Watch<'_>,
    to: &mut dyn Take,
    notes: &mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    // The events that are skipped are counted too, so that all are read.
    let Chosen { mut readers, filter, facts, passed, .. } =
        Chosen::counted(traces, selection, Rounding::Floor, watch);
    let mut tally = Tally::new(&facts, &passed);
    tally.totals.events = filter.to_skip;
    let mut taking = Taking { filter, facts, to, notes, tally };
    run(&mut readers, &mut taking);
    taking.tally.finish(None, 0, taking.notes)
}

/// Passes the selected events to a [`Take`], and counts them.
struct Taking<'a, 't> {
    filter: Filter<'t>,
    facts: Vec<StreamInfo>,
    to: &'a mut dyn Take,
    notes: &'a mut dyn FnMut(Note),
    tally: Tally,
}

impl Sink for Taking<'_, '_> {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if self.filter.wants(stream, reader, event)
            && let Some(facts) = self.facts.get(stream)
        {
            self.to.event(facts, reader, event);
            let events = &mut self.tally.totals.events;
            *events = events.saturating_add(self.filter.count(stream));
        }
        true
    }

    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>) {
        self.tally.packet(stream);
        self.facts.get(stream).into_iter().for_each(|facts| self.to.packet(facts, reader));
    }

    fn loss(&mut self, stream: usize, reader: &mut Reader<'_>, loss: Loss) {
        self.tally.loss(stream, loss);
        self.facts.get(stream).into_iter().for_each(|facts| self.to.loss(facts, reader, loss));
    }

    fn fault(&mut self, stream: usize, fault: Error) {
        self.tally.fault(stream);
        self.facts.get(stream).into_iter().for_each(|facts| self.to.fault(facts));
        (self.notes)(Note::Fault(fault));
    }
}

/// Formats events.
pub(crate) trait Line {
    /// Appends an event of the stream at a position of [`Chosen::readers`].
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>);

    /// Takes the begin of a packet, which is [`Reader::packet`]. The stream's earlier events were
    /// taken before.
    fn packet(&mut self, _stream: usize, _reader: &mut Reader<'_>, _out: &mut Vec<u8>) {}

    /// Takes a loss that the packets of a trace without an account report. It lies in the packet
    /// that is read next, or before it.
    fn loss(&mut self, _stream: usize, _loss: Loss) {}

    /// Notes that a part of the stream cannot be decoded. The stream's earlier events were taken
    /// before.
    fn fault(&mut self, _stream: usize) {}

    /// Appends what remains to be written after the last event.
    fn end(&mut self, _out: &mut Vec<u8>) {}
}

/// Takes the line of an event and the event's time in nanoseconds. Returns false if it wants no
/// more lines.
pub(crate) type PutLine<'o> = dyn FnMut(i64, &[u8]) -> bool + 'o;

/// The destination of the output.
pub(crate) enum Out<'o> {
    /// The whole output.
    File(&'o mut dyn Write),
    /// Each line separately, with its time.
    Lines(&'o mut PutLine<'o>),
}

impl Out<'_> {
    /// Writes text, or passes on the line of an event at `time`.
    ///
    /// # Errors
    /// The text cannot be written, or the receiver of the lines wants no more.
    pub(crate) fn put(&mut self, time: i64, text: &[u8]) -> io::Result<()> {
        match self {
            Self::File(out) => out.write_all(text),
            Self::Lines(put) => {
                put(time, text).then_some(()).ok_or_else(|| ErrorKind::BrokenPipe.into())
            }
        }
    }
}

/// Formats each chosen event with `line` and writes it to `out`.
///
/// # Errors
/// `out` cannot be written or wants no more lines.
pub(crate) fn write<'o>(
    chosen: Chosen<'_>,
    line: &mut impl Line,
    out: Out<'o>,
    notes: &'o mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let Chosen { mut readers, filter, facts, passed, .. } = chosen;
    let full = if matches!(out, Out::File(_)) { CHUNK } else { 0 };
    let (buffer, tally) = (Vec::with_capacity(2 * CHUNK), Tally::new(&facts, &passed));
    let mut writer =
        Writer { filter, line, out, full, notes, buffer, bytes: 0, tally, failed: None };
    run(&mut readers, &mut writer);
    writer.line.end(&mut writer.buffer);
    if writer.failed.is_none() && !writer.buffer.is_empty() {
        writer.put(0);
    }
    if let (Out::File(out), None) = (&mut writer.out, &writer.failed) {
        writer.failed = out.flush().err();
    }
    writer.tally.finish(writer.failed, writer.bytes, writer.notes)
}

struct Writer<'a, 'o, 't, L> {
    filter: Filter<'t>,
    line: &'a mut L,
    out: Out<'o>,
    /// Number of bytes in the buffer from which on they are written.
    full: usize,
    notes: &'o mut dyn FnMut(Note),
    buffer: Vec<u8>,
    /// Number of bytes written.
    bytes: u64,
    tally: Tally,
    failed: Option<io::Error>,
}

impl<L> Writer<'_, '_, '_, L> {
    /// Writes the buffer, whose last event has this time.
    fn put(&mut self, time: i64) {
        self.bytes = self.bytes.saturating_add(self.buffer.len() as u64);
        self.failed = self.out.put(time, &self.buffer).err();
        self.buffer.clear();
    }
}

impl<L: Line> Sink for Writer<'_, '_, '_, L> {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if self.filter.wants(stream, reader, event) {
            self.line.line(stream, reader, event, &mut self.buffer);
            let events = &mut self.tally.totals.events;
            *events = events.saturating_add(self.filter.count(stream));
            if self.buffer.len() >= self.full {
                self.put(event.nanoseconds.unwrap_or(0));
            }
        }
        self.failed.is_none()
    }

    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>) {
        self.tally.packet(stream);
        self.line.packet(stream, reader, &mut self.buffer);
    }

    fn loss(&mut self, stream: usize, _: &mut Reader<'_>, loss: Loss) {
        self.tally.loss(stream, loss);
        self.line.loss(stream, loss);
    }

    fn fault(&mut self, stream: usize, fault: Error) {
        self.tally.fault(stream);
        self.line.fault(stream);
        (self.notes)(Note::Fault(fault));
    }
}
