//! A reader of a half at rest, written from docs/ABI.md. It judges what a crash would leave.

use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN};
use lastwords_abi::session::{IN_FLIGHT_COPIED, IN_FLIGHT_SWITCH, MAX_LEVELS};
use lastwords_abi::stream::{CLOSED_BIT, OWNER_SHIFT, POSITION_BITS};
use lastwords_abi::sync::Ordering::{Acquire, Relaxed};

use super::world::{SUB_BUFFER, World};

/// The result of reading a half.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Events in order of position: thread and sequence.
    pub events: Vec<(u16, u16)>,
    /// Number of reservations in flight that are holes.
    pub holes: usize,
    /// Numbers of the closed sub-buffers.
    pub closed: Vec<u64>,
}

impl Found {
    /// Returns the sequences of a thread's events, in order of position.
    #[must_use]
    pub fn thread(&self, thread: u16) -> Vec<u16> {
        self.events.iter().filter(|e| e.0 == thread).map(|e| e.1).collect()
    }
}

/// A reservation in flight.
#[derive(Debug, Clone, Copy)]
struct Flight {
    begin: u64,
    end: u64,
    state: u64,
}

/// A packet that is being read.
struct Packet<'a> {
    bytes: &'a [u8],
    /// Position of the packet's first byte.
    base: u64,
    number: u64,
}

impl Packet<'_> {
    fn u64_at(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes[at..at + 8].try_into().expect("8 bytes"))
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes[at..at + 2].try_into().expect("2 bytes"))
    }

    /// Checks a closed packet and returns its content.
    fn closed_content(&self) -> usize {
        assert_eq!(self.u64_at(64), self.number, "number of closed sub-buffer {}", self.number);
        let content = (self.u64_at(48) / 8) as usize;
        assert!(
            content <= self.bytes.len() - TRAILER_LEN,
            "content {content} of closed sub-buffer {}",
            self.number
        );
        let sum = lastwords_abi::region::checksum(&self.bytes[..content]);
        assert_eq!(
            sum,
            self.u64_at(self.bytes.len() - 8),
            "checksum of closed sub-buffer {}",
            self.number
        );
        assert!(
            self.u64_at(32) <= self.u64_at(40),
            "sub-buffer {} ends before it begins",
            self.number
        );
        content
    }

    /// Appends the events up to `content`, except those in `holes`.
    fn events(&self, content: usize, holes: &[Flight], into: &mut Vec<(u16, u16)>) {
        self.events_from(HEADER_LEN, content, holes, into);
    }

    /// Appends the events from offset `at` on in the same way.
    fn events_from(
        &self,
        mut at: usize,
        content: usize,
        holes: &[Flight],
        into: &mut Vec<(u16, u16)>,
    ) {
        while at < content {
            let position = self.base + at as u64;
            if let Some(hole) = holes.iter().find(|h| h.begin <= position && position < h.end) {
                at = (hole.end - self.base) as usize;
                continue;
            }
            let tag = u32::from_ne_bytes(self.bytes[at..at + 4].try_into().expect("4 bytes")) & 31;
            at += if tag == 29 { 18 } else { 4 };
            assert!(tag == 29 || tag == 1, "tag {tag} at {at} of sub-buffer {}", self.number);
            let (len, thread, sequence) =
                (self.u16_at(at) as usize, self.u16_at(at + 2), self.u16_at(at + 4));
            assert_eq!(
                self.bytes[at..at + len],
                super::world::payload(thread, sequence, len),
                "an event is torn"
            );
            into.push((thread, sequence));
            at += len;
        }
        assert_eq!(
            at, content,
            "sub-buffer {}: the events end where the content ends",
            self.number
        );
    }
}

impl World {
    /// Reads a half of a stream that nobody writes now.
    ///
    /// # Panics
    /// The contents violate the format.
    #[must_use]
    pub fn read(&self, index: usize, half: usize) -> Found {
        let stream = &self.channel.streams()[index];
        super::reads(stream.data[half], stream.half_size() as usize);
        // SAFETY: nobody writes the half now; the read was reported to the model checker.
        let bytes =
            unsafe { std::slice::from_raw_parts(stream.data[half], stream.half_size() as usize) }
                .to_vec();
        let position = stream.position(half);
        let first = stream.half(half).first.load(Acquire);
        let last = position.div_ceil(SUB_BUFFER);
        let mut found = Found::default();
        for number in
            last.saturating_sub(u64::from(stream.spec.sub_buffers)).max(first / SUB_BUFFER)..last
        {
            let at = stream.place(number * SUB_BUFFER).sub_buffer as usize;
            let packet = Packet {
                bytes: &bytes[at..at + SUB_BUFFER as usize],
                base: number * SUB_BUFFER,
                number,
            };
            if stream.is_lockless() {
                self.lockless(index, half, &packet, position, &mut found);
            } else if (number + 1) * SUB_BUFFER <= position {
                packet.events(packet.closed_content(), &[], &mut found.events);
                found.closed.push(number);
            } else {
                packet.events((position - packet.base) as usize, &[], &mut found.events);
            }
        }
        found
    }

    fn lockless(
        &self,
        index: usize,
        half: usize,
        packet: &Packet<'_>,
        position: u64,
        found: &mut Found,
    ) {
        let stream = &self.channel.streams()[index];
        let slot =
            &stream.slots[half][(packet.number % u64::from(stream.spec.sub_buffers)) as usize];
        let laps = packet.number / u64::from(stream.spec.sub_buffers);
        let committed = slot.committed.load(Acquire).wrapping_sub(laps * SUB_BUFFER);
        if committed == SUB_BUFFER {
            packet.events(packet.closed_content(), &[], &mut found.events);
            found.closed.push(packet.number);
            return;
        }
        let flights = self.in_flight(index, half);
        let begun = flights
            .iter()
            .any(|f| f.state == IN_FLIGHT_SWITCH && f.end == packet.base + HEADER_LEN as u64);
        if packet.u64_at(64) != packet.number && !begun {
            return; // passed over
        }
        let end = packet.base + SUB_BUFFER;
        let here: Vec<Flight> =
            flights.into_iter().filter(|f| f.begin < end && f.end > packet.base).collect();
        let left = here
            .iter()
            .find(|f| f.state == IN_FLIGHT_SWITCH && f.begin >= packet.base)
            .map(|f| f.begin);
        let is_last = position <= end;
        let content = match left {
            _ if is_last => position,
            Some(begin) => begin,
            None => slot.content_end.load(Acquire),
        };
        let contiguous = stream.half(half).contiguous.load(Acquire);
        if contiguous > packet.base && contiguous <= end {
            let ahead = here.iter().find(|f| {
                f.state != IN_FLIGHT_COPIED && (packet.base..contiguous).contains(&f.begin)
            });
            assert!(ahead.is_none(), "contiguous {contiguous} is ahead of {ahead:?}");
        }
        let (holes, sure): (Vec<Flight>, Vec<Flight>) =
            here.iter().partition(|f| f.state != IN_FLIGHT_COPIED && f.state != IN_FLIGHT_SWITCH);
        let content = (content - packet.base) as usize;
        let bytes = if is_last { content } else { SUB_BUFFER as usize } - HEADER_LEN;
        let lost: u64 = holes.iter().map(|h| h.end - h.begin).sum();
        let may_lack = |f: &Flight| {
            f.end.min(end) - f.begin.max(packet.base + HEADER_LEN as u64).min(f.end.min(end))
        };
        let sums = sure.iter().fold(vec![bytes as u64 - lost], |sums, f| {
            sums.iter().flat_map(|s| [*s, s - may_lack(f)]).collect()
        });
        assert!(
            sums.contains(&committed),
            "sub-buffer {}: {committed} committed, {sums:?} expected",
            packet.number
        );
        found.holes += holes.len();
        packet.events(content, &holes, &mut found.events);
    }

    /// Returns the reservations in flight of a half.
    fn in_flight(&self, index: usize, half: usize) -> Vec<Flight> {
        let stream = &self.channel.streams()[index];
        let target = stream.target(half);
        let word = stream.half(half).reserve.load(Acquire) & !CLOSED_BIT;
        let mut flights = Vec::new();
        for (entry, thread) in self.parts.threads.iter().enumerate() {
            for (number, level) in thread.levels.iter().enumerate() {
                let announced = level.target.load(Acquire);
                let (begin, end) = (level.begin.load(Acquire), level.end.load(Acquire));
                let confirmed = level.confirmed.load(Acquire);
                let owner = (entry * MAX_LEVELS + number + 1) as u64;
                let tagged = confirmed >> POSITION_BITS == target & 0xfff;
                let succeeded = word == end | owner << OWNER_SHIFT
                    || (tagged && confirmed & ((1 << POSITION_BITS) - 1) >= end);
                if announced == target && succeeded {
                    flights.push(Flight { begin, end, state: level.state.load(Acquire) });
                }
            }
        }
        flights
    }

    /// Returns counters of a stream: events lost by cause, reservations reclaimed and sub-buffers
    /// skipped.
    #[must_use]
    pub fn lost(&self, index: usize) -> [u64; 7] {
        let control = self.channel.streams()[index].control();
        core::array::from_fn(|cause| control.lost[cause].load(Acquire))
    }
}

impl World {
    /// Consumes the sub-buffer of a stream at `consumed` if it is closed. Returns its events.
    pub fn consume(&self, index: usize, half: usize, consumed: u64) -> Vec<(u16, u16)> {
        let stream = &self.channel.streams()[index];
        let place = stream.place(consumed);
        let slot =
            &stream.slots[half][(place.number % u64::from(stream.spec.sub_buffers)) as usize];
        let laps = place.number / u64::from(stream.spec.sub_buffers);
        let mut events = Vec::new();
        if slot.committed.load(Acquire) == (laps + 1) * SUB_BUFFER {
            let mut bytes = vec![0; SUB_BUFFER as usize];
            let from = stream.data[half].wrapping_add(place.sub_buffer as usize);
            super::reads(from, bytes.len());
            // SAFETY: this is a sub-buffer of the ring's own memory.
            unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
            let packet = Packet { bytes: &bytes, base: consumed, number: place.number };
            packet.events(packet.closed_content(), &[], &mut events);
            stream.consume(half, consumed + SUB_BUFFER);
        }
        events
    }

    /// Consumes all settled events of a half and returns them.
    ///
    /// # Panics
    /// Bytes before the settled position are not committed, or violate the format.
    #[must_use]
    pub fn take(&self, index: usize, half: usize) -> Vec<(u16, u16)> {
        let stream = &self.channel.streams()[index];
        let first = stream.half(half).first.load(Acquire);
        let end = stream.settled(half, self.parts);
        let mut events = Vec::new();
        for number in first / SUB_BUFFER..end.div_ceil(SUB_BUFFER) {
            let place = stream.place(number * SUB_BUFFER);
            let base = number * SUB_BUFFER;
            let mut content = end.min(base + SUB_BUFFER) - base;
            if content == SUB_BUFFER {
                let slot =
                    &stream.slots[half][(number % u64::from(stream.spec.sub_buffers)) as usize];
                let laps = number / u64::from(stream.spec.sub_buffers);
                assert_eq!(
                    slot.committed.load(Acquire),
                    (laps + 1) * SUB_BUFFER,
                    "sub-buffer {number} is not closed"
                );
                content = slot.content_end.load(Acquire) - base;
            }
            let (from, content) =
                ((first.max(base) - base).max(HEADER_LEN as u64) as usize, content as usize);
            let Some(len) = content.checked_sub(from) else { continue };
            let mut bytes = vec![0; SUB_BUFFER as usize];
            let at = stream.data[half].wrapping_add(place.sub_buffer as usize + from);
            super::reads(at, len);
            // SAFETY: this is inside a sub-buffer of the ring's own memory.
            unsafe { core::ptr::copy_nonoverlapping(at, bytes[from..].as_mut_ptr(), len) };
            Packet { bytes: &bytes, base, number }.events_from(from, content, &[], &mut events);
        }
        stream.consume(half, end);
        events
    }

    /// Returns the sequences of the events in closed sub-buffers, and in the last one up to the
    /// produced position. They are read while a recorder records large events: one in each
    /// sub-buffer.
    #[must_use]
    pub fn read_live(&self, index: usize, half: usize) -> Vec<u16> {
        let stream = &self.channel.streams()[index];
        let before = stream.position(half);
        let mut bytes = vec![0u8; stream.half_size() as usize];
        for (at, chunk) in bytes.chunks_mut(32).enumerate() {
            // This is a step of the model: the recorder may continue between any two chunks.
            let _ = self.parts.flip.load(Relaxed);
            // SAFETY: this is within the ring's own memory. A recorder may write it; the second
            // look at the position detects that.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    stream.data[half].add(at * 32),
                    chunk.as_mut_ptr(),
                    32,
                )
            };
        }
        // The model does not see these bytes, and they are always the newest. Reading the newest
        // position replaces the fences of both sides.
        let after = stream.half(half).reserve.fetch_or(0, Acquire) & ((1 << POSITION_BITS) - 1);
        let given_up =
            (after.div_ceil(SUB_BUFFER)).saturating_sub(u64::from(stream.spec.sub_buffers));
        let mut events = Vec::new();
        for number in (before.div_ceil(SUB_BUFFER))
            .saturating_sub(u64::from(stream.spec.sub_buffers))
            .max(given_up)..
        {
            if number * SUB_BUFFER + HEADER_LEN as u64 >= before {
                break;
            }
            let at = stream.place(number * SUB_BUFFER).sub_buffer as usize;
            let packet = Packet {
                bytes: &bytes[at..at + SUB_BUFFER as usize],
                base: number * SUB_BUFFER,
                number,
            };
            assert_eq!(packet.u64_at(64), number, "the sub-buffer that the position tells of");
            let (len, thread, sequence) =
                (packet.u16_at(102) as usize, packet.u16_at(104), packet.u16_at(106));
            assert_eq!(
                packet.bytes[102..102 + len],
                super::world::payload(thread, sequence, len),
                "an event is torn"
            );
            events.push(sequence);
        }
        events
    }
}

impl World {
    /// Returns the events of all streams in a half.
    #[must_use]
    pub fn read_all(&self, half: usize) -> Vec<(u16, u16)> {
        (0..self.channel.streams().len())
            .flat_map(|stream| self.read(stream, half).events)
            .collect()
    }
}
