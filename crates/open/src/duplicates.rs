//! Joins or leaves out inputs that have the same events: a session's folder and its copy, a core
//! and the same core compressed, snapshots of one CTF trace that overlap.

use crate::{Body, Failure, Opened, Trace, source};
use lastwords_bytes::Budget;
use lastwords_session::Session;
use lastwords_trace::source::Source;
use std::collections::HashMap;
use std::sync::Arc;

/// Joins folders of CTF that are parts of one trace, in the same input or in different ones. A
/// packet that several of them have is read once. `budget` pays for the comparison of their
/// metadata.
pub(super) fn join(opened: &mut Opened, budget: &Budget) {
    let mut kept: Vec<Trace> = Vec::new();
    for trace in std::mem::take(&mut opened.traces) {
        let mut is_part = |other: &&mut Trace| {
            let (Some(one), Some(other)) = (other.ctf(), trace.ctf()) else { return false };
            one.is_part(other, budget).unwrap_or_else(|error| {
                let (one, other) = (one.path.display(), other.path.display());
                let why = format!(
                    "{one} and {other}: {error}; they are not joined, and packets that both have are shown twice"
                );
                opened.failures.push(Failure::new(None, true, &anyhow::Error::msg(why)));
                false
            })
        };
        match (kept.iter_mut().find(&mut is_part), trace.body) {
            (Some(Trace { name, origin, body: Body::Ctf(first), .. }), Body::Ctf(part)) => {
                let (origin, path) = (origin.path.display(), trace.origin.path.display());
                opened.notes.push(format!(
                    "{path} is a part of the trace in {origin}: both are read as one trace"
                ));
                let first = Arc::make_mut(first);
                first.unite(Arc::unwrap_or_clone(part));
                *name = source::name_of(first);
            }
            (_, body) => kept.push(Trace { body, ..trace }),
        }
    }
    opened.traces = kept;
}

/// Leaves out copies of a session that another copy contains, so that no event is read twice. If
/// each copy has sub-buffers that the other lacks, both are kept. A note reports either case.
pub(super) fn drop_copies(opened: &mut Opened) {
    let mut kept: Vec<Trace> = Vec::new();
    for trace in std::mem::take(&mut opened.traces) {
        let Some(other) = kept.iter_mut().find(|other| is_same(other, &trace)) else {
            kept.push(trace);
            continue;
        };
        if covers(&sub_buffer_bytes(other), &sub_buffer_bytes(&trace)) {
            opened.notes.push(note_of_copy(&trace, other));
        } else if covers(&sub_buffer_bytes(&trace), &sub_buffer_bytes(other)) {
            opened.notes.push(note_of_copy(other, &trace));
            *other = trace;
        } else {
            opened.notes.push(format!(
                "session {} is in {} and in {}, and each has events that the other does not have: events that both have are shown twice",
                trace.name,
                other.origin.path.display(),
                trace.origin.path.display()
            ));
            kept.push(trace);
        }
    }
    opened.traces = kept;
}

fn note_of_copy(out: &Trace, kept: &Trace) -> String {
    let (name, out, kept) = (&kept.name, out.origin.path.display(), kept.origin.path.display());
    format!("session {name} is in {out} and in {kept}, which has all of it: that one is read")
}

fn session(trace: &Trace) -> Option<&Session> {
    trace.session().map(|found| &*found.session)
}

/// Returns true if both traces have the UUID of one session.
fn is_same(one: &Trace, other: &Trace) -> bool {
    let [one, other] = [one, other].map(|trace| session(trace).map(|session| session.info().uuid));
    one == other && one.is_some_and(|uuid| uuid != [0; 16])
}

/// The bytes of each sub-buffer, by the stream's instance and the sub-buffer's number.
type SubBufferBytes = HashMap<(u64, u64), u64>;

fn sub_buffer_bytes(trace: &Trace) -> SubBufferBytes {
    let Some(source) = session(trace) else { return SubBufferBytes::new() };
    let instance = |stream: usize| source.streams().get(stream).map(|stream| stream.instance);
    let rows = source.evidence().sub_buffers.iter().filter(|row| row.content > 0);
    rows.filter_map(|row| Some(((instance(row.stream)?, row.sequence), row.content))).collect()
}

/// Returns true if `one` has each sub-buffer of `other`, with at least as many bytes.
fn covers(one: &SubBufferBytes, other: &SubBufferBytes) -> bool {
    other.iter().all(|(key, content)| one.get(key).is_some_and(|own| own >= content))
}
