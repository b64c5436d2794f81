//! Opens LTTng's user-space streams: a folder of its shared memory, and those in a process's memory.

use super::{FileKind, Folder, Opening, Opens, Place};
use crate::SourceKind;
use crate::lttng::{self, GivenMetadata};
use crate::{Body, Opened, Options, Origin};
use anyhow::bail;
use lastwords_lttng::user;

/// Shared memory of LTTng's user-space tracer.
pub(crate) static LTTNG: Place = Place {
    inputs: &["LTTng's shared memory"],
    files: &[FileKind {
        words: "a stream of LTTng",
        begins: |head, _| head.starts_with(&user::MAGIC),
        opens: Opens::Memory,
    }],
    is_folder: has_streams,
    open,
};

/// Returns true if a folder has a stream of LTTng's.
fn has_streams(folder: &Folder) -> bool {
    folder.has_files_of(&LTTNG)
}

fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let Opening { location, options, given, budget, opened, .. } = opening;
    let found = lttng::of_folder(location.path(), budget)?;
    let bodies = of_user(found, given, options, opened);
    if bodies.is_empty() {
        bail!("{}: no stream of LTTng in it can be read", location.shown.display());
    }
    opened.add(options, Origin::new(&location.shown, SourceKind::Lttng), bodies);
    Ok(())
}

/// Adds metadata to streams of LTTng's user-space tracer, and returns their traces.
pub(super) fn of_user(
    mut found: user::Sessions,
    given: &GivenMetadata,
    options: &Options<'_>,
    opened: &mut Opened,
) -> Vec<(String, Body)> {
    opened.notes.append(&mut found.notes);
    given.give(&mut found.sessions);
    lttng::bodies(found.sessions, options.watch)
}
