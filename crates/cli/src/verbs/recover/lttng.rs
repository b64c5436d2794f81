//! What `recover` writes of sessions of LTTng: a CTF folder each, the packets as they were in memory.

use super::{Args, Line};
use crate::lttng::{evidence, stream_name};
use crate::names::Taken;
use anyhow::Context;
use lastwords_formats::Totals;
use lastwords_formats::ctf::lttng::{self as ctf, Entry, StreamWriter};
use lastwords_trace::schema::ByteOrder;
use lastwords_walk::lttng::{Packet, Session};
use std::path::Path;

/// Writes the sessions that are wanted, a folder each, into `folder`.
pub(super) fn write(args: &Args, from: &Path, sessions: &[Session], folder: &Path) -> anyhow::Result<Vec<Line>> {
    let mut taken = Taken::default();
    let mut lines = Vec::new();
    for session in sessions.iter().filter(|session| args.which.wants(&session.name)) {
        let name = taken.name(&session.name);
        let (path, totals) = write_one(session, folder, &name)?;
        let losses = evidence(session);
        lines.push(Line {
            path,
            session: session.name.clone(),
            from: from.to_owned(),
            events: None,
            streams: totals.streams,
            packets: totals.packets,
            bytes: totals.bytes,
            lost_events: lastwords_formats::evidence::lost_events(&session.evidence),
            losses,
        });
    }
    Ok(lines)
}

fn write_one(session: &Session, folder: &Path, name: &str) -> anyhow::Result<(std::path::PathBuf, Totals)> {
    let below = format!("{name}/{}/{}", session.domain.word(), session.folder);
    let path = ctf::folder(folder, &below)?;
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
