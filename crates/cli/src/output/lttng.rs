//! Sessions of LTTng recovered: a CTF folder for each, with the packets as they were in memory.

use super::{Done, Format, Job, Line};
use crate::input::Traces;
use crate::names::Taken;
use crate::progress::Shared;
use anyhow::Context;
use lastwords_ctf::write::lttng::{self as folder, Entry, StreamWriter};
use lastwords_ctf::{Version, emit};
use lastwords_formats::Totals;
use lastwords_open::{Losses, Lttng};
use lastwords_walk::lttng::{Metadata, Packet, Session};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// Writes sessions, a CTF folder each, into `folder`: of the version that is asked for, or of that in which the tracer describes them.
pub(super) fn write(
    job: &Job<'_>,
    sessions: &Traces,
    folder: &Path,
    taken: &mut Taken,
    done: &mut Done,
) -> anyhow::Result<()> {
    let mut names = Names { taken, given: BTreeMap::new() };
    for trace in &sessions.all {
        let Some(Lttng { session, events }) = trace.lttng() else { continue };
        let mut account = trace.account();
        let text = match job.to.and_then(Format::ctf_version).map(|version| translated(&session.metadata, version)) {
            Some(Ok(Some(text))) => Cow::Owned(text.into_bytes()),
            Some(Err(error)) => {
                let note = format!("the metadata stay in the version of the tracer: {error}");
                account.evidence.to_mut().notes.push(note);
                Cow::Borrowed(&session.metadata.text[..])
            }
            _ => Cow::Borrowed(&session.metadata.text[..]),
        };
        let bar = Shared::new(&session.name, session.bytes());
        let (path, totals) = write_one(session, &text, folder, &names.name(session), &bar)?;
        drop(bar);
        let accounts = [account];
        job.account(&Traces::of(vec![trace.clone()]), &accounts, done);
        let Totals { streams, packets, bytes, .. } = totals;
        let line = Line {
            path,
            session: session.name.clone(),
            from: trace.origin.path.clone(),
            events: *events,
            streams,
            packets,
            bytes,
            losses: Losses::of(&accounts),
            merged: Vec::new(),
            faults: 0,
        };
        job.tell(line, done);
    }
    Ok(())
}

/// Metadata in another version; none where they are of that version, or there are none. What cannot be said in it is an error.
fn translated(metadata: &Metadata, version: Version) -> anyhow::Result<Option<String>> {
    let own = if metadata.is_ctf2() { Version::V2 } else { Version::V1_8 };
    if metadata.text.is_empty() || own == version {
        return Ok(None);
    }
    Ok(Some(emit(&metadata.class()?, version)?))
}

fn write_one(
    session: &Session,
    metadata: &[u8],
    into: &Path,
    below: &str,
    bar: &Shared,
) -> anyhow::Result<(PathBuf, Totals)> {
    let path = folder::folder(into, below)?;
    let mut totals = Totals::default();
    let mut files = Taken::default();
    let mut bytes = Vec::new();
    for (number, stream) in session.streams.iter().enumerate() {
        let mut file = StreamWriter::new(&path, &files.name(&session.stream_name(number)))?;
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
    if !metadata.is_empty() {
        totals.bytes += folder::metadata(&path, metadata, &session.uuid, session.shape.order)?;
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
