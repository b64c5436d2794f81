//! Traces of several kinds on one timeline.

use super::timeline::{self, Lines};
use super::{Run, Told, is_closed, log, timeline_of};
use crate::account::Notes;
use crate::say;
use crate::table::plain;
use lastwords_ctf::read;
use lastwords_formats::Totals;
use lastwords_formats::ftrace::log::LogLine;
use lastwords_formats::ftrace::text as ftrace;
use lastwords_formats::select::Selection;
use lastwords_formats::text::{self, Style, Zone};
use lastwords_open::{Ftrace, Trace};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

impl Run<'_> {
    /// Traces of several kinds, merged by time; those of kernels whose clock's relation to real time is not known stand behind the others.
    pub(super) fn all(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let (timed, untimed): (Vec<&Trace>, Vec<&Trace>) =
            self.traces.arrays().partition(|array| real_time(array).is_some());
        let chosen = self.chosen.without_last();
        let kept = Mutex::new((Told::default(), Vec::new()));
        let mut logs = Vec::new();
        for array in &timed {
            logs.push(if self.form.with_log { log(array)? } else { Vec::new() });
        }
        let mut sources: Vec<Box<dyn timeline::Source + '_>> = Vec::new();
        let selection = Self::selection(&chosen, self.style);
        let (traces, style, zone) = (self.packets.as_slice(), self.style, &self.form.zone);
        sources.push(Box::new(Packets { traces, style, selection, zone, kept: &kept }));
        for (array, lines) in timed.iter().zip(&logs) {
            let options = self.options(array, &chosen)?;
            let offset = real_time(array).unwrap_or(0);
            let position = self.traces.position(array);
            sources.push(Box::new(Kernel { array, position, options, offset, lines, kept: &kept }));
        }
        let merged = timeline::merge(&mut sources, self.chosen.last, out);
        drop(sources);
        let (told, failed) = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.told = told;
        self.told.totals.events = merged?;
        if let Some(failed) = failed.into_iter().next() {
            return Err(failed);
        }
        for Trace { name, .. } in &untimed {
            let name = plain(name);
            say::note(format_args!(
                "instance {name} stands behind the others: its clock's relation to real time is not known"
            ));
        }
        self.kernels(&untimed, out)
    }
}

/// Nanoseconds that are added to an array's clock to give time since the epoch; none where they are not known.
fn real_time(array: &Trace) -> Option<i64> {
    array.ftrace()?.real_time()
}

/// What the sources of a timeline tell of: totals, and why one of them failed.
type Kept = Mutex<(Told, Vec<anyhow::Error>)>;

fn keep(kept: &Kept, write: impl FnOnce(&mut Told) -> anyhow::Result<()>) {
    let (told, failed) = &mut *kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = write(told)
        && !is_closed(&error)
    {
        failed.push(error);
    }
}

/// Packets as a source of a timeline.
struct Packets<'a> {
    traces: &'a [read::Trace],
    style: Style,
    selection: Selection,
    zone: &'a Zone,
    kept: &'a Kept,
}

impl timeline::Source for Packets<'_> {
    fn run(&mut self, out: &mut Lines) -> io::Result<()> {
        let Self { traces, style, selection, zone, kept } = self;
        let mut put = |time: i64, line: &[u8]| out.put(time, line).is_ok();
        let mut notes = Notes::default();
        let written = text::each(traces, *style, selection, zone, &mut put, &mut |note| notes.take(note));
        keep(kept, |told| {
            told.notes = notes;
            told.totals.add(&Totals { events: 0, ..written? });
            Ok(())
        });
        Ok(())
    }
}

/// A trace array as a source of a timeline.
struct Kernel<'a> {
    array: &'a Trace,
    position: Option<usize>,
    options: ftrace::Options,
    offset: i64,
    lines: &'a [LogLine],
    kept: &'a Kept,
}

impl timeline::Source for Kernel<'_> {
    fn run(&mut self, out: &mut Lines) -> io::Result<()> {
        let Some(Ftrace { machine, index, .. }) = self.array.ftrace() else { return Ok(()) };
        let log = timeline_of(self.array, self.lines);
        let offset = self.offset;
        let mut put = |clock: u64, text: &[u8]| {
            out.put(i64::try_from(clock).map_or(timeline::END, |clock| clock.saturating_add(offset)), text)
        };
        let summary = ftrace::each(&mut put, &machine.tracing, index, &self.options, log);
        keep(self.kept, |told| {
            told.add(&summary?, self.position);
            Ok(())
        });
        Ok(())
    }
}
