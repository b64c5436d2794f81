//! Reports what is in a session of LTTng.

use super::activity::{Activity, Read};
use crate::Trace;
use lastwords_lttng::{self as lttng, Session};
use lastwords_render::evidence::Account;
use serde::Serialize;

/// One session.
#[derive(Debug, Clone, Serialize)]
pub struct Report<'a> {
    /// The name of the session.
    pub name: String,
    /// `kernel` or `ust`.
    pub domain: &'static str,
    /// The UUID of the trace, in hexadecimal.
    pub uuid: String,
    /// The creation time as the tracer noted it; it may be empty.
    pub created: String,
    /// True if the session records; null if that is not known.
    pub active: Option<bool>,
    /// The size of the metadata in bytes, or 0 if they are missing.
    pub metadata_bytes: usize,
    /// The version of the metadata: 1 or 2.
    pub ctf: u8,
    /// Its streams.
    pub streams: Vec<Stream>,
    /// The events by name and over time, or null if nothing describes them.
    pub activity: Option<Activity>,
    /// Packets that could not be decoded to their end, as messages.
    pub faults: Vec<String>,
    /// The account.
    pub evidence: Account<'a>,
}

/// One channel's ring on one CPU.
#[derive(Debug, Clone, Serialize)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// The ID of its channel.
    pub channel: u32,
    /// Its CPU, or null if the ring is shared.
    pub cpu: Option<u32>,
    /// `overwrite` or `discard`.
    pub mode: &'static str,
    /// The number of sub-buffers of the ring.
    pub sub_buffers: u64,
    /// The size of a sub-buffer in bytes.
    pub sub_buffer_size: u64,
    /// Bytes written since the ring was begun.
    pub produced: u64,
    /// Bytes read since the ring was begun.
    pub consumed: u64,
    /// A reader holds a sub-buffer.
    pub held_by_reader: bool,
    /// Packets that were recovered.
    pub packets: usize,
    /// The sequence numbers of the first and the last packet.
    pub sequences: Option<(u64, u64)>,
    /// The size of their content in bytes.
    pub bytes: u64,
    /// Events for which there was no room.
    pub lost_full: u64,
    /// Events that were lost when the ring wrapped around.
    pub lost_wrap: u64,
    /// Events that are larger than a sub-buffer.
    pub lost_big: u64,
}

/// Returns the report on a session of LTTng, or none for other traces.
pub(super) fn report<'a>(trace: &'a Trace, read: Option<&Read<'_>>) -> Option<Report<'a>> {
    let session = &trace.lttng()?.session;
    let mut evidence = trace.account();
    evidence.faults =
        read.iter().flat_map(|read| &read.tallies).map(|tally| tally.faults.len() as u64).sum();
    Some(Report {
        name: session.name.clone(),
        domain: session.domain.word(),
        uuid: session.uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
        created: session.created.clone(),
        active: session.is_active,
        metadata_bytes: session.metadata.text.len(),
        ctf: if session.metadata.is_ctf2() { 2 } else { 1 },
        streams: session
            .streams
            .iter()
            .enumerate()
            .map(|(index, of)| stream(session, index, of))
            .collect(),
        activity: read.and_then(|read| read.activity.clone()),
        faults: read.map(Read::faults).unwrap_or_default(),
        evidence,
    })
}

fn stream(session: &Session, index: usize, stream: &lttng::Stream) -> Stream {
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
        bytes: stream.packets.iter().map(|packet| packet.content).fold(0, u64::saturating_add),
        lost_full: stream.loss.full,
        lost_wrap: stream.loss.wrap,
        lost_big: stream.loss.big,
    }
}
