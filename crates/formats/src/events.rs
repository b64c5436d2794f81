//! Streams and events that are selected: what all writers of events begin with.

use crate::Totals;
use crate::once::Once;
use crate::select::Selection;
use lastwords_ctf::read::{Due, Error, Loss, Reader, Sink, Trace, Watch, cpu, readers, run, unwatched};
use lastwords_trace::class::StreamClass;
use lastwords_trace::clock::Rounding;
use std::io::Write;

/// Bytes gathered before they are written.
const CHUNK: usize = 128 << 10;

/// Something besides events that reading them found.
#[derive(Debug)]
pub enum Note {
    /// Packets of a trace that has no account tell that events or packets are missing; the same in babeltrace2's words.
    Loss(Loss, String),
    /// Something cannot be read.
    Fault(Error),
    /// What is written differs from what was read.
    Remark(String),
    /// The losses and faults of the trace at a position, where there are any; once all is read.
    Read(usize, Totals),
}

/// What reading tells of the losses and faults of each trace.
pub(crate) struct Tally {
    /// By stream: the position of its trace.
    streams: Vec<usize>,
    /// By trace.
    totals: Vec<Totals>,
}

impl Tally {
    pub(crate) fn new(facts: &[Facts]) -> Self {
        let streams: Vec<usize> = facts.iter().map(|facts| facts.trace).collect();
        let traces = streams.iter().max().map_or(0, |last| last + 1);
        Self { streams, totals: vec![Totals::default(); traces] }
    }

    fn of(&mut self, stream: usize) -> Option<&mut Totals> {
        self.totals.get_mut(*self.streams.get(stream)?)
    }

    pub(crate) fn lose(&mut self, stream: usize, loss: Loss) {
        self.of(stream).into_iter().for_each(|totals| totals.lose(loss));
    }

    pub(crate) fn fault(&mut self, stream: usize) {
        self.of(stream).into_iter().for_each(|totals| totals.faults += 1);
    }

    pub(crate) fn tell(&self, notes: &mut dyn FnMut(Note)) {
        let told = self.totals.iter().enumerate().filter(|(_, totals)| **totals != Totals::default());
        told.for_each(|(trace, totals)| notes(Note::Read(trace, *totals)));
    }
}

/// One stream that is read.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Position of its trace.
    pub(crate) trace: usize,
    /// Position of its class in the trace.
    pub(crate) class: usize,
    /// Its number among the streams of its trace, in the order in which events of one time come.
    pub(crate) number: u64,
    /// Its CPU, where it is bound to one.
    pub(crate) cpu: Option<u32>,
}

/// The streams of some traces that a selection wants, and which of their events.
pub(crate) struct Chosen<'t> {
    pub(crate) traces: &'t [Trace],
    pub(crate) readers: Vec<(usize, Reader<'t>)>,
    /// By position in `readers`.
    pub(crate) facts: Vec<Facts>,
    pub(crate) filter: Filter<'t>,
}

/// The facts of all streams of some traces, in the order of [`readers`].
pub(crate) fn facts(traces: &[Trace], readers: &[(usize, Reader<'_>)]) -> Vec<Facts> {
    let mut counts = vec![0; traces.len()];
    let facts = readers.iter().map(|(position, reader)| {
        let count = counts.get_mut(*position);
        let number = count.as_deref().copied().unwrap_or(0);
        count.into_iter().for_each(|count| *count += 1);
        let cpu = traces.get(*position).and_then(|trace| cpu(trace, reader.stream()));
        Facts { trace: *position, class: reader.stream().class, number, cpu }
    });
    facts.collect()
}

/// All events of the stream are wanted: they were selected when they were made.
fn is_selected(traces: &[Trace], facts: &Facts) -> bool {
    traces.get(facts.trace).is_some_and(|trace| trace.is_selected)
}

/// A stream class's name, else its id.
pub(crate) fn channel(class: &StreamClass) -> String {
    if class.name.is_empty() { class.id.to_string() } else { class.name.clone() }
}

impl<'t> Chosen<'t> {
    /// The streams that `selection` wants. `rounding` says how their times are computed.
    pub(crate) fn new(traces: &'t [Trace], selection: &'t Selection, rounding: Rounding, watch: Watch<'t>) -> Self {
        let all: Vec<_> = readers(traces);
        let facts = facts(traces, &all);
        let wanted = |facts: &Facts| {
            let class = traces.get(facts.trace).and_then(|trace| trace.class().streams.get(facts.class));
            is_selected(traces, facts)
                || selection.wants_cpu(facts.cpu) && class.is_none_or(|class| selection.wants_channel(&channel(class)))
        };
        let kept = all.into_iter().zip(facts).filter(|(_, facts)| wanted(facts));
        let (readers, facts): (Vec<_>, Vec<_>) = kept.unzip();
        let readers = readers.into_iter().map(|(trace, reader)| (trace, reader.rounded(rounding).watched(watch)));
        Self { traces, readers: readers.collect(), filter: Filter::new(traces, &facts, selection), facts }
    }

    /// The same, of which only the last events are wanted where `selection` says so: all are counted first.
    pub(crate) fn last(traces: &'t [Trace], selection: &'t Selection, rounding: Rounding, watch: Watch<'t>) -> Self {
        let mut chosen = Self::new(traces, selection, rounding, watch);
        if let Some(last) = selection.last {
            let Self { mut readers, filter, .. } = Self::new(traces, selection, rounding, &unwatched);
            let mut counter = Counter { filter, events: 0 };
            run(&mut readers, &mut counter);
            chosen.filter.passed_over = counter.events.saturating_sub(last);
        }
        chosen
    }

    /// Bytes of packets to be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.readers.iter().map(|(_, reader)| reader.stream().bytes()).fold(0, u64::saturating_add)
    }
}

/// Which events of the chosen streams are wanted.
pub(crate) struct Filter<'t> {
    selection: &'t Selection,
    /// By stream: all of its events are wanted.
    all: Vec<bool>,
    /// By stream: its events stand beside others.
    beside: Vec<bool>,
    /// By stream and event class: events of it are wanted.
    classes: Vec<Vec<bool>>,
    once: Option<Once<'t>>,
    /// Events that are left out before the first one that is wanted, so that only the last ones are.
    passed_over: u64,
}

impl<'t> Filter<'t> {
    fn new(traces: &'t [Trace], facts: &[Facts], selection: &'t Selection) -> Self {
        let once = selection.once.then(|| Once::new(traces, facts)).filter(|once| !once.is_idle());
        let timeless = selection.since.is_none() && selection.until.is_none();
        let classes = |facts: &Facts| -> Vec<bool> {
            let class = traces.get(facts.trace).and_then(|trace| trace.class().streams.get(facts.class));
            let events = class.map_or(&[][..], |class| &class.events);
            events.iter().map(|event| selection.wants_name(event.name.as_deref().unwrap_or("<unknown>"))).collect()
        };
        let classes: Vec<Vec<bool>> = facts.iter().map(classes).collect();
        let is_whole = |of: &Vec<bool>| timeless && once.is_none() && of.iter().all(|wanted| *wanted);
        let all = facts.iter().zip(&classes).map(|(facts, of)| is_selected(traces, facts) || is_whole(of)).collect();
        let is_beside = |facts: &Facts| traces.get(facts.trace).is_some_and(|trace| trace.is_beside);
        let beside = facts.iter().map(is_beside).collect();
        Self { selection, all, beside, classes, once, passed_over: 0 }
    }

    /// The event is wanted. To be asked of every event, in order.
    #[inline]
    pub(crate) fn wants(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let is_wanted = self.all.get(stream).copied().unwrap_or(true) || self.judge(stream, reader, event);
        is_wanted && (self.passed_over == 0 || self.pass_over(stream))
    }

    #[cold]
    fn pass_over(&mut self, stream: usize) -> bool {
        self.passed_over -= self.count(stream);
        false
    }

    /// What an event of the stream counts.
    #[inline]
    fn count(&self, stream: usize) -> u64 {
        u64::from(!self.beside.get(stream).copied().unwrap_or(false))
    }

    fn judge(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let is_copy = self.once.as_mut().is_some_and(|once| once.is_copy(stream, reader, event));
        let named = self.classes.get(stream).and_then(|classes| classes.get(event.class)).copied().unwrap_or(true);
        let timed = || event.nanoseconds.is_none_or(|moment| self.selection.wants_time(moment));
        !is_copy && named && timed()
    }
}

/// Counts the events that are wanted.
struct Counter<'t> {
    filter: Filter<'t>,
    events: u64,
}

impl Sink for Counter<'_> {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if self.filter.wants(stream, reader, event) {
            self.events += self.filter.count(stream);
        }
        true
    }

    fn packet(&mut self, _: usize, _: &mut Reader<'_>) {}

    fn loss(&mut self, _: usize, _: &mut Reader<'_>, _: Loss) {}

    fn fault(&mut self, _: usize, _: Error) {}
}

/// Calls `visit` with each selected event, in order of time, and the reader that has it in its window. What cannot be read goes to
/// `notes`, and how many bytes were read to `watch`.
pub fn each(
    traces: &[Trace],
    selection: &Selection,
    watch: Watch<'_>,
    visit: &mut dyn FnMut(&mut Reader<'_>, &Due),
    notes: &mut dyn FnMut(Note),
) {
    let Chosen { mut readers, filter, .. } = Chosen::last(traces, selection, Rounding::Floor, watch);
    run(&mut readers, &mut Each { filter, visit, notes });
}

struct Each<'a, 't> {
    filter: Filter<'t>,
    visit: &'a mut dyn FnMut(&mut Reader<'_>, &Due),
    notes: &'a mut dyn FnMut(Note),
}

impl Sink for Each<'_, '_> {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if self.filter.wants(stream, reader, event) {
            (self.visit)(reader, event);
        }
        true
    }

    fn packet(&mut self, _: usize, _: &mut Reader<'_>) {}

    fn loss(&mut self, _: usize, _: &mut Reader<'_>, _: Loss) {}

    fn fault(&mut self, _: usize, fault: Error) {
        (self.notes)(Note::Fault(fault));
    }
}

/// The streams that have packets.
pub(crate) struct Used(Vec<bool>);

impl Used {
    pub(crate) fn new(streams: usize) -> Self {
        Self(vec![false; streams])
    }

    /// A packet of this stream was read.
    pub(crate) fn mark(&mut self, stream: usize) {
        self.0.get_mut(stream).into_iter().for_each(|used| *used = true);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().filter(|used| **used).count() as u64
    }
}

/// Makes what is written of an event.
pub(crate) trait Line {
    /// Appends the event, which is of the stream at a position of [`Chosen::readers`].
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>);

    /// Appends what is left behind the last event.
    fn end(&mut self, _out: &mut Vec<u8>) {}
}

/// Writes what `line` makes of each chosen event.
///
/// # Errors
/// `out` cannot be written.
pub(crate) fn write(
    chosen: Chosen<'_>,
    line: &mut impl Line,
    out: &mut dyn Write,
    notes: &mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let mut bytes = 0;
    let mut put = |buffer: &mut Vec<u8>, _: i64| {
        if buffer.len() < CHUNK {
            return Ok(());
        }
        bytes += buffer.len() as u64;
        let written = out.write_all(buffer);
        buffer.clear();
        written
    };
    let (totals, rest) = put_lines(chosen, line, &mut put, notes)?;
    bytes += rest.len() as u64;
    out.write_all(&rest).and_then(|()| out.flush()).map_err(crate::Error::Output)?;
    Ok(Totals { bytes, ..totals })
}

/// Gives what `line` makes of each chosen event to `put`, with its time.
///
/// # Errors
/// `put` returned false.
pub(crate) fn each_line(
    chosen: Chosen<'_>,
    line: &mut impl Line,
    put: &mut dyn FnMut(i64, &[u8]) -> bool,
    notes: &mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let mut bytes = 0;
    let mut put = |buffer: &mut Vec<u8>, time: i64| {
        bytes += buffer.len() as u64;
        let is_taken = put(time, buffer);
        buffer.clear();
        if is_taken { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    };
    let (totals, _) = put_lines(chosen, line, &mut put, notes)?;
    Ok(Totals { bytes, ..totals })
}

/// Takes what was made so far, and the time of the event that was appended last.
type Put<'a> = dyn FnMut(&mut Vec<u8>, i64) -> std::io::Result<()> + 'a;

/// The totals, and what `put` left.
fn put_lines(
    chosen: Chosen<'_>,
    line: &mut impl Line,
    put: &mut Put<'_>,
    notes: &mut dyn FnMut(Note),
) -> crate::Result<(Totals, Vec<u8>)> {
    let Chosen { mut readers, filter, facts, .. } = chosen;
    let (totals, used) = (Totals::default(), Used::new(readers.len()));
    let (buffer, tally) = (Vec::with_capacity(2 * CHUNK), Tally::new(&facts));
    let mut writer = Writer { filter, line, put, notes, buffer, totals, tally, used, failed: None };
    run(&mut readers, &mut writer);
    writer.tally.tell(writer.notes);
    writer.line.end(&mut writer.buffer);
    writer.totals.streams = writer.used.count();
    match writer.failed {
        Some(error) => Err(crate::Error::Output(error)),
        None => Ok((writer.totals, writer.buffer)),
    }
}

struct Writer<'a, 't, L> {
    filter: Filter<'t>,
    line: &'a mut L,
    put: &'a mut Put<'a>,
    notes: &'a mut dyn FnMut(Note),
    buffer: Vec<u8>,
    totals: Totals,
    tally: Tally,
    used: Used,
    failed: Option<std::io::Error>,
}

impl<L: Line> Sink for Writer<'_, '_, L> {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if self.filter.wants(stream, reader, event) {
            self.line.line(stream, reader, event, &mut self.buffer);
            self.totals.events += self.filter.count(stream);
            self.failed = (self.put)(&mut self.buffer, event.nanoseconds.unwrap_or(0)).err();
        }
        self.failed.is_none()
    }

    fn packet(&mut self, stream: usize, _: &mut Reader<'_>) {
        self.totals.packets += 1;
        self.used.mark(stream);
    }

    fn loss(&mut self, stream: usize, _: &mut Reader<'_>, loss: Loss) {
        self.totals.lose(loss);
        self.tally.lose(stream, loss);
    }

    fn fault(&mut self, stream: usize, fault: Error) {
        self.totals.faults += 1;
        self.tally.fault(stream);
        (self.notes)(Note::Fault(fault));
    }
}
