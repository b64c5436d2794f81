//! Reads sessions of LTTng: those of a kernel, and those of user space.

use crate::{Body, Lttng};
use anyhow::Context;
use lastwords_bytes::Budget;
use lastwords_image::{Progress, Watch};
use lastwords_kernel::Kernel;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_lttng::kernel::{self, ModuleTypes};
use lastwords_lttng::user;
use lastwords_lttng::{Session, Stream, complete};
use lastwords_trace::evidence::{Cause, Gap};
use std::path::Path;
use std::sync::Arc;

/// Returns the sessions of a kernel's LTTng. If they cannot be read, a note has the reason. If some
/// of their structures are missing, all of `memory` is searched for what these lead to.
pub(super) fn of_kernel(
    kernel: &Arc<Kernel>,
    memory: &VirtualMemory,
    source: &ModuleTypes,
    watch: Watch<'_>,
    notes: &mut Vec<String>,
) -> Vec<Session> {
    match kernel::read(kernel, source) {
        Ok(mut found) => {
            notes.extend(found.notes);
            let done = complete(memory.physical(), &mut found.sessions, kernel.budget(), watch);
            notes.extend(done.err().map(|error| {
                format!("what no structure of LTTng leads to was not all looked for: {error}")
            }));
            found.sessions
        }
        Err(error) => {
            notes.push(format!("the sessions of LTTng are not known: {error}"));
            Vec::new()
        }
    }
}

/// Proves the packets of sessions by decoding their events.
pub(super) fn bodies(sessions: Vec<Session>, watch: Watch<'_>) -> Vec<(String, Body)> {
    let prove = |mut session: Session| {
        let (mut done, total) = (0u64, session.bytes());
        let events = session.prove_events(&mut |bytes| {
            done = done.saturating_add(bytes);
            watch(Progress { what: "decoding packets", done, total: Some(total) });
        });
        if events.is_none() {
            session.evidence.gaps.extend(undescribed(&session.streams));
        }
        (session.name.clone(), Body::Lttng(Arc::new(Lttng { session: Arc::new(session), events })))
    };
    sessions.into_iter().map(prove).collect()
}

/// Returns the packets of each stream as a gap, because the description of their events is missing.
fn undescribed(streams: &[Stream]) -> Vec<Gap> {
    let gap = |(index, stream): (usize, &Stream)| {
        Gap::new(Some(index), Cause::Undescribed, format!("{} packets", stream.packets.len()))
            .with_bytes(Some(
                stream.packets.iter().map(|packet| packet.content).fold(0, u64::saturating_add),
            ))
    };
    streams.iter().enumerate().filter(|(_, stream)| !stream.packets.is_empty()).map(gap).collect()
}

/// Returns the sessions in a folder of shared memory.
///
/// # Errors
/// The folder cannot be read, or the budget is spent.
pub(super) fn of_folder(folder: &Path, budget: &Budget) -> anyhow::Result<user::Sessions> {
    user::folder(folder, budget).with_context(|| folder.display().to_string())
}
