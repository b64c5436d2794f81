//! Searches memory for sub-buffers and packets, whether or not a structure leads to them.

use super::memory::{Image, image_of};
use super::{Opening, Place, kernel, persistent};
use crate::SourceKind;
use crate::lttng;
use crate::session::RecoveredSession;
use crate::{Body, Origin, chain, machine_traces};
use anyhow::{Context, bail};
use lastwords_image::vmcore::Physical;
use lastwords_session::{self as session, Session};
use std::sync::Arc;

/// All memory, whatever leads to what is in it. No place is recognised as this: it is chosen.
pub(super) static CARVED: Place = Place { inputs: &[], files: &[], is_folder: |_| false, open };

/// Adds what is found in the memory of a location: sub-buffers of sessions and of ftrace, and
/// packets of LTTng.
///
/// # Errors
/// The location cannot be read, or nothing is in it.
fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let Opening { location, options, given, budget, opened, .. } = opening;
    let path = location.path();
    let named = || path.display().to_string();
    let (kind, core, image, machine) = match image_of(location, options, budget)? {
        Image::Machine(memory) => {
            let physical = &memory.0;
            (SourceKind::Machine(physical.format), None, Arc::clone(&physical.image), Some(*memory))
        }
        Image::Container(container) => {
            opened.notes.extend(container.notes);
            (SourceKind::Sessions(container.kind), container.core, container.image, None)
        }
    };
    let watch = options.watch;
    let walk = lastwords_session::Options {
        snapshot: options.snapshot,
        whole: options.whole,
        ..Default::default()
    };
    let mut own = session::carve(&image, &walk, budget, watch).with_context(named)?;
    opened.notes.append(&mut own.notes);
    let ours: Vec<[u8; 16]> = own.sessions.iter().map(|session| session.info().uuid).collect();
    let found = |session| {
        let name = name_of(&session);
        let session = RecoveredSession::new(session, (None, None), &options.redaction);
        (name, Body::Session(Arc::new(session)))
    };
    let mut bodies: Vec<(String, Body)> = own.sessions.into_iter().map(found).collect();
    let packets =
        super::lttng::carve(&image, given, budget, watch, &mut opened.notes).with_context(named)?;
    // Sub-buffers of sessions of lastwords have the form of LTTng's packets, so they are left out
    // here.
    let packets = packets.into_iter().filter(|session| !ours.contains(&session.uuid));
    bodies.extend(lttng::bodies(packets.collect(), watch));
    let carve = |(physical, found): (Physical, anyhow::Result<_>)| {
        kernel::carve(&physical, found?, &options.memory, Arc::clone(budget))
    };
    let mut regions = Vec::new();
    if let Some((physical, _)) = &machine {
        regions = persistent::find(&physical.image, None, options, budget).with_context(named)?;
    }
    let has_regions = !regions.is_empty();
    persistent::add(path, regions, options, opened);
    let machine = machine.and_then(|memory| {
        let carved = carve(memory);
        let note = |error| {
            opened.notes.push(format!(
                "{}: the kernel's own tracer is not looked for: {}",
                path.display(),
                chain(error)
            ))
        };
        carved.as_ref().err().into_iter().for_each(note);
        carved.ok()
    });
    if bodies.is_empty() && machine.as_ref().is_none_or(|machine| machine.tracing.arrays.is_empty())
    {
        if has_regions {
            return Ok(());
        }
        bail!(
            "{}: no sub-buffer of a session, packet of LTTng or sub-buffer of ftrace is in it",
            path.display()
        );
    }
    let origin = Origin { core, machine, ..Origin::new(path, kind) };
    machine_traces::add_carved(origin, bodies, options, opened);
    Ok(())
}

/// Returns the name of a session. If it is lost, the name is made from the UUID.
fn name_of(session: &Session) -> String {
    let info = session.info();
    let uuid = || {
        info.uuid
            .iter()
            .take(4)
            .fold("carved-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
    };
    if info.name.is_empty() { uuid() } else { info.name.clone() }
}
