//! Loads the planned packets of a stream on demand.

use super::data::Stream;
use super::outcome::Packet;
use super::packet::{Header, Judged, judge};
use lastwords_abi::packet::{HEADER_LEN, at};
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_trace::source::{Foretold, PacketInfo, PacketReader};

/// The checksums of a stream that are compared when its packets are delivered.
pub(crate) trait LateChecksums<'a> {
    /// Says that all packets of the stream were delivered, and that all of their checksums are
    /// right.
    fn are_right(&self);

    /// Returns the stream with all checksums compared, and its packets from number `from` on.
    fn checked_from(&self, from: u64) -> Option<(&'a Stream, std::slice::Iter<'a, Packet>)>;
}

/// Reads the planned packets of one stream; keeps one sub-buffer in memory.
pub(crate) struct Reader<'a> {
    pub(crate) stream: &'a Stream,
    pub(crate) packets: std::slice::Iter<'a, Packet>,
    pub(crate) budget: Budget,
    pub(crate) buf: Vec<u8>,
    /// The way to compare checksums that were not compared yet.
    pub(crate) late: Option<Box<dyn LateChecksums<'a> + 'a>>,
    /// No packet was passed over.
    pub(crate) is_whole: bool,
}

impl PacketReader for Reader<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        loop {
            let Some(packet) = self.packets.next() else {
                self.late.iter().filter(|_| self.is_whole).for_each(|late| late.are_right());
                return None;
            };
            if packet.is_unchecked
                && !self.is_right(packet, bytes)
                && let Some(late) = self.late.take()
            {
                // From here on, the stream is read as it is planned if all checksums are compared
                // first.
                (self.stream, self.packets) = late.checked_from(packet.number)?;
                continue;
            }
            if let Some(info) = self.deliver(packet, bytes) {
                return Some(info);
            }
        }
    }

    fn foretell(&self) -> Option<Vec<Foretold>> {
        Some(self.packets.clone().map(Packet::foretold).collect())
    }

    fn pass_over(&mut self, packets: usize) {
        self.is_whole &= packets == 0;
        self.packets = self.packets.as_slice().get(packets..).unwrap_or_default().iter();
    }
}

impl Reader<'_> {
    /// Number of the next packet.
    pub(crate) fn next_number(&self) -> Option<u64> {
        self.packets.as_slice().first().map(|packet| packet.number)
    }

    /// Loads the sub-buffer of a packet as it is into `bytes`. Returns true if its checksum is
    /// right.
    fn is_right(&self, packet: &Packet, bytes: &mut Vec<u8>) -> bool {
        let size = usize::try_from(self.stream.geometry.size).unwrap_or(0);
        let loaded = self.stream.load(packet.half, packet.number, size, bytes);
        let end = packet.pieces.last().map_or(HEADER_LEN, |piece| piece.1);
        let is_planned = |header: &Header| (header.begin, header.end) == (packet.begin, packet.end);
        loaded.missing.is_none()
            && matches!(judge(&self.stream.identity, packet.number, bytes),
                Judged::Whole(header, content) if content == end && is_planned(&header))
            && !self.stream.is_overtaken(packet.half, packet.number, packet.reserve, &self.budget)
    }

    /// Loads one packet; none if the image no longer has it or if a writer has overwritten it.
    fn deliver(&mut self, packet: &Packet, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let end = packet.pieces.last().map_or(HEADER_LEN, |p| p.1);
        if packet.is_unchecked {
            bytes.truncate(end);
            self.put_discarded(packet, bytes);
            return Some(self.info(packet));
        }
        if packet.as_is {
            let loaded = self.stream.load(packet.half, packet.number, end, bytes);
            (loaded.got >= end).then_some(())?;
            self.put_discarded(packet, bytes);
        } else {
            let loaded = self.stream.load(packet.half, packet.number, end, &mut self.buf);
            (loaded.got >= end).then_some(())?;
            self.compose(packet, bytes);
        }
        let is_copy = self.stream.frozen.is_some();
        if !is_copy
            && self.stream.is_overtaken(packet.half, packet.number, packet.reserve, &self.budget)
        {
            return None;
        }
        Some(self.info(packet))
    }

    fn info(&self, packet: &Packet) -> PacketInfo {
        PacketInfo {
            sequence: packet.number,
            begin: packet.begin,
            end: packet.end,
            discarded: packet.discarded,
            verdict: packet.verdict,
            events_at: HEADER_LEN,
            packet_len: self.stream.geometry.size,
        }
    }

    /// Writes the running total of discarded events into the header; it may have grown since the
    /// sub-buffer was closed.
    fn put_discarded(&self, packet: &Packet, bytes: &mut [u8]) {
        let word = match self.stream.identity.order {
            ByteOrder::Little => packet.discarded.to_le_bytes(),
            ByteOrder::Big => packet.discarded.to_be_bytes(),
        };
        let end = at::EVENTS_DISCARDED.saturating_add(word.len());
        if let Some(place) = bytes.get_mut(at::EVENTS_DISCARDED..end) {
            place.copy_from_slice(&word);
        }
    }

    /// Writes a new header, then the pieces one after the other.
    fn compose(&self, packet: &Packet, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        for (begin, end) in &packet.pieces {
            bytes.extend_from_slice(self.buf.get(*begin..*end).unwrap_or_default());
        }
        let header = Header {
            begin: packet.begin,
            end: packet.end,
            content_bits: (bytes.len() as u64).saturating_mul(8),
            discarded: packet.discarded,
            ..self.stream.identity.header(packet.number)
        };
        if let Some(front) = bytes.get_mut(..HEADER_LEN) {
            front.copy_from_slice(&header.bytes(self.stream.identity.order));
        }
    }
}
