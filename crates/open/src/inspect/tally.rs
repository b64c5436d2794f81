//! Counts the events of streams by class and over time, in one pass: a stream on each CPU, or
//! merged where a selection needs their order.

use super::histogram::Histogram;
use crate::counts::fold;
use lastwords_ctf::read::{Due, Next, Reader, Stream, Trace, Watch};
use lastwords_ctf::{Result, Totals};
use lastwords_render::events::{Take, take};
use lastwords_render::missing::count;
use lastwords_render::select::Selection;
use lastwords_render::streams::StreamInfo;
use lastwords_trace::clock::Rounding;
use lastwords_trace::parallel;

/// Events, by class and over time.
#[derive(Debug, Clone, Default)]
pub(super) struct Counted {
    /// Position of their stream class in the trace.
    pub(super) class: usize,
    /// Number of events of each event class, by position in the stream class.
    pub(super) classes: Vec<u64>,
    /// Nanoseconds of the first and the last event.
    pub(super) span: Option<(i64, i64)>,
    pub(super) histogram: Histogram,
    /// Number of events with a time that 64 bits cannot hold. Text cannot show them.
    beyond: u64,
    /// The events have times.
    has_clock: bool,
}

impl Counted {
    fn new(trace: &Trace, class: usize) -> Self {
        let of = trace.class().streams.get(class);
        let (events, has_clock) = of.map_or((0, false), |of| (of.events.len(), of.clock.is_some()));
        Self { class, classes: vec![0; events], has_clock, ..Self::default() }
    }

    #[inline]
    fn add(&mut self, class: usize, time: Option<i64>) {
        if let Some(count) = self.classes.get_mut(class) {
            *count = count.saturating_add(1);
        }
        if let Some(time) = time.filter(|time| !matches!(*time, i64::MIN | i64::MAX)) {
            let (first, last) = self.span.unwrap_or((time, time));
            self.span = Some((first.min(time), last.max(time)));
            self.histogram.add(time, 1);
        } else if self.has_clock {
            self.beyond = self.beyond.saturating_add(1);
        }
    }

    /// Returns the number of events.
    pub(super) fn events(&self) -> u64 {
        self.classes.iter().copied().fold(0, u64::saturating_add)
    }
}

/// All that reading a stream found.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) counted: Counted,
    /// Packets that were read.
    pub(super) packets: u64,
    /// Events that the packets count as discarded.
    pub(super) discarded_events: u64,
    /// Packets that are missing between others.
    pub(super) discarded_packets: u64,
    /// The messages about what cannot be read.
    pub(super) faults: Vec<String>,
}

/// Reads all streams of a trace, a stream on each CPU.
pub(super) fn all(trace: &Trace, watch: Watch<'_>) -> Vec<Tally> {
    parallel::map(&trace.streams, parallel::cpus(), |_, stream| {
        let tally = Tally { counted: Counted::new(trace, stream.class), ..Tally::default() };
        let reader = Reader::new(trace, stream).rounded(Rounding::Floor).watched(watch);
        let mut tally =
            fold(reader, tally, |tally, event, time| tally.counted.add(event.class, time), other);
        let beyond = Some(tally.counted.beyond).filter(|beyond| *beyond > 0);
        let fault = |beyond| {
            format!(
                "{}: {} outside of the times of 64 bits",
                stream_name(stream),
                count(beyond, "event")
            )
        };
        tally.faults.extend(beyond.map(fault));
        tally
    })
}

/// Returns the file of a stream, or its number.
fn stream_name(stream: &Stream) -> String {
    match stream.files.first() {
        Some(file) => file.display().to_string(),
        None => format!("stream {}", stream.id.unwrap_or(0)),
    }
}

fn other(tally: &mut Tally, next: &Next) {
    let (sum, count) = match next {
        Next::Packet => (&mut tally.packets, 1),
        Next::Loss(loss) if loss.packets => (&mut tally.discarded_packets, loss.count),
        Next::Loss(loss) => (&mut tally.discarded_events, loss.count),
        Next::Fault(fault) => return tally.faults.push(fault.to_string()),
        Next::Event(_) | Next::End => return,
    };
    *sum = sum.saturating_add(count);
}

/// Counts the selected events of all traces together. Returns those of each trace, by stream class,
/// and what reading all of them found.
///
/// # Errors
/// There are none so far.
pub(super) fn selected(
    traces: &[Trace],
    selection: &Selection,
    watch: Watch<'_>,
) -> Result<(Vec<Vec<Counted>>, Totals)> {
    let of = |trace: &Trace| {
        (0..trace.class().streams.len()).map(|class| Counted::new(trace, class)).collect()
    };
    let mut counting = Counting(traces.iter().map(of).collect());
    let totals = take(traces, selection, watch, &mut counting, &mut |_| {})?;
    Ok((counting.0, totals))
}

/// The counts of each trace and stream class.
struct Counting(Vec<Vec<Counted>>);

impl Take for Counting {
    fn event(&mut self, stream: &StreamInfo, _: &mut Reader<'_>, event: &Due) {
        let counted = self.0.get_mut(stream.trace).and_then(|trace| trace.get_mut(stream.class));
        counted.into_iter().for_each(|counted| counted.add(event.class, event.nanoseconds));
    }
}
