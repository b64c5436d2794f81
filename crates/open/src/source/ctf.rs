//! Opens folders of CTF.

use super::Opening;
use crate::SourceKind;
use crate::trace::hiding;
use crate::{Body, Origin};
use lastwords_ctf::read;
use std::sync::Arc;

pub(super) fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let Opening { location, options, budget, opened, .. } = opening;
    let path = location.path();
    let found = read::open(path, budget)?;
    opened.errors.extend(found.faults.into_iter().map(anyhow::Error::from));
    if found.traces.is_empty() {
        return Ok(());
    }
    let body = |trace: read::Trace| {
        let name = name_of(&trace);
        Ok((name, Body::Ctf(Arc::new(hiding(trace, &options.redaction)?))))
    };
    let bodies = found.traces.into_iter().map(body).collect::<anyhow::Result<_>>()?;
    opened.add(options, Origin::new(path, SourceKind::Ctf), bodies);
    Ok(())
}

/// Returns the name of a trace in a folder of CTF, or else that of the folder.
pub(crate) fn name_of(trace: &read::Trace) -> String {
    let path = trace.path.canonicalize().unwrap_or_else(|_| trace.path.clone());
    match trace.name() {
        "" => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        name => name.to_owned(),
    }
}
