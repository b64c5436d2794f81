//! `recover`: a file or folder for each trace.

use super::{Done, Job, folder, lttng, machine, packets};
use crate::account;
use crate::input::{Arrays, Lttng};
use crate::names::Taken;
use crate::say;
use lastwords_open::{Origin, chain};
use std::collections::BTreeMap;
use std::path::PathBuf;
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
    let mut sessions = std::mem::take(&mut job.traces.lttng);
    let (mut done, mut errors) = (Done::default(), Vec::new());
    let mut names: BTreeMap<PathBuf, Taken> = BTreeMap::new();
    for at in &job.traces.sessions {
        let name = names.entry(job.output.to_owned()).or_default().name(&at.name);
        match packets::session(&job, &chosen, at, &name) {
            Ok(line) => {
                job.tell(line, &mut done);
                if !job.json {
                    account::print_session(at);
                }
            }
            Err(error) => errors.push(error),
        }
    }
    let folders = folders(&job, &sessions);
    let into = |origin: &Arc<Origin>| {
        let own = folders.iter().find(|(other, _)| Arc::ptr_eq(other, origin));
        own.map_or_else(|| job.output.to_owned(), |(_, folder)| folder.clone())
    };
    for origin in &job.traces.origins {
        let arrays = job.traces.arrays.iter().filter(|array| Arc::ptr_eq(&array.origin, origin));
        let arrays: Vec<_> = arrays.cloned().collect();
        if !arrays.is_empty() {
            let into = into(origin);
            let taken = names.entry(into.clone()).or_default();
            errors.extend(machine::each(&job, &chosen, &arrays, &into, taken, &mut done).err());
        }
    }
    while let Some(first) = sessions.first() {
        let origin = Arc::clone(&first.origin);
        let (own, others): (Vec<Lttng>, Vec<Lttng>) =
            sessions.into_iter().partition(|session| Arc::ptr_eq(&session.origin, &origin));
        sessions = others;
        let into = into(&origin);
        let taken = names.entry(into.clone()).or_default();
        errors.extend(lttng::each(&job, &chosen, &own, &into, taken, &mut done).err());
    }
    let taken = names.entry(job.output.to_owned()).or_default();
    errors.extend(packets::folders(&job, &chosen, taken, &mut done));
    done.nothing = chosen.tell_empty(job.traces, done.events());
    let last = errors.pop_if(|_| done.lines.is_empty());
    errors.iter().for_each(|error| say::error(chain(error)));
    done.failed |= !errors.is_empty();
    match last {
        Some(error) => Err(error),
        None => job.end(done),
    }
}

/// Of several kernels and inputs with LTTng each has a folder of its own.
fn folders(job: &Job<'_>, lttng: &[Lttng]) -> Vec<(Arc<Origin>, PathBuf)> {
    let has_lttng = |origin: &Arc<Origin>| lttng.iter().any(|lttng| Arc::ptr_eq(&lttng.origin, origin));
    let own: Vec<&Arc<Origin>> =
        job.traces.origins.iter().filter(|origin| origin.machine.is_some() || has_lttng(origin)).collect();
    let folder =
        |number: usize| if own.len() > 1 { job.output.join(number.to_string()) } else { job.output.to_owned() };
    own.iter().enumerate().map(|(number, origin)| (Arc::clone(origin), folder(number))).collect()
}
