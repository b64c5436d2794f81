//! `recover`: a file or folder for each trace.

use super::write::Writing;
use super::{Done, Family, Job, folder, lttng};
use crate::account;
use crate::input::{Arrays, Lttng, Traces};
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
    let chosen = job.events.choose(job.traces)?;
    folder(job.output)?;
    let all = std::mem::take(job.traces);
    let is_all_sessions = all.sessions.len() == all.len();
    let part = || Traces { snapshot: all.snapshot, ..Traces::default() };
    let folders = folders(&job, &all);
    let into = |origin: &Arc<Origin>| {
        let own = folders.iter().find(|(other, _)| Arc::ptr_eq(other, origin));
        own.map_or_else(|| job.output.to_owned(), |(_, folder)| folder.clone())
    };
    let mut run =
        Each { job: &job, chosen: &chosen, names: BTreeMap::new(), done: Done::default(), errors: Vec::new() };
    let mut sessions = Vec::new();
    for session in all.sessions {
        let mut one = Traces { sessions: vec![session], ..part() };
        let name = one.sessions[0].name.clone();
        if run.write(&one, Family::Session, job.output, &name) {
            run.done.losses |= account::print_all(&one, job.json);
        }
        sessions.append(&mut one.sessions);
    }
    for origin in &all.origins {
        let arrays: Vec<_> = all.arrays.iter().filter(|array| Arc::ptr_eq(&array.origin, origin)).cloned().collect();
        let holds_all = job.format(Family::Ftrace).holds_all();
        let sets = arrays.chunks(if holds_all { arrays.len().max(1) } else { 1 });
        for set in sets {
            let name = match set {
                [array] if !holds_all && array.name != "top" => format!("trace-{}", array.name),
                _ => "trace".to_owned(),
            };
            run.write(&Traces { arrays: set.to_vec(), ..part() }, Family::Ftrace, &into(origin), &name);
        }
        run.done.losses |= account::print_all(&Traces { arrays, ..part() }, job.json);
    }
    let mut lttng = all.lttng;
    while let Some(first) = lttng.first() {
        let origin = Arc::clone(&first.origin);
        let (mut own, others): (Vec<Lttng>, Vec<Lttng>) =
            lttng.into_iter().partition(|l| Arc::ptr_eq(&l.origin, &origin));
        lttng = others;
        let written = lttng::each(&mut run, &mut own, &into(&origin));
        run.errors.extend(written.err());
    }
    for trace in all.ctf {
        let name = trace.path.file_name().map_or_else(|| "ctf".to_owned(), |name| name.to_string_lossy().into_owned());
        run.write(&Traces { ctf: vec![trace], ..part() }, Family::Packets, job.output, &name);
    }
    let Each { mut done, mut errors, .. } = run;
    let last = errors.pop_if(|_| done.lines.is_empty());
    errors.iter().for_each(|error| say::error(chain(error)));
    done.failed |= !errors.is_empty();
    *job.traces = Traces { sessions, ..Traces::default() };
    if let Some(error) = last {
        return Err(error);
    }
    let of = if is_all_sessions { &*job.traces } else { &Traces::default() };
    done.nothing = chosen.tell_empty(of, done.events());
    job.end(done)
}

/// Traces that are being written one by one.
pub(super) struct Each<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) chosen: &'a Chosen,
    /// Names that were given, by folder.
    names: BTreeMap<PathBuf, Taken>,
    pub(super) done: Done,
    errors: Vec<anyhow::Error>,
}

impl Each<'_> {
    /// The names that were given in a folder.
    pub(super) fn names(&mut self, folder: &Path) -> &mut Taken {
        self.names.entry(folder.to_owned()).or_default()
    }

    /// Writes a file or folder of that name; false where that failed.
    fn write(&mut self, traces: &Traces, family: Family, into: &Path, name: &str) -> bool {
        let format = self.job.format(family);
        let path = format.path(into, &self.names(into).name(name));
        let written = folder(into).and_then(|()| self.writing(traces, &path).run(format));
        let is_written = written.is_ok();
        match written {
            Ok(line) => self.job.tell(line, &mut self.done),
            Err(error) => self.errors.push(error),
        }
        is_written
    }

    pub(super) fn writing<'w>(&'w self, traces: &'w Traces, path: &'w Path) -> Writing<'w> {
        Writing { job: self.job, chosen: self.chosen, traces, path }
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
