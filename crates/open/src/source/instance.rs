//! Opens a persistent instance of the running kernel.

use super::{Location, MEMORY, Opening, Place, is_instance, kernel, memory, persistent};
use crate::reboot::PersistentInstance;
use crate::{Options, running};
use anyhow::{Context, bail};
use std::sync::Arc;

/// The memory of the running kernel.
const KCORE: &str = "/proc/kcore";

/// A trace instance of the running kernel.
pub(crate) static INSTANCE: Place = Place {
    inputs: &["a trace instance of the running kernel (its folder)"],
    files: &[],
    is_folder: |folder| is_instance(&folder.path),
    open,
};

/// Opens an instance that is given by its folder in tracefs. It is read in memory: `trace` in
/// tracefs does not have the events as they are in memory, and reading `trace_pipe_raw` consumes
/// them. Memory that the command line keeps from the kernel at an address is read there, other
/// memory through the kernel's own.
fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let Opening { location, options, budget, opened, .. } = opening;
    let shown = || {
        format!(
            "{}: the instance is read in the kernel's memory, {KCORE}, which root alone may read and not every kernel has",
            location.shown.display()
        )
    };
    let name = running::instance_name(location.path());
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let reserved = PersistentInstance::all_of_command_line(&line)
        .into_iter()
        .find(|instance| instance.name == name);
    let options = Options { names: vec![name], ..options.clone() };
    if let Some((address, len)) = reserved.and_then(|instance| instance.address()) {
        return persistent::open_running(&location.shown, (address, len), &options, budget, opened);
    }
    let source = Some(&MEMORY);
    let memory = Location { open: vec![KCORE.into()], source, ..(*location).clone() };
    let memory::Image::Machine(machine) =
        memory::image_of(&memory, &options, budget).with_context(shown)?
    else {
        bail!(shown())
    };
    let (physical, found) = *machine;
    kernel::open(
        &location.shown,
        &physical,
        found.with_context(shown)?,
        &options,
        Arc::clone(budget),
        opened,
    )
}
