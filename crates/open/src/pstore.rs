//! Opens memory for what pstore keeps in it. No kernel is needed.

use crate::candidate::Candidate;
use crate::{Failure, Inputs, Options};
use anyhow::{Context as _, bail};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::{self, Physical};
use lastwords_kernel::pstore::{self, Zone};
use std::path::{Path, PathBuf};

/// What pstore has kept in a memory.
#[derive(Debug)]
pub struct Pstore {
    /// The path of the memory.
    pub path: PathBuf,
    /// The zones that have data, by address.
    pub zones: Vec<Zone>,
    /// Remarks on the memory.
    pub notes: Vec<String>,
}

impl Inputs {
    /// Searches memories for pstore. A file that is no dump is taken as raw memory: it may be a copy
    /// of the reserved range alone.
    #[must_use]
    pub fn pstore(self, options: &Options<'_>) -> (Vec<Pstore>, Vec<Failure>) {
        let (mut found, mut failures) = (Vec::new(), Vec::new());
        for candidate in self.into_candidates() {
            let (path, is_named) = (candidate.path().map(Path::to_owned), candidate.is_named);
            match of_candidate(candidate, options) {
                Ok(pstore) => found.push(pstore),
                Err(error) => failures.push(Failure::new(path, is_named, &error)),
            }
        }
        (found, failures)
    }
}

fn of_candidate(candidate: Candidate, options: &Options<'_>) -> anyhow::Result<Pstore> {
    let budget = Budget::default().times(options.budget);
    let known = candidate.path().map(Path::to_owned);
    let (physical, path) = match (candidate.location, known) {
        (Ok(location), _) if location.is_split => {
            let parts: Vec<&Path> = location.open.iter().map(PathBuf::as_path).collect();
            (vmcore::open_split(&parts, &budget)?, location.shown)
        }
        (Ok(location), _) => (memory(location.path(), options, &budget)?, location.shown),
        (Err(_), Some(path)) if path.is_file() => (memory(&path, options, &budget)?, path),
        (Err(error), _) => return Err(error),
    };
    let zones = pstore::find(&*physical.image, &budget, options.watch);
    let zones = zones.with_context(|| path.display().to_string())?;
    Ok(Pstore { path, zones, notes: physical.notes })
}

/// Opens a dump, or any other file as raw memory.
fn memory(path: &Path, options: &Options<'_>, budget: &Budget) -> anyhow::Result<Physical> {
    let named = || path.display().to_string();
    if path.is_dir() {
        bail!("{}: a folder is no memory of a machine", named());
    }
    if let Some(map) = &options.memory.raw {
        return vmcore::open_raw(path, map, budget).with_context(named);
    }
    match vmcore::open_physical(path, budget, options.watch).with_context(named)? {
        Some(physical) => Ok(physical),
        None => vmcore::open_raw(path, &[], budget).with_context(named),
    }
}
