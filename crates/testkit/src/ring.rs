//! Writes a stream step by step, as a recorder would, and keeps the events that a correct reader
//! must find.
//!
//! The rules are those of docs/ABI.md, sections 5 to 8. No code of the recorder is used.

mod deaths;

pub use deaths::DeadSwitch;

use crate::checksum::checksum;
use crate::layout::{header as hd, packet as pk, session as se, stream as st};
use crate::naive::Verdict;
use crate::put::Order;

/// An event, as recorded and as it must be found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    /// Full clock of 64 bits.
    pub clock: u64,
    /// Id of its class in the channel.
    pub id: u16,
    /// Contexts and payload, encoded.
    pub body: Vec<u8>,
}

/// A sub-buffer and its expected contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sub {
    /// Number since the ring was begun.
    pub number: u64,
    /// Expected verdict.
    pub expect: Verdict,
    /// Expected events with their positions.
    pub events: Vec<(u64, Event)>,
}

/// Geometry and identity of a stream.
#[derive(Debug, Clone)]
pub struct Spec {
    /// UUID of the session.
    pub session: [u8; 16],
    /// Index in the session.
    pub index: u32,
    /// Channel id.
    pub channel: u32,
    /// CPU, or [`st::ANY_CPU`].
    pub cpu: u32,
    /// A `RESERVATION_` number.
    pub reservation: u32,
    /// A `MODE_` number: overwrite or discard.
    pub mode: u32,
    /// Bytes of a sub-buffer.
    pub size: u64,
    /// Number of sub-buffers in a half.
    pub count: u64,
    /// True if event headers have the size of the payload.
    pub payload_size: bool,
    /// True if the data are in pages of 4096 bytes.
    pub paged: bool,
    /// Byte order.
    pub order: Order,
}

/// The slot of a sub-buffer in a half.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slot {
    /// Number of bytes committed in all laps.
    pub committed: u64,
    /// Position after the last event.
    pub content_end: u64,
    /// Clock when the sub-buffer was left.
    pub end_clock: u64,
}

/// One half.
#[derive(Debug, Clone)]
pub struct Half {
    /// Readers begin here; earlier positions do not exist.
    pub first: u64,
    /// Produced position.
    pub position: u64,
    /// Owner bits of the reserve word.
    pub owner: u64,
    /// True if the half was swapped out.
    pub closed: bool,
    /// Position of the last attempt.
    pub attempt: u64,
    /// Clock of the newest event.
    pub last_clock: u64,
    /// A position: all bytes before it in its sub-buffer are committed.
    pub contiguous: u64,
    /// Position up to which a consuming reader has read.
    pub consumed: u64,
    /// Data of the sub-buffers.
    pub data: Vec<u8>,
    /// Slots, one for each place.
    pub slots: Vec<Slot>,
    /// All sub-buffers that were ever begun.
    subs: Vec<Sub>,
}

/// An announced reservation that was not withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// Owner number: thread entry * 4 + level + 1.
    pub owner: u64,
    /// Index of the half.
    pub half: usize,
    /// Position of the start.
    pub begin: u64,
    /// Position of the end.
    pub end: u64,
    /// Position confirmed by a later recorder; 0 = none.
    pub confirmed: u64,
    /// A state number of docs/ABI.md.
    pub state: u64,
}

/// The form of an event header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The form that a recorder would choose.
    Auto,
    /// Tag 29: with the full clock.
    Full,
    /// Tag 30: with the payload size.
    Size,
    /// Tag 31: with a u16 id.
    Id,
}

/// Owner number of reservations by living recorders.
const LIVING: u64 = 1;

/// A stream.
#[derive(Debug, Clone)]
pub struct Ring {
    /// Geometry.
    pub spec: Spec,
    /// Both halves.
    pub halves: [Half; 2],
    /// Index of the half that is written.
    pub live: usize,
    /// Counters of losses.
    pub lost: [u64; st::LOST],
    /// Announcements of dead recorders.
    pub in_flight: Vec<InFlight>,
}

impl Ring {
    /// Creates an empty ring.
    pub fn new(spec: Spec) -> Self {
        let half = Half::new(&spec, 0);
        Self {
            halves: [half.clone(), half],
            spec,
            live: 0,
            lost: [0; st::LOST],
            in_flight: Vec::new(),
        }
    }

    /// Length of a half's data, bytes.
    pub fn half_len(&self) -> u64 {
        self.spec.size * self.spec.count
    }

    fn lockless(&self) -> bool {
        self.spec.reservation == se::LOCKLESS
    }

    fn half(&mut self) -> &mut Half {
        &mut self.halves[self.live]
    }

    /// Records an event; false if there was no room in discard mode.
    pub fn push(&mut self, event: &Event) -> bool {
        self.push_as(event, Form::Auto)
    }

    /// Records an event with a header of the given form.
    pub fn push_as(&mut self, event: &Event, form: Form) -> bool {
        let Some((at, bytes)) = self.place(event, form) else { return false };
        self.reserve(at + bytes.len() as u64, LIVING);
        self.write(at, &bytes);
        self.remember(at, event);
        self.half().last_clock = event.clock;
        self.commit(at, bytes.len() as u64);
        true
    }

    /// Closes the sub-buffer and, in lockless streams, starts the next one.
    pub fn close(&mut self, clock: u64) {
        let from = self.half().position;
        if from.is_multiple_of(self.spec.size) {
            return;
        }
        if self.lockless() {
            self.switch(clock);
        } else {
            self.write_closing(from, clock, pk::HEADER_LEN);
            let next = self.next_start();
            self.reserve(next, LIVING);
            self.set_expect(from / self.spec.size, Verdict::Committed);
        }
    }

    /// Clears all events recorded so far.
    pub fn clear(&mut self) {
        let half = self.half();
        half.first = half.position;
    }

    /// Swaps the live and the spare half.
    pub fn swap(&mut self) {
        let beyond = self.halves[0].position.max(self.halves[1].position);
        let first = (beyond / self.half_len() + 3) * self.half_len();
        self.halves[self.live].closed = self.lockless();
        self.live ^= 1;
        self.in_flight.retain(|f| f.half != self.live);
        self.halves[self.live] = Half::new(&self.spec, first);
    }

    /// The expected contents of a half: the sub-buffers in its window, in order, without cleared
    /// events.
    pub fn truth(&self, half: usize) -> Vec<Sub> {
        let (h, size) = (&self.halves[half], self.spec.size);
        let end = h.position.div_ceil(size);
        let given_up = u64::from(
            h.position.is_multiple_of(size) && h.attempt != h.position && !self.lockless(),
        );
        let oldest = (end + given_up).saturating_sub(self.spec.count).max(h.first / size);
        let mut subs: Vec<Sub> =
            h.subs.iter().filter(|s| (oldest..end).contains(&s.number)).cloned().collect();
        for sub in &mut subs {
            sub.events.retain(|(at, _)| *at >= h.first);
            sub.expect = self.expect(half, sub);
        }
        subs
    }

    fn expect(&self, half: usize, sub: &Sub) -> Verdict {
        if !self.lockless() || sub.expect == Verdict::Stale {
            return sub.expect;
        }
        let (h, size) = (&self.halves[half], self.spec.size);
        let committed =
            h.slots[self.place_of(sub.number)].committed - sub.number / self.spec.count * size;
        let range = sub.number * size..(sub.number + 1) * size;
        let inside = |f: &&InFlight| {
            f.half == half && f.begin < range.end && f.end > range.start && self.succeeded(f)
        };
        let torn = self.in_flight.iter().filter(inside).any(|f| f.state == se::STATE_RESERVING);
        match (committed == size, torn) {
            (true, _) => Verdict::Committed,
            (false, true) => Verdict::Torn,
            (false, false) => Verdict::Open,
        }
    }

    fn succeeded(&self, f: &InFlight) -> bool {
        let h = &self.halves[f.half];
        f.confirmed >= f.end || (h.owner == f.owner && h.position == f.end)
    }

    /// Makes room for an event; returns its position and its encoded bytes.
    fn place(&mut self, event: &Event, form: Form) -> Option<(u64, Vec<u8>)> {
        let size = self.spec.size;
        for _ in 0..3 {
            let within = self.half().position % size;
            if within == 0 && !self.lockless() {
                if self.is_full() {
                    self.lost[st::LOST_FULL] += 1;
                    return None;
                }
                self.begin(event.clock);
                continue;
            }
            let bytes = self.encode(event, form);
            let end = within + bytes.len() as u64;
            if within != 0 && end + pk::TRAILER_LEN as u64 <= size {
                return Some((self.half().position, bytes));
            }
            assert!(bytes.len() as u64 + 118 <= size, "the event fits in a sub-buffer");
            if self.lockless() {
                if self.is_full() {
                    self.lost[st::LOST_FULL] += 1;
                    return None;
                }
                self.switch(event.clock);
            } else {
                self.close(event.clock);
            }
        }
        unreachable!("an event has its place after a close and a begin")
    }

    fn is_full(&mut self) -> bool {
        let (discard, size, len, next) =
            (self.spec.mode == se::DISCARD, self.spec.size, self.half_len(), self.next_start());
        discard && next - self.half().consumed / size * size >= len
    }

    fn encode(&mut self, event: &Event, form: Form) -> Vec<u8> {
        let (order, half) = (self.spec.order, self.live);
        let h = &self.halves[half];
        let first = self.lockless() && h.position % self.spec.size == pk::HEADER_LEN as u64;
        let far = event.clock.wrapping_sub(h.last_clock) >> hd::CLOCK_BITS != 0;
        let len = u32::try_from(event.body.len()).unwrap_or(u32::MAX);
        let form = match form {
            Form::Auto if first || far => Form::Full,
            Form::Auto if self.spec.payload_size => Form::Size,
            Form::Auto if event.id > hd::MAX_COMPACT_ID => Form::Id,
            form => form,
        };
        let word = |tag: u32| order.u32((event.clock as u32) << hd::TAG_BITS | tag);
        let mut bytes = Vec::new();
        match form {
            Form::Auto => bytes.extend(word(u32::from(event.id))),
            Form::Full => {
                bytes.extend(word(hd::FULL));
                bytes.extend(order.u16(event.id));
                bytes.extend(order.u32(if self.spec.payload_size { len } else { hd::NO_SIZE }));
                bytes.extend(order.u64(event.clock));
            }
            Form::Size => {
                bytes.extend(word(hd::SIZE));
                bytes.extend(order.u16(event.id));
                bytes.extend(order.u32(len));
            }
            Form::Id => {
                bytes.extend(word(hd::ID));
                bytes.extend(order.u16(event.id));
            }
        }
        bytes.extend(&event.body);
        bytes
    }

    fn next_start(&mut self) -> u64 {
        let size = self.spec.size;
        self.half().position.next_multiple_of(size)
    }

    fn place_of(&self, number: u64) -> usize {
        usize::try_from(number % self.spec.count).unwrap_or(0)
    }

    fn begin(&mut self, clock: u64) {
        let start = self.half().position;
        self.write_header(start, clock);
        self.reserve(start + pk::HEADER_LEN as u64, LIVING);
        self.half().last_clock = clock;
        self.begin_truth(start / self.spec.size);
    }

    fn switch(&mut self, clock: u64) {
        let (from, start) = (self.half().position, self.next_start());
        self.reclaim(start);
        self.reserve(start + pk::HEADER_LEN as u64, LIVING);
        self.begin_truth(start / self.spec.size);
        self.write_header(start, clock);
        self.leave(from, clock);
    }

    fn begin_truth(&mut self, number: u64) {
        self.half().subs.push(Sub { number, expect: Verdict::Open, events: Vec::new() });
    }

    fn set_expect(&mut self, number: u64, expect: Verdict) {
        if let Some(sub) = self.half().subs.iter_mut().rfind(|s| s.number == number) {
            sub.expect = expect;
        }
    }

    fn remember(&mut self, at: u64, event: &Event) {
        let number = at / self.spec.size;
        if let Some(sub) = self.half().subs.iter_mut().rfind(|s| s.number == number) {
            sub.events.push((at, event.clone()));
        }
    }

    /// Completes the commit counter of the place for `start`, if a dead recorder left a hole there.
    fn reclaim(&mut self, start: u64) {
        let (size, len, half) = (self.spec.size, self.half_len(), self.live);
        let place = self.place_of(start / size);
        let whole = start / len * size;
        if self.half().slots[place].committed >= whole {
            return;
        }
        self.half().slots[place].committed = whole;
        self.lost[st::RECLAIMED] += 1;
        let before = (start + size).saturating_sub(len);
        self.in_flight.retain(|f| f.half != half || f.end > before);
    }

    fn announce(&mut self, owner: u64, begin: u64, end: u64, state: u64) {
        let half = self.live;
        self.reserve(end, owner);
        self.in_flight.push(InFlight { owner, half, begin, end, confirmed: 0, state });
    }

    fn reserve(&mut self, end: u64, owner: u64) {
        let half = self.live;
        let (before, position) = (self.halves[half].owner, self.halves[half].position);
        if self.lockless() && before != owner {
            for f in self.in_flight.iter_mut().filter(|f| f.half == half && f.owner == before) {
                f.confirmed = f.confirmed.max(position);
            }
        }
        let lockless = self.lockless();
        let h = self.half();
        h.position = end;
        h.owner = if lockless { owner } else { 0 };
        h.attempt = if lockless { h.attempt } else { end };
    }

    fn commit(&mut self, at: u64, len: u64) {
        if !self.lockless() {
            return;
        }
        let (size, number) = (self.spec.size, at / self.spec.size);
        let (place, base) = (self.place_of(number), number / self.spec.count * size);
        let h = self.half();
        h.slots[place].committed += len;
        let sum = h.slots[place].committed - base;
        if sum == size - pk::HEADER_LEN as u64 {
            let (end, clock) = (h.slots[place].content_end, h.slots[place].end_clock);
            self.write_closing(end, clock, pk::HEADER_LEN);
            self.half().slots[place].committed += pk::HEADER_LEN as u64;
        } else if h.position == number * size + pk::HEADER_LEN as u64 + sum {
            h.contiguous = h.position;
        }
    }

    fn leave(&mut self, from: u64, clock: u64) {
        if from.is_multiple_of(self.spec.size) {
            return;
        }
        let place = self.place_of(from / self.spec.size);
        let slot = &mut self.half().slots[place];
        slot.content_end = from;
        slot.end_clock = clock;
        self.commit(from, self.spec.size - from % self.spec.size);
    }

    fn write(&mut self, position: u64, bytes: &[u8]) {
        let len = self.half_len();
        let at = usize::try_from(position % len).unwrap_or(0);
        let data = &mut self.half().data;
        let n = bytes.len().min(data.len() - at);
        data[at..at + n].copy_from_slice(&bytes[..n]);
    }

    fn write_header(&mut self, start: u64, clock: u64) {
        let header = self.header(start / self.spec.size, clock, 0, 0, 0);
        self.write(start, &header);
    }

    fn header(
        &self,
        number: u64,
        begin: u64,
        end: u64,
        content: u64,
        discarded: u64,
    ) -> [u8; pk::HEADER_LEN] {
        let (order, spec) = (self.spec.order, &self.spec);
        let mut h = [0u8; pk::HEADER_LEN];
        order.put32(&mut h, pk::MAGIC_AT, pk::MAGIC);
        h[pk::UUID_AT..pk::UUID_AT + 16].copy_from_slice(&spec.session);
        order.put32(&mut h, pk::CHANNEL_AT, spec.channel);
        order.put64(&mut h, pk::STREAM_AT, u64::from(spec.index));
        order.put64(&mut h, pk::BEGIN_AT, begin);
        order.put64(&mut h, pk::END_AT, end);
        order.put64(&mut h, pk::CONTENT_SIZE_AT, content * 8);
        order.put64(&mut h, pk::PACKET_SIZE_AT, spec.size * 8);
        order.put64(&mut h, pk::SEQ_NUM_AT, number);
        order.put64(&mut h, pk::DISCARDED_AT, discarded);
        order.put32(&mut h, pk::CPU_AT, spec.cpu);
        h
    }

    /// Completes the header of the sub-buffer whose content ends at `end`. Writes only the first
    /// `header_bytes`; if that is the whole header, also writes the checksum.
    fn write_closing(&mut self, end: u64, clock: u64, header_bytes: usize) {
        let (order, size) = (self.spec.order, self.spec.size);
        let (number, content) = (end / size, end % size);
        let at = self.place_of(number) * usize::try_from(size).unwrap_or(0);
        let begin = order.at64(&self.half().data, at + pk::BEGIN_AT).unwrap_or(0);
        let discarded = self.lost[..5].iter().sum();
        let header = self.header(number, begin, clock, content, discarded);
        self.write(number * size, &header[..header_bytes]);
        if header_bytes == pk::HEADER_LEN {
            let content = usize::try_from(content).unwrap_or(0);
            let sum = checksum(&self.half().data[at..at + content]);
            self.write((number + 1) * size - pk::CHECK_FROM_END as u64, &order.u64(sum));
        }
    }
}

impl Half {
    fn new(spec: &Spec, first: u64) -> Self {
        let len = spec.size * spec.count;
        let committed = first / len * spec.size;
        let slot = Slot { committed, ..Slot::default() };
        Self {
            first,
            position: first,
            owner: 0,
            closed: false,
            attempt: first,
            last_clock: 0,
            contiguous: first,
            consumed: first,
            data: vec![0; usize::try_from(len).unwrap_or(0)],
            slots: vec![slot; usize::try_from(spec.count).unwrap_or(0)],
            subs: Vec::new(),
        }
    }
}
