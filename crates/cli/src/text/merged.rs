//! Prints traces of several kinds on one timeline.

use super::arrays::{name, offsets};
use super::timeline::{self, Lines};
use super::{Run, TextResult, is_closed};
use crate::account::Notes;
use crate::kernel_log::{log, timeline_of};
use crate::say;
use crate::table::plain;
use lastwords_ctf::read;
use lastwords_ftrace::log::LogLine;
use lastwords_ftrace::text as ftrace;
use lastwords_open::{Ftrace, Trace};
use lastwords_render::Totals;
use lastwords_render::select::Selection;
use lastwords_render::text::{self, Style, TimeOfDay, Zone};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

impl Run<'_> {
    /// Prints traces of several kinds, merged by time. Kernels whose clock is not related to real
    /// time come after the others. With several trace arrays, each line begins with the name of its
    /// array.
    pub(super) fn all(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let arrays: Vec<&Trace> = self.traces.arrays().collect();
        let alone = offsets(&arrays).filter(|_| self.packets.is_empty());
        let offset = |array: &Trace| array.ftrace()?.real_time();
        let offsets =
            alone.map_or_else(|| arrays.iter().map(|array| offset(array)).collect(), all_known);
        let of_each = || arrays.iter().copied().zip(&offsets);
        let timed: Vec<(&Trace, i64)> =
            of_each().filter_map(|(array, offset)| Some((array, (*offset)?))).collect();
        let untimed: Vec<&Trace> =
            of_each().filter(|(_, offset)| offset.is_none()).map(|(array, _)| array).collect();
        let chosen = self.chosen.without_last();
        let kept = Mutex::new((TextResult::default(), Vec::new()));
        let mut logs = Vec::new();
        for (at, (array, _)) in timed.iter().enumerate() {
            // A kernel has one log, so only its first array prints it.
            let is_first =
                !timed.iter().take(at).any(|(other, _)| Arc::ptr_eq(&other.origin, &array.origin));
            logs.push(if self.form.with_log && is_first {
                log(array, self.form.verbose)?
            } else {
                Vec::new()
            });
        }
        let mut sources: Vec<Box<dyn timeline::Source + '_>> = Vec::new();
        let selection = Self::selection(&chosen, self.style);
        let (traces, style, zone) = (self.packets.as_slice(), self.style, &self.form.zone);
        sources.push(Box::new(Packets { traces, style, selection, zone, kept: &kept }));
        for (&(array, offset), lines) in timed.iter().zip(&logs) {
            let options = self.options(array, &chosen)?;
            let position = self.traces.position(array);
            let name = (arrays.len() > 1).then(|| name(array, &arrays));
            sources.push(Box::new(Kernel {
                array,
                position,
                name,
                time: self.time_of_day(),
                options,
                offset,
                lines,
                kept: &kept,
            }));
        }
        let merged = timeline::merge(&mut sources, self.chosen.last, out);
        drop(sources);
        let (result, failed) = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.result = result;
        self.result.totals.events = merged?;
        if let Some(failed) = failed.into_iter().next() {
            return Err(failed);
        }
        for Trace { name, .. } in &untimed {
            let name = plain(name);
            say::note(format_args!(
                "instance {name} follows the others: the relation of its clock to real time is not known"
            ));
        }
        self.kernels(&untimed, out)
    }
}

impl Run<'_> {
    /// Returns what writes the times with which a kernel's lines begin: those of events of sessions
    /// and CTF are times of day, and a kernel's own are seconds since its boot.
    fn time_of_day(&self) -> Option<TimeOfDay> {
        let are_of_day =
            matches!(self.style, Style::Fields | Style::FieldsWithIds | Style::Babeltrace);
        let is_mixed = !self.packets.is_empty() && are_of_day && self.form.before.is_none();
        is_mixed.then(|| TimeOfDay::new(&self.form.zone, b"", b" "))
    }
}

fn all_known(offsets: Vec<i64>) -> Vec<Option<i64>> {
    offsets.into_iter().map(Some).collect()
}

/// The results of the sources of a timeline: totals, and the errors.
type Results = Mutex<(TextResult, Vec<anyhow::Error>)>;

fn record_result(kept: &Results, write: impl FnOnce(&mut TextResult) -> anyhow::Result<()>) {
    let (result, failed) = &mut *kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = write(result)
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
    kept: &'a Results,
}

impl timeline::Source for Packets<'_> {
    fn run(&mut self, out: &mut Lines) -> io::Result<()> {
        let Self { traces, style, selection, zone, kept } = self;
        let mut put = |time: i64, line: &[u8]| out.put(time, line).is_ok();
        let mut notes = Notes::default();
        let written =
            text::each(traces, *style, selection, zone, &mut put, &mut |note| notes.add(note));
        record_result(kept, |result| {
            result.notes = notes;
            result.totals.add(&Totals { events: 0, ..written? });
            Ok(())
        });
        Ok(())
    }
}

/// A trace array as a source of a timeline.
struct Kernel<'a> {
    array: &'a Trace,
    position: Option<usize>,
    /// The name with which its lines begin.
    name: Option<String>,
    /// Writes the times of day with which its lines begin.
    time: Option<TimeOfDay>,
    options: ftrace::Options,
    /// The offset to add to readings of its clock, to get the times by which lines are merged.
    offset: i64,
    lines: &'a [LogLine],
    kept: &'a Results,
}

impl timeline::Source for Kernel<'_> {
    fn run(&mut self, out: &mut Lines) -> io::Result<()> {
        let Some(Ftrace { machine, index, .. }) = self.array.ftrace() else { return Ok(()) };
        let log = timeline_of(self.array, self.lines);
        let offset = self.offset;
        let mut named = Vec::new();
        let mut put = |clock: u64, text: &[u8]| {
            let time =
                i64::try_from(clock).map_or(timeline::END, |clock| clock.saturating_add(offset));
            if self.name.is_none() && self.time.is_none() {
                return out.put(time, text);
            }
            named.clear();
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                // The lines of a stack belong to the line before them.
                let is_stack = line.starts_with(b" => ") || line.starts_with(b"=> ");
                if time != timeline::END && !is_stack {
                    self.time.iter_mut().for_each(|of_day| of_day.put(time, &mut named));
                }
                if let Some(name) = &self.name {
                    named.extend([name.as_bytes(), b": "].concat());
                }
                named.extend_from_slice(line);
            }
            out.put(time, &named)
        };
        let summary = ftrace::each(&mut put, &machine.tracing, index, &self.options, log);
        record_result(self.kept, |result| {
            result.add(&summary?, self.position);
            Ok(())
        });
        Ok(())
    }
}
