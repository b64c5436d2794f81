//! Opens sessions of lastwords, in folders, files and processes.

use super::{Beginning, Location, Opening, Place, kinds_of_inputs, sniff};
use crate::SourceKind;
use crate::locate::is_likely;
use crate::reason::NothingToRecover;
use crate::session::{RecoveredSession, cut};
use crate::{Body, Options, Origin};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_folders::{SnapshotState, unseen_end};
use lastwords_image as image;
use lastwords_session::{Recovered, Session, sessions};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session's folder, or its memory elsewhere.
pub(crate) static SESSION: Place = Place {
    inputs: &["a session (its name or folder)"],
    files: &[],
    is_folder: |folder| folder.has_regions(),
    open,
};

/// Opens the folder of a session, or its memory elsewhere.
fn open(opening: &mut Opening<'_, '_>) -> anyhow::Result<()> {
    let container = container(opening.location, opening.options, &opening.budget)?;
    add(container, Vec::new(), opening)
}

/// Opens the files of a location as one container.
///
/// # Errors
/// The files cannot be read.
pub(super) fn container(
    location: &Location,
    options: &Options<'_>,
    budget: &Budget,
) -> anyhow::Result<image::Opened> {
    let path = location.path();
    let files = location.open.iter().cloned().zip(location.files.iter().cloned());
    let files: Vec<(PathBuf, PathBuf)> = files.collect();
    let container = match files.as_slice() {
        [] => image::open(path, budget, options.watch),
        files => image::open_files(&location.shown, files, budget),
    };
    container.with_context(|| path.display().to_string())
}

/// Adds the sessions of an open container. `others` are traces of other kinds in it.
///
/// # Errors
/// The container is empty, or has another session than the expected one.
pub(super) fn add(
    container: image::Opened,
    others: Vec<(String, Body)>,
    opening: &mut Opening<'_, '_>,
) -> anyhow::Result<()> {
    let Opening { location, options, budget, opened, .. } = opening;
    let limit = opening.limit;
    let shown = &location.shown;
    let state = location.is_folder().then(|| (options.state)(shown)).flatten();
    let live = limit.is_none() && state.as_ref().is_some_and(|state| state.is_live);
    let walk = lastwords_session::Options {
        snapshot: options.snapshot,
        limit,
        live,
        late: options.late,
        whole: options.whole,
    };
    let found = sessions(container, &walk, budget, options.watch);
    let mut found = found.with_context(|| shown.display().to_string())?;
    // The error that follows says what the file is.
    let is_empty = found.sessions.is_empty() && others.is_empty();
    if is_empty
        && found.kind == image::ImageKind::Plain
        && matches!(
            sniff::of_file(location.path()),
            Some(Beginning::Other(_) | Beginning::Compressed(_))
        )
    {
        found.notes.clear();
    }
    opened.notes.append(&mut found.notes);
    if is_empty {
        return Err(empty(location, &found));
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
        // A folder whose files were opened before is one that is not looked into by its path.
        let is_plain = location.files.is_empty() && shown.is_dir();
        let cut = is_plain.then(|| cut(shown)).flatten();
        let unseen_end = unseen_end(session.info().ending, cut.is_some());
        let ended = of_it.and_then(|state| state.ended).filter(|_| unseen_end.is_none());
        let unknown_end = match unseen_end {
            Some(why) => Some(why.to_owned()),
            None => of_it.and_then(|state| state.unknown_end.clone()),
        };
        let is_live = of_it.is_some_and(|state| state.is_live);
        let is_original = location.open.iter().any(|path| has_inode(path, session.info().inode));
        let session = RecoveredSession {
            unknown_end,
            is_live,
            is_original,
            ..RecoveredSession::new(session, (ended, cut), &options.redaction)
        };
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
    opened.add(options, Origin { core, ..Origin::new(shown, SourceKind::Sessions(kind)) }, bodies);
    Ok(())
}

/// Returns true if a file, or one in a folder, has this inode, or if it is a device, which is no copy
/// and may have another inode after a reboot.
fn has_inode(path: &Path, inode: u64) -> bool {
    let is_it = |meta: std::io::Result<Metadata>| {
        meta.is_ok_and(|meta| {
            let kind = meta.file_type();
            kind.is_char_device() || kind.is_block_device() || (meta.ino() == inode && inode != 0)
        })
    };
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    is_it(std::fs::metadata(path)) || files.map(|file| file.metadata()).any(is_it)
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

/// Returns the error of a container without a trace. What is damaged, or has remains of a session,
/// may have had one.
fn empty(location: &Location, found: &Recovered) -> anyhow::Error {
    use lastwords_image::ImageKind;
    let shown = &location.shown;
    let why = format!("{}: {}", shown.display(), why_empty(location, found));
    let is_nothing = match found.kind {
        ImageKind::Plain => match sniff::look(location.path()) {
            Err(error) => return anyhow::Error::from(error).context(why),
            Ok(Some(Beginning::Compressed(_))) => return NothingToRecover::compressed(why),
            // A program is an ELF file, and in the eyes of the image a core with a damaged header.
            Ok(Some(Beginning::Other(_))) => true,
            Ok(beginning) => beginning.is_none() && !found.is_damaged,
        },
        ImageKind::Core | ImageKind::CompressedCore => !found.is_damaged,
        ImageKind::Folder => !is_likely(shown),
        ImageKind::Process => false,
    };
    match is_nothing && !found.has_remains {
        true => NothingToRecover::unexpected(why),
        false => anyhow::Error::msg(why),
    }
}

fn why_empty(location: &Location, found: &Recovered) -> String {
    use lastwords_image::ImageKind;
    let remedy = match found.kind {
        ImageKind::Plain => {
            let beginning = sniff::of_file(location.path());
            let looks = sniff::sentence(beginning);
            let nothing = match beginning {
                Some(Beginning::Compressed(_)) => "",
                _ => "; no trace is in it",
            };
            return format!("{looks}{nothing}. An input is {}", kinds_of_inputs());
        }
        ImageKind::Core | ImageKind::CompressedCore if found.is_damaged => {
            "it is cut or damaged (see the notes): what it lacks is in a whole copy of it, or in the session's folder"
        }
        ImageKind::Core | ImageKind::CompressedCore => {
            "sessions in shared-memory files are not in a core: `lastwords list` shows them; for memfd and heap sessions \
             the core filter decides: `lastwords doctor`"
        }
        ImageKind::Folder => {
            return format!(
                "the folder has no session and no other trace. An input is {}",
                kinds_of_inputs()
            );
        }
        ImageKind::Process => "`lastwords list` shows the sessions there are",
    };
    format!("no session is in this {}; {remedy}", found.kind.words())
}
