//! Writes one file, or one folder of CTF: a function for each format.

use super::{Format, Job, Line, Merged, is_stdout, to_file};
use crate::account;
use crate::input::{Array, Traces};
use crate::progress::{Progress, Shared};
use crate::say;
use crate::select::Chosen;
use crate::table::plain;
use crate::text::{self, Form, bytes, fault_line, log, timeline_of};
use anyhow::{Context, bail};
use lastwords_ctf::{Version, read, write};
use lastwords_formats::ftrace::beside::{Beside, Task};
use lastwords_formats::ftrace::log::LogLine;
use lastwords_formats::ftrace::{Choice, ctf, dat, json as ftrace_json, text::Summary};
use lastwords_formats::text::Zone;
use lastwords_formats::{Totals, json, perfetto};
use lastwords_open::Machine;
use lastwords_trace::merge;
use lastwords_trace::source::Source;
use std::path::Path;

/// What is written, and where to.
pub(super) struct Writing<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) chosen: &'a Chosen,
    pub(super) traces: &'a Traces,
    pub(super) path: &'a Path,
}

/// Totals, and parts that could not be read, which was said.
type Written = anyhow::Result<(Totals, u64)>;

impl Writing<'_> {
    /// Writes; what of it could not be read makes the line's `faults`.
    pub(super) fn run(&self, format: Format) -> anyhow::Result<Line> {
        self.job.room(self.path)?;
        let (totals, faults) = match format {
            Format::Text => self.text()?,
            Format::Json => self.json()?,
            Format::Perfetto => self.perfetto()?,
            Format::Ctf => self.ctf(Version::V1_8)?,
            Format::Ctf2 => self.ctf(Version::V2)?,
            Format::TraceDat => self.trace_dat()?,
        };
        let is_counted = self.job.count || format.ctf_version().is_none() || self.traces.sessions.is_empty();
        Ok(self.line(&totals, faults, is_counted))
    }

    fn text(&self) -> Written {
        let title = self.path.display().to_string();
        let title = (!is_stdout(self.path)).then_some(title.as_str());
        let form = Form { look: None, zone: Zone::local(), with_log: self.job.with_log, title };
        let told = to_file(self.path, |out| text::write(self.traces, self.chosen, &form, out))?;
        account::print_faults(&told.outcome);
        Ok((Totals { streams: told.totals.streams + self.used(), ..told.totals }, told.faults))
    }

    fn json(&self) -> Written {
        if !self.traces.sessions.is_empty() {
            let selection = self.chosen.selection();
            return self
                .sessions(|sources, tell| to_file(self.path, |out| Ok(json::write(sources, &selection, out, tell)?)));
        }
        if self.traces.ctf.is_empty() {
            let indices = self.indices();
            return self.ftrace(|machine, choice, lines| {
                let log = timeline_of(&self.traces.arrays[0], lines);
                to_file(self.path, |out| Ok(ftrace_json::write(out, &machine.tracing, &indices, choice, log)?))
            });
        }
        let mut faults = 0;
        // All is read twice: for what is lost, then for the events.
        let bar = Shared::new(self.path.display().to_string(), text::packets(&self.traces.ctf).saturating_mul(2));
        let selection = self.chosen.selection();
        let totals = to_file(self.path, |file| {
            Ok(json::ctf::write(&self.traces.ctf, &selection, file, &|bytes| bar.add(bytes), &mut |fault| {
                faults += 1;
                fault_line(&fault.to_string());
            })?)
        })?;
        Ok((totals, faults))
    }

    fn perfetto(&self) -> Written {
        if !self.traces.sessions.is_empty() {
            let shown = self.chosen.once();
            return self.sessions(|sources, tell| {
                to_file(self.path, |out| Ok(perfetto::session::write(sources, &shown, out, tell)?))
            });
        }
        self.ftrace(|machine, choice, lines| {
            let (array, beside) = (&self.traces.arrays[0], beside(machine));
            let log = timeline_of(array, lines);
            let write = perfetto::ftrace::write;
            to_file(self.path, |out| Ok(write(out, &machine.tracing, array.index, choice, &beside, log)?))
        })
    }

    /// Packets are copied; of ftrace, events are written.
    fn ctf(&self, version: Version) -> Written {
        if let Some(session) = self.traces.sessions.first() {
            let mut bar = Progress::new(&session.name, bytes(&[session.source()]));
            let options = write::Options { version, count_events: self.job.count };
            let mut tell = |p: merge::Progress| bar.set(p.bytes);
            return Ok((write::write(session.source(), self.path, options, &mut tell)?, 0));
        }
        if self.traces.ctf.is_empty() {
            return self.ftrace(|machine, choice, _| {
                let index = self.traces.arrays[0].index;
                Ok(ctf::write(self.path, &machine.tracing, index, choice, &beside(machine), version)?)
            });
        }
        let mut faults = 0;
        let bar = Shared::new(self.path.display().to_string(), text::packets(&self.traces.ctf));
        let totals = read::copy(&self.traces.ctf, version, self.path, &|bytes| bar.add(bytes), &mut |fault| {
            faults += 1;
            fault_line(&fault.to_string());
        })?;
        Ok((totals, faults))
    }

    fn trace_dat(&self) -> Written {
        let (snapshot, arrays) = (self.traces.snapshot, self.indices());
        let mut written = Totals::default();
        self.ftrace(|machine, _, _| {
            let options = dat::WriteOptions { snapshot, arrays, ..dat::WriteOptions::default() };
            written =
                dat::write(self.path, &machine.tracing, &options).with_context(|| self.path.display().to_string())?;
            Ok(Summary::default())
        })?;
        Ok((Totals { streams: self.used(), ..written }, 0))
    }

    /// Runs a writer over sessions.
    fn sessions(
        &self,
        write: impl FnOnce(
            &[&dyn Source],
            &mut dyn FnMut(merge::Progress),
        ) -> anyhow::Result<lastwords_formats::events::Outcome>,
    ) -> Written {
        let sources = self.traces.sources();
        let mut bar = Progress::new(self.path.display().to_string(), bytes(&sources));
        let outcome = write(&sources, &mut |p| bar.set(p.bytes))?;
        account::print_faults(&outcome);
        Ok((Totals { streams: self.used(), ..outcome.totals }, 0))
    }

    /// Runs a writer over trace arrays of one machine, the first of which has the log.
    fn ftrace(&self, write: impl FnOnce(&Machine, &Choice, &[LogLine]) -> anyhow::Result<Summary>) -> Written {
        let arrays = &self.traces.arrays;
        let Some((first, (machine, _))) = arrays.first().and_then(|first| Some((first, first.get()?))) else {
            bail!("no trace array is chosen");
        };
        let lines = if self.job.with_log { log(first)? } else { Vec::new() };
        let shown = arrays.iter().filter_map(|array| Some(array.get()?.1));
        let _bar = machine.meter.show(shown, self.traces.snapshot, |total| {
            let mut bar = Progress::new(self.path.display().to_string(), total);
            Box::new(move |done| bar.set(done))
        });
        let Summary { events, bytes, faults, notes } =
            write(machine, &self.chosen.choice(arrays, self.traces.snapshot), &lines)?;
        notes.iter().for_each(|note| say::note(plain(note)));
        Ok((Totals { streams: self.used(), events, bytes, faults, ..Totals::default() }, 0))
    }

    fn indices(&self) -> Vec<usize> {
        self.traces.arrays.iter().map(|array| array.index).collect()
    }

    /// Streams of sessions and arrays, of the chosen CPUs, that have packets: what a folder of CTF has as files.
    fn used(&self) -> u64 {
        let cpus = &self.chosen.cpus;
        let wants = |cpu: Option<u32>| cpus.is_empty() || cpu.is_some_and(|cpu| cpus.contains(&cpu));
        let has_packets = |source: &dyn Source, stream| source.packets(stream).next_packet(&mut Vec::new()).is_some();
        let of_source = |source: &dyn Source| {
            let streams = source.streams().iter().enumerate().filter(|(_, stream)| wants(stream.cpu));
            streams.filter(|(at, _)| has_packets(source, *at)).count() as u64
        };
        let rings = self.traces.arrays.iter().filter_map(|array| array.get()?.1.shown(self.traces.snapshot));
        let of_ring = rings.flat_map(|ring| ring.cpus()).filter(|cpu| cpu.sub_buffers > 0 && wants(Some(cpu.cpu)));
        self.traces.sources().into_iter().map(of_source).sum::<u64>() + of_ring.count() as u64
    }

    /// The line of what was written.
    fn line(&self, totals: &Totals, faults: u64, is_counted: bool) -> Line {
        let traces = self.traces;
        let sessions = traces.sessions.iter().map(|s| (s.name.clone(), s.origin.path.clone()));
        let ctf = traces.ctf.iter().map(|trace| (trace.name().to_owned(), trace.path.clone()));
        let array = |Array { name, origin, .. }: &Array| {
            let name =
                if name == "top" || traces.arrays.len() > 1 { "trace".to_owned() } else { format!("trace-{name}") };
            (name, origin.path.clone())
        };
        // One file has the arrays of a machine as one trace.
        let arrays = traces.arrays.first().into_iter().map(array);
        let mut all = sessions.chain(ctf).chain(arrays).map(|(session, from)| Merged { session, from });
        let (session, from) = all.next().map(|first| (first.session, first.from)).unwrap_or_default();
        let merged = all.collect();
        if totals.lost_packets > 0 && !traces.ctf.is_empty() {
            say::warning(format_args!("{} packets are missing between those that are there", totals.lost_packets));
        }
        let evidence = || traces.sessions.iter().map(|session| session.source().evidence());
        let lost = evidence().map(|evidence| evidence.lost_events()).fold(totals.lost_events, u64::saturating_add);
        Line {
            path: self.path.to_owned(),
            session,
            from,
            events: Some(totals.events).filter(|_| is_counted),
            streams: totals.streams,
            packets: totals.packets,
            bytes: totals.bytes,
            lost_events: lost,
            losses: faults > 0 || totals.faults > 0 || totals.has_losses() || account::print_all(traces, true),
            unreadable: false,
            merged,
            faults,
        }
    }
}

/// Tasks and clocks of a kernel's memory.
fn beside(machine: &Machine) -> Beside {
    let Some(kernel) = &machine.kernel else { return Beside::default() };
    let tasks = kernel.tasks().rows.into_iter();
    Beside {
        tasks: tasks.map(|t| Task { pid: t.pid, tgid: t.tgid, comm: t.comm }).collect(),
        moment: kernel.time().ok().map(|time| (time.uptime, time.wall)),
    }
}
