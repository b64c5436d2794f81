//! The same session, given more than once: a folder and its copy, a core and the same core compressed.

use crate::{Opened, Trace};
use lastwords_trace::source::Source;
use lastwords_walk::session::Session;
use std::collections::HashMap;

/// Leaves out what another copy of the same session has, too, so that no event stands twice. Copies of which each has
/// something of its own are all kept. Either is noted.
pub(super) fn settle(opened: &mut Opened) {
    let mut kept: Vec<Trace> = Vec::new();
    for trace in std::mem::take(&mut opened.traces) {
        let Some(other) = kept.iter_mut().find(|other| is_same(other, &trace)) else {
            kept.push(trace);
            continue;
        };
        if covers(&held(other), &held(&trace)) {
            opened.notes.push(told(&trace, other));
        } else if covers(&held(&trace), &held(other)) {
            opened.notes.push(told(other, &trace));
            *other = trace;
        } else {
            opened.notes.push(format!(
                "session {} is in {} and in {}, and each has what the other has not: events of both stand twice",
                trace.name,
                other.origin.path.display(),
                trace.origin.path.display()
            ));
            kept.push(trace);
        }
    }
    opened.traces = kept;
}

fn told(out: &Trace, kept: &Trace) -> String {
    let (name, out, kept) = (&kept.name, out.origin.path.display(), kept.origin.path.display());
    format!("session {name} is in {out} and in {kept}, which has all of it: that one is read")
}

fn session(trace: &Trace) -> Option<&Session> {
    trace.session().map(|found| &*found.session)
}

/// Both have the UUID of one session.
fn is_same(one: &Trace, other: &Trace) -> bool {
    let [one, other] = [one, other].map(|trace| session(trace).map(|session| session.info().uuid));
    one == other && one.is_some_and(|uuid| uuid != [0; 16])
}

/// What is held of each sub-buffer: by the stream's instance and the sub-buffer's number, its bytes.
type Held = HashMap<(u64, u64), u64>;

fn held(trace: &Trace) -> Held {
    let Some(source) = session(trace) else { return Held::new() };
    let instance = |stream: usize| source.streams().get(stream).map(|stream| stream.instance);
    let rows = source.evidence().sub_buffers.iter().filter(|row| row.content > 0);
    rows.filter_map(|row| Some(((instance(row.stream)?, row.sequence), row.content))).collect()
}

/// Each sub-buffer of `other` is in `one`, at least as far.
fn covers(one: &Held, other: &Held) -> bool {
    other.iter().all(|(key, content)| one.get(key).is_some_and(|own| own >= content))
}
