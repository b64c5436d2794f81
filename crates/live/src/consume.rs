//! Implements consuming reads of sessions in their folders. Only one consumer at a time reads a
//! session. After everything was written, the consumer marks the events as consumed.

use crate::inputs::{inputs, knowing};
use crate::{Result, is_live_summary};
use anyhow::{Context, bail};
use lastwords_control::Handle;
use lastwords_control::consume::{Bound, Consumer};
use lastwords_open::{Inputs, Opened, Options, Trace};
use lastwords_session::{End, ReadLimit};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The result of a consuming read.
#[derive(Debug, Default)]
pub struct Consumed {
    /// Remarks.
    pub notes: Vec<String>,
    /// The sessions from which nothing was consumed, with the reasons.
    pub failed: Vec<String>,
}

/// Opens inputs as [`crate::open()`] does, and calls `read` with the events that were committed in
/// their sessions until now. `read` returns its result, the traces of sessions, and whether all of
/// them were written. Only then are they consumed.
///
/// # Errors
/// The same as for [`crate::open()`].
pub fn consume<W: AsRef<str>, T>(
    words: &[W],
    options: &Options<'_>,
    read: impl FnOnce(Opened) -> (T, Vec<Trace>, bool),
) -> Result<(T, Consumed)> {
    let options = &knowing(options);
    let mut inputs = inputs(words, options)?;
    let mut handles: Vec<(PathBuf, Handle)> = Vec::new();
    for folder in inputs.paths() {
        match open(&folder, "consumed") {
            Ok(handle) => handles.push((folder, handle)),
            Err(error) => inputs.refuse(&folder, &error),
        }
    }
    // Unmapping takes time. A kill in that time would hide that everything was consumed, so the
    // mappings are kept until the process ends.
    let handles = ManuallyDrop::new(handles);
    let handles: Vec<(&Path, &Handle)> =
        handles.iter().map(|(folder, handle)| (&**folder, handle)).collect();
    consume_opened((&handles, &[]), inputs, options, read)
}

/// Does what [`consume`] does for one session that the caller has open, or for some of its channels
/// (for all if `channels` is empty). The caller keeps the mapping, so that many reads need no more
/// memory than one.
///
/// # Errors
/// The same as for [`crate::open()`].
pub fn consume_session<T>(
    session: &Handle,
    channels: &[u32],
    options: &Options<'_>,
    read: impl FnOnce(Opened) -> (T, Vec<Trace>, bool),
) -> Result<(T, Consumed)> {
    let options = &knowing(options);
    let folder = session.summary().folder;
    let inputs = Inputs::find(&[&folder], options)?;
    consume_opened((&[(&folder, session)], channels), inputs, options, read)
}

/// Consumes the sessions of `handles`, each with its folder: these channels, or all if there are
/// none.
fn consume_opened<T>(
    (handles, channels): (&[(&Path, &Handle)], &[u32]),
    mut inputs: Inputs,
    options: &Options<'_>,
    read: impl FnOnce(Opened) -> (T, Vec<Trace>, bool),
) -> Result<(T, Consumed)> {
    let mut consumers: Vec<ConsumedSession<'_>> = Vec::new();
    for (folder, handle) in handles.iter().filter(|(_, handle)| options.wants(&handle.name())) {
        match if options.snapshot { handle.consume_snapshot() } else { handle.consume_live() } {
            Ok(consumer) => {
                let consumer = consumer.only_channels(channels);
                let is_over = !is_live_summary(&handle.summary());
                consumers.push(ConsumedSession {
                    folder,
                    is_over,
                    session: consumer.session(),
                    consumer: Mutex::new(consumer),
                });
            }
            // The session has no snapshot. This is reported for each session below.
            Err(lastwords::Error::Snapshot { .. }) => {}
            Err(error) => inputs.refuse(folder, &anyhow::anyhow!("{}: {error}", folder.display())),
        }
    }
    let looks: Vec<Box<dyn Fn() -> Vec<Option<End>> + Sync + '_>> =
        consumers.iter().map(|read| Box::new(|| read.look()) as Box<_>).collect();
    let opened = inputs.open(options, &|folder| {
        let mut reads = consumers.iter().zip(&looks);
        let (read, look) = reads.find(|(read, _)| read.folder == folder)?;
        Some(ReadLimit { session: read.session, look: &**look })
    })?;
    drop(looks);
    let (done, traces, whole) = read(opened);
    let mut read = Vec::new();
    for ConsumedSession { folder, consumer, .. } in consumers {
        let mut consumer = consumer.into_inner().unwrap_or_else(PoisonError::into_inner);
        stopped(&traces, consumer.session())
            .for_each(|(index, position)| consumer.shorten(index, position));
        read.push((folder.display(), consumer));
    }
    // Slow work is done before. If the process is killed during the next steps, it has consumed
    // events without reporting it.
    drop(traces);
    let mut consumed = Consumed::default();
    for (shown, consumer) in read.into_iter().filter(|_| whole) {
        match consumer.consume() {
            Ok(lastwords_control::consume::Consumed { in_snapshot: 0 }) => {}
            Ok(lastwords_control::consume::Consumed { in_snapshot }) => consumed.notes.push(format!(
                "{shown}: a snapshot was taken meanwhile; it has what was read of {in_snapshot} rings too"
            )),
            Err(error) => consumed.failed.push(format!("{shown}: nothing is consumed: {error}")),
        }
    }
    Ok((done, consumed))
}

/// A session that is read and then consumed.
struct ConsumedSession<'a> {
    folder: &'a Path,
    session: [u8; 16],
    /// No process records in it any more.
    is_over: bool,
    consumer: Mutex<Consumer<'a>>,
}

impl ConsumedSession<'_> {
    /// Returns the current end of each stream.
    fn look(&self) -> Vec<Option<End>> {
        let mut consumer = self.consumer.lock().unwrap_or_else(PoisonError::into_inner);
        consumer.look();
        let (clock, is_over) = (consumer.clock().filter(|_| !self.is_over), self.is_over);
        consumer
            .bounds()
            .iter()
            .map(|bound| bound.as_ref().map(|bound| end_of(bound, clock, is_over)))
            .collect()
    }
}

/// Returns the end of a read up to a bound.
pub(crate) fn end_of(bound: &Bound, clock: Option<u64>, is_over: bool) -> End {
    let &Bound { half, position, lost, told, unattached, told_unattached, .. } = bound;
    let unattached = unattached.saturating_sub(told_unattached);
    End { half, position, lost, told, clock, is_over, unattached, begin: None }
}

/// Opens the session in a folder. `done` is the word for what is done with it, for the error if
/// there is no folder.
pub(crate) fn open(folder: &Path, done: &str) -> anyhow::Result<Handle> {
    if !folder.is_dir() {
        bail!("{}: only sessions in their folders are {done}", folder.display());
    }
    Handle::open(folder).with_context(|| folder.display().to_string())
}

/// Returns the streams of a session that were not read to their end: the index, and the position at
/// which reading stopped.
pub(crate) fn stopped(traces: &[Trace], uuid: [u8; 16]) -> impl Iterator<Item = (usize, u64)> {
    let sessions = traces.iter().filter_map(|trace| Some(trace.session()?.session.info()));
    let streams = sessions.filter(move |info| info.uuid == uuid).flat_map(|info| &info.streams);
    streams.filter_map(|stream| Some((usize::try_from(stream.index).ok()?, stream.reached?)))
}
