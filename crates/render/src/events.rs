//! Reads the chosen events of traces in order of time. Every writer of events begins here.

use crate::Totals;
use crate::choose::{Chosen, Filter, Passed};
use crate::select::Selection;
use crate::streams::StreamInfo;
use lastwords_ctf::read::{Due, Error, Loss, Reader, Sink, Trace, Watch, run};
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
