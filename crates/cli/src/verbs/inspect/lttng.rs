//! `inspect` of sessions of LTTng.

use super::kernel::indented;
use crate::account;
use crate::table::{Table, plain};
use lastwords_formats::evidence::{Account, Report as Evidence};
use lastwords_walk::lttng::Session;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    pub(super) inputs: Vec<Input>,
}

/// What was named, and its sessions.
#[derive(Serialize)]
pub(super) struct Input {
    pub(super) from: PathBuf,
    pub(super) sessions: Vec<Summary>,
}

/// One session.
#[derive(Serialize)]
pub(super) struct Summary {
    name: String,
    domain: &'static str,
    uuid: String,
    created: String,
    /// Null where that is not known.
    active: Option<bool>,
    metadata_bytes: usize,
    ctf: u8,
    streams: Vec<Stream>,
    evidence: Evidence,
    #[serde(skip)]
    account: Account<'static>,
}

/// One channel's ring on one CPU.
#[derive(Serialize)]
struct Stream {
    name: String,
    channel: u32,
    cpu: Option<u32>,
    mode: &'static str,
    sub_buffers: u64,
    sub_buffer_size: u64,
    /// Bytes written and read since the ring was begun.
    produced: u64,
    consumed: u64,
    held_by_reader: bool,
    packets: usize,
    /// Numbers of the first and the last packet.
    sequences: Option<(u64, u64)>,
    bytes: u64,
    lost_full: u64,
    lost_wrap: u64,
    lost_big: u64,
}

/// What is known of a session.
pub(super) fn of(session: &Session) -> Summary {
    let account = account::of_lttng(session);
    let account = Account { evidence: std::borrow::Cow::Owned(session.evidence.clone()), ..account };
    Summary {
        name: session.name.clone(),
        domain: session.domain.word(),
        uuid: session.uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
        created: session.created.clone(),
        active: session.is_active,
        metadata_bytes: session.metadata.text.len(),
        ctf: if session.metadata.is_ctf2() { 2 } else { 1 },
        streams: (0..session.streams.len()).map(|index| stream(session, index)).collect(),
        evidence: account.report(),
        account,
    }
}

fn stream(session: &Session, index: usize) -> Stream {
    let stream = &session.streams[index];
    let numbers = stream.packets.first().zip(stream.packets.last());
    Stream {
        name: session.stream_name(index),
        channel: stream.channel,
        cpu: stream.cpu,
        mode: stream.ring.mode.word(),
        sub_buffers: stream.ring.count(),
        sub_buffer_size: stream.ring.sub_buffer_size,
        produced: stream.ring.produced,
        consumed: stream.ring.consumed,
        held_by_reader: stream.ring.held.is_some(),
        packets: stream.packets.len(),
        sequences: numbers.map(|(first, last)| (first.header.sequence, last.header.sequence)),
        bytes: stream.packets.iter().map(|packet| packet.content).sum(),
        lost_full: stream.loss.full,
        lost_wrap: stream.loss.wrap,
        lost_big: stream.loss.big,
    }
}

/// Writes it for people.
pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let state = summary.active.map_or("", |active| if active { ", recording" } else { ", stopped" });
    let created =
        if summary.created.is_empty() { String::new() } else { format!(", made {}", plain(&summary.created)) };
    let Summary { domain, metadata_bytes, ctf, uuid, .. } = summary;
    writeln!(out, "\n  LTTng session {} ({domain}){state}{created}", plain(&summary.name))?;
    writeln!(out, "    trace {uuid}, metadata of CTF {ctf}: {metadata_bytes} bytes")?;
    let columns = ["stream", "mode", "sub-buffers", "size", "written", "read", "packets", "lost", "first", "last"];
    let mut table = Table::new(columns).indent(4);
    for stream in &summary.streams {
        let lost = stream.lost_full.saturating_add(stream.lost_wrap).saturating_add(stream.lost_big);
        let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let numbers = [stream.sub_buffers, stream.sub_buffer_size, stream.produced, stream.consumed];
        let begin = [plain(&stream.name), stream.mode.to_owned()].into_iter();
        let counts = numbers.into_iter().chain([stream.packets as u64, lost]).map(|n| n.to_string());
        let ends = [number(stream.sequences.map(|s| s.0)), number(stream.sequences.map(|s| s.1))];
        table.row(begin.chain(counts).chain(ends));
    }
    write!(out, "{}", table.render())?;
    indented(&summary.account, out)
}
