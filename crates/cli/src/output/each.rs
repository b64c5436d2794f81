//! `recover`: a file or folder for each trace.

use super::write::Writing;
use super::{Done, Family, Job, folder, lttng};
use crate::account;
use crate::input::{Arrays, Lttng, Session, Traces};
use crate::names::Taken;
use crate::say;
use crate::select::Chosen;
use lastwords_open::{Origin, chain};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes all traces into a folder; one that cannot be written costs the others nothing.
///
/// # Errors
/// A format cannot hold what there is; none could be written.
pub(crate) fn each(mut job: Job<'_>) -> anyhow::Result<Done> {
    job.traces.choose(Arrays::All)?;
    job.check()?;
    if job.to.is_some_and(|format| format.ctf_version().is_none()) {
        job.traces.check_readable()?;
    }
    let chosen = job.events.choose(job.traces)?;
    folder(job.output)?;
    let all = std::mem::take(job.traces);
    let part = || Traces { snapshot: all.snapshot, ..Traces::default() };
    let folders = folders(&job, &all);
    let into = |origin: &Arc<Origin>| {
        let own = folders.iter().find(|(other, _)| Arc::ptr_eq(other, origin));
        own.map_or_else(|| job.output.to_owned(), |(_, folder)| folder.clone())
    };
    let mut run = Run { job: &job, chosen: &chosen, names: BTreeMap::new(), done: Done::default(), errors: Vec::new() };
    let output = job.output;
    let write_session = |run: &mut Run<'_>, session: Session| {
        let name = session.name.clone();
        let one = Traces { sessions: vec![session], ..part() };
        if run.write(&one, Family::Packets, output, &name) {
            run.done.losses |= account::print_all(&one, job.json);
        }
        one.sessions
    };
    let sessions: Vec<Session> = all.sessions.into_iter().flat_map(|at| write_session(&mut run, at)).collect();
    for origin in &all.origins {
        let arrays: Vec<_> = all.arrays.iter().filter(|array| Arc::ptr_eq(&array.origin, origin)).cloned().collect();
        let holds_all = job.format(Family::Ftrace).holds_all();
        for set in arrays.chunks(if holds_all { arrays.len().max(1) } else { 1 }) {
            let name = match set {
                [array] if !holds_all && array.name != "top" => format!("trace-{}", array.name),
                _ => "trace".to_owned(),
            };
            run.write(&Traces { arrays: set.to_vec(), ..part() }, Family::Ftrace, &into(origin), &name);
        }
        run.done.losses |= account::print_all(&Traces { arrays, ..part() }, job.json);
    }
    run.lttng(all.lttng, &into);
    for trace in all.ctf {
        let name = trace.path.file_name().map_or_else(|| "ctf".to_owned(), |name| name.to_string_lossy().into_owned());
        run.write(&Traces { ctf: vec![trace], ..part() }, Family::Packets, output, &name);
    }
    let Run { mut done, mut errors, .. } = run;
    let last = errors.pop_if(|_| done.lines.is_empty());
    errors.iter().for_each(|error| say::error(chain(error)));
    done.failed |= !errors.is_empty();
    done.nothing = last.is_none() && chosen.tell_none(done.events());
    // Whoever consumes sessions is asked how far they were read.
    job.traces.sessions = sessions;
    last.map_or_else(|| job.end(done), Err)
}

/// Traces that are being written one by one.
struct Run<'a> {
    job: &'a Job<'a>,
    chosen: &'a Chosen,
    /// Names that were given, by folder.
    names: BTreeMap<PathBuf, Taken>,
    done: Done,
    errors: Vec<anyhow::Error>,
}

impl Run<'_> {
    /// Writes a file or folder of that name; false where that failed.
    fn write(&mut self, traces: &Traces, family: Family, into: &Path, name: &str) -> bool {
        let (job, chosen, format) = (self.job, self.chosen, self.job.format(family));
        let path = format.path(into, &self.names.entry(into.to_owned()).or_default().name(name));
        let written = folder(into).and_then(|()| Writing { job, chosen, traces, path: &path }.run(format));
        let is_written = written.is_ok();
        match written {
            Ok(line) => job.tell(line, &mut self.done),
            Err(error) => self.errors.push(error),
        }
        is_written
    }

    /// Writes the sessions of LTTng: as CTF in the folders that LTTng gives them.
    fn lttng(&mut self, mut sessions: Vec<Lttng>, into: &dyn Fn(&Arc<Origin>) -> PathBuf) {
        let is_ctf = self.job.format(Family::Packets).ctf_version().is_some();
        while let Some(first) = sessions.first() {
            let (origin, into) = (Arc::clone(&first.origin), into(&first.origin));
            let own: Vec<Lttng> = sessions.extract_if(.., |lttng| Arc::ptr_eq(&lttng.origin, &origin)).collect();
            if is_ctf {
                let taken = self.names.entry(into.clone()).or_default();
                let written = folder(&into).and_then(|()| lttng::write(self.job, &own, &into, taken, &mut self.done));
                self.errors.extend(written.err());
                continue;
            }
            for lttng in own {
                let name = lttng.session().name.clone();
                let one = Traces { lttng: vec![lttng], ..Traces::default() };
                if !one.lttng[0].session().metadata.text.is_empty() {
                    self.write(&one, Family::Packets, &into, &name);
                }
                self.done.failed |= one.has_unreadable();
                self.done.losses |= account::print_all(&one, self.job.json);
            }
        }
    }
}

/// Of several kernels and inputs with LTTng each has a folder of its own.
fn folders(job: &Job<'_>, traces: &Traces) -> Vec<(Arc<Origin>, PathBuf)> {
    let has_lttng = |origin: &Arc<Origin>| traces.lttng.iter().any(|lttng| Arc::ptr_eq(&lttng.origin, origin));
    let own: Vec<&Arc<Origin>> =
        traces.origins.iter().filter(|origin| origin.machine.is_some() || has_lttng(origin)).collect();
    let folder =
        |number: usize| if own.len() > 1 { job.output.join(number.to_string()) } else { job.output.to_owned() };
    own.iter().enumerate().map(|(number, origin)| (Arc::clone(origin), folder(number))).collect()
}
