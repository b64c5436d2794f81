//! Implements `recover`: writes a file or folder for each trace.

use super::write::Writing;
use super::{Done, Family, Job, folder, lttng};
use crate::account;
use crate::say;
use crate::select::Chosen;
use crate::traces::{Arrays, Traces};
use lastwords_open::{Account, FileNames, Origin, Trace, chain};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes all traces into a folder. If one trace cannot be written, the others still are.
///
/// # Errors
/// The format cannot hold any of the traces; no trace could be written.
pub(crate) fn each(mut job: Job<'_>) -> anyhow::Result<Done> {
    job.traces.choose(Arrays::All)?;
    job.check()?;
    if job.to.is_some_and(|format| format.ctf_version().is_none()) {
        account::check_readable(job.traces)?;
    }
    let chosen = job.events.choose(job.traces)?;
    folder(job.output)?;
    let traces = &*job.traces;
    let folders = folders(&job, traces);
    let into = |origin: &Arc<Origin>| {
        let own = folders.iter().find(|(other, _)| Arc::ptr_eq(other, origin));
        own.map_or_else(|| job.output.to_owned(), |(_, folder)| folder.clone())
    };
    let mut run = Run {
        job: &job,
        chosen: &chosen,
        names: BTreeMap::new(),
        done: Done::default(),
        errors: Vec::new(),
    };
    traces
        .all
        .iter()
        .filter(|trace| trace.session().is_some())
        .for_each(|one| run.one(one, job.output, &one.name));
    for origin in &traces.origins {
        let arrays: Vec<Trace> =
            traces.arrays().filter(|array| Arc::ptr_eq(&array.origin, origin)).cloned().collect();
        let holds_all = job.format(Family::Ftrace).holds_all();
        for set in arrays.chunks(if holds_all { arrays.len().max(1) } else { 1 }) {
            let name = match set {
                [array] if !holds_all && array.name != "top" => format!("trace-{}", array.name),
                _ => "trace".to_owned(),
            };
            run.write(&Traces::new(set.to_vec()), Family::Ftrace, &into(origin), &name);
        }
        let arrays = Traces::new(arrays);
        job.account(&arrays, &arrays.accounts(), &mut run.done);
        run.lttng(origin, traces, &into(origin));
    }
    for (trace, ctf) in traces.all.iter().filter_map(|trace| Some((trace, trace.ctf()?))) {
        let name = ctf
            .path
            .file_name()
            .map_or_else(|| "ctf".to_owned(), |name| name.to_string_lossy().into_owned());
        run.one(trace, job.output, &name);
    }
    let Run { mut done, mut errors, .. } = run;
    let last = errors.pop_if(|_| done.lines.is_empty());
    errors.iter().for_each(|error| say::error(chain(error)));
    done.failed |= !errors.is_empty();
    done.nothing = last.is_none() && chosen.note_if_empty(traces, done.events());
    last.map_or_else(|| job.end(done), Err)
}

/// A run that writes traces one by one.
struct Run<'a> {
    job: &'a Job<'a>,
    chosen: &'a Chosen,
    /// The names that were given out, by folder.
    names: BTreeMap<PathBuf, FileNames>,
    done: Done,
    errors: Vec<anyhow::Error>,
}

impl Run<'_> {
    /// Writes a file or folder with the name. Returns the accounts of the traces, or none if that
    /// failed.
    fn write<'t>(
        &mut self,
        traces: &'t Traces,
        family: Family,
        into: &Path,
        name: &str,
    ) -> Option<Vec<Account<'t>>> {
        let (job, chosen, format) = (self.job, self.chosen, self.job.format(family));
        let path = format.path(into, &self.names.entry(into.to_owned()).or_default().unique(name));
        let written =
            folder(into).and_then(|()| Writing { job, chosen, traces, path: &path }.run(format));
        let (line, accounts) = written.map_err(|error| self.errors.push(error)).ok()?;
        job.add_line(line, &mut self.done);
        Some(accounts)
    }

    /// Writes a trace of packets, and prints its account.
    fn one(&mut self, trace: &Trace, into: &Path, name: &str) {
        let one = Traces::new(vec![trace.clone()]);
        if let Some(accounts) = self.write(&one, Family::Packets, into, name) {
            self.job.account(&one, &accounts, &mut self.done);
        }
    }

    /// Writes the sessions of LTTng of an input. As CTF they get the folders that LTTng would give
    /// them.
    fn lttng(&mut self, origin: &Arc<Origin>, traces: &Traces, into: &Path) {
        let is_own = |trace: &&Trace| trace.lttng().is_some() && Arc::ptr_eq(&trace.origin, origin);
        let own = Traces::new(traces.all.iter().filter(is_own).cloned().collect());
        if own.all.is_empty() {
            return;
        }
        if self.job.format(Family::Packets).ctf_version().is_some() {
            let taken = self.names.entry(into.to_owned()).or_default();
            let written = folder(into)
                .and_then(|()| lttng::write(self.job, &own, into, taken, &mut self.done));
            self.errors.extend(written.err());
            return;
        }
        for trace in &own.all {
            if trace.lttng().is_some_and(|lttng| lttng.session.metadata.text.is_empty()) {
                let one = Traces::new(vec![trace.clone()]);
                self.job.account(&one, &one.accounts(), &mut self.done);
            } else {
                self.one(trace, into, &trace.name);
            }
        }
    }
}

/// Returns the folder of each kernel and of each input with LTTng. If there are several, each has a
/// folder of its own.
fn folders(job: &Job<'_>, traces: &Traces) -> Vec<(Arc<Origin>, PathBuf)> {
    let has_lttng = |origin: &Arc<Origin>| {
        traces.all.iter().any(|trace| trace.lttng().is_some() && Arc::ptr_eq(&trace.origin, origin))
    };
    let own: Vec<&Arc<Origin>> = traces
        .origins
        .iter()
        .filter(|origin| origin.machine.is_some() || has_lttng(origin))
        .collect();
    let folder = |number: usize| {
        if own.len() > 1 { job.output.join(number.to_string()) } else { job.output.to_owned() }
    };
    own.iter().enumerate().map(|(number, origin)| (Arc::clone(origin), folder(number))).collect()
}
