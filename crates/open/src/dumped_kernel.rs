//! Opens the kernel that was found in a memory.

use crate::Memory;
use anyhow::anyhow;
use lastwords_bytes::Budget;
use lastwords_image::HoleCause;
use lastwords_image::vmcore::Physical;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_kernel::{Kernel, find};
use std::path::PathBuf;
use std::sync::Arc;

/// A kernel in a dump.
pub struct DumpedKernel {
    /// The path of the dump.
    pub path: PathBuf,
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Remarks on the dump.
    pub notes: Vec<String>,
}

/// Opens the kernel that was found in a memory. Returns it with its memory and remarks. If the
/// kernel's symbols are in a part of the dump that is missing, the error ends with `advice`.
pub(super) fn kernel(
    physical: &Physical,
    found: find::FoundKernel,
    memory: &Memory,
    budget: Arc<Budget>,
    advice: &str,
) -> anyhow::Result<(Arc<Kernel>, Arc<VirtualMemory>, Vec<String>)> {
    let notes = physical.notes.iter().cloned().chain(found.notes).collect();
    let (sources, given) = (memory.sources(&found.info)?, memory.btf.as_ref());
    let memory = Arc::new(found.memory);
    let kernel = Kernel::open(memory.clone(), &found.info, sources, budget).map_err(|error| {
        let is_of_file = matches!(&error, lastwords_kernel::Error::Btf(_));
        let error = missing_part(error, physical, advice);
        match given.filter(|_| is_of_file) {
            Some(path) => error.context(crate::memory::given("--btf", path)),
            None => error,
        }
    })?;
    Ok((Arc::new(kernel), memory, notes))
}

/// Says of an error that comes from the end of a dump that was cut off how much of the dump is
/// there, and adds `advice`.
fn missing_part(
    error: lastwords_kernel::Error,
    physical: &Physical,
    advice: &str,
) -> anyhow::Error {
    match &error {
        lastwords_kernel::Error::Hole { hole, .. } if hole.cause == HoleCause::Truncated => {
            // The caller names the file.
            let name = format!("{}: ", physical.image.name());
            let note = |note: &String| format!("{}. ", note.strip_prefix(&name).unwrap_or(note));
            let cut = physical.notes.first().map_or_else(String::new, note);
            anyhow!("{cut}The kernel's symbols are in the part that is missing ({error}){advice}")
        }
        _ => error.into(),
    }
}
