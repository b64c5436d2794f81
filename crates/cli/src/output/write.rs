//! Writes one file, or one folder of CTF: a function for each format.

use super::{Format, Job, Line, Merged, is_stdout, to_file};
use crate::account::Notes;
use crate::input::Traces;
use crate::progress::{Progress, Shared};
use crate::say;
use crate::select::Chosen;
use crate::table::plain;
use crate::text::{self, Form, bytes, log, timeline_of};
use anyhow::{Context, bail};
use lastwords_ctf::read::{self, Trace};
use lastwords_ctf::{Version, write};
use lastwords_formats::events::Note;
use lastwords_formats::ftrace::beside::{Beside, Task};
use lastwords_formats::ftrace::log::Log;
use lastwords_formats::ftrace::{Choice, ctf, dat, json as ftrace_json, text::Summary};
use lastwords_formats::text::Zone;
use lastwords_formats::{Totals, json, perfetto};
use lastwords_open::{Account, Body, Ftrace, Losses, Machine, RecoveredSession, accounts_after_reading};
use lastwords_trace::source::Source as _;
use std::path::Path;

/// What is written, and where to.
pub(super) struct Writing<'a, 't> {
    pub(super) job: &'a Job<'a>,
    pub(super) chosen: &'a Chosen,
    pub(super) traces: &'t Traces,
    pub(super) path: &'a Path,
}

/// Totals, and what reading found besides events.
type Written = anyhow::Result<(Totals, Notes)>;

impl<'t> Writing<'_, 't> {
    /// Writes; the line of it, and the accounts of the traces.
    ///
    /// # Errors
    /// The path is taken or cannot be written; the traces cannot be written together.
    pub(super) fn run(&self, format: Format) -> anyhow::Result<(Line, Vec<Account<'t>>)> {
        self.job.room(self.path)?;
        let (totals, notes) = match format {
            Format::Text => self.text()?,
            Format::Json => self.json()?,
            Format::Perfetto => self.perfetto()?,
            Format::Ctf => self.ctf(Version::V1_8)?,
            Format::Ctf2 => self.ctf(Version::V2)?,
            Format::TraceDat => self.trace_dat()?,
        };
        notes.tell();
        let is_counted = self.job.count || format.ctf_version().is_none() || self.traces.sessions().next().is_none();
        Ok(self.line(&totals, &notes, is_counted))
    }

    fn text(&self) -> Written {
        let title = self.path.display().to_string();
        let title = (!is_stdout(self.path)).then_some(title.as_str());
        let form = Form { style: None, zone: Zone::local(), with_log: self.job.with_log, title };
        let told = to_file(self.path, |out| text::write(self.traces, self.chosen, &form, out))?;
        Ok((told.totals, told.notes))
    }

    fn json(&self) -> Written {
        if !self.traces.has_arrays() {
            let selection = self.chosen.selection();
            return self.packets(true, |traces, watch, take| {
                to_file(self.path, |out| Ok(json::write(traces, &selection, out, watch, take)?))
            });
        }
        let indices = self.indices();
        self.ftrace(|machine, _, choice, log| {
            to_file(self.path, |out| Ok(ftrace_json::write(out, &machine.tracing, &indices, choice, log)?))
        })
    }

    fn perfetto(&self) -> Written {
        if !self.traces.has_arrays() {
            let shown = self.chosen.once();
            return self.packets(false, |traces, watch, take| {
                to_file(self.path, |out| Ok(perfetto::packets::write(traces, &shown, out, watch, take)?))
            });
        }
        self.ftrace(|machine, index, choice, log| {
            let beside = beside(machine);
            let write = perfetto::ftrace::write;
            to_file(self.path, |out| Ok(write(out, &machine.tracing, index, choice, &beside, log)?))
        })
    }

    /// Packets are copied; of ftrace, events are written.
    fn ctf(&self, version: Version) -> Written {
        if let Some(RecoveredSession { session, .. }) = self.traces.sessions().next() {
            let total = session.evidence().sub_buffers.iter().map(|row| row.content);
            let bar = Shared::new(&session.info().name, total.fold(0, u64::saturating_add));
            let options = write::Options { version, count_events: self.job.count };
            let totals = write::write(&**session, self.path, options, &|bytes| bar.add(bytes))?;
            return Ok((totals, Notes::default()));
        }
        let folders: Vec<Trace> = self.traces.ctf().cloned().collect();
        if folders.is_empty() {
            return self.ftrace(|machine, index, choice, _| {
                Ok(ctf::write(self.path, &machine.tracing, index, choice, &beside(machine), version)?)
            });
        }
        let mut notes = Notes::default();
        let bar = Shared::new(self.path.display().to_string(), bytes(&folders));
        let totals = read::copy(&folders, version, self.path, &|bytes| bar.add(bytes), &mut |fault| {
            notes.take(Note::Fault(fault));
        })?;
        Ok((totals, notes))
    }

    fn trace_dat(&self) -> Written {
        let mut packets = 0;
        let written = self.ftrace(|machine, _, choice, _| {
            let options =
                dat::WriteOptions { snapshot: choice.snapshot, arrays: self.indices(), ..dat::WriteOptions::default() };
            let totals = dat::write(self.path, &machine.tracing, &options);
            let totals = totals.with_context(|| self.path.display().to_string())?;
            packets = totals.packets;
            Ok(Summary { events: totals.events, bytes: totals.bytes, faults: totals.faults, ..Summary::default() })
        })?;
        Ok((Totals { packets, ..written.0 }, written.1))
    }

    /// Runs a writer over all traces but those of ftrace. `again`: those without an account are read twice, for what is lost and for the
    /// events.
    fn packets(
        &self,
        again: bool,
        write: impl FnOnce(&[Trace], read::Watch<'_>, &mut dyn FnMut(Note)) -> anyhow::Result<Totals>,
    ) -> Written {
        let traces = self.traces.packets(Version::V2)?;
        let again = traces.iter().filter(|trace| again && trace.account.is_none()).map(Trace::bytes);
        let total = again.fold(bytes(&traces), u64::saturating_add);
        let bar = Shared::new(self.path.display().to_string(), total);
        let mut notes = Notes::default();
        let totals = write(&traces, &|bytes| bar.add(bytes), &mut |note| notes.take(note))?;
        Ok((totals, notes))
    }

    /// Runs a writer over trace arrays of one machine; it is given the position of the first, which has the log.
    fn ftrace(&self, write: impl FnOnce(&Machine, usize, &Choice, Log<'_>) -> anyhow::Result<Summary>) -> Written {
        let arrays: Vec<Ftrace<'_>> = self.traces.arrays().filter_map(|array| array.ftrace()).collect();
        let (Some(first), Some(Ftrace { machine, index, .. })) = (self.traces.arrays().next(), arrays.first()) else {
            bail!("no trace array is chosen");
        };
        let lines = if self.job.with_log { log(first)? } else { Vec::new() };
        let choice = self.chosen.choice(&arrays);
        let rings = || arrays.iter().filter_map(|array| array.ring);
        let bar = machine.meter.show(rings(), |total| {
            let mut bar = Progress::new(self.path.display().to_string(), total);
            Box::new(move |done| bar.set(done))
        });
        let Summary { events, bytes, faults, notes } = write(machine, *index, &choice, timeline_of(first, &lines))?;
        drop(bar);
        notes.iter().for_each(|note| say::note(plain(note)));
        let wants = |cpu: u32| choice.cpus.is_empty() || choice.cpus.contains(&cpu);
        let cpus = rings().flat_map(|ring| ring.cpus());
        let streams = cpus.filter(|cpu| cpu.sub_buffers > 0 && wants(cpu.cpu)).count() as u64;
        Ok((Totals { streams, events, bytes, faults, ..Totals::default() }, Notes::default()))
    }

    fn indices(&self) -> Vec<usize> {
        self.traces.arrays().filter_map(|array| Some(array.ftrace()?.index)).collect()
    }

    /// The line of what was written.
    fn line(&self, totals: &Totals, notes: &Notes, is_counted: bool) -> (Line, Vec<Account<'t>>) {
        let traces = self.traces;
        if totals.lost_packets > 0 {
            say::warning(format_args!("{} packets are missing between those that are there", totals.lost_packets));
        }
        let arrays = traces.arrays().count();
        let name = |trace: &'t lastwords_open::Trace| {
            let session = match &trace.body {
                Body::Session(_) | Body::Lttng(_) => trace.name.clone(),
                Body::Ctf(ctf) => ctf.name().to_owned(),
                Body::Ftrace { .. } if trace.name == "top" || arrays > 1 => "trace".to_owned(),
                Body::Ftrace { .. } => format!("trace-{}", trace.name),
            };
            let from = trace.ctf().map_or(&trace.origin.path, |ctf| &ctf.path).clone();
            Merged { session, from }
        };
        // One file has the arrays of a machine as one trace.
        let packets = traces.all.iter().filter(|trace| trace.ftrace().is_none());
        let mut all = packets.chain(traces.arrays().take(1)).map(name);
        let Merged { session, from } = all.next().unwrap_or_default();
        let merged = all.collect();
        let totals = &Totals { faults: totals.faults.max(notes.unreadable), ..*totals };
        let accounts = accounts_after_reading(&traces.all, totals, &self.chosen.cpus);
        let line = Line {
            path: self.path.to_owned(),
            session,
            from,
            events: Some(totals.events).filter(|_| is_counted),
            streams: totals.streams,
            packets: totals.packets,
            bytes: totals.bytes,
            losses: Losses::of(&accounts),
            merged,
            faults: notes.unreadable,
        };
        (line, accounts)
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
