//! Opens a path and finds its sessions.

use crate::{Options, Session};
use lastwords_bytes::{Budget, Error};
use lastwords_image::{ImageKind, Opened, Watch, core::CoreInfo, unwatched};
use std::collections::BTreeSet;
use std::path::Path;

/// The sessions found at a path.
#[derive(Debug)]
pub struct Recovered {
    /// Kind of file that the path is.
    pub kind: ImageKind,
    /// For a core: information about its process.
    pub core: Option<CoreInfo>,
    /// True if the container is truncated or its own structures are damaged.
    pub is_damaged: bool,
    /// True if something was found that begins like a region and belongs to no session.
    pub has_remains: bool,
    /// Sessions, in order of creation.
    pub sessions: Vec<Session>,
    /// Notes about the container and about regions that belong to no session.
    pub notes: Vec<String>,
}

/// Finds every session in a session folder, a core (compressed or not) or a file.
///
/// # Errors
/// The path cannot be read, or the budget is spent. Finding no session is not an error; `sessions`
/// is then empty.
pub fn open(path: &Path, options: &Options<'_>) -> Result<Recovered, Error> {
    open_with(path, options, &Budget::default(), &unwatched)
}

/// Same as [`open()`], with a given budget; reports progress to `watch`.
///
/// # Errors
/// As for [`open()`].
pub fn open_with(
    path: &Path,
    options: &Options<'_>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Recovered, Error> {
    sessions(lastwords_image::open(path, budget, watch)?, options, budget, watch)
}

/// Same as [`open_with`], for a container that is already open, so that other walkers can use its
/// image too.
///
/// # Errors
/// The budget is spent.
pub fn sessions(
    opened: Opened,
    options: &Options<'_>,
    budget: &Budget,
    watch: Watch<'_>,
) -> Result<Recovered, Error> {
    let options = Options { live: options.live || opened.kind == ImageKind::Process, ..*options };
    let mut found = crate::find(&opened.image, &options, budget, watch)?;
    let mut notes = opened.notes;
    if opened.kind == ImageKind::Folder && !found.sessions.is_empty() {
        // A file of the folder that cannot be opened is one of the session's regions.
        for file in notes.drain(..) {
            found.sessions.iter_mut().for_each(|session| session.lacks(&file));
        }
    }
    let has_remains = !found.notes.is_empty();
    notes.extend(found.notes);
    notes.extend(opened.core.iter().flat_map(folders_of).filter(|_| found.sessions.is_empty()));
    let (kind, core, is_damaged) = (opened.kind, opened.core, opened.is_damaged);
    Ok(Recovered { kind, core, is_damaged, has_remains, sessions: found.sessions, notes })
}

/// Notes about session folders whose files the process had mapped. A core leaves out shared
/// mappings of files, so the data of these sessions are only in the folders.
fn folders_of(core: &CoreInfo) -> Vec<String> {
    let folder = |name: &str| {
        let paths = core
            .files
            .iter()
            .filter(move |f| Path::new(&f.path).file_name().is_some_and(|n| n == name));
        paths.filter_map(|f| Path::new(&f.path).parent()).collect::<BTreeSet<_>>()
    };
    let (sessions, registries) = (folder("session"), folder("registry"));
    let both = sessions.intersection(&registries);
    both.map(|f| {
        format!("the process recorded in {0}, which a core leaves out: recover {0}", f.display())
    })
    .collect()
}
