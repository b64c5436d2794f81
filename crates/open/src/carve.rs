//! What lies in memory, whether or not something leads to it.

use crate::lttng::{self, Given};
use crate::places::Place;
use crate::session::Found;
use crate::{Body, Opened, Options, Origin, chain, machine};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::{self, Physical};
use lastwords_image::{self as image, Image, core::CoreInfo};
use lastwords_walk::session::{self, Session};
use std::path::Path;
use std::sync::Arc;

/// An image in which is looked for anything.
struct Source {
    kind: &'static str,
    core: Option<CoreInfo>,
    image: Arc<dyn Image>,
    /// It is the memory of a machine.
    physical: Option<Physical>,
}

/// Adds what lies in the memory of a place: sub-buffers of sessions and of ftrace, packets of LTTng.
///
/// # Errors
/// It cannot be read, or nothing is in it.
pub(super) fn place(
    place: &Place,
    options: &Options<'_>,
    given: &Given,
    budget: &Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let path = place.path();
    let named = || path.display().to_string();
    let source = source(path, options, budget, opened)?;
    let watch = options.watch;
    let walk = lastwords_walk::Options { snapshot: options.snapshot, ..Default::default() };
    let mut own = session::carve(&source.image, &walk, budget, watch).with_context(named)?;
    opened.notes.append(&mut own.notes);
    let ours: Vec<[u8; 16]> = own.sessions.iter().map(|session| session.info().uuid).collect();
    let found =
        |session| (name_of(&session), Body::Session(Box::new(Found { session: Arc::new(session), ended: None })));
    let mut bodies: Vec<(String, Body)> = own.sessions.into_iter().map(found).collect();
    let packets = lttng::carve(&source.image, given, budget, watch, &mut opened.notes).with_context(named)?;
    // Sub-buffers of sessions have the same form.
    let packets = packets.into_iter().filter(|session| !ours.contains(&session.uuid));
    bodies.extend(lttng::bodies(packets.collect(), watch));
    let machine =
        source.physical.and_then(|physical| match machine::carve(&physical, &options.memory, budget, watch) {
            Ok(machine) => Some(machine),
            Err(error) => {
                opened.notes.push(format!("the kernel's own tracer is not looked for: {}", chain(&error)));
                None
            }
        });
    if bodies.is_empty() && machine.as_ref().is_none_or(|machine| machine.tracing.arrays.is_empty()) {
        bail!("{}: no sub-buffer of a session, packet of LTTng or sub-buffer of ftrace is in it", path.display());
    }
    let origin = Origin { path: path.to_owned(), kind: source.kind, core: source.core, machine };
    machine::add_carved(origin, bodies, options, opened);
    Ok(())
}

fn source(path: &Path, options: &Options<'_>, budget: &Budget, opened: &mut Opened) -> anyhow::Result<Source> {
    let named = || path.display().to_string();
    if let Some(map) = options.memory.raw.as_ref().filter(|map| !map.is_empty()) {
        return Ok(of_machine(vmcore::open_raw(path, map, budget).with_context(named)?));
    }
    if path.is_file()
        && let Some(physical) = vmcore::open_physical(path, budget, options.watch).with_context(named)?
    {
        return Ok(of_machine(physical));
    }
    let mut container = image::open(path, budget, options.watch).with_context(named)?;
    opened.notes.append(&mut container.notes);
    Ok(Source { kind: container.kind.words(), core: container.core, image: container.image, physical: None })
}

fn of_machine(physical: Physical) -> Source {
    Source { kind: physical.format.words(), core: None, image: Arc::clone(&physical.image), physical: Some(physical) }
}

/// A session whose name is lost is called by its UUID.
fn name_of(session: &Session) -> String {
    let info = session.info();
    let uuid = || info.uuid.iter().take(4).fold("carved-".to_owned(), |name, byte| format!("{name}{byte:02x}"));
    if info.name.is_empty() { uuid() } else { info.name.clone() }
}
