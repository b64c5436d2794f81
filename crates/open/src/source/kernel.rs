//! Opens the tracers of a kernel in the memory of a machine.

use super::memory::{Image, image_of};
use super::{Location, persistent};
use crate::SourceKind;
use crate::dumped_kernel::kernel;
use crate::machine_traces::add;
use crate::{DumpedKernel, Machine, Memory, Opened, Options, lttng};
use anyhow::{Context as _, bail};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::Physical;
use lastwords_kernel::find;
use std::path::Path;
use std::sync::Arc;

/// Adds the traces of a kernel in the memory of a machine.
///
/// # Errors
/// Its tracer cannot be read.
pub(super) fn open(
    path: &Path,
    physical: &Physical,
    found: find::FoundKernel,
    options: &Options<'_>,
    budget: Arc<Budget>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let named = || path.display().to_string();
    let (kernel, memory, mut notes) =
        kernel(physical, found, &options.memory, Arc::clone(&budget), ADVICE)
            .with_context(named)?;
    let tracing = lastwords_ftrace::memory::read(&kernel, Some(&memory));
    let source = options.memory.lttng(&kernel)?;
    let sessions = lttng::of_kernel(&kernel, &memory, &source, options.watch, &mut notes);
    // If there are sessions of LTTng, they are kept even if ftrace cannot be read.
    let tracing = match tracing {
        Err(error) if !sessions.is_empty() => {
            notes.push(format!("its ftrace is not known: {error}"));
            lastwords_ftrace::memory::without_arrays(&kernel)
        }
        tracing => tracing.with_context(named)?,
    };
    let mut tracing = tracing;
    let mut regions = Vec::new();
    if persistent::is_configured(&kernel) {
        match persistent::find(&physical.image, Some((&kernel, &tracing)), options, &budget)
            .with_context(named)
        {
            Ok(found) => regions = found,
            Err(error) => opened.errors.push(error),
        }
    }
    let is_replaced =
        |index: &usize| regions.iter().any(|region| region.instead_of == Some(*index));
    let kept = tracing.arrays.into_iter().enumerate().filter(|(index, _)| !is_replaced(index));
    tracing.arrays = kept.map(|(_, array)| array).collect();
    add(
        path,
        SourceKind::Machine(physical.format),
        Machine::new(Some(kernel), tracing, notes),
        sessions,
        options,
        opened,
    );
    persistent::add(path, regions, options, opened);
    Ok(())
}

/// Opens the kernel in the memory of a machine, without its traces.
///
/// # Errors
/// The location has no kernel, or its symbols or types cannot be read.
pub(crate) fn alone(location: &Location, options: &Options<'_>) -> anyhow::Result<DumpedKernel> {
    let budget = Arc::new(Budget::default().times(options.budget));
    let named = || location.path().display().to_string();
    let Image::Machine(memory) = image_of(location, options, &budget)? else {
        bail!("{}: this is no memory of a kernel", named());
    };
    let (physical, found) = *memory;
    let (kernel, _, notes) =
        kernel(&physical, found?, &options.memory, budget, "").with_context(named)?;
    Ok(DumpedKernel { path: location.shown.clone(), kernel, notes })
}

/// The command that works for a dump whose end is missing.
const ADVICE: &str = ". `lastwords recover --carve` searches the part that is there";

/// Finds sub-buffers of ftrace anywhere in the memory, and groups them in rings as they fit.
///
/// # Errors
/// The kernel does not have the formats of events.
pub(super) fn carve(
    physical: &Physical,
    found: find::FoundKernel,
    memory: &Memory,
    budget: Arc<Budget>,
) -> anyhow::Result<Machine> {
    let (kernel, memory, notes) = kernel(physical, found, memory, budget, "")?;
    let tracing = lastwords_ftrace::memory::carve(&kernel, &memory)?;
    Ok(Machine::new(Some(kernel), tracing, notes))
}
