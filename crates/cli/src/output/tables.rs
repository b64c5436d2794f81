//! Writes the table of events as Parquet or Arrow, and crashes into a data set.

use super::write::{Writing, Written};
use super::{Done, Format, Job, Line, is_stdout, to_file};
use crate::metrics;
use crate::traces::Traces;
use crate::{account, say};
use anyhow::Context;
use lastwords_arrow::{self as arrow, Batches, Crash, DataSet, TraceFacts, Wanted, Writer};
use lastwords_ftrace::ctf::Form;
use lastwords_open::{Origin, Trace};
use lastwords_render::events::Note;
use lastwords_render::iter::{Events, Order};
use lastwords_render::missing::count;
use std::path::Path;
use std::sync::Arc;

/// Returns true if the output is a data set and no file: it is a folder, or is to be one.
pub(super) fn is_data_set(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Returns an error of writing as the other writers have it.
fn of_output(error: arrow::Error) -> anyhow::Error {
    match error {
        arrow::Error::Output(error) => error.into(),
        error => error.into(),
    }
}

impl Writing<'_, '_> {
    pub(super) fn table(&self, format: Format) -> Written {
        let all = &self.traces.all;
        let crashes = Crash::all(&origins(all), all, &|_| None);
        let of_traces = arrow::trace_facts(&crashes, all);
        let format = match format {
            Format::Parquet => arrow::Format::Parquet,
            _ if is_stdout(self.path) => arrow::Format::ArrowStream,
            _ => arrow::Format::ArrowFile,
        };
        let selection = self.chosen.selection();
        self.events(Form::Plain, false, &selection, |traces, positions, selection, watch, take| {
            let facts = |at: &Option<usize>| at.and_then(|at| of_traces.get(at).cloned());
            let facts: Vec<TraceFacts> =
                positions.iter().map(|at| facts(at).unwrap_or_default()).collect();
            let events = Events::new(traces, selection, Order::Time, watch);
            let mut batches = Batches::new(events, facts, &Wanted::default())?;
            to_file(self.path, |out| {
                let mut writer = Writer::new(format, &batches.schema())?;
                while let Some(batch) = batches.next_batch(&mut |fault| take(Note::Fault(fault)))? {
                    writer.write(&batch, out).map_err(of_output)?;
                }
                let bytes = writer.finish(out).map_err(of_output)?;
                note_unfit(batches.unfit());
                Ok(batches.finish(bytes, take)?)
            })
        })
    }
}

/// Returns the inputs that some traces are of.
fn origins(traces: &[Trace]) -> Vec<Arc<Origin>> {
    let mut origins: Vec<Arc<Origin>> = Vec::new();
    for trace in traces {
        if !origins.iter().any(|own| Arc::ptr_eq(own, &trace.origin)) {
            origins.push(Arc::clone(&trace.origin));
        }
    }
    origins
}

/// Notes the values that are null in a column of their own.
fn note_unfit(unfit: u64) {
    if unfit > 0 {
        say::note(format_args!(
            "{} of fields with columns of their own (f_*) do not fit there and are null; the column fields has them",
            count(unfit, "value")
        ));
    }
}

/// Adds the crashes in the input to a data set.
///
/// # Errors
/// Events are selected; the data set cannot be written.
pub(super) fn data_set(job: Job<'_>) -> anyhow::Result<Done> {
    job.events.refuse("a data set has whole crashes", "a file: OUT.parquet")?;
    anyhow::ensure!(!job.with_log, "--with-log is for text, json, perfetto and otlp");
    account::check_readable(job.traces)?;
    let set = DataSet::open(job.output)?;
    set.clean()?;
    let mut done = Done::default();
    for crash in crashes(job.traces) {
        let line = add(&set, &crash, job.traces)?;
        for trace in crash.traces.iter().filter_map(|at| job.traces.all.get(*at)) {
            if let Some(what) = metrics::of_trace(trace) {
                metrics::note_left_out(&line.path, &what, &trace.name);
            }
        }
        job.add_line(line, &mut done);
    }
    job.end(done)
}

/// Returns the crashes in what was opened.
pub(crate) fn crashes(traces: &Traces) -> Vec<Crash> {
    Crash::all(&traces.origins, &traces.all, &|trace| traces.named_verdict(trace))
}

/// Adds a crash to a data set, and returns the line about it.
///
/// # Errors
/// A trace cannot be read; the data set cannot be written.
pub(crate) fn add(set: &DataSet, crash: &Crash, traces: &Traces) -> anyhow::Result<Line> {
    let added = arrow::add(set, crash, &traces.all).with_context(|| crash.id.clone())?;
    note_unfit(added.unfit);
    let first = crash.traces.first().and_then(|at| traces.all.get(*at));
    Ok(Line {
        path: added.path,
        session: first.map_or_else(String::new, |trace| trace.name.clone()),
        from: first.map(|trace| trace.origin.path.clone()).unwrap_or_default(),
        events: Some(added.events),
        streams: added.streams,
        packets: added.packets,
        bytes: added.bytes,
        losses: added.losses,
        faults: added.faults,
        ..Line::default()
    })
}
