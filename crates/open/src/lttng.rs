//! Opens sessions of LTTng: those of a kernel, those of user space, and those found by carving.

use crate::source::{of_file, sentence};
use crate::{Body, Lttng, Options};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_image::{Image, ImageKind, Progress, Watch};
use lastwords_kernel::Kernel;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_lttng::kernel::{self, ModuleTypes};
use lastwords_lttng::user;
use lastwords_lttng::{Metadata, Session, Stream, complete, texts};
use lastwords_trace::evidence::{Cause, Gap};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The largest metadata file that is read, in bytes.
const METADATA_MAX: u64 = 256 << 20;

/// Returns the sessions of a kernel's LTTng. If they cannot be read, a note has the reason. If some
/// of their structures are missing, all of `memory` is searched for what these lead to.
pub(super) fn of_kernel(
    kernel: &Arc<Kernel>,
    memory: &VirtualMemory,
    source: &ModuleTypes,
    watch: Watch<'_>,
    notes: &mut Vec<String>,
) -> Vec<Session> {
    match kernel::read(kernel, source) {
        Ok(mut found) => {
            notes.extend(found.notes);
            let done = complete(memory.physical(), &mut found.sessions, kernel.budget(), watch);
            notes.extend(done.err().map(|error| {
                format!("what no structure of LTTng leads to was not all looked for: {error}")
            }));
            found.sessions
        }
        Err(error) => {
            notes.push(format!("the sessions of LTTng are not known: {error}"));
            Vec::new()
        }
    }
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
        .filter(|session| session.metadata.text.is_empty() && given.0.is_none())
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

/// Proves the packets of sessions by decoding their events.
pub(super) fn bodies(sessions: Vec<Session>, watch: Watch<'_>) -> Vec<(String, Body)> {
    let prove = |mut session: Session| {
        let (mut done, total) = (0u64, session.bytes());
        let events = session.prove_events(&mut |bytes| {
            done = done.saturating_add(bytes);
            watch(Progress { what: "decoding packets", done, total: Some(total) });
        });
        if events.is_none() {
            session.evidence.gaps.extend(undescribed(&session.streams));
        }
        (session.name.clone(), Body::Lttng(Arc::new(Lttng { session: Arc::new(session), events })))
    };
    sessions.into_iter().map(prove).collect()
}

/// Returns the packets of each stream as a gap, because the description of their events is missing.
fn undescribed(streams: &[Stream]) -> Vec<Gap> {
    let gap = |(index, stream): (usize, &Stream)| {
        Gap::new(Some(index), Cause::Undescribed, format!("{} packets", stream.packets.len()))
            .with_bytes(Some(
                stream.packets.iter().map(|packet| packet.content).fold(0, u64::saturating_add),
            ))
    };
    streams.iter().enumerate().filter(|(_, stream)| !stream.packets.is_empty()).map(gap).collect()
}

/// The metadata from the given file, or none if no file was given.
pub(super) struct GivenMetadata(Option<Vec<Metadata>>);

impl GivenMetadata {
    /// Reads the file of [`Options::metadata`]: the text of a metadata file, or all texts in a
    /// daemon's core.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(options: &Options<'_>) -> anyhow::Result<Self> {
        let Some(path) = &options.metadata else { return Ok(Self(None)) };
        let named = || path.display().to_string();
        let budget = Budget::default().times(options.budget);
        let opened = lastwords_image::open(path, &budget, options.watch).with_context(named)?;
        if opened.kind != ImageKind::Plain {
            return Ok(Self(Some(user::texts(&opened.image, &budget).with_context(named)?)));
        }
        let mut file = Vec::new();
        std::fs::File::open(path)
            .with_context(named)?
            .take(METADATA_MAX)
            .read_to_end(&mut file)
            .with_context(named)?;
        let metadata = Metadata::of_file(&file);
        if metadata.class().is_err() && !metadata.is_likely() {
            let looks = sentence(of_file(path));
            bail!("{}: {looks}, no metadata of CTF and no core of LTTng's daemons", path.display());
        }
        Ok(Self(Some(vec![metadata])))
    }

    /// Gives sessions their metadata. A session without metadata gets a note.
    pub(super) fn give(&self, sessions: &mut [Session]) {
        for session in sessions {
            if let Some(texts) = &self.0 {
                match texts
                    .iter()
                    .filter(|text| text.names(&session.uuid))
                    .max_by_key(|text| text.text.len())
                {
                    Some(text) => {
                        session.metadata = text.clone();
                        session.name_by_metadata();
                    }
                    None => session
                        .evidence
                        .notes
                        .push("the metadata given are of another trace".to_owned()),
                }
            }
            if session.metadata.text.is_empty() {
                session.evidence.notes.push(
                    "there is no description of the events: give it with --metadata (the `metadata` file of the trace, or a core \
                     of LTTng's session daemon)"
                        .to_owned(),
                );
            }
        }
    }
}

/// Returns the sessions in a folder of shared memory.
///
/// # Errors
/// The folder cannot be read, or the budget is spent.
pub(super) fn of_folder(folder: &Path, budget: &Budget) -> anyhow::Result<user::Sessions> {
    user::folder(folder, budget).with_context(|| folder.display().to_string())
}
