//! Reads the events of one stream, a window of one packet in memory.

use super::error::Error;
use super::folder::{Stream, Trace};
use super::index::{Entry, read_at};
use crate::program::{Decoder, Event, Expected, Fault, MAX_ALIGNMENT, Packet, Part, Program};
use lastwords_trace::class::Clock;
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::source::{Defect, PacketInfo, PacketReader};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

/// Bytes of a packet that are in memory at a time, and most bytes of one event.
const WINDOW: usize = 256 << 10;
const MAX_EVENT: usize = 64 << 20;
/// Bytes that are zero, so many together, may be a hole of the file, of which a small file may have terabytes; and what each such byte
/// takes of the budget.
const HOLE: usize = 1 << 12;
const COST: u64 = 8;

/// A loss that a stream's packets tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Packets, or events.
    pub packets: bool,
    /// How many.
    pub count: u64,
    /// Clock before and behind it.
    pub between: Option<(u64, u64)>,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// A packet has begun.
    Packet,
    /// Something is missing.
    Loss(Loss),
    /// The rest of a packet, or a whole one, cannot be read.
    Fault(Error),
    /// No more.
    End,
}

/// Is told of more bytes of streams that were read, from any thread. Of a stream that is read to its end these are together the
/// sizes of its packets.
pub type Watch<'w> = &'w (dyn Fn(u64) + Sync);

/// For callers who show nothing.
pub fn unwatched(_: u64) {}

/// The nanoseconds of a reading are its time: where 64 bits do not hold them, they are the least or the greatest number.
#[inline]
pub(super) fn is_time(nanoseconds: &i64) -> bool {
    !matches!(*nanoseconds, i64::MIN | i64::MAX)
}

/// A window that nobody looks at any more, in place of `bytes`; those at which somebody still looks are kept in `old`, the oldest first.
/// The oldest is the first that is let go.
fn free<'a>(bytes: &'a mut Arc<Vec<u8>>, old: &mut VecDeque<Arc<Vec<u8>>>) -> Option<&'a mut Vec<u8>> {
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
    /// Windows before it; at some of them somebody still looks.
    old: VecDeque<Arc<Vec<u8>>>,
    /// Counts what has been in them.
    windows: u64,
    base: u64,
    content_end: u64,
    packet: Option<Packet>,
    next_packet: usize,
    /// Reads the packets of a stream in memory.
    memory: Option<Box<dyn PacketReader + 't>>,
    /// The packet of a stream in memory that is being read.
    entry: Option<Entry>,
    /// Losses are told by the trace's account.
    has_account: bool,
    at: u64,
    /// What the last packet said.
    before: Option<Packet>,
    /// A packet that comes next.
    fresh: Option<Packet>,
    losses: Vec<Loss>,
    clock: Option<Converter>,
    rounding: Rounding,
    window: usize,
    watch: Watch<'t>,
    /// Bytes of the packet that `watch` was told of.
    told: u64,
    /// Bytes of all packets that `watch` was told of.
    all_told: u64,
}

impl<'t> Reader<'t> {
    /// At the beginning of a stream of a trace.
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
            told: 0,
            all_told: 0,
        }
    }

    /// The same, with times rounded otherwise than babeltrace2 does.
    #[must_use]
    pub fn rounded(mut self, rounding: Rounding) -> Self {
        let class = self.program.class();
        let clock = class.streams.get(self.stream.class).and_then(|stream| class.clocks.get(stream.clock?));
        self.clock = clock.map(|clock| Converter::new(&clock.to_clock(), rounding));
        self.rounding = rounding;
        self
    }

    /// The stream's clock, where it has one and its times are exact.
    pub(super) fn exact_clock(&self) -> Option<&Clock> {
        let class = self.program.class();
        let clock = class.clocks.get(class.streams.get(self.stream.class)?.clock?);
        clock.filter(|_| self.rounding == Rounding::Floor)
    }

    /// The same; `watch` is told how far it reads.
    #[must_use]
    pub fn watched(self, watch: Watch<'t>) -> Self {
        Self { watch, ..self }
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &'t Stream {
        self.stream
    }

    /// What decodes it.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Nanoseconds from the clock's origin of a reading; none where the stream has no clock, or 64 bits do not hold them.
    #[inline]
    pub fn nanoseconds(&mut self, clock: u64) -> Option<i64> {
        self.time(clock).filter(is_time)
    }

    /// The same; where 64 bits do not hold them, what is no time ([`is_time`]).
    #[inline]
    pub(super) fn time(&mut self, clock: u64) -> Option<i64> {
        self.clock.as_mut().map(|converter| converter.nanoseconds(clock))
    }

    /// An error in the packet that is being read.
    pub(super) fn wrong(&self, source: Fault) -> Error {
        let (number, offset) = self.place().map_or((0, 0), |(number, entry)| (number, entry.offset));
        self.fault(number, offset, source)
    }

    /// The packet that is being read.
    #[must_use]
    pub fn packet(&self) -> Option<&Packet> {
        self.packet.as_ref()
    }

    /// Where that packet stands: the position of its file, and its place in it.
    #[must_use]
    pub fn place(&self) -> Option<(u32, Entry)> {
        if self.memory.is_some() {
            return self.entry.map(|entry| (0, entry));
        }
        self.stream.packets.get(self.next_packet.checked_sub(1)?).copied()
    }

    /// The bytes in memory, where in the packet the first of them stands, and where its content ends (bits).
    #[must_use]
    pub fn window(&self) -> (Arc<Vec<u8>>, u64, u64) {
        (Arc::clone(&self.bytes), self.base, self.content_end)
    }

    /// Number of that window: another, other bytes.
    #[inline]
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// The bytes in memory, and what decodes them.
    #[inline]
    pub fn parts(&mut self) -> (&Program, &mut Decoder, Part<'_>) {
        let part = Part { bytes: &self.bytes, base: self.base, content_end: self.content_end };
        (&self.program, &mut self.decoder, part)
    }

    /// Takes at most `most` events that follow, with their times, as far as they are of simple forms and in memory;
    /// [`Self::advance`] goes on behind them.
    #[inline]
    pub fn ahead(&mut self, most: usize, mut take: impl FnMut(Event, Option<i64>)) {
        let Some(packet) = &self.packet else { return };
        let part = Part { bytes: &self.bytes, base: self.base, content_end: self.content_end };
        let (class, clock) = (packet.class, &mut self.clock);
        let timed = |event: Event| take(event, clock.as_mut().map(|clock| clock.nanoseconds(event.clock)));
        self.at = self.program.ahead(&mut self.decoder, class, &part, self.at, most, timed);
    }

    /// Passes over events that follow in the packet, as far as they are of simple forms; returns how many.
    /// [`Self::advance`] goes on behind them.
    pub fn pass(&mut self) -> u64 {
        let Some(packet) = &self.packet else { return 0 };
        let part = Part { bytes: &self.bytes, base: self.base, content_end: self.content_end };
        let passed = self.program.pass(&mut self.decoder, packet.class, &part, self.at);
        self.at = passed.end;
        passed.events
    }

    /// Clock of the last event, or of the packet's begin.
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.decoder.clock()
    }

    /// What comes next.
    #[inline]
    pub fn advance(&mut self) -> Next {
        let Some(packet) = &self.packet else { return self.begin_packet() };
        let class = packet.class;
        while self.at < self.content_end {
            let part = Part { bytes: &self.bytes, base: self.base, content_end: self.content_end };
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

    /// Moves the window on, or makes it larger where the event begins it.
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
        // All before it has been decoded.
        self.tell(base);
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

    /// Reads the window at the base of the packet that begins at an offset of a file.
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
            let paid = self.program.budget().bytes("what holes of the file hold", cost);
            paid.map_err(|error| Error::io(path)(std::io::Error::other(error)))?;
        }
        Ok(())
    }

    /// Puts the next packet of a stream in memory into the window, which holds it whole. Returns false at the end.
    fn load(&mut self) -> bool {
        self.windows = self.windows.wrapping_add(1);
        self.entry = None;
        let Some(bytes) = free(&mut self.bytes, &mut self.old) else { return false };
        let Some(info) = self.memory.as_mut().and_then(|memory| memory.next_packet(bytes)) else { return false };
        let PacketInfo { sequence, begin, end, .. } = info;
        self.entry = Some(Entry { offset: 0, size: bytes.len() as u64, begin, end, sequence: Some(sequence) });
        true
    }

    /// So many bytes of the packet were read.
    fn tell(&mut self, upto: u64) {
        if let Some(more) = upto.checked_sub(self.told).filter(|more| *more > 0) {
            (self.watch)(more);
            self.all_told = self.all_told.saturating_add(more);
            self.told = upto;
        }
    }

    /// Nothing more of the stream is wanted: its rest counts as read.
    pub fn leave(mut self) {
        self.tell(self.place().map_or(0, |(_, entry)| entry.size));
        if let Some(memory) = &self.stream.memory {
            (self.watch)(memory.bytes.saturating_sub(self.all_told));
        }
        let rest = self.stream.packets.get(self.next_packet..).unwrap_or_default();
        (self.watch)(rest.iter().map(|(_, entry)| entry.size).sum());
    }

    /// What the source of a stream in memory could not put into packets.
    fn defect(&mut self) -> Option<Error> {
        let (defect, memory) = (self.memory.as_mut()?.defect()?, self.stream.memory.as_ref()?);
        Some(Error::SubBuffer { stream: memory.name.clone(), defect })
    }

    /// The losses before a packet, then the packet.
    fn begin_packet(&mut self) -> Next {
        if let Some(loss) = self.losses.pop() {
            return Next::Loss(loss);
        }
        if let Some(packet) = self.fresh.take() {
            self.packet = Some(packet);
            return Next::Packet;
        }
        if let Some((_, entry)) = self.place() {
            self.tell(entry.size);
        }
        self.told = 0;
        (self.base, self.at, self.window) = (0, 0, WINDOW);
        let (number, entry) = match self.next_entry() {
            Some(Ok(place)) => place,
            Some(Err(fault)) => return Next::Fault(fault),
            None => return self.defect().map_or(Next::End, Next::Fault),
        };
        match self.program.packet(&mut self.decoder, &self.bytes) {
            Err(fault) => Next::Fault(self.fault(number, entry.offset, fault)),
            Ok(packet) if packet.class != self.stream.class => {
                let id = |class: usize| self.program.class().streams.get(class).map(|stream| stream.id);
                let expected = id(self.stream.class).map_or(Expected::StreamClass, Expected::SameStreamClass);
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

    /// Goes on to the next packet, whose first bytes are in the window then; none at the end.
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
            // Before the first packet nothing says since when.
            let count = packet.discarded.unwrap_or(0);
            self.losses.extend((count > 0).then_some(Loss { packets: false, count, between: None }));
            return;
        };
        if let (Some(last), Some(next)) = (before.sequence, packet.sequence)
            && last.saturating_add(1) < next
        {
            let between = before.end.zip(packet.begin);
            self.losses.push(Loss { packets: true, count: next.saturating_sub(last).saturating_sub(1), between });
        }
        if let (Some(last), Some(next)) = (before.discarded, packet.discarded)
            && next > last
        {
            let between = before.end.zip(packet.end);
            self.losses.push(Loss { packets: false, count: next.saturating_sub(last), between });
        }
    }
}
