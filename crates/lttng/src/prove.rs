//! Proves packets by decoding each of their events once, with a decoder that the caller provides.

use super::session::{Doubt, Packet, Session};
use lastwords_trace::evidence::{Gap, Verdict};

/// Reason for the end of an open packet that commit counters determine.
const BY_COUNTERS: &str = "it was being written; commit counters tell how far";

/// The result of decoding a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proof {
    /// Number of events decoded.
    pub events: u64,
    /// Clock of the last decoded event, ticks; none without events.
    pub last: Option<u64>,
    /// Bytes of the packet up to the end of the last decoded event.
    pub good: u64,
    /// Message why the next event could not be decoded, and where; none if all were decoded.
    pub fault: Option<String>,
    /// Offsets of decoded events with pages of zeros in them, bytes: whether these are their
    /// values is not known.
    pub zeros: Vec<u64>,
}

impl Packet {
    /// Ends the packet after `content` bytes, padded to whole pages.
    fn cut(&mut self, content: u64, page: u64) {
        self.content = content.min(self.content);
        self.len =
            self.content.checked_next_multiple_of(page).unwrap_or(self.content).min(self.len);
        self.header.content_bits = self.content.saturating_mul(8);
        self.header.packet_bits = self.len.saturating_mul(8);
    }
}

impl Session {
    /// Decodes all packets. `decode` gets the bytes of each packet (header, events and padding),
    /// and whether it must stop at an unlikely event because only the events show where the packet
    /// ends. A packet that cannot be decoded completely keeps the part that can be; an open packet
    /// ends with its last event. Returns the number of events.
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
        let Some(found) = found.filter(|packet| packet.doubt != Doubt::None) else {
            return decode(bytes, false);
        };
        // Commit counters belong to this packet if an event ends exactly there; counters of other
        // rings may fit by chance.
        let whole = |only_likely: bool, decode: &mut dyn FnMut(&[u8], bool) -> Proof| {
            let ends =
                found.ends.iter().rev().filter_map(|end| bytes.get(..usize::try_from(*end).ok()?));
            ends.map(|bytes| decode(bytes, only_likely)).find(|proof| proof.fault.is_none())
        };
        if let Some(proof) = whole(true, decode).or_else(|| whole(false, decode)) {
            return proof;
        }
        let end = found.header.end;
        let proof = decode(bytes, true);
        if found.doubt == Doubt::End
            || proof.fault.is_none() && proof.last.is_none_or(|last| last <= end)
        {
            return proof;
        }
        // The pages after the first do not belong to the packet. Only events that end in the first
        // page are kept.
        bytes.truncate(usize::try_from(self.page_size).unwrap_or(usize::MAX));
        let first = decode(bytes, true);
        Proof {
            fault: first.fault.or(Some("its pages behind the first are not known".to_owned())),
            ..first
        }
    }

    /// Drops the packets that only their events could prove, because no decoder is known.
    pub fn forget_doubtful(&mut self) {
        let page = self.page_size.max(1);
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let mut rows: Vec<_> =
                self.evidence.sub_buffers.iter_mut().filter(|row| row.stream == index).collect();
            for packet in &mut stream.packets {
                let Some(end) = packet.ends.first().copied().filter(|_| packet.ends.len() == 1)
                else {
                    continue;
                };
                packet.cut(end, page);
                packet.doubt = Doubt::None;
                if let Some(row) =
                    rows.iter_mut().find(|row| row.sequence == packet.header.sequence)
                {
                    row.content = packet.content;
                    row.why = BY_COUNTERS.to_owned();
                }
            }
            for packet in stream.packets.extract_if(.., |packet| packet.doubt != Doubt::None) {
                if let Some(row) =
                    rows.iter_mut().find(|row| row.sequence == packet.header.sequence)
                {
                    row.verdict = Verdict::Missing;
                    row.content = 0;
                    row.why = "only its events could prove it, and their description is missing"
                        .to_owned();
                }
            }
        }
    }

    fn judge(&mut self, stream: usize, packet: usize, proof: &Proof) {
        let page = self.page_size.max(1);
        let Some(packet) =
            self.streams.get_mut(stream).and_then(|stream| stream.packets.get_mut(packet))
        else {
            return;
        };
        let number = packet.header.sequence;
        let unproven = |at: &u64| {
            let fact = format!(
                "packet {number}: whether the event at offset {at:#x} has zeros, or its pages are missing"
            );
            Gap::not_known(Some(stream), &fact)
        };
        self.evidence.gaps.extend(proof.zeros.iter().map(unproven));
        let last = proof.last.unwrap_or(packet.header.begin).max(packet.header.begin);
        if proof.fault.is_none() {
            if packet.doubt == Doubt::End {
                packet.cut(proof.good, page);
                let number = packet.header.sequence;
                let mut rows =
                    self.evidence.sub_buffers.iter_mut().filter(|row| row.stream == stream);
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
            row.why =
                if row.why.is_empty() { fault.clone() } else { format!("{}; {fault}", row.why) };
        }
    }
}
