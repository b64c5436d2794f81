//! Reads one half of a stream: docs/ABI.md, section 8.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Classes, Found, InFlight, Memory, Sub, Verdict};
use crate::checksum::checksum;
use crate::layout::{header as hd, packet as pk, region as rg, session as se, stream as st};
use crate::put::Order;
use crate::ring::Event;

/// Facts about a half that are known before its sub-buffers are read.
struct Half<'a> {
    region: &'a Found<'a>,
    classes: &'a Classes,
    order: Order,
    size: u64,
    count: u64,
    channel: u32,
    lockless: bool,
    /// Produced position, bytes.
    end: u64,
    attempt: u64,
    first: u64,
    contiguous: u64,
    data: Vec<u8>,
    slots: usize,
    /// Reservations in flight in this half that succeeded.
    in_flight: Vec<&'a InFlight>,
}

/// Reads the sub-buffers of a half, in order of number.
pub(super) fn read<'a>(
    region: &Found<'a>,
    half: usize,
    classes: &Classes,
    in_flight: &[InFlight],
    memory: &Memory<'a>,
) -> Vec<Sub> {
    Half::new(region, half, classes, in_flight, memory).map_or_else(Vec::new, |h| h.subs())
}

impl<'a> Half<'a> {
    fn new<'b>(
        region: &'a Found<'b>,
        half: usize,
        classes: &'a Classes,
        in_flight: &'a [InFlight],
        memory: &Memory<'b>,
    ) -> Option<Self> {
        let i = st::INFO_AT;
        let size = region.u64(i + st::SUB_BUFFER_SIZE_AT);
        let count = u64::from(region.u32(i + st::SUB_BUFFERS_AT));
        let sane = size.is_power_of_two()
            && (128..1 << 30).contains(&size)
            && count.is_power_of_two()
            && count < 1 << 20;
        if !sane {
            return None;
        }
        let at = st::CONTROL_AT + st::HALVES_AT + half * st::HALF_LEN;
        let word = region.u64(at + st::RESERVE_AT);
        let lockless = region.u32(i + st::RESERVATION_AT) == se::LOCKLESS;
        let position = word & ((1 << st::POSITION_BITS) - 1);
        let owner = word >> st::POSITION_BITS & 0x7ff;
        let target = (u64::from(region.index) << 1 | half as u64) + 1;
        let succeeded = |f: &&InFlight| {
            let low = f.confirmed & ((1 << st::POSITION_BITS) - 1);
            let tag = f.confirmed >> st::POSITION_BITS;
            f.target == target
                && ((f.owner == owner && position == f.end)
                    || (tag == target & 0xfff && low >= f.end))
        };
        let first = region.u64(at + st::FIRST_AT);
        let end = if lockless { position } else { word };
        let slots = usize::try_from(region.u64(i + st::SLOTS_OFF_AT + 8 * half)).ok()?;
        if end >= 1 << 60 || first >= 1 << 60 || slots > region.bytes.len() {
            return None;
        }
        Some(Self {
            region,
            classes,
            order: region.order,
            size,
            count,
            channel: region.u32(i + st::CHANNEL_AT),
            lockless,
            end,
            attempt: region.u64(at + st::ATTEMPT_AT),
            first,
            contiguous: region.u64(at + st::CONTIGUOUS_AT),
            data: data(region, half, usize::try_from(size * count).ok()?, memory)?,
            slots,
            in_flight: in_flight.iter().filter(succeeded).collect(),
        })
    }

    fn subs(&self) -> Vec<Sub> {
        let behind = self.end.div_ceil(self.size);
        let oldest = behind.saturating_sub(self.count).max(self.first / self.size);
        let mut subs: Vec<Sub> = Vec::new();
        for number in oldest..behind {
            let before =
                subs.iter().rev().flat_map(|s| s.events.last()).map(|(_, e)| e.clock).next();
            subs.push(self.sub(number, before.unwrap_or(0)));
        }
        let full = oldest.checked_add(self.count) == Some(behind) && !subs.is_empty();
        let given_up = full && self.end.is_multiple_of(self.size) && self.attempt != self.end;
        subs.iter_mut().for_each(|sub| sub.events.retain(|(at, _)| *at >= self.first));
        if given_up && subs[0].verdict != Verdict::Committed {
            subs.remove(0);
        }
        subs
    }

    /// Reads a sub-buffer. `before` is the clock of the last event before it.
    fn sub(&self, number: u64, before: u64) -> Sub {
        if self.lockless { self.lockless_sub(number, before) } else { self.plain_sub(number) }
    }

    fn bytes(&self, number: u64) -> &[u8] {
        let at = usize::try_from(number % self.count * self.size).unwrap_or(usize::MAX);
        &self.data[at..at + usize::try_from(self.size).unwrap_or(0)]
    }

    fn is_last(&self, number: u64) -> bool {
        number == self.end / self.size
    }

    fn header_number(&self, number: u64) -> u64 {
        self.order.at64(self.bytes(number), pk::SEQ_NUM_AT).unwrap_or(0)
    }

    fn plain_sub(&self, number: u64) -> Sub {
        if !self.is_last(number) {
            return self.closed_sub(number);
        }
        self.decoded(
            number,
            Verdict::Open,
            usize::try_from(self.end % self.size).unwrap_or(0),
            &[],
            None,
        )
    }

    fn closed_sub(&self, number: u64) -> Sub {
        let bytes = self.bytes(number);
        let empty = |verdict| Sub { number, verdict, events: Vec::new() };
        let found = self.header_number(number);
        if found != number {
            let older = found < number && (number - found).is_multiple_of(self.count);
            return empty(if older { Verdict::Stale } else { Verdict::Invalid });
        }
        let content = self.order.at64(bytes, pk::CONTENT_SIZE_AT).unwrap_or(0) / 8;
        if content < pk::HEADER_LEN as u64 || content > self.size - pk::TRAILER_LEN as u64 {
            return empty(Verdict::Invalid);
        }
        let content = usize::try_from(content).unwrap_or(0);
        let sum = self.order.at64(bytes, bytes.len() - pk::CHECK_FROM_END);
        let identity = bytes[pk::UUID_AT..pk::UUID_AT + 16] == self.region.session
            && self.order.at64(bytes, pk::STREAM_AT) == Some(u64::from(self.region.index));
        if !identity || sum != Some(checksum(&bytes[..content])) {
            return empty(Verdict::Invalid);
        }
        self.decoded(number, Verdict::Committed, content, &[], None)
    }

    fn lockless_sub(&self, number: u64, before: u64) -> Sub {
        let slot = self.slots + usize::try_from(number % self.count).unwrap_or(0) * st::SLOT_LEN;
        let base = number / self.count * self.size;
        let committed = self.region.u64(slot + st::COMMITTED_AT).wrapping_sub(base);
        if committed == self.size {
            return self.closed_sub(number);
        }
        let range = number * self.size..(number + 1) * self.size;
        let here: Vec<&InFlight> = self
            .in_flight
            .iter()
            .copied()
            .filter(|f| f.begin < range.end && f.end > range.start)
            .collect();
        let switch_here = |f: &&&InFlight| {
            f.state == se::STATE_SWITCH && f.begin > range.start && f.begin < range.end
        };
        let begun_dead = here
            .iter()
            .any(|f| f.state == se::STATE_SWITCH && f.end == range.start + pk::HEADER_LEN as u64);
        if !begun_dead && self.header_number(number) != number {
            return Sub { number, verdict: Verdict::Stale, events: Vec::new() };
        }
        let left = self.region.u64(slot + st::CONTENT_END_AT);
        let end = match here.iter().find(switch_here) {
            _ if self.is_last(number) => self.end,
            Some(switch) => switch.begin,
            None if left > range.start && left < range.end => left,
            None => return Sub { number, verdict: Verdict::Invalid, events: Vec::new() },
        };
        let content = usize::try_from(end - range.start).unwrap_or(0);
        let holes: Vec<Range<u64>> = here
            .iter()
            .filter(|f| f.state == se::STATE_RESERVING)
            .map(|f| f.begin..f.end)
            .collect();
        let torn = !holes.is_empty();
        let mut sub = self.decoded(
            number,
            if torn { Verdict::Torn } else { Verdict::Open },
            content,
            &holes,
            begun_dead.then_some(before),
        );
        if !self.adds_up(number, committed, content as u64, &here) {
            sub.verdict = Verdict::Invalid;
            sub.events.retain(|(at, _)| *at < self.contiguous);
        }
        sub
    }

    /// True if the committed bytes equal the content without the bytes in flight.
    fn adds_up(&self, number: u64, committed: u64, content: u64, here: &[&InFlight]) -> bool {
        let all = content.wrapping_sub(pk::HEADER_LEN as u64);
        let holes: u64 = here
            .iter()
            .filter(|f| f.state == se::STATE_RESERVING)
            .map(|f| f.end.wrapping_sub(f.begin))
            .fold(0, u64::wrapping_add);
        let mut sums = BTreeSet::from([all.wrapping_sub(holes)]);
        let mut may = |n: u64| {
            let with: Vec<u64> = sums.iter().map(|s| s.wrapping_sub(n)).collect();
            sums.extend(with);
        };
        let copied = |f: &&&InFlight| {
            f.state == se::STATE_COPIED && f.end.wrapping_sub(f.begin) <= self.size
        };
        here.iter().filter(copied).for_each(|f| may(f.end.wrapping_sub(f.begin)));
        if !self.is_last(number) {
            may((self.size - content).wrapping_neg());
        }
        sums.contains(&committed)
    }

    /// Decodes the events up to `content`, or until bytes are invalid. `headless` is the initial
    /// clock of a sub-buffer without a header.
    fn decoded(
        &self,
        number: u64,
        verdict: Verdict,
        content: usize,
        holes: &[Range<u64>],
        headless: Option<u64>,
    ) -> Sub {
        let bytes = &self.bytes(number)[..content];
        let mut sub = Sub { number, verdict, events: Vec::new() };
        let begin = || self.order.at64(bytes, pk::BEGIN_AT).unwrap_or(0);
        let mut clock = headless.unwrap_or_else(begin);
        let mut at = pk::HEADER_LEN;
        while at < content {
            let position = number * self.size + at as u64;
            if let Some(hole) = holes.iter().find(|h| h.start == position) {
                at = usize::try_from(hole.end - number * self.size).unwrap_or(content).max(at + 1);
                continue;
            }
            let Some((event, end)) = self.event(bytes, at, clock) else {
                sub.verdict = Verdict::Invalid;
                break;
            };
            clock = event.clock;
            at = end;
            sub.events.push((position, event));
        }
        sub
    }

    fn event(&self, bytes: &[u8], at: usize, last: u64) -> Option<(Event, usize)> {
        let o = self.order;
        let word = o.at32(bytes, at)?;
        let span = 1u64 << hd::CLOCK_BITS;
        let mut clock = last / span * span + u64::from(word >> hd::TAG_BITS);
        if clock < last {
            clock = clock.wrapping_add(span);
        }
        let tag = word & ((1 << hd::TAG_BITS) - 1);
        let (id, len) = match tag {
            hd::FULL => {
                clock = o.at64(bytes, at + 10)?;
                (o.at16(bytes, at + 4)?, hd::FULL_LEN)
            }
            hd::SIZE => (o.at16(bytes, at + 4)?, hd::SIZE_LEN),
            hd::ID => (o.at16(bytes, at + 4)?, hd::ID_LEN),
            id => (u16::try_from(id).ok()?, hd::COMPACT_LEN),
        };
        let from = at + len;
        let body = self.classes.body_len(self.channel, id, bytes.get(from..)?)?;
        let size =
            if matches!(tag, hd::FULL | hd::SIZE) { o.at32(bytes, at + 6)? } else { hd::NO_SIZE };
        if size != hd::NO_SIZE && size as usize != body {
            return None;
        }
        Some((Event { clock, id, body: bytes[from..from + body].to_vec() }, from + body))
    }
}

/// Data of a half, from the region or from the pages of its page table.
fn data<'a>(region: &Found<'a>, half: usize, len: usize, memory: &Memory<'a>) -> Option<Vec<u8>> {
    let at = usize::try_from(region.u64(st::INFO_AT + st::DATA_OFF_AT + 8 * half)).ok()?;
    let page = region.u32(st::INFO_AT + st::PAGE_SIZE_AT) as usize;
    if page == 0 {
        return region.bytes.get(at..)?.get(..len).map(<[u8]>::to_vec);
    }
    if page != rg::PAGE {
        return None;
    }
    let mut all = Vec::with_capacity(len);
    for n in 0..len / page {
        let address = region.u64(at + 8 * n);
        match memory(address, page) {
            Some(bytes) => all.extend(bytes),
            None => all.resize(all.len() + page, 0),
        }
    }
    Some(all)
}
