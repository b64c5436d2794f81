//! Cuts a saved snapshot to the window of its trigger: only events of the window are delivered.

use super::data::Stream;
use super::events::{Rules, Zeros, walk};
use super::outcome::{Outcome, Packet};
use super::pieces::{drop_front, truncate};
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::{Budget, Error};
use lastwords_ctf::session::ChannelDecoder;
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use std::collections::BTreeSet;

/// The window of a trigger, in ticks of the session's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First clock; 0: the window begins with the rings.
    pub begin: u64,
    /// Last clock; `u64::MAX`: the window ends with the rings.
    pub end: u64,
    /// Clock at which the snapshot before was taken, which has what was recorded earlier; 0: there
    /// is none.
    pub from: u64,
}

impl Window {
    /// Leaves out the events of a stream that are not in the window, and counts what writers
    /// overwrote in it as lost.
    pub(crate) fn cut(
        &self,
        stream: &Stream,
        decoder: Option<&ChannelDecoder>,
        outcome: &mut Outcome,
        budget: &Budget,
    ) -> Result<(), Error> {
        let oldest = outcome.packets.first().map(|packet| packet.begin);
        if oldest.is_none_or(|oldest| oldest > self.begin) && self.begin != 0 {
            for gap in outcome.gaps.iter_mut().filter(|gap| gap.cause == Cause::Overwritten) {
                gap.cause = Cause::Unread;
                gap.place.push_str(": the window of the trigger may begin in them");
            }
        }
        let is_inside = |packet: &Packet| packet.end >= self.begin && packet.begin <= self.end;
        let (inside, outside): (Vec<Packet>, Vec<Packet>) =
            std::mem::take(&mut outcome.packets).into_iter().partition(is_inside);
        let outside: BTreeSet<u64> = outside.into_iter().map(|packet| packet.number).collect();
        outcome.sub_buffers.retain(|sub_buffer| !outside.contains(&sub_buffer.sequence));
        let mut bytes = Vec::new();
        for mut packet in inside {
            let is_cut = packet.begin < self.begin || packet.end > self.end;
            if is_cut && let Some(decoder) = decoder {
                self.cut_packet(stream, decoder, &mut packet, &mut bytes, budget)?;
            }
            if !packet.pieces.is_empty() {
                outcome.packets.push(packet);
            }
        }
        Ok(())
    }

    /// Drops the events of a packet before the window, and those behind it.
    fn cut_packet(
        &self,
        stream: &Stream,
        decoder: &ChannelDecoder,
        packet: &mut Packet,
        bytes: &mut Vec<u8>,
        budget: &Budget,
    ) -> Result<(), Error> {
        let mut buffer = Vec::new();
        let end = packet.pieces.last().map_or(HEADER_LEN, |piece| piece.1);
        let loaded = stream.load(packet.half, packet.number, end, &mut buffer);
        budget.bytes(&stream.region.name, loaded.got as u64)?;
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        for (begin, end) in &packet.pieces {
            bytes.extend_from_slice(buffer.get(*begin..*end).unwrap_or_default());
        }
        let up_to = |last| {
            let rules = Rules { wanted: Some(last), ..Rules::new(Zeros::Event) };
            walk(decoder, bytes, HEADER_LEN, packet.begin, HEADER_LEN, rules)
        };
        let before = self.begin.checked_sub(1).map(up_to);
        let inside = up_to(self.end);
        if inside.is_late {
            truncate(&mut packet.pieces, inside.end.saturating_sub(HEADER_LEN));
            packet.end = packet.end.min(inside.clock);
        }
        if let Some(before) = before.filter(|before| before.end > HEADER_LEN) {
            drop_front(&mut packet.pieces, before.end.saturating_sub(HEADER_LEN));
            packet.begin = before.clock;
        }
        packet.as_is = false;
        Ok(())
    }

    /// Adds what there is to say of the window as a whole.
    pub(crate) fn tell(&self, frequency: u64, newest: u64, evidence: &mut Evidence) {
        let end = if self.end == u64::MAX { newest } else { self.end };
        let seconds = |ticks: u64| {
            let micros = u128::from(ticks)
                .saturating_mul(1_000_000)
                .checked_div(frequency.into())
                .unwrap_or(0);
            format!("{}.{:06} s", micros / 1_000_000, micros % 1_000_000)
        };
        evidence.notes.push(match self.begin {
            0 => "only the window of the trigger is shown: up to its end; --whole shows all that was saved".to_owned(),
            begin => format!(
                "only the window of the trigger is shown, {}; --whole shows all that was saved",
                seconds(end.saturating_sub(begin))
            ),
        });
        if self.begin != 0 && self.from > self.begin {
            let missing = seconds(self.from.saturating_sub(self.begin));
            let place = format!(
                "the first {missing} of the window, up to the snapshot before, which has them"
            );
            evidence.gaps.push(Gap::new(None, Cause::Consumed, place));
        }
    }
}
