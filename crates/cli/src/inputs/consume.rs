//! Consuming reads: sessions in their folders, each read by one consumer at a time, and told afterwards that it was.

use super::places::Candidate;
use super::{Found, open_all, resolve};
use crate::control;
use crate::exit::Outcome;
use crate::say;
use crate::select::Which;
use anyhow::{Context, bail};
use lastwords::consume::{Bound, Consumed, Consumer};
use lastwords::remote_control::Handle;
use lastwords_walk::own::{End, Upto};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What became of what was read.
pub(crate) struct Written {
    /// How the verb ends.
    pub(crate) outcome: Outcome,
    /// All of it was written.
    pub(crate) whole: bool,
}

/// Finds the sessions of all words as [`super::open`] does, and runs `use_it` over what was committed in them until now; what was
/// written whole is consumed then.
///
/// # Errors
/// As for [`super::open`]; another process consumes the same; a word names no session's folder.
pub(crate) fn consuming(
    words: &[String],
    which: &Which,
    use_it: impl FnOnce(&Found) -> anyhow::Result<Written>,
) -> anyhow::Result<Outcome> {
    let mut candidates = resolve(words, which)?;
    let mut handles: Vec<(PathBuf, Handle)> = Vec::new();
    for candidate in &mut candidates {
        let Ok(place) = &candidate.place else { continue };
        if handles.iter().any(|(folder, _)| *folder == place.shown) {
            continue;
        }
        match open(&place.shown) {
            Ok(handle) => handles.push((place.shown.clone(), handle)),
            Err(error) => candidate.place = Err(error),
        }
    }
    // Unmapping takes a while, in which a kill would hide that all was consumed: that is left to the end of the process.
    let handles = ManuallyDrop::new(handles);
    let mut consumers: Vec<Read<'_>> = Vec::new();
    for (folder, handle) in handles.iter().filter(|(_, handle)| which.wants(&handle.name())) {
        match if which.snapshot { handle.consume_snapshot() } else { handle.consume_live() } {
            Ok(consumer) => {
                let is_over = !control::is_live_summary(&handle.summary());
                consumers.push(Read { folder, is_over, session: consumer.session(), consumer: Mutex::new(consumer) });
            }
            // There is none: that is said of the session below.
            Err(lastwords::Error::Snapshot { .. }) => {}
            Err(error) => refuse(&mut candidates, folder, &error),
        }
    }
    let found = open_all(candidates, which, &|place, open| {
        let Some(read) = consumers.iter().find(|read| read.folder == place.shown) else { return open(None) };
        open(Some(Upto { session: read.session, look: &|| read.look() }))
    })?;
    let Written { outcome, whole } = use_it(&found)?;
    // Its user takes an exit status for what became of it all.
    let whole = whole && say::failed().is_none();
    let mut read = Vec::new();
    for Read { folder, consumer, .. } in consumers {
        let mut consumer = consumer.into_inner().unwrap_or_else(PoisonError::into_inner);
        shorten(&mut consumer, &found);
        read.push((folder.display(), consumer));
    }
    // What takes time is done before: who is killed behind the next steps has consumed, and has not said so.
    drop(found);
    if !whole {
        say::note("not all of it was written: nothing is consumed");
        return Ok(Outcome::Negative);
    }
    let mut outcome = outcome;
    for (shown, consumer) in read {
        match consumer.consume() {
            Ok(Consumed { in_snapshot: 0 }) => {}
            Ok(Consumed { in_snapshot }) => say::note(format_args!(
                "{shown}: a snapshot was taken meanwhile; it has what was read of {in_snapshot} rings too"
            )),
            Err(error) => {
                say::error(format_args!("{shown}: nothing is consumed: {error}"));
                outcome = Outcome::Negative;
            }
        }
    }
    Ok(outcome)
}

/// A session that is read to be consumed.
struct Read<'a> {
    folder: &'a Path,
    session: [u8; 16],
    /// Nobody records in it any more.
    is_over: bool,
    consumer: Mutex<Consumer<'a>>,
}

impl Read<'_> {
    /// Where each of its streams ends now.
    fn look(&self) -> Vec<Option<End>> {
        let mut consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        consumer.look();
        let (clock, is_over) = (consumer.clock().filter(|_| !self.is_over), self.is_over);
        let end =
            |&Bound { half, position, lost, told, .. }: &Bound| End { half, position, lost, told, clock, is_over };
        consumer.bounds().iter().map(|bound| bound.as_ref().map(end)).collect()
    }
}

fn open(folder: &Path) -> anyhow::Result<Handle> {
    if !folder.is_dir() {
        bail!("{}: only sessions in their folders are consumed", folder.display());
    }
    Handle::open(folder).with_context(|| folder.display().to_string())
}

/// The session of a folder cannot be had.
fn refuse(candidates: &mut [Candidate], folder: &Path, error: &lastwords::Error) {
    for candidate in candidates.iter_mut() {
        if candidate.place.as_ref().is_ok_and(|place| place.shown == folder) {
            candidate.place = Err(anyhow::anyhow!("{}: {error}", folder.display()));
        }
    }
}

/// Tells a consumer where reading stopped before later events.
fn shorten(consumer: &mut Consumer<'_>, found: &Found) {
    let uuid = consumer.session();
    let infos = found.inputs.iter().map(|input| input.session.info()).filter(|info| info.uuid == uuid);
    for stream in infos.flat_map(|info| &info.streams) {
        if let (Ok(index), Some(position)) = (usize::try_from(stream.index), stream.reached) {
            consumer.shorten(index, position);
        }
    }
}
