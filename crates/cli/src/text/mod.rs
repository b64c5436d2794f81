//! Events as text: traces of one kind by their own writer, those of several kinds on one timeline.

mod merged;
mod timeline;

use crate::input::{Array, Traces};
use crate::progress::{Progress, Shared};
use crate::say;
use crate::select::Chosen;
use crate::table::plain;
use anyhow::bail;
use lastwords_ctf::read::{self, Reader};
use lastwords_formats::events::Outcome;
use lastwords_formats::ftrace::log::{Log, LogLine, Relation};
use lastwords_formats::ftrace::text as ftrace;
use lastwords_formats::last::LastLines;
use lastwords_formats::select::Selection;
use lastwords_formats::text::ctf::{self, Note};
use lastwords_formats::text::{self, Style, Zone};
use lastwords_formats::{Error, Totals};
use lastwords_trace::source::Source;
use std::io::{self, Write};

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Look {
    /// Time, level, CPU, thread, name, then the message or the fields
    Fields,
    /// As the kernel's `trace` file
    Ftrace,
    /// As babeltrace2: of sessions, what it prints of the CTF that `recover` writes; of CTF traces the default
    Babeltrace,
    /// Ticks, places, ids, and the bytes in hexadecimal
    Raw,
    /// Of a kernel's trace: as the kernel's option `latency-format` has it
    Latency,
}

/// How text is written.
pub(crate) struct Form<'a> {
    /// How lines look; none: fields for sessions, as babeltrace2 for CTF, and for a kernel's trace what its own options say.
    pub(crate) look: Option<Look>,
    /// Whose time of day it is.
    pub(crate) zone: Zone,
    /// The kernel's log stands among its events.
    pub(crate) with_log: bool,
    /// What the progress is called; none where none is shown.
    pub(crate) title: Option<&'a str>,
}

/// What was written.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Events, streams, bytes; packets that could not be decoded.
    pub(crate) totals: Totals,
    /// Parts of CTF traces that could not be read, which was said.
    pub(crate) faults: u64,
    /// The reader of the text has left.
    pub(crate) is_closed: bool,
    /// Packets of sessions that could not be decoded.
    pub(crate) outcome: Outcome,
}

impl Look {
    fn of_session(look: Option<Self>) -> anyhow::Result<Style> {
        Ok(match look {
            None | Some(Self::Fields) => Style::Fields,
            Some(Self::Ftrace) => Style::Ftrace,
            Some(Self::Babeltrace) => Style::Babeltrace,
            Some(Self::Raw) => Style::Raw,
            Some(Self::Latency) => {
                bail!("--style latency is for a kernel's trace; sessions have fields, ftrace, babeltrace, raw")
            }
        })
    }

    fn of_kernel(look: Option<Self>) -> anyhow::Result<ftrace::Style> {
        Ok(match look {
            None => ftrace::Style::AsSet,
            Some(Self::Ftrace) => ftrace::Style::Default,
            Some(Self::Fields) => ftrace::Style::Fields,
            Some(Self::Raw) => ftrace::Style::Raw,
            Some(Self::Latency) => ftrace::Style::Latency,
            Some(Self::Babeltrace) => {
                bail!("--style babeltrace is for sessions; a kernel's trace has ftrace, latency, fields, raw")
            }
        })
    }

    fn of_ctf(look: Option<Self>) -> anyhow::Result<()> {
        match look {
            None | Some(Self::Babeltrace) => Ok(()),
            _ => bail!("a CTF trace is reported as --style babeltrace"),
        }
    }
}

/// What a run over the traces needs.
struct Run<'a> {
    traces: &'a Traces,
    chosen: &'a Chosen,
    form: &'a Form<'a>,
    told: Told,
}

/// Writes the chosen events; LTTng's sessions are among the CTF traces by now.
///
/// # Errors
/// A style is not one of a trace's; `out` cannot be written.
pub(crate) fn write(traces: &Traces, chosen: &Chosen, form: &Form<'_>, out: &mut dyn Write) -> anyhow::Result<Told> {
    if !traces.sessions.is_empty() {
        Look::of_session(form.look)?;
    }
    if !traces.ctf.is_empty() {
        Look::of_ctf(form.look)?;
    }
    if !traces.arrays.is_empty() {
        Look::of_kernel(form.look)?;
    }
    let mut run = Run { traces, chosen, form, told: Told::default() };
    let written = match (traces.sessions.is_empty(), traces.ctf.is_empty(), traces.arrays.is_empty()) {
        (false, true, true) => run.sessions(out),
        (true, false, true) => run.ctf(out),
        (true, true, _) => run.kernels(&traces.arrays, out),
        _ => run.all(out),
    };
    match written {
        Err(error) if is_closed(&error) => run.told.is_closed = true,
        written => written?,
    }
    Ok(run.told)
}

fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(Error::is_closed_pipe)
        || error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

impl Run<'_> {
    /// As what people look at has it.
    fn selection(chosen: &Chosen, style: Style) -> Selection {
        if matches!(style, Style::Fields | Style::Ftrace) { chosen.once() } else { chosen.selection() }
    }

    fn sessions(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let sources = self.traces.sources();
        let style = Look::of_session(self.form.look)?;
        let selection = Self::selection(self.chosen, style);
        let mut bar = self.form.title.map(|title| Progress::new(title, bytes(&sources)));
        let mut tell = |p: lastwords_trace::merge::Progress| bar.iter_mut().for_each(|bar| bar.set(p.bytes));
        let outcome = text::write(&sources, style, &selection, &self.form.zone, out, &mut tell)?;
        self.told.totals = Totals { streams: 0, ..outcome.totals };
        self.told.outcome = outcome;
        Ok(())
    }

    fn ctf(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let traces = &self.traces.ctf;
        let selection = self.chosen.selection();
        let readers = readers(traces, &selection);
        let total = readers.iter().map(|(_, reader)| reader.stream().bytes()).fold(0, u64::saturating_add);
        let bar = self.form.title.map(|title| Shared::new(title, total));
        let tell = |bytes| bar.iter().for_each(|bar| bar.add(bytes));
        let mut readers: Vec<_> = readers.into_iter().map(|(trace, reader)| (trace, reader.watched(&tell))).collect();
        let told = &mut self.told;
        told.totals.streams = readers.len() as u64;
        let (mut lost, mut faults) = (Totals::default(), 0);
        let mut notes = |note: Note| remark(note, &mut lost, &mut faults);
        let mut counted = Counted { out, bytes: 0 };
        let zone = &self.form.zone;
        let printed = match selection.last {
            None => ctf::print(traces, &mut readers, &selection, zone, &mut counted, &mut notes),
            Some(most) => {
                let mut last = LastLines::new(most);
                let mut printed = ctf::print(traces, &mut readers, &selection, zone, &mut last, &mut notes);
                let lines = last.lines();
                printed.events = lines.len() as u64;
                let mut lines = lines.enumerate();
                let failed = lines.try_for_each(|(n, line)| counted.write_all(&first_of(line, n == 0))).err();
                ctf::Printed { failed, ..printed }
            }
        };
        told.totals.add(&lost);
        told.totals.bytes = counted.bytes;
        told.totals.events = printed.events;
        told.totals.faults = faults;
        told.faults = faults;
        printed.failed.map_or(Ok(()), |failed| Err(failed.into()))
    }

    /// The arrays one behind the other, and of each the CPUs that were asked for.
    fn kernels(&mut self, arrays: &[Array], out: &mut dyn Write) -> anyhow::Result<()> {
        for array in arrays {
            let Some((machine, rings)) = array.get() else { continue };
            let lines = if self.form.with_log { log(array)? } else { Vec::new() };
            let cpus = &self.chosen.cpus;
            let cpus: Vec<Option<u32>> =
                if cpus.is_empty() { vec![None] } else { cpus.iter().copied().map(Some).collect() };
            let there = |cpu: &Option<u32>| {
                let ring = rings.shown(self.traces.snapshot);
                cpu.is_none_or(|cpu| ring.is_some_and(|ring| ring.cpus().iter().any(|own| own.cpu == cpu)))
            };
            for cpu in cpus.into_iter().filter(there) {
                let options = self.options(array, self.chosen, cpu)?;
                let read = std::iter::once(rings).filter(|_| self.form.title.is_some());
                let _bar = machine.meter.show(read, self.traces.snapshot, |total| {
                    let mut bar = Progress::new(self.form.title.unwrap_or_default(), total);
                    Box::new(move |done| bar.set(done))
                });
                let log = timeline_of(array, &lines);
                let summary = ftrace::write_with_log(out, &machine.tracing, array.index, &options, log)?;
                self.told.add(&summary);
            }
        }
        Ok(())
    }

    fn options(&self, array: &Array, chosen: &Chosen, cpu: Option<u32>) -> anyhow::Result<ftrace::Options> {
        let choice = chosen.choice(std::slice::from_ref(array), self.traces.snapshot);
        Ok(ftrace::Options {
            snapshot: choice.snapshot,
            cpu,
            style: Look::of_kernel(self.form.look)?,
            events: choice.events,
            since: choice.since,
            until: choice.until,
            last: choice.last,
            ..ftrace::Options::default()
        })
    }
}

/// What an array's clock lacks to nanoseconds since the epoch.
pub(crate) fn realtime(array: &Array) -> Option<i64> {
    array.origin.machine.as_ref()?.real_time(array.index)
}

impl Told {
    fn add(&mut self, summary: &ftrace::Summary) {
        summary.notes.iter().for_each(|note| say::note(plain(note)));
        self.totals.events += summary.events;
        self.totals.bytes += summary.bytes;
        self.totals.faults += summary.faults;
    }
}

/// Counts what is written.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.out.write(bytes)?;
        self.bytes += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Readers of the streams of CTF traces whose CPU is wanted.
fn readers<'t>(traces: &'t [read::Trace], selection: &Selection) -> Vec<(usize, Reader<'t>)> {
    let mut readers = read::readers(traces);
    readers.retain(|(trace, reader)| {
        let cpu = || traces.get(*trace).and_then(|trace| read::cpu(trace, reader.stream()));
        selection.cpus.is_empty() || selection.wants_cpu(cpu())
    });
    readers
}

/// Says what a reader of CTF remarks.
fn remark(note: Note, totals: &mut Totals, faults: &mut u64) {
    match note {
        Note::Loss(loss, text) => {
            totals.lose(loss);
            say::warning(plain(&text));
        }
        Note::Fault(fault) => {
            *faults += 1;
            fault_line(&fault.to_string());
        }
    }
}

/// A line as it looks where nothing stands before it: the time since the event before is not known.
fn first_of(mut line: Vec<u8>, is_first: bool) -> Vec<u8> {
    let open = line.iter().position(|byte| *byte == b']').filter(|_| is_first && line.starts_with(b"["));
    let delta = open.map(|open| open + 2).filter(|at| line.get(*at..).is_some_and(|rest| rest.starts_with(b"(+")));
    if let Some((at, len)) = delta.and_then(|at| Some((at, line.get(at..)?.iter().position(|byte| *byte == b')')?))) {
        line.splice(at..at + len, *b"(+?.?????????");
    }
    line
}

/// Says that something cannot be read.
pub(crate) fn fault_line(text: &str) {
    say::error(plain(text));
}

/// Bytes of packets of CTF traces.
pub(crate) fn packets(traces: &[read::Trace]) -> u64 {
    traces.iter().map(read::Trace::bytes).fold(0, u64::saturating_add)
}

/// Bytes of packets to be read of all sources, about.
pub(crate) fn bytes(sources: &[&dyn Source]) -> u64 {
    sources.iter().flat_map(|s| &s.evidence().sub_buffers).map(|s| s.content).sum()
}

/// The kernel's log, as far as it can be read; what is missing is said on stderr.
pub(crate) fn log(array: &Array) -> anyhow::Result<Vec<LogLine>> {
    let kernel = array.get().and_then(|(machine, _)| machine.kernel.as_ref());
    let Some(kernel) = kernel else {
        let from = array.origin.path.display();
        bail!("{from}: a trace.dat file has no kernel log; --with-log is for a kernel's memory");
    };
    let found = kernel.log();
    found.missing.iter().for_each(|error| say::note(format_args!("the kernel's log: {error}")));
    let rows = found.rows.into_iter();
    Ok(rows.map(|r| LogLine { time: r.time, level: r.level, facility: r.facility, text: r.text }).collect())
}

/// The log on the timeline of a trace array; where the clocks differ that is said on stderr.
pub(crate) fn timeline_of<'l>(array: &Array, lines: &'l [LogLine]) -> Log<'l> {
    let Some((machine, rings)) = array.get().filter(|_| !lines.is_empty()) else { return Log::none() };
    let offset = machine.kernel.as_ref().map(|kernel| kernel.number("__sched_clock_offset", 8).unwrap_or(0));
    let relation = Relation::of(rings, offset.map(u64::cast_signed));
    if let Some(remark) = relation.remark(rings) {
        say::note(plain(&remark));
    }
    Log::new(lines, relation)
}

#[cfg(test)]
mod tests {
    use super::first_of;

    #[test]
    fn the_first_line_has_no_time_since_the_one_before() {
        let first = |line: &str| String::from_utf8(first_of(line.as_bytes().to_vec(), true)).unwrap();
        assert_eq!(first("[10:00:00.1] (+0.5) box x: { a = 1 }"), "[10:00:00.1] (+?.?????????) box x: { a = 1 }");
        assert_eq!(first("[10:00:00.1] (+?.?????????) x: "), "[10:00:00.1] (+?.?????????) x: ");
        assert_eq!(first("x: { a = \"] (+1)\" }"), "x: { a = \"] (+1)\" }");
        assert_eq!(first_of(b"[1] (+2) x".to_vec(), false), b"[1] (+2) x");
    }
}
