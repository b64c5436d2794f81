//! Opens sessions of lastwords, in folders, files and processes.

use crate::crash::{self, Crash};
use crate::locate::{Location, NothingToRecover};
use crate::{Body, KINDS, Opened, Options, Origin, sniff};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_folders::{Ended, SnapshotState};
use lastwords_image as image;
use lastwords_session::{ReadLimit, Session};
use lastwords_session::{Recovered, sessions};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// What is known of the session in a folder, besides its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderState {
    /// The session that this is known of.
    pub uuid: [u8; 16],
    /// A process records in the session, or that is unknown. Its rings are then copied before they
    /// are read.
    pub is_live: bool,
    /// The way and time of its end; none while a process records in it, or may.
    pub ended: Option<Ended>,
    /// Why it is not known whether the session has ended; none if that is known.
    pub unknown_end: Option<String>,
}

/// A session that was found, and how it ended.
pub struct RecoveredSession {
    /// The session.
    pub session: Arc<Session>,
    /// The way and time of its end, if the session is in its own folder and no process records in
    /// it any more.
    pub ended: Option<Ended>,
    /// Why it is not known whether the session has ended; none if that is known, or if the session
    /// is in no folder.
    pub unknown_end: Option<String>,
    /// Why the stream from which the session was received ended early; none if it did not.
    pub cut: Option<String>,
    /// The time of its newest event, once all events were read for it.
    pub(crate) newest: OnceLock<Option<i64>>,
}

/// The file in a folder of a session that was received over a network whose stream ended early. It
/// has the reason.
pub const ENDED_EARLY: &str = "ended-early";
/// Most bytes of the reason.
const MOST_REASON: u64 = 4096;

/// Returns the reason why the stream of a received session ended early.
fn cut(folder: &Path) -> Option<String> {
    let file = File::open(folder.join(ENDED_EARLY)).ok()?;
    let mut why = Vec::new();
    file.take(MOST_REASON).read_to_end(&mut why).ok()?;
    Some(crate::escape::escape(&String::from_utf8_lossy(&why)))
}

impl RecoveredSession {
    pub(crate) fn new(session: Session, ended: Option<Ended>, cut: Option<String>) -> Self {
        Self { session: Arc::new(session), ended, unknown_end: None, cut, newest: OnceLock::new() }
    }

    /// Returns the panics and signals that hooks and handlers of its program recorded, in order of
    /// time.
    #[must_use]
    pub fn crashes(&self) -> Vec<Crash> {
        crash::of(&self.session)
    }
}

/// Adds the sessions of an open container. `others` are traces of other kinds in it.
///
/// # Errors
/// The container is empty, or has another session than the expected one.
pub(super) fn add(
    location: &Location,
    container: image::Opened,
    others: Vec<(String, Body)>,
    options: &Options<'_>,
    budget: &Budget,
    limit: Option<ReadLimit<'_>>,
    opened: &mut Opened,
) -> anyhow::Result<()> {
    let shown = &location.shown;
    let state = Some(shown).filter(|shown| shown.is_dir()).and_then(|shown| (options.state)(shown));
    let live = limit.is_none() && state.as_ref().is_some_and(|state| state.is_live);
    let walk = lastwords_session::Options {
        snapshot: options.snapshot,
        limit,
        live,
        late: options.late,
        whole: options.whole,
    };
    let found = sessions(container, &walk, budget, options.watch);
    let mut found = found.with_context(|| location.path().display().to_string())?;
    // The error that follows says what the file is.
    let is_empty = found.sessions.is_empty() && others.is_empty();
    if is_empty
        && found.kind == image::Kind::Plain
        && matches!(sniff::of_file(location.path()), Some(sniff::Kind::Other(_)))
    {
        found.notes.clear();
    }
    opened.notes.append(&mut found.notes);
    if is_empty {
        bail!("{}: {}", shown.display(), why_empty(location, &found));
    }
    let Recovered { kind, core, sessions, .. } = found;
    let mut bodies = Vec::new();
    let wanted =
        |session: &Session| location.unique.as_deref().is_none_or(|unique| is_of(session, unique));
    let mut is_other = !sessions.is_empty();
    for session in sessions.into_iter().filter(wanted) {
        is_other = false;
        let name = session.info().name.clone();
        if options.wants(&name)
            && let Err(error) = check_snapshot(location, &session, live, options)
        {
            opened.errors.push(error);
            continue;
        }
        let of_it = state.as_ref().filter(|state| state.uuid == session.info().uuid);
        let ended = of_it.and_then(|state| state.ended);
        let cut = Some(shown).filter(|shown| shown.is_dir()).and_then(|shown| cut(shown));
        let unknown_end = of_it.and_then(|state| state.unknown_end.clone());
        let session =
            RecoveredSession { unknown_end, ..RecoveredSession::new(session, ended, cut) };
        bodies.push((name, Body::Session(Arc::new(session))));
    }
    if is_other && others.is_empty() {
        bail!(
            "{}: what {} holds now is another session; give a core of its process",
            shown.display(),
            location.path().display()
        );
    }
    bodies.extend(others);
    opened.add(
        options,
        Origin { path: shown.clone(), kind: kind.words(), core, machine: None },
        bodies,
    );
    Ok(())
}

/// Checks that a session holds a snapshot, if snapshots are wanted.
fn check_snapshot(
    location: &Location,
    session: &Session,
    live: bool,
    options: &Options<'_>,
) -> anyhow::Result<()> {
    let info = session.info();
    let (name, state) = (&info.name, info.snapshot.state);
    if options.snapshot && !state.is_there() && state != SnapshotState::Swapping {
        let advice = match live {
            true => format!("take one: lastwords snapshot take --session {name}"),
            false => "leave out --snapshot to read its rings".to_owned(),
        };
        let path = location.shown.display();
        return Err(NothingToRecover::error(format!(
            "{path}: session {name} has no snapshot; {advice}"
        )));
    }
    Ok(())
}

/// Returns true if the UUID of the session is the unique part of its folder's name.
fn is_of(session: &Session, unique: &str) -> bool {
    let uuid = session.info().uuid;
    let len = unique.len().checked_div(2).unwrap_or(0);
    let hexadecimal: String = uuid.iter().take(len).map(|byte| format!("{byte:02x}")).collect();
    hexadecimal == unique
}

fn why_empty(location: &Location, found: &Recovered) -> String {
    use lastwords_image::Kind;
    let remedy = match found.kind {
        Kind::Plain => {
            let looks = sniff::sentence(sniff::of_file(location.path()));
            return format!("{looks}; no trace is in it. An input is {KINDS}");
        }
        Kind::Core | Kind::CompressedCore if found.is_damaged => {
            "it is cut or damaged (see the notes): what it lacks is in a whole copy of it, or in the session's folder"
        }
        Kind::Core | Kind::CompressedCore => {
            "sessions in shared-memory files are not in a core: `lastwords list` shows them; for memfd and heap sessions \
             the core filter decides: `lastwords doctor`"
        }
        Kind::Folder => {
            return format!("the folder has no session and no other trace. An input is {KINDS}");
        }
        Kind::Process => "`lastwords list` shows the sessions there are",
    };
    format!("no session is in this {}; {remedy}", found.kind.words())
}
