//! Inputs that hold sessions of LTTng.

use crate::evidence::LIMIT;
use crate::ftrace::Machine;
use crate::progress::spinning;
use crate::say;
use crate::table::plain;
use anyhow::Context;
use lastwords_bytes::Budget;
use lastwords_image::{Image, Kind};
use lastwords_kernel::Kernel;
use lastwords_kernel::virtual_memory::VirtualMemory;
use lastwords_walk::lttng::{Metadata, Session};
use lastwords_walk::lttng_kernel::{self, Source};
use lastwords_walk::lttng_ust;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of a metadata file.
const METADATA_MAX: u64 = 256 << 20;

/// What was named, and the sessions in it.
pub(crate) type Input = (PathBuf, Vec<Session>);

/// The sessions of a kernel's LTTng; why they cannot be read is noted. Where structures of them are missing, what nothing leads to
/// is looked for in all of `memory`.
pub(crate) fn of_kernel(
    kernel: &Arc<Kernel>,
    memory: &VirtualMemory,
    source: &Source,
    notes: &mut Vec<String>,
) -> Vec<Session> {
    match lttng_kernel::read(kernel, source) {
        Ok(mut found) => {
            notes.extend(found.notes);
            let (physical, sessions) = (memory.physical(), &mut found.sessions);
            let done = spinning(|watch| lastwords_walk::lttng::complete(physical, sessions, kernel.budget(), watch));
            notes.extend(
                done.err().map(|error| format!("what no structure of LTTng leads to was not all looked for: {error}")),
            );
            found.sessions
        }
        Err(error) => {
            notes.push(format!("the sessions of LTTng are not known: {error}"));
            Vec::new()
        }
    }
}

/// The sessions of kernels' LTTng, taken from the machines.
pub(crate) fn of_machines(machines: &mut [Machine]) -> Vec<Input> {
    machines.iter_mut().map(|machine| (machine.from.clone(), std::mem::take(&mut machine.lttng))).collect()
}

/// The sessions of LTTng's user-space tracer in folders of shared memory, in files of it and in process cores; none where
/// the first word has none. `metadata`: a file that has what the words themselves lack.
///
/// # Errors
/// What a word names cannot be read.
pub(crate) fn open_user(words: &[String], metadata: Option<&Path>) -> anyhow::Result<Option<Vec<Input>>> {
    let mut inputs = Vec::new();
    for word in words {
        let path = PathBuf::from(word);
        let Some(mut sessions) = user_sessions(&path)? else { return Ok(None) };
        if sessions.is_empty() {
            return Ok(None);
        }
        give_all(&mut sessions, metadata)?;
        inputs.push((path, sessions));
    }
    Ok(Some(inputs).filter(|inputs| !inputs.is_empty()))
}

/// The sessions whose packets lie somewhere in an image: those of user space by their streams, where these are whole. Where no
/// file of metadata is given, they are looked for in the image.
///
/// # Errors
/// The Budget is spent; the file of metadata cannot be read.
pub(crate) fn carve(image: &Arc<dyn Image>, metadata: Option<&Path>, budget: &Budget) -> anyhow::Result<Vec<Session>> {
    let user = spinning(|watch| lttng_ust::memory(image, budget, watch))?;
    user.notes.iter().for_each(|note| say::note(plain(note)));
    let mut sessions = user.sessions;
    let known: Vec<[u8; 16]> = sessions.iter().map(|session| session.uuid).collect();
    let mut carved = spinning(|watch| lastwords_walk::lttng::carve(image, budget, watch))?;
    carved.retain(|session| !known.contains(&session.uuid));
    sessions.append(&mut carved);
    let lacking: Vec<&mut Session> =
        sessions.iter_mut().filter(|session| session.metadata.text.is_empty() && metadata.is_none()).collect();
    if !lacking.is_empty() && !image.is_virtual() {
        let traces: Vec<[u8; 16]> = lacking.iter().map(|session| session.uuid).collect();
        let texts = spinning(|watch| lastwords_walk::lttng::texts(image, &traces, budget, watch))?;
        lacking.into_iter().for_each(|session| take(session, &texts));
    }
    give_all(&mut sessions, metadata)?;
    Ok(sessions)
}

/// Gives a session what was found of its metadata: the longest text that can be read.
fn take(session: &mut Session, texts: &[Metadata]) {
    let mut own: Vec<&Metadata> = texts.iter().filter(|text| text.names(&session.uuid)).collect();
    own.sort_by_key(|text| std::cmp::Reverse(text.text.len()));
    if let Some(text) = own.into_iter().find(|text| text.class().is_ok()) {
        session.metadata = text.clone();
        session.name_by_metadata();
        let bytes = text.text.len();
        session
            .evidence
            .notes
            .push(format!("the metadata, {bytes} bytes, were found in memory: newer events may lack in them"));
    }
}

/// Gives sessions their metadata from a file, and says where there are none.
fn give_all(sessions: &mut [Session], metadata: Option<&Path>) -> anyhow::Result<()> {
    if let Some(from) = metadata {
        let texts = texts_of(from)?;
        sessions.iter_mut().for_each(|session| give(session, &texts));
    }
    for session in sessions.iter_mut().filter(|session| session.metadata.text.is_empty()) {
        session.evidence.notes.push(
            "there is no description of the events: give it with --metadata (the `metadata` file of the trace, or a core of \
             LTTng's session daemon)"
                .to_owned(),
        );
    }
    Ok(())
}

fn user_sessions(path: &Path) -> anyhow::Result<Option<Vec<Session>>> {
    let Ok(meta) = std::fs::metadata(path) else { return Ok(None) };
    let budget = Budget::default();
    let named = || path.display().to_string();
    let found = if meta.is_dir() {
        lttng_ust::folder(path, &budget).with_context(named)?
    } else {
        let opened = spinning(|watch| lastwords_image::open(path, &budget, watch)).with_context(named)?;
        if opened.kind == Kind::Plain && !begins_like_a_stream(path) {
            return Ok(None);
        }
        spinning(|watch| lttng_ust::image(&opened.image, &budget, watch)).with_context(named)?
    };
    found.notes.iter().for_each(|note| say::note(plain(note)));
    Ok(Some(found.sessions))
}

fn begins_like_a_stream(path: &Path) -> bool {
    let mut head = [0u8; 16];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == lttng_ust::MAGIC
}

/// Metadata in a file: its own, or those in a daemon's core.
fn texts_of(path: &Path) -> anyhow::Result<Vec<Metadata>> {
    let named = || path.display().to_string();
    let budget = Budget::default();
    let opened = spinning(|watch| lastwords_image::open(path, &budget, watch)).with_context(named)?;
    if opened.kind != Kind::Plain {
        return lttng_ust::texts(&opened.image, &budget).with_context(named);
    }
    let mut file = Vec::new();
    let open = std::fs::File::open(path).with_context(named)?;
    open.take(METADATA_MAX).read_to_end(&mut file).with_context(named)?;
    Ok(vec![Metadata::of_file(&file)])
}

/// Gives a session the longest of the texts that are of its trace.
fn give(session: &mut Session, texts: &[Metadata]) {
    let own = texts.iter().filter(|text| text.names(&session.uuid)).max_by_key(|text| text.text.len());
    match own {
        Some(text) => {
            session.metadata = text.clone();
            session.name_by_metadata();
        }
        None => session.evidence.notes.push("the metadata given are of another trace".to_owned()),
    }
}

/// Name of a stream: of its channel, or else of that one's id, and of its CPU, as LTTng names files.
pub(crate) fn stream_name(session: &Session, stream: usize) -> String {
    let Some(stream) = session.streams.get(stream) else { return format!("stream {stream}") };
    let cpu = stream.cpu.map_or_else(String::new, |cpu| format!("_{cpu}"));
    match stream.channel_name.as_str() {
        "" => format!("channel{}{cpu}", stream.channel),
        name => format!("{name}{cpu}"),
    }
}

/// Prints what is known of losses on stderr; whether there are any. `is_named`: each line names the session.
pub(crate) fn evidence(session: &Session, is_named: bool) -> bool {
    let evidence = &session.evidence;
    let whose = if is_named { format!("session {}: ", plain(&session.name)) } else { String::new() };
    evidence.notes.iter().for_each(|note| say::note(format_args!("{whose}{}", plain(note))));
    for row in evidence.sub_buffers.iter().filter(|row| !row.why.is_empty()).take(LIMIT) {
        let (stream, verdict) = (stream_name(session, row.stream), row.verdict.word());
        let content = row.content;
        say::note(format_args!(
            "{whose}{}: packet {} is {verdict}, {content} bytes kept: {}",
            plain(&stream),
            row.sequence,
            plain(&row.why)
        ));
    }
    for gap in evidence.gaps.iter().take(LIMIT) {
        let stream = gap.stream.map_or_else(String::new, |stream| format!("{}: ", stream_name(session, stream)));
        let sizes = [(gap.events, "events"), (gap.bytes, "bytes")];
        let sizes: String = sizes.iter().filter_map(|(n, unit)| n.map(|n| format!(", {n} {unit}"))).collect();
        say::note(format_args!("{whose}{}{}: {}{sizes}", plain(&stream), plain(&gap.place), gap.cause.word()));
    }
    evidence.has_losses()
}
