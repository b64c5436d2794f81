//! Sessions of LTTng recovered: a CTF folder for each, with the packets as they were in memory. For other formats such folders are
//! made for a while, and read.

use super::Args;
use crate::ctf;
use crate::exit::Outcome;
use crate::lttng::{self, evidence, stream_name};
use crate::names::Taken;
use crate::output::{self, Format, Line};
use crate::progress::Shared;
use crate::say;
use crate::select::{Events, Which};
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords_ctf::read::{self, Found};
use lastwords_ctf::write::lttng::{self as folder, Entry, StreamWriter};
use lastwords_ctf::{Version, emit};
use lastwords_formats::{Totals, create_folder};
use lastwords_walk::lttng::{Metadata, Packet, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Writes the sessions of LTTng's user-space tracer that the inputs hold; none where the first of them holds none.
pub(super) fn run(args: &Args) -> anyhow::Result<Option<Outcome>> {
    let Some(inputs) = lttng::open_user(&args.inputs, args.metadata.as_deref())? else { return Ok(None) };
    write_all(args, inputs).map(Some)
}

fn write_all(args: &Args, mut inputs: Vec<lttng::Input>) -> anyhow::Result<Outcome> {
    args.to.map_or(Ok(()), ctf::check)?;
    output::folder(&args.output)?;
    let mut lines = Vec::new();
    let several = inputs.len() > 1;
    for (number, (from, sessions)) in inputs.iter_mut().enumerate() {
        let folder = if several { args.output.join(number.to_string()) } else { args.output.clone() };
        output::folder(&folder)?;
        lines.extend(write_as(args, from, sessions, &folder, Names::default())?);
    }
    output::tell(&lines, args.json)?;
    Ok(output::outcome(args.strict, &lines))
}

/// Writes the sessions that are wanted into `folder`, in the format that is asked for: a folder or a file each.
pub(super) fn write_as(
    args: &Args,
    from: &Path,
    sessions: &mut [Session],
    folder: &Path,
    names: Names,
) -> anyhow::Result<Vec<Line>> {
    let Some(format) = args.to.filter(|format| format.ctf_version().is_none()) else {
        return write(&args.which, from, sessions, folder, names, args.to.and_then(Format::ctf_version));
    };
    let made = tempfile::tempdir().context("a folder for the recovered trace")?;
    let mut taken = names.taken;
    let lines = write(&args.which, from, sessions, made.path(), Names::default(), None)?;
    check_readable(&lines)?;
    let (unreadable, lines): (Vec<Line>, Vec<Line>) = lines.into_iter().partition(|line| line.unreadable);
    let lines = lines.into_iter().map(|line| write_other(line, format, folder, &mut taken));
    // If one session could not be read, the exit status says so for all of them.
    lines.map(|line| Ok(Line { unreadable: !unreadable.is_empty(), ..line? })).collect()
}

/// Some of the sessions can be read, if there are any.
fn check_readable(lines: &[Line]) -> anyhow::Result<()> {
    if !lines.is_empty() && lines.iter().all(|line| line.unreadable) {
        bail!("no session can be read: a description of its events is missing; --metadata gives it");
    }
    Ok(())
}

/// Writes what was recovered as CTF in another format.
fn write_other(line: Line, format: Format, folder: &Path, taken: &mut Taken) -> anyhow::Result<Line> {
    let path = format.path(folder, &taken.name(&line.session));
    let (other, outcome) = ctf::convert(&read::open(&line.path)?, &Events::default(), format, &path)?;
    Ok(Line {
        session: line.session,
        from: line.from,
        losses: line.losses || other.losses || outcome != Outcome::Done,
        lost_events: line.lost_events.max(other.lost_events),
        ..other
    })
}

/// CTF traces that sessions of LTTng were recovered to. Their folder is removed when this is dropped.
pub(crate) struct Recovered {
    pub(crate) traces: Found,
    pub(crate) lines: Vec<Line>,
    _folder: tempfile::TempDir,
}

/// Recovers the sessions that are wanted for a while.
///
/// # Errors
/// None of them can be read.
pub(crate) fn recovered(which: &Which, inputs: &mut [lttng::Input]) -> anyhow::Result<Recovered> {
    let folder = tempfile::tempdir().context("a folder for the recovered trace")?;
    let (mut traces, mut lines) = (Found::default(), Vec::new());
    for (number, (from, sessions)) in inputs.iter_mut().enumerate() {
        let folder = folder.path().join(number.to_string());
        create_folder(&folder)?;
        lines.extend(write(which, from, sessions, &folder, Names::default(), None)?);
    }
    check_readable(&lines)?;
    for line in lines.iter().filter(|line| !line.unreadable) {
        let found = read::open(&line.path)?;
        traces.traces.extend(found.traces);
        traces.faults.extend(found.faults);
    }
    Ok(Recovered { traces, lines, _folder: folder })
}

/// Names of sessions' folders: traces of one session share one, as long as they lie in different folders there.
#[derive(Default)]
pub(crate) struct Names {
    taken: Taken,
    given: BTreeMap<String, (String, BTreeSet<String>)>,
}

impl Names {
    /// Names that differ from those of what is in the folder already.
    pub(super) fn beside(lines: &[Line]) -> Self {
        let mut names = Self::default();
        for path in lines.iter().map(|line| &line.path) {
            // A file's name, and what stands before its suffix.
            for name in [path.file_name(), path.file_stem()].into_iter().flatten().filter_map(|name| name.to_str()) {
                names.taken.name(name);
            }
        }
        names
    }

    fn name(&mut self, session: &Session) -> String {
        let below = format!("{}/{}", session.domain.word(), session.folder);
        let given = self.given.get_mut(&session.name);
        let shared = given.and_then(|(name, folders)| folders.insert(below.clone()).then(|| name.clone()));
        let name = shared.unwrap_or_else(|| {
            let name = self.taken.name(&session.name);
            self.given.insert(session.name.clone(), (name.clone(), BTreeSet::from([below.clone()])));
            name
        });
        format!("{name}/{below}")
    }
}

/// Proves the sessions that are wanted by their events, and writes them, a folder each, into `folder`; as CTF of a version,
/// or of that in which the tracer describes them.
pub(crate) fn write(
    which: &Which,
    from: &Path,
    sessions: &mut [Session],
    folder: &Path,
    mut names: Names,
    version: Option<Version>,
) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    let is_named = sessions.iter().filter(|session| which.wants(&session.name)).count() > 1;
    for session in sessions.iter_mut().filter(|session| which.wants(&session.name)) {
        if let Some(version) = version {
            describe(session, version);
        }
        // Packets are read twice: to be proven by their events, then to be written.
        let bar = Shared::new(&session.name, bytes(session).saturating_mul(2));
        let events = session.prove_events(&mut |bytes| bar.add(bytes));
        let (path, totals) = write_one(session, folder, &names.name(session), &bar)?;
        drop(bar);
        if session.metadata.text.is_empty() && totals.packets == 0 {
            say::note(format_args!("session {}: nothing was ever recorded", plain(&session.name)));
        }
        let unreadable = session.metadata.text.is_empty() && totals.packets > 0;
        let losses = evidence(session, is_named) || unreadable;
        if unreadable {
            say::error(format_args!(
                "session {}: {} packets that nothing can read: the description of their events is missing",
                plain(&session.name),
                totals.packets
            ));
        }
        lines.push(Line {
            path,
            session: session.name.clone(),
            from: from.to_owned(),
            events,
            streams: totals.streams,
            packets: totals.packets,
            bytes: totals.bytes,
            lost_events: session.evidence.lost_events(),
            losses,
            unreadable,
            merged: Vec::new(),
        });
    }
    Ok(lines)
}

/// Has the session described in a version of CTF: packets are the same in both. What cannot be said in it stays as it is.
fn describe(session: &mut Session, version: Version) {
    match translated(&session.metadata, version) {
        Ok(None) => {}
        Ok(Some(text)) => session.metadata.text = text.into_bytes(),
        Err(error) => session.evidence.notes.push(format!("the metadata stay in the version of the tracer: {error}")),
    }
}

/// Metadata in another version; none where they are of that version, or there are none.
fn translated(metadata: &Metadata, version: Version) -> anyhow::Result<Option<String>> {
    let own = if metadata.is_ctf2() { Version::V2 } else { Version::V1_8 };
    if metadata.text.is_empty() || own == version {
        return Ok(None);
    }
    Ok(Some(emit(&metadata.class()?, version)?))
}

/// Bytes of its packets.
fn bytes(session: &Session) -> u64 {
    let packets = session.streams.iter().flat_map(|stream| &stream.packets);
    packets.map(|packet| packet.header.packet_bits / 8).fold(0, u64::saturating_add)
}

fn write_one(session: &Session, into: &Path, below: &str, bar: &Shared) -> anyhow::Result<(PathBuf, Totals)> {
    let path = folder::folder(into, below)?;
    let mut totals = Totals::default();
    let mut files = Taken::default();
    let mut bytes = Vec::new();
    for (number, stream) in session.streams.iter().enumerate() {
        let mut file = StreamWriter::new(&path, &files.name(&stream_name(session, number)))?;
        for (index, packet) in stream.packets.iter().enumerate() {
            // What was there when it was judged can only be gone if the file has changed since.
            let read = session.packet(number, index, &mut bytes).then_some(());
            read.with_context(|| format!("{}: packet {} is gone", path.display(), packet.header.sequence))?;
            file.packet(&bytes, &entry(packet))?;
            bar.add(bytes.len() as u64);
            totals.packets += 1;
        }
        totals.bytes += file.finish()?;
        totals.streams += 1;
    }
    // Readers stumble over a description that is empty; a folder without one is no trace to them.
    if !session.metadata.text.is_empty() {
        totals.bytes += folder::metadata(&path, &session.metadata.text, &session.uuid, session.shape.order)?;
    }
    Ok((path, totals))
}

fn entry(packet: &Packet) -> Entry {
    let header = &packet.header;
    Entry {
        packet_bits: header.packet_bits,
        content_bits: header.content_bits,
        begin: header.begin,
        end: header.end,
        discarded: header.discarded,
        stream_id: header.stream_id.into(),
        instance: header.instance,
        sequence: header.sequence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel's tracer makes it: without a first line that names the format.
    const TSDL: &str = "typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n\
        trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; uint32_t stream_id; }; };\n\
        stream { id = 0; event.header := struct { uint32_t id; }; };\n\
        event { name = \"sched_switch\"; id = 7; stream_id = 0; fields := struct { uint32_t tid; }; };\n";

    fn metadata(text: &str) -> Metadata {
        Metadata { text: text.as_bytes().to_vec(), ..Metadata::default() }
    }

    #[test]
    fn metadata_in_the_other_version() {
        let to = |text: &str, version| translated(&metadata(text), version).expect("valid");
        assert_eq!(to(TSDL, Version::V1_8), None);
        assert_eq!(to("", Version::V2), None);
        let second = to(TSDL, Version::V2).expect("another");
        assert!(second.starts_with('\u{1e}') && second.contains("sched_switch"), "{second}");
        assert_eq!(to(&second, Version::V2), None);
        let first = to(&second, Version::V1_8).expect("another");
        assert!(first.contains("sched_switch"), "{first}");
        let event = |text: &str| metadata(text).class().expect("valid").streams[0].events[0].id;
        assert_eq!(event(&first), event(TSDL));
        assert!(translated(&metadata("event { "), Version::V2).is_err());
    }
}
