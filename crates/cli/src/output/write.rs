//! Writes one file, or one folder of CTF. Each format has a function.

use super::{Format, Job, Line, Merged, is_stdout, made_dat, to_file};
use crate::account::Notes;
use crate::kernels::{Kernels, kernels, print_remarks};
use crate::progress::{Progress, Shared};
use crate::say;
use crate::select::Chosen;
use crate::text::{self, bytes};
use crate::traces::Traces;
use anyhow::{Context, bail};
use lastwords_ctf::read::{self, Trace};
use lastwords_ctf::{Version, write};
use lastwords_ftrace::Recording;
use lastwords_ftrace::ctf::Form;
use lastwords_ftrace::dat;
use lastwords_open::{Account, Body, Ftrace, Losses, RecoveredSession, accounts_after_reading};
use lastwords_render::events::Note;
use lastwords_render::perfetto;
use lastwords_render::select::Selection;
use lastwords_render::text::Zone;
use lastwords_render::{Totals, json};
use lastwords_trace::source::Source as _;
use std::path::Path;

/// Traces that are written to one path.
pub(super) struct Writing<'a, 't> {
    pub(super) job: &'a Job<'a>,
    pub(super) chosen: &'a Chosen,
    pub(super) traces: &'t Traces,
    pub(super) path: &'a Path,
}

/// Totals, and what reading reported besides events.
pub(super) type Written = anyhow::Result<(Totals, Notes)>;

impl<'t> Writing<'_, 't> {
    /// Writes the traces. Returns the facts about the output and the accounts of the traces.
    ///
    /// # Errors
    /// The path is taken or cannot be written; the traces cannot be written together.
    pub(super) fn run(&self, format: Format) -> anyhow::Result<(Line, Vec<Account<'t>>)> {
        self.job.make_room(self.path)?;
        let (totals, notes) = match format {
            Format::Text => self.text()?,
            Format::Json => self.json()?,
            Format::Perfetto => self.perfetto()?,
            Format::Otlp => self.otlp()?,
            #[cfg(feature = "arrow")]
            Format::Parquet | Format::Arrow => self.table(format)?,
            Format::Ctf => self.ctf(Version::V1_8)?,
            Format::Ctf2 => self.ctf(Version::V2)?,
            Format::TraceDat => self.trace_dat()?,
            #[cfg(feature = "perf")]
            Format::PerfData => bail!("perf-data has buffers of perf, and no traces"),
        };
        notes.print_undecoded();
        Ok(self.line(&totals, &notes))
    }

    fn text(&self) -> Written {
        let title = self.path.display().to_string();
        let title = (!is_stdout(self.path)).then_some(title.as_str());
        let form = text::Form {
            zone: Zone::local(),
            with_log: self.job.with_log,
            title,
            ..text::Form::default()
        };
        let written = to_file(self.path, |out| text::write(self.traces, self.chosen, &form, out))?;
        Ok((written.totals, written.notes))
    }

    fn json(&self) -> Written {
        self.events(
            Form::Lines,
            true,
            &self.chosen.selection(),
            |traces, _, selection, watch, take| {
                to_file(self.path, |out| Ok(json::write(traces, selection, out, watch, take)?))
            },
        )
    }

    fn perfetto(&self) -> Written {
        let kernel = self.traces.arrays().next().and_then(lastwords_open::Trace::ftrace);
        let tasks = kernel.as_ref().map_or_else(Vec::new, |ftrace| ftrace.machine.tasks());
        let is_alone = self.traces.is_ftrace();
        let open_spans = self.traces.open_spans();
        let tracer = kernel.as_ref().and_then(|ftrace| {
            Some(Recording { tracing: &ftrace.machine.tracing, ring: &**ftrace.ring? })
        });
        self.events(Form::Plain, false, &self.chosen.once(), |traces, _, selection, watch, take| {
            let kernel = kernel.as_ref().and_then(|ftrace| {
                // The trace array and the log come after the packets.
                let trace = traces.len().checked_sub(1 + usize::from(self.job.with_log))?;
                let tracer = tracer.as_ref()?;
                let (clock, boot) = (ftrace.array.clock_name(), ftrace.machine.boot_time(ftrace.index));
                Some(perfetto::Kernel { trace, is_alone, tracer, clock, boot, tasks: &tasks })
            });
            if !perfetto::can_hold(traces, kernel.as_ref()) {
                bail!(
                    "one file of perfetto does not hold a kernel's trace and others where its clock's relation to real time is not known: \
                     use `lastwords recover`, which writes a file for each"
                );
            }
            let of = (traces, kernel.as_ref(), &open_spans[..]);
            to_file(self.path, |out| Ok(perfetto::write(of, selection, out, watch, take)?))
        })
    }

    /// Writes CTF. Packets are copied; a trace array is written event by event.
    fn ctf(&self, version: Version) -> Written {
        if let Some(RecoveredSession { session, .. }) = self.traces.sessions().next() {
            let total = session.evidence().sub_buffers.iter().map(|row| row.content);
            let bar = Shared::new(&session.info().name, total.fold(0, u64::saturating_add));
            let totals = write::write(&**session, self.path, version, &|bytes| bar.add(bytes))?;
            if totals.faults > 0 {
                say::warning(format_args!(
                    "{}: some packets are not as they were recorded: what cannot be decoded is left out, and times that go back are \
                     raised; text, json, perfetto, otlp, parquet and arrow have the events as they were",
                    self.path.display()
                ));
            }
            return Ok((totals, Notes::default()));
        }
        let form = Form::Folder(version);
        let (kernels, positions, remarks) = self.kernels(form)?;
        if self.chosen.last.is_some() && !kernels.is_empty() {
            bail!("CTF is written packet by packet; --last is for other formats");
        }
        let folders: Vec<Trace> = self.traces.ctf().cloned().collect();
        let all = [&folders[..], &kernels].concat();
        let mut notes = Notes::default();
        let totals = self.watched(bytes(&folders), |watch| {
            Ok(read::copy(&all, version, self.path, watch, &mut |fault| {
                notes.add(Note::Fault(fault))
            })?)
        })?;
        let of_folders =
            self.traces.all.iter().enumerate().filter(|(_, trace)| trace.ctf().is_some());
        notes.of_traces = totals.iter().copied().enumerate().collect();
        notes.renumber(&of_folders.map(|(at, _)| Some(at)).chain(positions).collect::<Vec<_>>());
        print_remarks(&remarks);
        Ok((Totals::sum(&totals), notes))
    }

    fn trace_dat(&self) -> Written {
        let arrays: Vec<_> = self
            .traces
            .arrays()
            .filter_map(|array| Some((self.traces.position(array)?, array.ftrace()?)))
            .collect();
        let Some((_, Ftrace { machine, snapshot, .. })) = arrays.first() else {
            return self.made_dat();
        };
        let indices = arrays.iter().map(|(_, array)| array.index).collect();
        let options = dat::WriteOptions {
            snapshot: *snapshot,
            arrays: indices,
            ..dat::WriteOptions::default()
        };
        let totals = self.watched(0, |_| {
            dat::write(self.path, &machine.tracing, &options)
                .with_context(|| self.path.display().to_string())
        })?;
        let of =
            |index: usize| totals.iter().find(|(at, _)| *at == index).map(|(_, totals)| *totals);
        let mut notes = Notes::default();
        notes.of_traces =
            arrays.iter().filter_map(|(at, array)| Some((*at, of(array.index)?))).collect();
        let sum = Totals::sum(&totals.iter().map(|(_, totals)| *totals).collect::<Vec<_>>());
        Ok((sum, notes))
    }

    /// Writes the events of applications in the form of a kernel's tracer.
    fn made_dat(&self) -> Written {
        let mut made = None;
        let selection = self.chosen.selection();
        let (mut totals, notes) =
            self.events(Form::Plain, false, &selection, |traces, _, selection, watch, take| {
                let (tracing, totals) = made_dat::make(traces, selection, watch, take)?;
                made = Some(tracing);
                Ok(totals)
            })?;
        let tracing = made.context("no events were read")?;
        let accounts = accounts_after_reading(&self.traces.all, &totals, &notes.of_traces);
        let losses = Losses::from_accounts(&accounts);
        let missing = losses.any.then(|| losses.words());
        let options = dat::WriteOptions { missing, ..dat::WriteOptions::default() };
        let written = dat::write(self.path, &tracing, &options)
            .with_context(|| self.path.display().to_string())?;
        totals.bytes =
            written.iter().map(|(_, written)| written.bytes).fold(0, u64::saturating_add);
        Ok((totals, notes))
    }

    /// Runs a writer over all traces. Those of ftrace have the given form and only the selected
    /// events. With `twice`, traces without an account are read twice: once for their losses, once
    /// for their events. The writer gets the position of each trace among all traces, or none for
    /// a kernel's log.
    pub(super) fn events(
        &self,
        form: Form,
        twice: bool,
        selection: &Selection,
        write: impl FnOnce(
            &[Trace],
            &[Option<usize>],
            &Selection,
            read::Watch<'_>,
            &mut dyn FnMut(Note),
        ) -> anyhow::Result<Totals>,
    ) -> Written {
        let packets = self.traces.packets(Version::V2)?;
        let again =
            packets.iter().filter(|trace| twice && trace.account.is_none()).map(Trace::bytes);
        let total = again.fold(bytes(&packets), u64::saturating_add);
        let (kernels, positions, remarks) = self.kernels(form)?;
        let all = [packets, kernels].concat();
        let positions = [self.traces.of_packets(), positions].concat();
        let mut notes = Notes::default();
        let totals = self.watched(total, |watch| {
            write(&all, &positions, selection, watch, &mut |note| notes.add(note))
        })?;
        notes.renumber(&positions);
        print_remarks(&remarks);
        Ok((totals, notes))
    }

    /// Returns the trace arrays as packets, and after those of each kernel its log.
    fn kernels(&self, form: Form) -> anyhow::Result<Kernels> {
        kernels(self.traces, self.chosen, form, self.job.with_log)
    }

    /// Shows the progress of work. It counts the rings of the first kernel, or else the bytes of
    /// packets, `total`.
    fn watched<T>(
        &self,
        total: u64,
        work: impl FnOnce(read::Watch<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let title = self.path.display().to_string();
        let Some(first) = self.traces.arrays().find_map(|array| array.ftrace()) else {
            let bar = Shared::new(title, total);
            return work(&|bytes| bar.add(bytes));
        };
        let rings = self.traces.arrays().filter_map(|array| array.ftrace()?.ring);
        let _bar = first.machine.meter.show(rings, |total| {
            let mut bar = Progress::new(title, total);
            Box::new(move |done| bar.set(done))
        });
        work(&read::unwatched)
    }

    /// Returns the facts about the output and the accounts of the traces.
    pub(super) fn line(&self, totals: &Totals, notes: &Notes) -> (Line, Vec<Account<'t>>) {
        let traces = self.traces;
        if totals.lost_packets > 0 {
            say::warning(format_args!(
                "{} packets are missing between those that are there",
                totals.lost_packets
            ));
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
        // In a file, the arrays of a machine are one trace.
        let packets = traces.all.iter().filter(|trace| trace.ftrace().is_none());
        let mut all = packets.chain(traces.arrays().take(1)).map(name);
        let Merged { session, from } = all.next().unwrap_or_default();
        let merged = all.collect();
        let totals = &Totals { faults: totals.faults.max(notes.unreadable), ..*totals };
        let accounts = accounts_after_reading(&traces.all, totals, &notes.of_traces);
        let line = Line {
            path: self.path.to_owned(),
            session,
            from,
            events: Some(totals.events),
            streams: totals.streams,
            packets: totals.packets,
            bytes: totals.bytes,
            losses: Losses::from_accounts(&accounts),
            merged,
            counters: None,
            faults: notes.unreadable,
        };
        (line, accounts)
    }
}
