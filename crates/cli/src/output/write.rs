//! Writes one file, or one folder of CTF: a function for each format.

use super::{Format, Job, Line, Merged, is_stdout, to_file};
use crate::account::{self, Notes};
use crate::input::{Array, Traces};
use crate::progress::{Progress, Shared};
use crate::say;
use crate::select::Chosen;
use crate::table::plain;
use crate::text::{self, bytes, log, realtime, relation};
use anyhow::{Context, bail};
use lastwords_ctf::read::{self, Trace};
use lastwords_ctf::{Version, write};
use lastwords_formats::events::Note;
use lastwords_formats::ftrace::ctf::{self, Form, Remarks};
use lastwords_formats::ftrace::{self, dat};
use lastwords_formats::perfetto::{self, Task};
use lastwords_formats::select::Selection;
use lastwords_formats::text::Zone;
use lastwords_formats::{Totals, json};
use lastwords_open::Machine;
use std::path::Path;
use std::sync::{Arc, PoisonError};

/// What is written, and where to.
pub(super) struct Writing<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) chosen: &'a Chosen,
    pub(super) traces: &'a Traces,
    pub(super) path: &'a Path,
}

/// Totals, and what reading found besides events.
type Written = anyhow::Result<(Totals, Notes)>;

impl Writing<'_> {
    /// Writes.
    ///
    /// # Errors
    /// The path is taken or cannot be written; the traces cannot be written together.
    pub(super) fn run(&self, format: Format) -> anyhow::Result<Line> {
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
        let is_counted = self.job.count || format.ctf_version().is_none() || self.traces.sessions.is_empty();
        Ok(self.line(&totals, &notes, is_counted))
    }

    fn text(&self) -> Written {
        let title = self.path.display().to_string();
        let title = (!is_stdout(self.path)).then_some(title.as_str());
        let form = text::Form { look: None, zone: Zone::local(), with_log: self.job.with_log, title };
        let told = to_file(self.path, |out| text::write(self.traces, self.chosen, &form, out))?;
        Ok((told.totals, told.notes))
    }

    fn json(&self) -> Written {
        self.events(Form::Lines, &self.chosen.selection(), |traces, selection, watch, take| {
            to_file(self.path, |out| Ok(json::write(traces, selection, out, watch, take)?))
        })
    }

    fn perfetto(&self) -> Written {
        let first = self.traces.arrays.first();
        let kernel = first.and_then(Array::get);
        let tasks = kernel.map_or_else(Vec::new, |(machine, _)| tasks(machine));
        let is_alone = self.traces.arrays.len() == self.traces.len();
        self.events(Form::Plain, &self.chosen.once(), |traces, selection, watch, take| {
            let kernel = kernel.and_then(|(machine, rings)| {
                // Behind the packets are the trace array and the log.
                let trace = traces.len().checked_sub(1 + usize::from(self.job.with_log))?;
                let ring = &**rings.shown(self.traces.snapshot)?;
                Some(perfetto::Kernel { trace, is_alone, tracing: &machine.tracing, ring, tasks: &tasks })
            });
            if !perfetto::can_hold(traces, kernel.as_ref()) {
                bail!(
                    "one file of perfetto does not hold a kernel's trace and others where its clock's relation to real time is not known: \
                     use `lastwords recover`, which writes a file for each"
                );
            }
            to_file(self.path, |out| Ok(perfetto::write(traces, kernel.as_ref(), selection, out, watch, take)?))
        })
    }

    /// Packets are copied; of ftrace, events are written.
    fn ctf(&self, version: Version) -> Written {
        if let Some(session) = self.traces.sessions.first() {
            let total = session.source().evidence().sub_buffers.iter().map(|row| row.content);
            let bar = Shared::new(&session.name, total.fold(0, u64::saturating_add));
            let options = write::Options { version, count_events: self.job.count };
            let totals = write::write(session.source(), self.path, options, &|bytes| bar.add(bytes))?;
            return Ok((totals, Notes::default()));
        }
        let form = Form::Folder(version);
        let (kernels, remarks) = self.kernels(form)?;
        if self.chosen.last.is_some() && !kernels.is_empty() {
            bail!("CTF is written packet by packet; --last is for other formats");
        }
        let all = [&self.traces.ctf[..], &kernels].concat();
        let mut notes = Notes::default();
        let totals = self.watched(bytes(&self.traces.ctf), |watch| {
            Ok(read::copy(&all, version, self.path, watch, &mut |fault| notes.take(Note::Fault(fault)))?)
        })?;
        tell(&remarks);
        Ok((totals, notes))
    }

    fn trace_dat(&self) -> Written {
        let (arrays, snapshot) = (&self.traces.arrays, self.traces.snapshot);
        let Some((machine, _)) = arrays.first().and_then(Array::get) else { bail!("no trace array is chosen") };
        let indices = arrays.iter().map(|array| array.index).collect();
        let options = dat::WriteOptions { snapshot, arrays: indices, ..dat::WriteOptions::default() };
        let totals = self.watched(0, |_| {
            dat::write(self.path, &machine.tracing, &options).with_context(|| self.path.display().to_string())
        })?;
        let rings = arrays.iter().filter_map(|array| array.get()?.1.shown(snapshot));
        let streams = rings.flat_map(|ring| ring.cpus()).filter(|cpu| cpu.sub_buffers > 0).count() as u64;
        Ok((Totals { streams, ..totals }, Notes::default()))
    }

    /// Runs a writer over all traces, in which those of ftrace are of `form` and have what is wanted of them.
    fn events(
        &self,
        form: Form,
        selection: &Selection,
        write: impl FnOnce(&[Trace], &Selection, read::Watch<'_>, &mut dyn FnMut(Note)) -> anyhow::Result<Totals>,
    ) -> Written {
        let packets = self.traces.packets(Version::V2)?;
        // For lines, those without an account are read twice, for what is lost and for the events.
        let again = packets.iter().filter(|trace| form == Form::Lines && trace.account.is_none()).map(Trace::bytes);
        let total = again.fold(bytes(&packets), u64::saturating_add);
        let (kernels, remarks) = self.kernels(form)?;
        let all = [packets, kernels].concat();
        let mut notes = Notes::default();
        let totals = self.watched(total, |watch| write(&all, selection, watch, &mut |note| notes.take(note)))?;
        tell(&remarks);
        Ok((totals, notes))
    }

    /// The trace arrays as packets of a form, and behind those of each kernel its log.
    fn kernels(&self, form: Form) -> anyhow::Result<(Vec<Trace>, Remarks)> {
        let (mut traces, remarks) = (Vec::new(), Remarks::default());
        for arrays in self.traces.arrays.chunk_by(|a, b| Arc::ptr_eq(&a.origin, &b.origin)) {
            let Some((first, (machine, rings))) = arrays.first().and_then(|first| Some((first, first.get()?))) else {
                continue;
            };
            let (tracing, path) = (Arc::new(machine.tracing.clone()), &first.origin.path);
            let choice = |array: &Array| self.chosen.choice(std::slice::from_ref(array), self.traces.snapshot);
            for array in arrays {
                let offset = realtime(array);
                traces.push(ctf::trace(path, &tracing, array.index, &choice(array), offset, form, &remarks)?);
            }
            if self.job.with_log {
                let (lines, relation) = (log(first)?, relation(machine, rings));
                if let Some(remark) = relation.remark_of_trace(rings).filter(|_| !lines.is_empty()) {
                    say::note(plain(&remark));
                }
                traces.push(ftrace::log::trace(path, lines, relation, &choice(first), realtime(first))?);
            }
        }
        Ok((traces, remarks))
    }

    /// Shows how far work is: by the rings of the first kernel that are read, or else by bytes of packets, which are `total`.
    fn watched<T>(&self, total: u64, work: impl FnOnce(read::Watch<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let title = self.path.display().to_string();
        let Some((machine, _)) = self.traces.arrays.first().and_then(Array::get) else {
            let bar = Shared::new(title, total);
            return work(&|bytes| bar.add(bytes));
        };
        let shown = self.traces.arrays.iter().filter_map(|array| Some(array.get()?.1));
        let _bar = machine.meter.show(shown, self.traces.snapshot, |total| {
            let mut bar = Progress::new(title, total);
            Box::new(move |done| bar.set(done))
        });
        work(&read::unwatched)
    }

    /// The line of what was written.
    fn line(&self, totals: &Totals, notes: &Notes, is_counted: bool) -> Line {
        let traces = self.traces;
        if totals.lost_packets > 0 {
            say::warning(format_args!("{} packets are missing between those that are there", totals.lost_packets));
        }
        let sessions = traces.sessions.iter().map(|s| (s.name.clone(), s.origin.path.clone()));
        let lttng = traces.lttng.iter().map(|l| (l.session().name.clone(), l.origin.path.clone()));
        let ctf = traces.ctf.iter().map(|trace| (trace.name().to_owned(), trace.path.clone()));
        let array = |Array { name, origin, .. }: &Array| {
            let whole = name == "top" || traces.arrays.len() > 1;
            (if whole { "trace".to_owned() } else { format!("trace-{name}") }, origin.path.clone())
        };
        // One file has the arrays of a machine as one trace.
        let arrays = traces.arrays.first().into_iter().map(array);
        let all = sessions.chain(lttng).chain(ctf).chain(arrays);
        let mut all = all.map(|(session, from)| Merged { session, from });
        let (session, from) = all.next().map(|first| (first.session, first.from)).unwrap_or_default();
        let merged = all.collect();
        let lost_events = account::lost_events(traces).saturating_add(totals.lost_events);
        let faults = notes.unreadable;
        Line {
            path: self.path.to_owned(),
            session,
            from,
            events: Some(totals.events).filter(|_| is_counted),
            streams: totals.streams,
            packets: totals.packets,
            bytes: totals.bytes,
            lost_events,
            losses: faults + totals.faults > 0 || totals.has_losses() || account::has_losses(traces),
            unreadable: traces.has_unreadable(),
            merged,
            faults,
        }
    }
}

/// Says what there is to say of how events were made.
fn tell(remarks: &Remarks) {
    let remarks = remarks.lock().unwrap_or_else(PoisonError::into_inner);
    remarks.iter().for_each(|remark| say::note(plain(remark)));
}

/// Tasks of a kernel's memory.
fn tasks(machine: &Machine) -> Vec<Task> {
    let tasks = machine.kernel.as_ref().map(|kernel| kernel.tasks().rows).into_iter().flatten();
    tasks.map(|t| Task { pid: t.pid, tgid: t.tgid, comm: t.comm }).collect()
}
