//! Records generated payloads in each way that leads into a channel. Every way must leave the bytes
//! in the ring that a naive encoder makes. The encoder knows the format from docs/ABI.md. It takes
//! nothing from the ring except the clocks, which it checks against readings before and after the
//! call. `LASTWORDS_SEED` repeats a run.

use crate::common;
use crate::common::{RESERVATIONS, Shape, bind_to_this_cpu, channel, u64_at, words};
use lastwords_abi::session::{CHANNEL_PAYLOAD_SIZE, RESERVATION_LOCKLESS};
use lastwords_ring::clock::counter;
use lastwords_ring::{Channel, Lost, Padded, Stream, Tail};
use lastwords_testkit::random::{Random, seed};

/// Returns bytes without a zero, so that the test notices a byte that was not stored.
fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| 1 + random.below(255) as u8).collect()
}

/// The way in which an event is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Words,
    Text,
    Bytes,
    Parts,
    Padded,
    UpTo,
    Varying,
}

#[derive(Debug)]
struct Event {
    way: Way,
    id: u16,
    payload: Vec<u8>,
    /// Bytes of the payload before the tail.
    head: usize,
}

impl Event {
    fn new(random: &mut Random, ways: &[Way]) -> Self {
        let way = ways[random.index(ways.len())];
        // Most ids are compact, because only those take the fast path.
        let id = if random.index(8) == 0 { random.index(400) } else { random.index(29) } as u16;
        let tail = match random.index(20) {
            0 => random.index(5000),
            1..4 => random.index(300),
            _ => random.index(48),
        };
        match way {
            Way::Words | Way::UpTo => {
                let head = if random.index(4) == 0 { random.index(257) } else { random.index(49) };
                Self { way, id, payload: bytes(random, head), head }
            }
            Way::Parts | Way::Padded => {
                Self { way, id, payload: bytes(random, tail), head: random.index(tail + 1) }
            }
            Way::Text | Way::Bytes | Way::Varying => {
                let head = random.index(if way == Way::Varying { 9 } else { 29 });
                let mut payload = bytes(random, head + tail);
                payload.extend((way == Way::Text).then_some(0));
                Self { way, id, payload, head }
            }
        }
    }

    fn record(&self, channel: &'static Channel) -> Result<(), Lost> {
        match self.way {
            Way::Words | Way::UpTo => match self.head.div_ceil(8) {
                0 => self.in_words::<0>(channel),
                1 => self.in_words::<1>(channel),
                2 => self.in_words::<2>(channel),
                3 => self.in_words::<3>(channel),
                4 => self.in_words::<4>(channel),
                5 => self.in_words::<5>(channel),
                6 => self.in_words::<6>(channel),
                7..=8 => self.in_words::<8>(channel),
                _ => self.in_words::<32>(channel),
            },
            Way::Varying => {
                let (head, tail) = self.payload.split_at(self.head);
                let word = words::<1>(head)[0];
                match channel.record_varying(self.id, word, self.head, tail) {
                    true => Ok(()),
                    false => {
                        channel.record_words(self.id, [word], self.head, Some(Tail::Bytes(tail)))
                    }
                }
            }
            Way::Text | Way::Bytes => match self.head.div_ceil(8) {
                0 => self.with_tail::<0>(channel),
                1 => self.with_tail::<1>(channel),
                2 => self.with_tail::<2>(channel),
                3 => self.with_tail::<3>(channel),
                _ => self.with_tail::<4>(channel),
            },
            Way::Parts => channel.record_parts(
                self.id,
                &[&self.payload[..self.head], &[], &self.payload[self.head..]],
            ),
            Way::Padded => {
                let zeros = [0; Padded::PADDING];
                let padded = [&self.payload[..], &zeros].concat();
                channel.record_padded(self.id, Padded::new(&padded).expect("16 zeros"))
            }
        }
    }

    fn in_words<const W: usize>(&self, channel: &'static Channel) -> Result<(), Lost> {
        match self.way {
            Way::UpTo => channel.record_words_up_to(
                self.id,
                words::<W>(&self.payload),
                self.head,
                self.head.next_multiple_of(8),
            ),
            _ => channel.record_words(self.id, words::<W>(&self.payload), self.head, None),
        }
    }

    fn with_tail<const W: usize>(&self, channel: &'static Channel) -> Result<(), Lost> {
        let (head, tail) = self.payload.split_at(self.head);
        let tail = match (self.way, tail) {
            (Way::Text, [text @ .., _]) => Tail::Text(text),
            _ => Tail::Bytes(tail),
        };
        channel.record_words(self.id, words::<W>(head), self.head, Some(tail))
    }
}

/// The expected contents of a stream's half.
struct Model {
    shape: Shape,
    cpu: u32,
    position: u64,
    /// Bytes of the open sub-buffer up to the position.
    open: Vec<u8>,
    last: u64,
    lost: u64,
}

impl Model {
    /// Records the event in the model and compares the ring with it. The call ran from clock `from`
    /// to `to`.
    fn check(
        &mut self,
        stream: &Stream,
        event: &Event,
        done: Result<(), Lost>,
        from: u64,
        to: u64,
    ) {
        let size = self.shape.sub_buffer_size as usize;
        let lockless = self.shape.reservation == RESERVATION_LOCKLESS;
        let header = |model: &Self, clock: u64, full: bool| {
            let full = full || clock.wrapping_sub(model.last) >= 1 << 27;
            let sized = model.shape.flags & CHANNEL_PAYLOAD_SIZE != 0;
            let tag = if full {
                29
            } else if sized {
                30
            } else if event.id > 28 {
                31
            } else {
                event.id
            };
            let len = if sized { event.payload.len() as u32 } else { u32::MAX };
            let mut bytes = (((clock as u32) << 5) | u32::from(tag)).to_ne_bytes().to_vec();
            bytes.extend((tag > 28).then_some(event.id.to_ne_bytes()).into_iter().flatten());
            bytes.extend(matches!(tag, 29 | 30).then_some(len.to_ne_bytes()).into_iter().flatten());
            bytes.extend((tag == 29).then_some(clock.to_ne_bytes()).into_iter().flatten());
            bytes
        };
        let starts_here = self.open.len() >= 84;
        let clock_at = |model: &Self, number: u64, within: usize| {
            clock_of(&sub_buffer(stream, number), within, model.last)
                .filter(|clock| (from..=to).contains(clock))
        };
        let fits = |model: &Self, header: &[u8]| {
            model.open.len() + header.len() + event.payload.len() <= size - 16
        };
        let number = self.position / size as u64;
        // If an event fits nowhere, the form of its header is not known.
        if done.is_err() {
            assert!(done == Err(Lost::TooBig) && event.payload.len() + 18 > size - 100, "{done:?}");
            if self.open.is_empty() && stream.position(0) > self.position {
                self.begin(&sub_buffer(stream, number), number, (from, to));
            }
            assert_eq!(
                stream.position(0),
                self.position,
                "an event that is too big begins a sub-buffer at most"
            );
            self.lost += 1;
            return;
        }
        let here = starts_here.then(|| clock_at(self, number, self.open.len())).flatten();
        let first = lockless && self.open.len() == 84;
        let here = here.map(|clock| (clock, header(self, clock, first)));
        if let Some((clock, header)) = here
            .filter(|(_, header)| fits(self, header) && stream.position(0) / size as u64 == number)
        {
            self.append(clock, &header, &event.payload);
        } else {
            let next = if self.open.is_empty() { number } else { number + 1 };
            if starts_here {
                self.check_closed(&sub_buffer(stream, number), number, (from, to));
            }
            self.begin(&sub_buffer(stream, next), next, (from, to));
            let clock = clock_at(self, next, 84).expect("a clock");
            let header = header(self, clock, lockless);
            assert!(fits(self, &header));
            self.append(clock, &header, &event.payload);
        }
        assert_eq!(stream.position(0), self.position, "position");
        let ring = sub_buffer(stream, (self.position - 1) / size as u64);
        let differs = self.open.iter().zip(&ring).position(|(a, b)| a != b);
        assert_eq!(
            differs,
            None,
            "offset in the sub-buffer; {} bytes are recorded",
            self.open.len()
        );
    }

    fn append(&mut self, clock: u64, header: &[u8], payload: &[u8]) {
        self.open.extend(header);
        self.open.extend(payload);
        self.position += (header.len() + payload.len()) as u64;
        self.last = clock;
    }

    /// Checks the header of a sub-buffer that was begun in this call.
    fn begin(&mut self, ring: &[u8], number: u64, (from, to): (u64, u64)) {
        let begin = u64_at(ring, 32);
        assert!((from..=to).contains(&begin), "begin of the sub-buffer");
        self.open = self.header(number, begin, 0, 0);
        self.position = number * self.shape.sub_buffer_size + 84;
        self.last = begin;
    }

    fn header(&self, number: u64, begin: u64, end: u64, content: u64) -> Vec<u8> {
        let mut bytes = 0xC1FC_1FC1u32.to_ne_bytes().to_vec();
        bytes.extend(b"0123456789abcdef");
        bytes.extend(0u32.to_ne_bytes());
        let discarded = if content == 0 { 0 } else { self.lost };
        let numbers = [
            u64::from(self.cpu),
            begin,
            end,
            content * 8,
            self.shape.sub_buffer_size * 8,
            number,
            discarded,
        ];
        bytes.extend(numbers.iter().flat_map(|n| n.to_ne_bytes()));
        bytes.extend(self.cpu.to_ne_bytes());
        bytes
    }

    /// Checks a sub-buffer that was closed in this call: header, events and checksum.
    fn check_closed(&self, ring: &[u8], number: u64, (from, to): (u64, u64)) {
        let end = u64_at(ring, 40);
        assert!((from..=to).contains(&end), "end of the sub-buffer");
        let mut whole = self.header(number, u64_at(&self.open, 32), end, self.open.len() as u64);
        whole.extend(&self.open[84..]);
        assert!(ring[..whole.len()] == whole, "closed sub-buffer {number}");
        assert_eq!(
            u64_at(ring, ring.len() - 8),
            lastwords_abi::region::checksum(&whole),
            "its checksum"
        );
    }
}

fn sub_buffer(stream: &Stream, number: u64) -> Vec<u8> {
    // SAFETY: only this thread records in the stream.
    unsafe { common::copy_sub_buffer(stream, 0, number) }
}

/// Returns the clock of the event at an offset. `last` is the clock of the event before it.
fn clock_of(bytes: &[u8], at: usize, last: u64) -> Option<u64> {
    let word = u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().expect("4 bytes"));
    if word & 31 == 29 {
        return Some(u64_at(bytes.get(..at + 18)?, at + 10));
    }
    let clock = (last & !((1 << 27) - 1)) | u64::from(word >> 5);
    Some(if clock < last { clock + (1 << 27) } else { clock })
}

/// Records `count` events in these ways. Returns for how many of them the fast path left its trace
/// (zeros after the event, up to the next multiple of 8 bytes), and how many it could record with
/// such a trace.
fn run(shape: &Shape, seed: u64, count: usize, ways: &[Way]) -> (usize, usize) {
    let cpu = bind_to_this_cpu();
    let channel = channel(shape);
    let stream = &channel.streams()[cpu];
    let mut random = Random(seed);
    let mut model =
        Model { shape: *shape, cpu: cpu as u32, position: 0, open: Vec::new(), last: 0, lost: 0 };
    let (mut traces, mut likely) = (0, 0);
    model.position = stream.position(0);
    for n in 0..count {
        let event = Event::new(&mut random, ways);
        let before = model.position;
        let from = counter();
        let done = event.record(channel);
        let to = counter();
        let shown = format!(
            "seed {seed}, event {n} of {shape:?}: {:?}, id {}, {} + {} bytes",
            event.way,
            event.id,
            event.head,
            event.payload.len() - event.head
        );
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            model.check(stream, &event, done, from, to)
        })) {
            eprintln!("{shown}");
            std::panic::resume_unwind(panic);
        }
        // The fast path stores whole words, or whole blocks after the header, and leaves zeros
        // after the event.
        let header = if event.id < 29 { 4 } else { 6 };
        let zeros = match event.way {
            Way::Words | Way::UpTo if event.id < 29 => {
                (4 + event.payload.len()).next_multiple_of(8) - 4 - event.payload.len()
            }
            Way::Padded => event.payload.len().next_multiple_of(16) - event.payload.len(),
            _ => 0,
        };
        if zeros > 0 && model.position == before + (header + event.payload.len()) as u64 {
            likely += 1;
            let ring = sub_buffer(stream, before / shape.sub_buffer_size);
            let after = (model.position % shape.sub_buffer_size) as usize;
            traces += usize::from(ring[after..after + zeros].iter().all(|byte| *byte == 0));
        }
    }
    (traces, likely)
}

const FAST: [Way; 6] = [Way::Words, Way::Text, Way::Bytes, Way::Padded, Way::UpTo, Way::Varying];

#[test]
fn the_fast_path_stores_every_byte() {
    let seed = seed();
    let mut events = (0, 0);
    for (n, (sub_buffer_size, sub_buffers)) in
        [(256, 4), (1024, 2), (4096, 4), (16384, 2)].into_iter().enumerate()
    {
        let shape = Shape { sub_buffer_size, sub_buffers, ..Shape::default() };
        let (traces, likely) = run(&shape, seed + n as u64, 4000, &FAST);
        events = (events.0 + traces, events.1 + likely);
    }
    if cfg!(target_arch = "x86_64") && lastwords_ring::rseq_available() {
        assert!(events.0 > events.1 / 2, "the fast path took {} of {} events", events.0, events.1);
    }
}

#[test]
fn the_general_path_leaves_the_same_bytes() {
    let seed = seed();
    for reservation in RESERVATIONS {
        for (paged, flags) in [(false, 0), (true, 0), (false, CHANNEL_PAYLOAD_SIZE)] {
            let sub_buffer_size = if paged { 8192 } else { 1024 };
            let shape = Shape { reservation, paged, flags, sub_buffer_size, ..Shape::default() };
            run(&shape, seed, 1000, &[Way::Parts]);
            run(&shape, seed, 1000, &FAST);
        }
    }
}
