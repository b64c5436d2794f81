//! Opens folders of CTF.

use super::{FileKind, Opening, Opens, Place};
use crate::SourceKind;
use crate::trace::hiding;
use crate::{Body, Origin};
use lastwords_ctf::read;
use std::sync::Arc;

/// Traces of CTF.
pub(crate) static CTF: Place = Place {
    inputs: &["a folder of CTF"],
    files: &[FileKind {
        words: "a stream of CTF: name its folder, which has the metadata",
        // In either byte order.
        begins: |head, _| {
            head.starts_with(b"\xc1\x1f\xfc\xc1") || head.starts_with(b"\xc1\xfc\x1f\xc1")
        },
        opens: Opens::Folder,
    }],
    is_folder: |folder| folder.is_ctf,
    open,
};

fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
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
