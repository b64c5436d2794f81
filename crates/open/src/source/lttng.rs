//! Opens LTTng's user-space streams: a folder of its shared memory, those in a process's memory, and
//! those that are anywhere in a memory.

use super::{FileKind, Folder, GivenMetadata, Opening, Opens, Place};
use crate::SourceKind;
use crate::lttng;
use crate::{Body, Opened, Options, Origin};
use anyhow::bail;
use lastwords_bytes::Budget;
use lastwords_image::{Image, Watch};
use lastwords_lttng::{Metadata, Session, texts, user};
use std::sync::Arc;

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

/// Finds the sessions whose packets lie anywhere in an image. Sessions of user space are found by
/// their streams if these are complete. Without a given metadata file, the image is searched for
/// metadata.
///
/// # Errors
/// The budget is spent.
pub(super) fn carve(
    image: &Arc<dyn Image>,
    given: &GivenMetadata,
    budget: &Budget,
    watch: Watch<'_>,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<Session>> {
    let user = user::memory(image, budget, watch)?;
    notes.extend(user.notes);
    let mut sessions = user.sessions;
    let known: Vec<[u8; 16]> = sessions.iter().map(|session| session.uuid).collect();
    let mut carved = lastwords_lttng::carve(image, budget, watch)?;
    carved.retain(|session| !known.contains(&session.uuid));
    sessions.append(&mut carved);
    let lacking: Vec<&mut Session> = sessions
        .iter_mut()
        .filter(|session| session.metadata.text.is_empty() && !given.is_some())
        .collect();
    if !lacking.is_empty() && !image.is_virtual() {
        let traces: Vec<[u8; 16]> = lacking.iter().map(|session| session.uuid).collect();
        let texts = texts(image, &traces, budget, watch)?;
        lacking.into_iter().for_each(|session| take(session, &texts));
    }
    given.give(&mut sessions);
    Ok(sessions)
}

/// Gives a session the longest readable metadata that were found for it.
fn take(session: &mut Session, texts: &[Metadata]) {
    let mut own: Vec<&Metadata> = texts.iter().filter(|text| text.names(&session.uuid)).collect();
    own.sort_by_key(|text| std::cmp::Reverse(text.text.len()));
    let readable = |text: &&Metadata| text.class().ok().map(|class| class.missing.len());
    // The longest of those that lack least.
    let best = own
        .into_iter()
        .filter_map(|text| Some((readable(&text)?, text)))
        .min_by_key(|(missing, _)| *missing);
    if let Some((_, text)) = best {
        session.metadata = text.clone();
        session.name_by_metadata();
        let bytes = text.text.len();
        session.evidence.notes.push(format!(
            "the metadata, {bytes} bytes, were found in memory: newer events may lack in them"
        ));
    }
}
