//! Reads the events of one stream, with a window of one packet in memory.

use super::error::Error;
use super::index::{Entry, read_at};
use super::place::{Skip, is_time, ticks};
use super::trace::{Stream, Trace};
use crate::program::{Decoder, Event, Expected, Fault, MAX_ALIGNMENT, Packet, PacketPart, Program};
use lastwords_trace::class::{Clock, EventClass};
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::source::{Defect, Foretold, PacketInfo, PacketReader};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

/// Initial size of the window, which is the part of a packet of a file that is in memory, in bytes.
const WINDOW: usize = 256 << 10;
/// Largest size of an event, in bytes.
const MAX_EVENT: usize = 64 << 20;
/// A window of at least this many bytes that are all zero may be a hole of the file: a small file
/// can have terabytes of holes.
const HOLE: usize = 1 << 12;
/// Bytes of the budget that each byte of such a window takes.
const COST: u64 = 16;

/// A loss that a stream's packets report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// True if packets are missing, false if events are.
    pub packets: bool,
    /// Number of missing packets or events.
    pub count: u64,
    /// Clock before and after the loss.
    pub between: Option<(u64, u64)>,
}

/// The next item of a stream.
#[derive(Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// A packet has begun.
    Packet,
    /// Events or packets are missing.
    Loss(Loss),
    /// The rest of a packet, or a whole one, cannot be read.
    Fault(Error),
    /// The stream has ended.
    End,
}

/// The clocks of some events.
pub(super) struct Clocks {
    pub(super) count: u64,
    pub(super) least: u64,
    pub(super) greatest: u64,
}

impl Clocks {
    /// Returns the clock of one event.
    pub(super) fn one(clock: u64) -> Self {
        Self { count: 1, least: clock, greatest: clock }
    }
}

/// A function that receives numbers of bytes as streams are read, from any thread. For a stream
/// that is read to its end, they add up to the sizes of its packets.
pub type Watch<'w> = &'w (dyn Fn(u64) + Sync);

/// For callers that do not show progress.
pub fn unwatched(_: u64) {}

/// Returns a buffer that no caller holds and makes it the window `bytes`. Windows that a caller
/// still holds are kept in `old`, the oldest first, because the oldest is the first to be released.
fn free<'a>(
    bytes: &'a mut Arc<Vec<u8>>,
    old: &mut VecDeque<Arc<Vec<u8>>>,
) -> Option<&'a mut Vec<u8>> {
    if Arc::get_mut(bytes).is_none() {
        let is_free = old.front_mut().is_some_and(|oldest| Arc::get_mut(oldest).is_some());
        let next = if is_free { old.pop_front() } else { None };
        old.push_back(std::mem::replace(bytes, next.unwrap_or_default()));
    }
    Arc::get_mut(bytes)
}

/// Reads one stream.
pub struct Reader<'t> {
    stream: &'t Stream,
    program: Arc<Program>,
    decoder: Decoder,
    file: Option<(u32, File)>,
    bytes: Arc<Vec<u8>>,
    /// Earlier windows. A caller may still hold some of them.
    old: VecDeque<Arc<Vec<u8>>>,
    /// Number of times that the window's contents changed.
    windows: u64,
    base: u64,
    content_end: u64,
    packet: Option<Packet>,
    next_packet: usize,
    /// Reads the packets of a stream in memory.
    memory: Option<Box<dyn PacketReader + 't>>,
    /// The current packet of a stream in memory.
    entry: Option<Entry>,
    /// The trace's account reports the losses.
    has_account: bool,
    at: u64,
    /// Header and context of the previous packet, for counting losses.
    before: Option<Packet>,
    /// The packet that was decoded but not yet returned.
    fresh: Option<Packet>,
    losses: Vec<Loss>,
    clock: Option<Converter>,
    rounding: Rounding,
    window: usize,
    watch: Watch<'t>,
    /// Bytes of the current packet that were reported to `watch`.
    reported: u64,
    /// Bytes of all packets that were reported to `watch`.
    all_reported: u64,
    /// The least key in the merged order that the next event can have.
    floor: i64,
}

impl<'t> Reader<'t> {
    /// Returns a reader at the beginning of a stream of a trace.
    #[must_use]
    pub fn new(trace: &Trace, stream: &'t Stream) -> Self {
        let program = Arc::clone(&trace.program);
        let class = program.class().streams.get(stream.class);
        let clock = class.and_then(|class| program.class().clocks.get(class.clock?));
        Self {
            decoder: program.decoder(),
            clock: clock.map(|clock| Converter::new(&clock.to_clock(), Rounding::Double)),
            rounding: Rounding::Double,
            program,
            stream,
            file: None,
            bytes: Arc::default(),
            old: VecDeque::new(),
            windows: 0,
            base: 0,
            content_end: 0,
            packet: None,
            next_packet: 0,
            memory: stream.memory.as_ref().map(|memory| memory.source.packets_of(memory.stream)),
            entry: None,
            has_account: trace.account.is_some(),
            at: 0,
            before: None,
            fresh: None,
            losses: Vec::new(),
            window: WINDOW,
            watch: &unwatched,
            reported: 0,
            all_reported: 0,
            floor: i64::MIN,
        }
    }

    /// Returns the reader with another rounding of times than babeltrace2's.
    #[must_use]
    pub fn rounded(mut self, rounding: Rounding) -> Self {
        let class = self.program.class();
        let clock =
            class.streams.get(self.stream.class).and_then(|stream| class.clocks.get(stream.clock?));
        self.clock = clock.map(|clock| Converter::new(&clock.to_clock(), rounding));
        self.rounding = rounding;
        self
    }

    /// Returns the stream's clock if it has one and its times are exact.
    pub(super) fn exact_clock(&self) -> Option<&Clock> {
        let class = self.program.class();
        let clock = class.clocks.get(class.streams.get(self.stream.class)?.clock?);
        clock.filter(|_| self.rounding == Rounding::Floor)
    }

    /// Returns the reader with a `watch` that receives its progress.
    #[must_use]
    pub fn watched(self, watch: Watch<'t>) -> Self {
        Self { watch, ..self }
    }

    /// Returns the stream.
    #[must_use]
    pub fn stream(&self) -> &'t Stream {
        self.stream
    }

    /// Returns the program that decodes the stream.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Converts a clock reading to nanoseconds from the clock's origin; none if the stream has no
    /// clock, or the time does not fit 64 bits.
    #[inline]
    pub fn nanoseconds(&mut self, clock: u64) -> Option<i64> {
        self.time(clock).filter(is_time)
    }

    /// Converts a clock reading like [`Self::nanoseconds`]. If the time does not fit 64 bits, the
    /// result is a number for which [`is_time`] is false.
    #[inline]
    pub(super) fn time(&mut self, clock: u64) -> Option<i64> {
        self.clock.as_mut().map(|converter| converter.nanoseconds(clock))
    }

    /// Makes an error about the current packet.
    pub(super) fn wrong(&self, source: Fault) -> Error {
        let (number, offset) =
            self.place().map_or((0, 0), |(number, entry)| (number, entry.offset));
        self.fault(number, offset, source)
    }

    /// Returns the current packet.
    #[must_use]
    pub fn packet(&self) -> Option<&Packet> {
        self.packet.as_ref()
    }

    /// Returns the position of the current packet: the position of its file, and its entry.
    #[must_use]
    pub fn place(&self) -> Option<(u32, Entry)> {
        if self.memory.is_some() {
            return self.entry.map(|entry| (0, entry));
        }
        self.stream.packets.get(self.next_packet.checked_sub(1)?).copied()
    }

    /// Returns the bytes in memory, the position of the first of them in the packet (bytes), and
    /// the end of the content (bits).
    #[must_use]
    pub fn window(&self) -> (Arc<Vec<u8>>, u64, u64) {
        (Arc::clone(&self.bytes), self.base, self.content_end)
    }

    /// Returns a number that changes whenever the contents of the window change.
    #[inline]
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Returns the event record class at a position of the stream class.
    #[must_use]
    pub fn class_of(&self, event: usize) -> Option<&EventClass> {
        self.program().class().streams.get(self.stream().class)?.events.get(event)
    }

    /// Returns the bytes in memory, and the program and decoder for them.
    #[inline]
    pub fn parts(&mut self) -> (&Program, &mut Decoder, PacketPart<'_>) {
        let part =
            PacketPart { bytes: &self.bytes, base: self.base, content_end: self.content_end };
        (&self.program, &mut self.decoder, part)
    }

    /// Passes up to `most` of the next events to `take`, with their times. Stops at the first event
    /// that has no simple form or is not in memory. [`Self::advance`] continues after them.
    #[inline]
    pub fn ahead(&mut self, most: usize, mut take: impl FnMut(Event, Option<i64>)) {
        let Some(packet) = &self.packet else { return };
        let part =
            PacketPart { bytes: &self.bytes, base: self.base, content_end: self.content_end };
        let (class, clock) = (packet.class, &mut self.clock);
        let timed =
            |event: Event| take(event, clock.as_mut().map(|clock| clock.nanoseconds(event.clock)));
        self.at = self.program.ahead(&mut self.decoder, class, &part, self.at, most, timed);
    }

    /// Skips the next events of the packet up to the first that has no simple form, and returns how
    /// many. [`Self::advance`] continues after them.
    pub fn pass(&mut self) -> u64 {
        let Some(packet) = &self.packet else { return 0 };
        let part =
            PacketPart { bytes: &self.bytes, base: self.base, content_end: self.content_end };
        let passed = self.program.pass(&mut self.decoder, packet.class, &part, self.at);
        self.at = passed.end;
        passed.events
    }

    /// Skips the same events as [`Self::pass`], and returns their number with the range of their
    /// clocks.
    pub(super) fn clocks(&mut self) -> Clocks {
        let mut clocks = Clocks { count: 0, least: u64::MAX, greatest: 0 };
        let Some(packet) = &self.packet else { return clocks };
        let part =
            PacketPart { bytes: &self.bytes, base: self.base, content_end: self.content_end };
        let add = |event: Event| {
            clocks.count = clocks.count.wrapping_add(1);
            clocks.least = clocks.least.min(event.clock);
            clocks.greatest = clocks.greatest.max(event.clock);
        };
        self.at =
            self.program.ahead(&mut self.decoder, packet.class, &part, self.at, usize::MAX, add);
        clocks
    }

    /// Returns the least key in the merged order that the next event can have, because of packets
    /// that were passed over.
    pub(super) fn floor(&self) -> i64 {
        self.floor
    }

    /// Returns the key in the merged order of an event with this clock. The least key is that of
    /// events without a clock. Returns none if the time does not fit 64 bits.
    pub(super) fn place_of(&mut self, clock: u64, by_ticks: bool) -> Option<i64> {
        match self.time(clock) {
            Some(time) if !is_time(&time) => None,
            Some(_) if by_ticks => Some(ticks(clock)),
            Some(time) => Some(time),
            None => Some(i64::MIN),
        }
    }

    /// Returns what is known of the packets to come before they are read; none if they cannot be
    /// passed over.
    pub(super) fn foretell(&self) -> Option<Vec<Foretold>> {
        if let Some(memory) = &self.memory {
            return memory.foretell();
        }
        let foretold = |(_, entry): &(u32, Entry)| {
            let Entry { begin, end, size, sequence, .. } = *entry;
            Foretold { sequence: sequence.unwrap_or(0), begin, end, size }
        };
        Some(self.stream.packets.iter().map(foretold).collect())
    }

    /// Passes over the first packets of the stream. Nothing was read before. The packets count as
    /// read for `watch`.
    pub fn pass_over(&mut self, Skip { packets, bound }: Skip) {
        self.floor = self.floor.max(bound);
        let Some(last) = packets.checked_sub(1) else { return };
        let foretold = self.foretell().unwrap_or_default();
        let sizes = |count: usize| {
            foretold.iter().take(count).map(|packet| packet.size).fold(0, u64::saturating_add)
        };
        // Losses are counted from one packet to the next.
        let passed = if self.has_account { packets } else { last };
        match &mut self.memory {
            Some(memory) => memory.pass_over(passed),
            None => self.next_packet = passed,
        }
        if !self.has_account && self.next_entry().is_some_and(|entry| entry.is_ok()) {
            self.before = self.program.packet(&mut self.decoder, &self.bytes).ok();
        }
        // The current packet is reported when the next one begins.
        let reported = if self.place().is_some() { last } else { packets };
        (self.watch)(sizes(reported));
        self.all_reported = self.all_reported.saturating_add(sizes(reported));
    }

    /// Returns the clock of the last event, or of the packet's begin.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.decoder.clock()
    }

    /// Returns the next item of the stream.
    #[inline]
    pub fn advance(&mut self) -> Next {
        let Some(packet) = &self.packet else { return self.begin_packet() };
        let class = packet.class;
        while self.at < self.content_end {
            let part =
                PacketPart { bytes: &self.bytes, base: self.base, content_end: self.content_end };
            let clock = self.decoder.clock();
            match self.program.event(&mut self.decoder, class, &part, self.at) {
                Ok(event) => {
                    self.at = event.end;
                    return Next::Event(event);
                }
                Err(fault) => {
                    let cut = fault.is_short() && part.is_cut();
                    self.decoder.set_clock(clock);
                    if let Err(fault) = self.more(cut, fault) {
                        self.at = self.content_end;
                        return Next::Fault(fault);
                    }
                }
            }
        }
        self.packet = None;
        self.begin_packet()
    }

    /// Moves the window forward, or enlarges it if the event begins at the window's beginning.
    #[cold]
    fn more(&mut self, cut: bool, fault: Fault) -> Result<(), Error> {
        let Some((number, entry)) = self.place() else {
            return Err(self.fault(0, 0, fault));
        };
        if !cut {
            return Err(self.fault(number, entry.offset, fault));
        }
        const UNIT: u64 = MAX_ALIGNMENT / 8;
        let base = (self.at / 8 / UNIT).saturating_mul(UNIT);
        if base == self.base {
            if self.window >= MAX_EVENT {
                return Err(self.fault(number, entry.offset, fault));
            }
            self.window = self.window.saturating_mul(2);
        }
        self.base = base;
        // All bytes before `base` have been decoded.
        self.report(base);
        self.fill(number, entry.offset)
    }

    fn fault(&self, number: u32, offset: u64, source: Fault) -> Error {
        if let Some(memory) = &self.stream.memory {
            let (entry, stream) = (self.entry, memory.name.clone());
            let sequence = entry.and_then(|entry| entry.sequence).unwrap_or(0);
            let left = entry.map_or(0, |entry| entry.size).saturating_sub(self.at / 8);
            let what = format!("{source}; {left} bytes not decoded");
            return Error::SubBuffer { stream, defect: Defect { sequence, what } };
        }
        let path = self.stream.files.get(number as usize).cloned().unwrap_or_default();
        Error::Packet { path, offset, source }
    }

    /// Reads the window at `base` of the packet that begins at `offset` of a file.
    fn fill(&mut self, number: u32, offset: u64) -> Result<(), Error> {
        let Some(path) = self.stream.files.get(number as usize) else { return Ok(()) };
        let file = match &self.file {
            Some((open, file)) if *open == number => file,
            _ => {
                let file = File::open(path).map_err(Error::io(path))?;
                &self.file.insert((number, file)).1
            }
        };
        let left = (self.content_end.div_ceil(8)).saturating_sub(self.base);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(self.window);
        self.windows = self.windows.wrapping_add(1);
        let Some(bytes) = free(&mut self.bytes, &mut self.old) else { return Ok(()) };
        read_at(file, path, offset.saturating_add(self.base), length, bytes)?;
        if length >= HOLE && bytes.iter().all(|byte| *byte == 0) {
            let cost = (length as u64).saturating_mul(COST);
            let paid = self.program.budget().bytes("zeros in holes of the file", cost);
            paid.map_err(|error| Error::io(path)(std::io::Error::other(error)))?;
        }
        Ok(())
    }

    /// Loads the next packet of a stream in memory. The window contains all of it. Returns false at
    /// the end.
    fn load(&mut self) -> bool {
        self.windows = self.windows.wrapping_add(1);
        self.entry = None;
        let Some(bytes) = free(&mut self.bytes, &mut self.old) else { return false };
        let Some(info) = self.memory.as_mut().and_then(|memory| memory.next_packet(bytes)) else {
            return false;
        };
        let PacketInfo { sequence, begin, end, .. } = info;
        self.entry = Some(Entry {
            offset: 0,
            size: bytes.len() as u64,
            begin,
            end,
            sequence: Some(sequence),
        });
        true
    }

    /// Reports that the packet was read up to this byte.
    fn report(&mut self, upto: u64) {
        if let Some(more) = upto.checked_sub(self.reported).filter(|more| *more > 0) {
            (self.watch)(more);
            self.all_reported = self.all_reported.saturating_add(more);
            self.reported = upto;
        }
    }

    /// Reads the stream to its end, or until `is_enough` returns true. Before each item, `forward`
    /// may take or skip events of simple forms ([`Reader::ahead`], [`Reader::pass`]).
    pub fn each(
        mut self,
        mut forward: impl FnMut(&mut Self),
        mut is_enough: impl FnMut(&mut Self, &Next) -> bool,
    ) {
        loop {
            forward(&mut self);
            match self.advance() {
                Next::End => return,
                next if is_enough(&mut self, &next) => return self.leave(),
                _ => {}
            }
        }
    }

    /// Stops reading the stream, and reports its rest to `watch` as read.
    pub fn leave(mut self) {
        self.report(self.place().map_or(0, |(_, entry)| entry.size));
        if let Some(memory) = &self.stream.memory {
            (self.watch)(memory.bytes.saturating_sub(self.all_reported));
        }
        let rest = self.stream.packets.get(self.next_packet..).unwrap_or_default();
        (self.watch)(rest.iter().map(|(_, entry)| entry.size).sum());
    }

    /// Returns what the source of a stream in memory could not put into packets.
    fn defect(&mut self) -> Option<Error> {
        let (defect, memory) = (self.memory.as_mut()?.defect()?, self.stream.memory.as_ref()?);
        Some(Error::SubBuffer { stream: memory.name.clone(), defect })
    }

    /// Returns the losses before a packet, one at a time, then the packet.
    fn begin_packet(&mut self) -> Next {
        if let Some(loss) = self.losses.pop() {
            return Next::Loss(loss);
        }
        if let Some(packet) = self.fresh.take() {
            self.packet = Some(packet);
            return Next::Packet;
        }
        if let Some((_, entry)) = self.place() {
            self.report(entry.size);
        }
        self.reported = 0;
        (self.base, self.at, self.window) = (0, 0, WINDOW);
        let (number, entry) = match self.next_entry() {
            Some(Ok(place)) => place,
            Some(Err(fault)) => return Next::Fault(fault),
            None => return self.defect().map_or(Next::End, Next::Fault),
        };
        match self.program.packet(&mut self.decoder, &self.bytes) {
            Err(fault) => Next::Fault(self.fault(number, entry.offset, fault)),
            Ok(packet) if packet.class != self.stream.class => {
                let id =
                    |class: usize| self.program.class().streams.get(class).map(|stream| stream.id);
                let expected =
                    id(self.stream.class).map_or(Expected::StreamClass, Expected::SameStreamClass);
                let fault = Fault { at: 0, value: id(packet.class).unwrap_or(0), expected };
                Next::Fault(self.fault(number, entry.offset, fault))
            }
            Ok(packet) => {
                self.content_end = packet.content.unwrap_or(self.content_end).min(self.content_end);
                self.at = packet.events_at;
                self.note_losses(&packet);
                self.before = Some(packet);
                self.fresh = Some(packet);
                self.defect().map_or_else(|| self.begin_packet(), Next::Fault)
            }
        }
    }

    /// Advances to the next packet and puts its first bytes into the window. Returns none at the
    /// end.
    fn next_entry(&mut self) -> Option<Result<(u32, Entry), Error>> {
        if self.memory.is_some() {
            let entry = self.load().then_some(self.entry).flatten()?;
            self.content_end = entry.size.saturating_mul(8);
            return Some(Ok((0, entry)));
        }
        let (number, entry) = self.stream.packets.get(self.next_packet).copied()?;
        self.next_packet = self.next_packet.wrapping_add(1);
        self.content_end = entry.size.saturating_mul(8);
        Some(self.fill(number, entry.offset).map(|()| (number, entry)))
    }

    fn note_losses(&mut self, packet: &Packet) {
        if self.has_account {
            return;
        }
        let Some(before) = self.before else {
            // The first packet has no predecessor, so the beginning of the loss is not known.
            let count = packet.discarded.unwrap_or(0);
            self.losses.extend((count > 0).then_some(Loss {
                packets: false,
                count,
                between: None,
            }));
            return;
        };
        if let (Some(last), Some(next)) = (before.sequence, packet.sequence)
            && last.saturating_add(1) < next
        {
            let between = before.end.zip(packet.begin);
            self.losses.push(Loss {
                packets: true,
                count: next.saturating_sub(last).saturating_sub(1),
                between,
            });
        }
        if let (Some(last), Some(next)) = (before.discarded, packet.discarded)
            && next > last
        {
            let between = before.end.zip(packet.end);
            self.losses.push(Loss { packets: false, count: next.saturating_sub(last), between });
        }
    }
}
