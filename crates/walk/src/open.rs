//! From a path to its sessions.

use crate::session::{self, Session};
use lastwords_bytes::{Budget, Error};
use lastwords_image::{Kind, Opened, Watch, core::CoreInfo, unwatched};
use std::collections::BTreeSet;
use std::path::Path;

pub use crate::session::Options;

/// What was found at a path.
#[derive(Debug)]
pub struct Recovered {
    /// What the path was.
    pub kind: Kind,
    /// What a core says of its process.
    pub core: Option<CoreInfo>,
    /// The container is cut, or its own structures are damaged.
    pub is_damaged: bool,
    /// Every session found, in order of creation.
    pub sessions: Vec<Session>,
    /// Remarks on the container and on regions that belong to no session.
    pub notes: Vec<String>,
}

/// Finds every session in a session folder, a core (compressed or not) or a file.
///
/// # Errors
/// The path cannot be read, or the budget is spent. That there is no session is no error: `sessions` is empty.
pub fn open(path: &Path, options: &Options<'_>) -> Result<Recovered, Error> {
    open_with(path, options, &Budget::default(), &unwatched)
}

/// The same, within a budget, telling of progress.
///
/// # Errors
/// As for [`open()`].
pub fn open_with(path: &Path, options: &Options<'_>, budget: &Budget, watch: Watch<'_>) -> Result<Recovered, Error> {
    sessions(lastwords_image::open(path, budget, watch)?, options, budget, watch)
}

/// The same for a container that is open already, so that other walkers can look at its image too.
///
/// # Errors
/// The budget is spent.
pub fn sessions(opened: Opened, options: &Options<'_>, budget: &Budget, watch: Watch<'_>) -> Result<Recovered, Error> {
    let options = Options { live: options.live || opened.kind == Kind::Process, ..*options };
    let mut found = session::find(&opened.image, &options, budget, watch)?;
    let mut notes = opened.notes;
    if opened.kind == Kind::Folder && !found.sessions.is_empty() {
        // A file of the folder that cannot be opened is one of its session's regions.
        for file in notes.drain(..) {
            found.sessions.iter_mut().for_each(|session| session.lacks(&file));
        }
    }
    notes.extend(found.notes);
    notes.extend(opened.core.iter().flat_map(folders_of).filter(|_| found.sessions.is_empty()));
    let (kind, core, is_damaged) = (opened.kind, opened.core, opened.is_damaged);
    Ok(Recovered { kind, core, is_damaged, sessions: found.sessions, notes })
}

/// Remarks on the session folders whose files the process had mapped: a core leaves out mappings of linked files, so that
/// the sessions are in the folders alone.
fn folders_of(core: &CoreInfo) -> Vec<String> {
    let folder = |name: &str| {
        let paths = core.files.iter().filter(move |f| Path::new(&f.path).file_name().is_some_and(|n| n == name));
        paths.filter_map(|f| Path::new(&f.path).parent()).collect::<BTreeSet<_>>()
    };
    let (sessions, registries) = (folder("session"), folder("registry"));
    let both = sessions.intersection(&registries);
    both.map(|f| format!("the process recorded in {0}, which a core leaves out: recover {0}", f.display())).collect()
}
