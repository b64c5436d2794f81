//! Sessions of LTTng recovered: a CTF folder for each, with the packets as they were in memory. For other formats such folders are
//! made for a while, and read.

use super::each::Each;
use super::{Format, Line};
use crate::account;
use crate::input::{Lttng, Traces};
use crate::names::Taken;
use crate::progress::Shared;
use crate::say;
use crate::table::plain;
use crate::text::fault_line;
use anyhow::{Context, bail};
use lastwords_ctf::read;
use lastwords_ctf::write::lttng::{self as folder, Entry, StreamWriter};
use lastwords_ctf::{Version, emit};
use lastwords_formats::Totals;
use lastwords_walk::lttng::{Metadata, Packet, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Writes sessions of one input into a folder, in the format that is asked for: a folder or a file each.
pub(super) fn each(run: &mut Each<'_>, sessions: &mut [Lttng], into: &Path) -> anyhow::Result<()> {
    super::folder(into)?;
    let job = run.job;
    let Some(format) = job.to.filter(|format| format.ctf_version().is_none()) else {
        let lines = write(sessions, into, run.names(into), job.to.and_then(Format::ctf_version))?;
        lines.into_iter().for_each(|line| job.tell(line, &mut run.done));
        return Ok(());
    };
    let made = tempfile::tempdir().context("a folder for the recovered trace")?;
    let lines = write(sessions, made.path(), &mut Taken::default(), None)?;
    check_readable(&lines)?;
    // If one session could not be read, the exit status says so for all of them.
    let unreadable = lines.iter().any(|line| line.unreadable);
    for line in lines.into_iter().filter(|line| !line.unreadable) {
        let path = format.path(into, &run.names(into).name(&line.session));
        let traces = Traces { ctf: read::open(&line.path)?.traces, ..Traces::default() };
        let other = run.writing(&traces, &path).run(format)?;
        let (losses, lost_events) = (line.losses || other.losses, line.lost_events.max(other.lost_events));
        let (session, from) = (line.session, line.from);
        job.tell(Line { session, from, losses, lost_events, unreadable, ..other }, &mut run.done);
    }
    Ok(())
}

/// Some of the sessions can be read, if there are any.
fn check_readable(lines: &[Line]) -> anyhow::Result<()> {
    if !lines.is_empty() && lines.iter().all(|line| line.unreadable) {
        bail!("no session can be read: a description of its events is missing; --metadata gives it");
    }
    Ok(())
}

/// What sessions of LTTng were recovered to for a while. Their folder is removed when this is dropped.
#[derive(Default)]
pub(crate) struct Recovered {
    /// A line for each session.
    pub(crate) lines: Vec<Line>,
    _folder: Option<tempfile::TempDir>,
}

impl Recovered {
    /// There was no session of LTTng.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Something was lost.
    pub(crate) fn losses(&self) -> bool {
        self.lines.iter().any(|line| line.losses)
    }

    /// The events of a session cannot be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.lines.iter().any(|line| line.unreadable)
    }
}

/// Recovers the sessions of LTTng for a while, and puts what they are then among the CTF traces.
///
/// # Errors
/// None of them can be read.
pub(crate) fn unpack(traces: &mut Traces) -> anyhow::Result<Recovered> {
    let mut sessions = std::mem::take(&mut traces.lttng);
    if sessions.is_empty() {
        return Ok(Recovered::default());
    }
    let folder = tempfile::tempdir().context("a folder for the recovered trace")?;
    let lines = write(&mut sessions, folder.path(), &mut Taken::default(), None)?;
    if traces.len() == 0 {
        check_readable(&lines)?;
    }
    for line in lines.iter().filter(|line| !line.unreadable) {
        let found = read::open(&line.path)?;
        traces.ctf.extend(found.traces);
        found.faults.iter().for_each(|fault| fault_line(&fault.to_string()));
    }
    Ok(Recovered { lines, _folder: Some(folder) })
}

/// Names of sessions' folders: traces of one session share one, as long as they lie in different folders there.
struct Names<'a> {
    taken: &'a mut Taken,
    given: BTreeMap<String, (String, BTreeSet<String>)>,
}

impl Names<'_> {
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

/// Proves sessions by their events, and writes them, a folder each, into `folder`; as CTF of a version, or of that in which the tracer
/// describes them.
fn write(
    sessions: &mut [Lttng],
    folder: &Path,
    taken: &mut Taken,
    version: Option<Version>,
) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut names = Names { taken, given: BTreeMap::new() };
    for Lttng { origin, session } in sessions {
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
        let losses = account::print(&account::of_lttng(session)) || unreadable;
        if unreadable {
            say::error(format_args!(
                "session {}: {} packets that nothing can read: the description of their events is missing",
                plain(&session.name),
                totals.packets
            ));
        }
        let Totals { streams, packets, bytes, .. } = totals;
        let (name, from, lost_events) = (session.name.clone(), origin.path.clone(), session.evidence.lost_events());
        let (merged, faults) = (Vec::new(), 0);
        lines.push(Line {
            path,
            session: name,
            from,
            events,
            streams,
            packets,
            bytes,
            lost_events,
            losses,
            unreadable,
            merged,
            faults,
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

/// Name of a stream: of its channel, or else of that one's id, and of its CPU, as LTTng names files.
pub(crate) fn stream_name(session: &Session, stream: usize) -> String {
    let Some(stream) = session.streams.get(stream) else { return format!("stream {stream}") };
    let cpu = stream.cpu.map_or_else(String::new, |cpu| format!("_{cpu}"));
    match stream.channel_name.as_str() {
        "" => format!("channel{}{cpu}", stream.channel),
        name => format!("{name}{cpu}"),
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
