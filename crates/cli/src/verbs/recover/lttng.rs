//! What `recover` writes of sessions of LTTng: a CTF folder each, the packets as they were in memory.

use super::Args;
use crate::exit::Outcome;
use crate::lttng::{self, evidence, stream_name};
use crate::names::Taken;
use crate::output::{self, Format, Line};
use crate::select::Which;
use crate::{proof, say};
use anyhow::{Context, bail};
use lastwords_formats::ctf::lttng::{self as ctf, Entry, StreamWriter};
use lastwords_formats::{Totals, create_folder};
use lastwords_trace::schema::ByteOrder;
use lastwords_walk::lttng::{Packet, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Writes the sessions of LTTng's user-space tracer that the inputs hold; none where the first of them holds none.
pub(super) fn run(args: &Args) -> anyhow::Result<Option<Outcome>> {
    let Some(inputs) = lttng::open_user(&args.inputs, args.metadata.as_deref())? else { return Ok(None) };
    write_all(args, inputs).map(Some)
}

/// Writes the sessions whose packets lie in the inputs' memory, whether or not something leads to them.
pub(super) fn carve(args: &Args) -> anyhow::Result<Outcome> {
    let mut inputs = Vec::new();
    for word in &args.inputs {
        let path = PathBuf::from(word);
        let sessions = lttng::carve(&path, args.metadata.as_deref())?;
        if sessions.is_empty() {
            bail!("{word}: no packet of LTTng is in it");
        }
        inputs.push((path, sessions));
    }
    write_all(args, inputs)
}

fn write_all(args: &Args, mut inputs: Vec<lttng::Input>) -> anyhow::Result<Outcome> {
    if !matches!(args.to, None | Some(Format::Ctf | Format::Ctf2)) {
        bail!("sessions of LTTng are written as CTF");
    }
    if !args.output.is_dir() {
        create_folder(&args.output)?;
    }
    let mut lines = Vec::new();
    let several = inputs.len() > 1;
    for (number, (from, sessions)) in inputs.iter_mut().enumerate() {
        let folder = if several { args.output.join(number.to_string()) } else { args.output.clone() };
        if !folder.is_dir() {
            create_folder(&folder)?;
        }
        lines.extend(write(&args.which, from, sessions, &folder)?);
    }
    if args.json {
        output::print_json(&lines)?;
    } else {
        lines.iter().try_for_each(|line| say::line(output::text_of(line)))?;
    }
    Ok(output::outcome(args.strict, &lines))
}

/// Names of sessions' folders: traces of one session share one, as long as they lie in different folders there.
#[derive(Default)]
struct Names {
    taken: Taken,
    given: BTreeMap<String, (String, BTreeSet<String>)>,
}

impl Names {
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

/// Proves the sessions that are wanted by their events, and writes them, a folder each, into `folder`.
pub(crate) fn write(which: &Which, from: &Path, sessions: &mut [Session], folder: &Path) -> anyhow::Result<Vec<Line>> {
    let mut names = Names::default();
    let mut lines = Vec::new();
    for session in sessions.iter_mut().filter(|session| which.wants(&session.name)) {
        let events = proof::events(session);
        let (path, totals) = write_one(session, folder, &names.name(session))?;
        let losses = evidence(session);
        lines.push(Line {
            path,
            session: session.name.clone(),
            from: from.to_owned(),
            events,
            streams: totals.streams,
            packets: totals.packets,
            bytes: totals.bytes,
            lost_events: lastwords_formats::evidence::lost_events(&session.evidence),
            losses,
        });
    }
    Ok(lines)
}

fn write_one(session: &Session, folder: &Path, below: &str) -> anyhow::Result<(PathBuf, Totals)> {
    let path = ctf::folder(folder, below)?;
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
            totals.packets += 1;
        }
        totals.bytes += file.finish()?;
        totals.streams += 1;
    }
    let order = match session.shape.order {
        lastwords_bytes::ByteOrder::Little => ByteOrder::Little,
        lastwords_bytes::ByteOrder::Big => ByteOrder::Big,
    };
    totals.bytes += ctf::metadata(&path, &session.metadata.text, &session.uuid, order)?;
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
