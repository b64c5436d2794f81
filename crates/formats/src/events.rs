//! The run over merged events that the text and JSON writers share.

use crate::Totals;
use crate::once::Once;
use crate::select::Selection;
use lastwords_ctf::{Error, Result};
use lastwords_trace::clock::Rounding;
use lastwords_trace::merge::{Event, Fault, Merge, Progress};
use lastwords_trace::source::Source;
use std::io::Write;

/// Bytes gathered before they are written.
const CHUNK: usize = 128 << 10;
/// Events between two calls of `progress`.
const BEAT: u64 = 1 << 16;

/// Makes the line of an event.
pub(crate) trait Line {
    /// Appends the event's line, line feed included.
    fn line(&mut self, event: &Event<'_>, out: &mut Vec<u8>);
}

/// The outcome of a run: totals, and packets that could not be decoded to their end.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What was written.
    pub totals: Totals,
    /// The first thousand faults; [`Totals::faults`] counts all.
    pub faults: Vec<Fault>,
}

/// Events to pass over so that only the last ones are shown.
pub(crate) fn skip(sources: &[&dyn Source], selection: &Selection, rounding: Rounding) -> u64 {
    let Some(last) = selection.last else { return 0 };
    let mut count = 0u64;
    each(sources, selection, rounding, &mut |_| count += 1);
    count.saturating_sub(last)
}

/// Calls `visit` with each selected event, in order of time; [`Selection::last`] does not count.
pub fn each(sources: &[&dyn Source], selection: &Selection, rounding: Rounding, visit: &mut dyn FnMut(&Event<'_>)) {
    let mut filter = Filter::new(sources, selection);
    let mut merge = filter.merge(sources, rounding);
    while let Some(event) = merge.next() {
        if filter.wants(&event) {
            visit(&event);
        }
    }
}

/// Writes a line for each selected event.
pub(crate) fn run(
    sources: &[&dyn Source],
    selection: &Selection,
    rounding: Rounding,
    line: &mut impl Line,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome> {
    let mut passed_over = skip(sources, selection, rounding);
    let mut filter = Filter::new(sources, selection);
    let mut merge = filter.merge(sources, rounding);
    let mut totals = Totals { streams: merge.streams() as u64, ..Totals::default() };
    let mut buffer = Vec::with_capacity(2 * CHUNK);
    let mut beat = 0;
    while let Some(event) = merge.next() {
        beat += 1;
        if !filter.wants(&event) {
            // Not shown, but it may take long to find one that is.
        } else if passed_over > 0 {
            passed_over -= 1;
        } else {
            line.line(&event, &mut buffer);
            totals.events += 1;
        }
        if buffer.len() >= CHUNK {
            flush(&mut buffer, out, &mut totals)?;
        }
        if beat % BEAT == 0 {
            progress(merge.progress());
        }
    }
    flush(&mut buffer, out, &mut totals)?;
    out.flush().map_err(Error::Output)?;
    progress(merge.progress());
    totals.packets = merge.progress().packets;
    totals.faults = merge.fault_count();
    Ok(Outcome { totals, faults: merge.faults().to_vec() })
}

fn flush(buffer: &mut Vec<u8>, out: &mut dyn Write, totals: &mut Totals) -> Result<()> {
    out.write_all(buffer).map_err(Error::Output)?;
    totals.bytes += buffer.len() as u64;
    buffer.clear();
    Ok(())
}

/// A selection, compiled for some sources.
struct Filter<'a> {
    selection: &'a Selection,
    /// By source, channel, class; empty where all names are shown.
    classes: Vec<Vec<Vec<bool>>>,
    timed: bool,
    once: Option<Once>,
}

impl<'a> Filter<'a> {
    fn new(sources: &[&dyn Source], selection: &'a Selection) -> Self {
        let named = !selection.events.is_empty();
        let classes = if named { sources.iter().map(|s| selection.classes(s.schema())).collect() } else { Vec::new() };
        let once = selection.once.then(|| Once::new(sources));
        Self { selection, classes, timed: selection.since.is_some() || selection.until.is_some(), once }
    }

    fn merge<'s>(&self, sources: &[&'s dyn Source], rounding: Rounding) -> Merge<'s> {
        let wanted = |source: usize, stream: usize| {
            let stream = sources.get(source).and_then(|s| Some((s.streams().get(stream)?, s.schema())));
            stream.is_some_and(|(stream, schema)| self.selection.wants_stream(stream, schema))
        };
        Merge::new(sources, rounding, wanted)
    }

    #[inline]
    fn wants(&mut self, event: &Event<'_>) -> bool {
        let is_copy = self.once.as_mut().is_some_and(|once| once.is_copy(event));
        !is_copy
            && (!self.timed || self.selection.wants_time(event.nanoseconds))
            && (self.classes.is_empty() || self.classes[event.source][event.channel][event.raw.class])
    }
}
