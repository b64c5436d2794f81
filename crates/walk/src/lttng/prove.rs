//! Packets proven by their events: each is decoded once, by whoever knows what they look like.

use super::session::{Doubt, Packet, Session};
use lastwords_trace::evidence::Verdict;

/// Why an open packet ends where it does.
const BY_COUNTERS: &str = "it was being written; commit counters tell how far";

/// What decoding a packet gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proof {
    /// Events that were decoded.
    pub events: u64,
    /// Clock of the last of them, ticks; none where there is none.
    pub last: Option<u64>,
    /// Bytes of the packet up to the end of the last good event.
    pub good: u64,
    /// Why the next could not be decoded, with its place; none where all were.
    pub fault: Option<String>,
}

impl Packet {
    /// Ends it behind `content` bytes, padded to whole pages.
    fn cut(&mut self, content: u64, page: u64) {
        self.content = content.min(self.content);
        self.len = self.content.checked_next_multiple_of(page).unwrap_or(self.content).min(self.len);
        self.header.content_bits = self.content.saturating_mul(8);
        self.header.packet_bits = self.len.saturating_mul(8);
    }
}

impl Session {
    /// Decodes all packets: `decode` is given each one's bytes, header, events and padding, and whether nothing but the events
    /// says what belongs to it, so that unlikely ones end it. A packet that cannot be decoded to its end keeps what could be;
    /// one that was open ends with its last event. Returns how many events there are.
    pub fn prove(&mut self, decode: &mut dyn FnMut(&[u8], bool) -> Proof) -> u64 {
        let mut events = 0u64;
        let mut bytes = Vec::new();
        for stream in 0..self.streams.len() {
            for packet in 0..self.streams.get(stream).map_or(0, |stream| stream.packets.len()) {
                if self.packet(stream, packet, &mut bytes) {
                    let proof = self.proof(stream, packet, &mut bytes, decode);
                    events = events.saturating_add(proof.events);
                    self.judge(stream, packet, &proof);
                }
            }
            let shape = self.shape;
            if let Some(stream) = self.streams.get_mut(stream) {
                stream.packets.retain(|packet| packet.content >= shape.len() as u64);
            }
        }
        events
    }

    fn proof(
        &self,
        stream: usize,
        packet: usize,
        bytes: &mut Vec<u8>,
        decode: &mut dyn FnMut(&[u8], bool) -> Proof,
    ) -> Proof {
        let found = self.streams.get(stream).and_then(|stream| stream.packets.get(packet));
        let Some(found) = found.filter(|packet| packet.doubt != Doubt::None) else { return decode(bytes, false) };
        // Counters are its own if an event ends where they say; of other rings there may be some that fit.
        let whole = |only_likely: bool, decode: &mut dyn FnMut(&[u8], bool) -> Proof| {
            let ends = found.ends.iter().rev().filter_map(|end| bytes.get(..usize::try_from(*end).ok()?));
            ends.map(|bytes| decode(bytes, only_likely)).find(|proof| proof.fault.is_none())
        };
        if let Some(proof) = whole(true, decode).or_else(|| whole(false, decode)) {
            return proof;
        }
        let end = found.header.end;
        let proof = decode(bytes, true);
        if found.doubt == Doubt::End || proof.fault.is_none() && proof.last.is_none_or(|last| last <= end) {
            return proof;
        }
        // Other pages than the first are not its own: what ends in that one is.
        bytes.truncate(usize::try_from(self.page_size).unwrap_or(usize::MAX));
        let first = decode(bytes, true);
        Proof { fault: first.fault.or(Some("its pages behind the first are not known".to_owned())), ..first }
    }

    /// Gives up the packets that only their events could prove: nobody knows what those look like.
    pub fn forget_doubtful(&mut self) {
        let page = self.page_size.max(1);
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let mut rows: Vec<_> = self.evidence.sub_buffers.iter_mut().filter(|row| row.stream == index).collect();
            for packet in &mut stream.packets {
                let Some(end) = packet.ends.first().copied().filter(|_| packet.ends.len() == 1) else { continue };
                packet.cut(end, page);
                packet.doubt = Doubt::None;
                if let Some(row) = rows.iter_mut().find(|row| row.sequence == packet.header.sequence) {
                    row.content = packet.content;
                    row.why = BY_COUNTERS.to_owned();
                }
            }
            for packet in stream.packets.extract_if(.., |packet| packet.doubt != Doubt::None) {
                if let Some(row) = rows.iter_mut().find(|row| row.sequence == packet.header.sequence) {
                    row.verdict = Verdict::Missing;
                    row.content = 0;
                    row.why = "only its events could prove it, and there is no description of them".to_owned();
                }
            }
        }
    }

    fn judge(&mut self, stream: usize, packet: usize, proof: &Proof) {
        let page = self.page_size.max(1);
        let Some(packet) = self.streams.get_mut(stream).and_then(|stream| stream.packets.get_mut(packet)) else {
            return;
        };
        let last = proof.last.unwrap_or(packet.header.begin).max(packet.header.begin);
        if proof.fault.is_none() {
            if packet.doubt == Doubt::End {
                packet.cut(proof.good, page);
                let number = packet.header.sequence;
                let mut rows = self.evidence.sub_buffers.iter_mut().filter(|row| row.stream == stream);
                if let Some(row) = rows.find(|row| row.sequence == number) {
                    row.content = packet.content;
                    if packet.ends.contains(&packet.content) {
                        row.why = BY_COUNTERS.to_owned();
                    }
                }
            }
            if !packet.is_as_delivered && matches!(packet.verdict, Verdict::Open | Verdict::Torn) {
                packet.header.end = last;
            }
            return;
        }
        packet.verdict = if packet.doubt == Doubt::End { Verdict::Open } else { Verdict::Invalid };
        packet.is_as_delivered = false;
        packet.cut(proof.good, page);
        packet.header.end = last;
        let (number, content, verdict) = (packet.header.sequence, packet.content, packet.verdict);
        let rows = self.evidence.sub_buffers.iter_mut();
        let row = rows.filter(|row| row.stream == stream).find(|row| row.sequence == number);
        if let (Some(row), Some(fault)) = (row, &proof.fault) {
            row.verdict = verdict;
            row.content = content;
            row.why = if row.why.is_empty() { fault.clone() } else { format!("{}; {fault}", row.why) };
        }
    }
}
