//! Presents an LTTng session as a CTF trace whose packets are in memory.

use super::{Packet, Session};
use lastwords_ctf::read::{Memory, Stream, Trace};
use lastwords_trace::source::{Foretold, PacketInfo, PacketReader, Packets};
use std::path::Path;
use std::sync::Arc;

impl Session {
    /// Builds the trace of the session, which was found at `path`.
    ///
    /// # Errors
    /// The metadata do not follow their format, or do not describe how to decode packets.
    pub fn trace(self: &Arc<Self>, path: &Path) -> Result<Trace, lastwords_ctf::Error> {
        let wrong = |error: String| lastwords_ctf::Error::Schema(error);
        let class = self.metadata.class().map_err(|error| wrong(error.to_string()))?;
        let stream = |(stream, of): (usize, &super::Stream)| Stream {
            // An invalid class makes the packets of an undescribed stream faults.
            class: class
                .streams
                .iter()
                .position(|class| class.id == u64::from(of.channel))
                .unwrap_or(usize::MAX),
            id: of.packets.first().map(|packet| packet.header.instance),
            files: Vec::new(),
            packets: Vec::new(),
            memory: Some(Memory {
                source: Arc::<Self>::clone(self),
                stream,
                name: format!("{}/{}", path.display(), self.stream_name(stream)),
                cpu: of.cpu,
                bytes: of.packets.iter().map(|packet| packet.len).fold(0, u64::saturating_add),
            }),
        };
        let streams = self.streams.iter().enumerate().map(stream).collect();
        Trace::in_memory(path.to_path_buf(), class, streams, Arc::new(self.evidence.clone()))
            .map_err(|error| wrong(error.to_string()))
    }

    /// Length of all packets, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let packets = self.streams.iter().flat_map(|stream| &stream.packets);
        packets.map(|packet| packet.len).fold(0, u64::saturating_add)
    }

    /// Name of a stream, as LTTng names its file: channel name (or `channel` and its id) and CPU.
    #[must_use]
    pub fn stream_name(&self, stream: usize) -> String {
        let Some(stream) = self.streams.get(stream) else { return format!("stream {stream}") };
        let cpu = stream.cpu.map_or_else(String::new, |cpu| format!("_{cpu}"));
        match stream.channel_name.as_str() {
            "" => format!("channel{}{cpu}", stream.channel),
            name => format!("{name}{cpu}"),
        }
    }
}

impl Packets for Session {
    fn packets_of(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        let packets = self.streams.get(stream).map_or(&[][..], |stream| &stream.packets);
        Box::new(Reader { session: self, stream, packets: packets.iter().enumerate() })
    }
}

/// Delivers the packets of a stream.
struct Reader<'s> {
    session: &'s Session,
    stream: usize,
    packets: std::iter::Enumerate<std::slice::Iter<'s, Packet>>,
}

impl PacketReader for Reader<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (index, Packet { header, verdict, len, .. }) = self.packets.next()?;
        if !self.session.packet(self.stream, index, bytes) {
            // The file has changed since the packet was checked. An empty packet makes it a fault.
            bytes.clear();
        }
        Some(PacketInfo {
            sequence: header.sequence,
            begin: header.begin,
            end: header.end,
            discarded: header.discarded,
            verdict: *verdict,
            events_at: 0,
            packet_len: *len,
        })
    }

    fn foretell(&self) -> Option<Vec<Foretold>> {
        let foretold = |(_, Packet { header, len, .. }): (usize, &Packet)| Foretold {
            sequence: header.sequence,
            begin: header.begin,
            end: header.end,
            size: *len,
        };
        Some(self.packets.clone().map(foretold).collect())
    }

    fn pass_over(&mut self, packets: usize) {
        if let Some(last) = packets.checked_sub(1) {
            self.packets.nth(last);
        }
    }
}
