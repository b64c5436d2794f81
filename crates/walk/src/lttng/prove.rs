//! Packets proven by their events: each is decoded once, by whoever knows what they look like.

use super::session::Session;
use lastwords_trace::evidence::Verdict;

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

impl Session {
    /// Decodes all packets: `decode` is given each one's bytes, header, events and padding. A packet that cannot be decoded to
    /// its end keeps what could be; one that was open ends with its last event. Returns how many events there are.
    pub fn prove(&mut self, decode: &mut dyn FnMut(&[u8]) -> Proof) -> u64 {
        let mut events = 0u64;
        let mut bytes = Vec::new();
        for stream in 0..self.streams.len() {
            for packet in 0..self.streams.get(stream).map_or(0, |stream| stream.packets.len()) {
                if self.packet(stream, packet, &mut bytes) {
                    let proof = decode(&bytes);
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

    fn judge(&mut self, stream: usize, packet: usize, proof: &Proof) {
        let page = self.page_size.max(1);
        let Some(packet) = self.streams.get_mut(stream).and_then(|stream| stream.packets.get_mut(packet)) else {
            return;
        };
        let last = proof.last.unwrap_or(packet.header.begin).max(packet.header.begin);
        if proof.fault.is_none() {
            if !packet.is_as_delivered && matches!(packet.verdict, Verdict::Open | Verdict::Torn) {
                packet.header.end = last;
            }
            return;
        }
        packet.verdict = Verdict::Invalid;
        packet.is_as_delivered = false;
        packet.content = proof.good.min(packet.content);
        packet.len = packet.content.checked_next_multiple_of(page).unwrap_or(packet.content).min(packet.len);
        packet.header.content_bits = packet.content.saturating_mul(8);
        packet.header.packet_bits = packet.len.saturating_mul(8);
        packet.header.end = last;
        let (number, content) = (packet.header.sequence, packet.content);
        let rows = self.evidence.sub_buffers.iter_mut();
        let row = rows.filter(|row| row.stream == stream).find(|row| row.sequence == number);
        if let (Some(row), Some(fault)) = (row, &proof.fault) {
            row.verdict = Verdict::Invalid;
            row.content = content;
            row.why = if row.why.is_empty() { fault.clone() } else { format!("{}; {fault}", row.why) };
        }
    }
}
