//! Traces of several kinds on one timeline.

use super::timeline::{self, Lines};
use super::{Look, Run, Told, is_closed, log, readers, realtime, remark, timeline_of};
use crate::input::Array;
use crate::say;
use crate::table::plain;
use lastwords_ctf::read::{self, Due, Loss, Reader, Sink};
use lastwords_formats::Totals;
use lastwords_formats::events::each;
use lastwords_formats::ftrace::log::LogLine;
use lastwords_formats::ftrace::text as ftrace;
use lastwords_formats::select::Selection;
use lastwords_formats::text::ctf::{self, Note};
use lastwords_formats::text::{self, Style, Zone};
use lastwords_trace::clock::Rounding;
use lastwords_trace::source::Source;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

impl Run<'_> {
    /// Traces of several kinds, merged by time; those of kernels whose clock's relation to real time is not known stand behind the others.
    pub(super) fn all(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let (timed, untimed): (Vec<Array>, Vec<Array>) =
            self.traces.arrays.iter().cloned().partition(|array| realtime(array).is_some());
        let chosen = self.chosen.without_last();
        let kept = Mutex::new((Told::default(), Vec::new()));
        let mut logs = Vec::new();
        for array in &timed {
            logs.push(if self.form.with_log { log(array)? } else { Vec::new() });
        }
        let mut sources: Vec<Box<dyn timeline::Source + '_>> = Vec::new();
        if !self.traces.sessions.is_empty() {
            let style = Look::of_session(self.form.look)?;
            let selection = Self::selection(&chosen, style);
            let (sources_, zone) = (self.traces.sources(), &self.form.zone);
            sources.push(Box::new(Sessions { sources: sources_, style, selection, zone, kept: &kept }));
        }
        if !self.traces.ctf.is_empty() {
            let (selection, zone) = (chosen.selection(), &self.form.zone);
            sources.push(Box::new(Ctf { traces: &self.traces.ctf, selection, zone, kept: &kept }));
        }
        for (array, lines) in timed.iter().zip(&logs) {
            let cpus = &chosen.cpus;
            let all = [None];
            let some: Vec<Option<u32>> = cpus.iter().copied().map(Some).collect();
            for cpu in if cpus.is_empty() { &all[..] } else { &some } {
                let options = self.options(array, &chosen, *cpu)?;
                let offset = realtime(array).unwrap_or(0);
                sources.push(Box::new(Kernel { array, options, offset, lines, kept: &kept }));
            }
        }
        let merged = timeline::merge(&mut sources, self.chosen.last, out);
        drop(sources);
        let (told, failed) = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.told = told;
        self.told.totals.events = merged?;
        if let Some(failed) = failed.into_iter().next() {
            return Err(failed);
        }
        for Array { name, .. } in &untimed {
            let name = plain(name);
            say::note(format_args!(
                "instance {name} stands behind the others: its clock's relation to real time is not known"
            ));
        }
        self.kernels(&untimed, out)
    }
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

/// Sessions as a source of a timeline.
struct Sessions<'a> {
    sources: Vec<&'a dyn Source>,
    style: Style,
    selection: Selection,
    zone: &'a Zone,
    kept: &'a Kept,
}

impl timeline::Source for Sessions<'_> {
    fn run(&mut self, out: &mut Lines) -> io::Result<()> {
        let Self { sources, style, selection, zone, kept } = self;
        let rounding = if *style == Style::Babeltrace { Rounding::Double } else { Rounding::Floor };
        let times = |to: &mut Times<'_>| each(sources, selection, rounding, &mut |event| to.put(event.nanoseconds));
        zipped(out, times, |lines| {
            let written = text::write(sources, *style, selection, zone, lines, &mut |_| {});
            keep(kept, |told| {
                told.outcome = written?;
                told.totals.add(&Totals { events: 0, streams: 0, ..told.outcome.totals });
                Ok(())
            });
        })
    }
}

/// CTF traces as a source of a timeline.
struct Ctf<'a> {
    traces: &'a [read::Trace],
    selection: Selection,
    zone: &'a Zone,
    kept: &'a Kept,
}

impl timeline::Source for Ctf<'_> {
    fn run(&mut self, out: &mut Lines) -> io::Result<()> {
        let Self { traces, selection, zone, kept } = self;
        let times = |to: &mut Times<'_>| {
            let mut readers = readers(traces, selection);
            let wants = |trace: &read::Trace| -> Vec<Vec<bool>> {
                let streams = trace.class().streams.iter();
                streams
                    .map(|s| {
                        s.events.iter().map(|e| selection.wants_name(&e.name.clone().unwrap_or_default())).collect()
                    })
                    .collect()
            };
            let wanted: Vec<Vec<Vec<bool>>> = traces.iter().map(wants).collect();
            let streams = readers.iter().map(|(trace, reader)| (*trace, reader.stream().class)).collect();
            read::run(&mut readers, &mut Moments { streams, wanted, selection, to, last: 0 });
        };
        zipped(out, times, |lines| {
            let mut readers = readers(traces, selection);
            let (mut totals, mut faults) = (Totals { streams: readers.len() as u64, ..Totals::default() }, 0);
            let mut notes = |note: Note| remark(note, &mut totals, &mut faults);
            let printed = ctf::print(traces, &mut readers, selection, zone, lines, &mut notes);
            keep(kept, |told| {
                told.totals.add(&totals);
                (told.totals.faults, told.faults) = (told.totals.faults + faults, faults);
                printed.failed.map_or(Ok(()), |failed| Err(failed.into()))
            });
        })
    }
}

/// Times of the events that a CTF trace's text has.
struct Moments<'a, 't> {
    streams: Vec<(usize, usize)>,
    /// By trace, class of streams and class of events.
    wanted: Vec<Vec<Vec<bool>>>,
    selection: &'a Selection,
    to: &'a mut Times<'t>,
    last: i64,
}

impl Sink for Moments<'_, '_> {
    fn event(&mut self, stream: usize, _: &mut Reader<'_>, event: &Due) -> bool {
        let of =
            self.streams.get(stream).and_then(|(trace, class)| self.wanted.get(*trace)?.get(*class)?.get(event.class));
        let is_timely = event.nanoseconds.is_none_or(|moment| self.selection.wants_time(moment));
        if of.copied().unwrap_or(false) && is_timely {
            self.last = event.nanoseconds.unwrap_or(self.last);
            self.to.put(self.last);
        }
        !self.to.is_closed
    }

    fn packet(&mut self, _: usize, _: &mut Reader<'_>) {}

    fn loss(&mut self, _: usize, _: &mut Reader<'_>, _: Loss) {}

    fn fault(&mut self, _: usize, _: read::Error) {}
}

/// A trace array as a source of a timeline.
struct Kernel<'a> {
    array: &'a Array,
    options: ftrace::Options,
    offset: i64,
    lines: &'a [LogLine],
    kept: &'a Kept,
}

impl timeline::Source for Kernel<'_> {
    fn run(&mut self, out: &mut Lines) -> io::Result<()> {
        let Some((machine, _)) = self.array.get() else { return Ok(()) };
        let log = timeline_of(self.array, self.lines);
        let offset = self.offset;
        let mut put = |clock: u64, text: &[u8]| {
            out.put(i64::try_from(clock).map_or(timeline::END, |clock| clock.saturating_add(offset)), text)
        };
        let summary = ftrace::each(&mut put, &machine.tracing, self.array.index, &self.options, log);
        keep(self.kept, |told| {
            told.add(&summary?);
            Ok(())
        });
        Ok(())
    }
}

/// Takes the times of events.
struct Times<'a> {
    to: &'a SyncSender<Vec<i64>>,
    piece: Vec<i64>,
    is_closed: bool,
}

impl Times<'_> {
    fn put(&mut self, time: i64) {
        self.piece.push(time);
        if self.piece.len() >= 8192 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.is_closed |= self.to.send(std::mem::take(&mut self.piece)).is_err();
    }
}

/// Gives each line that `write` writes the time that `times` tells of its event: both go through the same events in the same order.
fn zipped(
    out: &mut Lines,
    times: impl FnOnce(&mut Times<'_>) + Send,
    write: impl FnOnce(&mut dyn Write),
) -> io::Result<()> {
    let (to, from) = sync_channel(4);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut taker = Times { to: &to, piece: Vec::new(), is_closed: false };
            times(&mut taker);
            taker.flush();
        });
        let mut zip = Zip { out, from, times: Vec::new().into_iter(), open: Vec::new() };
        write(&mut zip);
        Ok(())
    })
}

/// Takes text, and puts each line of it with its time.
struct Zip<'a> {
    out: &'a mut Lines,
    from: Receiver<Vec<i64>>,
    times: std::vec::IntoIter<i64>,
    open: Vec<u8>,
}

impl Zip<'_> {
    fn time(&mut self) -> i64 {
        loop {
            match self.times.next() {
                Some(time) => return time,
                None => match self.from.recv() {
                    Ok(piece) => self.times = piece.into_iter(),
                    Err(_) => return i64::MAX,
                },
            }
        }
    }
}

impl Write for Zip<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let time = self.time();
                self.out.put(time, &self.open)?;
                self.open.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
