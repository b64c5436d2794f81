//! Repairs the begin clock of an open sub-buffer. Its header has no checksum yet, and the clocks of
//! its events count from the begin.

use super::events::full_clock;
use super::packet::Header;
use super::plan::Planner;
use lastwords_abi::packet::{HEADER_LEN, at};
use lastwords_ctf::session::{ChannelDecoder, Position};

impl Planner<'_> {
    /// Corrects one wrong bit of the begin clock if that makes an event have the clock `last`, from
    /// the half's control words. The sub-buffer's bytes up to `end` are in the planner's buffer.
    pub(crate) fn repair_begin(&mut self, header: &mut Header, end: usize, last: u64) {
        let Some(decoder) = self.decoder.filter(|_| last != 0) else { return };
        let bytes = self.buf.get(..end).unwrap_or_default();
        if leads_to(decoder, bytes, header.begin, last) {
            return;
        }
        let least = self.sure().map_or(0, |s| s.1);
        let flipped = (0..u64::BITS).map(|bit| header.begin ^ 1u64.wrapping_shl(bit));
        // If several bits fit, they are among the low bits, which the events' own clocks replace.
        let right =
            flipped.filter(|begin| *begin >= least && leads_to(decoder, bytes, *begin, last)).max();
        if let Some(begin) = right {
            self.begun(header, begin, "by the clock of the last event in the control words");
        }
    }

    /// The first event of a lockless sub-buffer has the full clock, which is not before the begin.
    pub(crate) fn repair_begin_by_event(&mut self, header: &mut Header, first: usize) {
        let bytes = self.buf.get(first..).unwrap_or_default();
        let Some(clock) =
            full_clock(bytes, self.stream.identity.order).filter(|_| first == HEADER_LEN)
        else {
            return;
        };
        let is_before = self.sure().is_some_and(|(number, end)| {
            number.checked_add(1) == Some(header.number) && header.begin < end && clock >= end
        });
        if header.begin > clock || is_before {
            self.begun(header, clock, "by the whole clock of its first event");
        }
    }

    fn begun(&mut self, header: &mut Header, begin: u64, how: &str) {
        let (place, number, was) = (self.stream.region.place(), header.number, header.begin);
        let offset = at::TIMESTAMP_BEGIN;
        self.out.notes.push(format!(
            "{place}: sub-buffer {number}: header offset {offset}: found {was}, expected {begin}, {how}"
        ));
        header.begin = begin;
    }
}

/// True if an event (or the begin) has the clock `last` when clocks are counted from `begin`, and
/// no event is earlier than the one before. A header of zeros proves nothing: where a page is lost,
/// the clocks behind it lack what passed there.
fn leads_to(decoder: &ChannelDecoder, bytes: &[u8], begin: u64, last: u64) -> bool {
    let mut position = Position { offset: HEADER_LEN, clock: begin };
    let mut steps = decoder.steps();
    let mut found = begin == last;
    let mut before = begin;
    loop {
        if bytes.get(position.offset..).and_then(|rest| rest.first_chunk::<4>()) == Some(&[0; 4]) {
            return false;
        }
        let Ok(Some(event)) = steps.step(&mut position, bytes) else { return found };
        if event.clock < before {
            return false;
        }
        before = event.clock;
        found |= event.clock == last;
    }
}
