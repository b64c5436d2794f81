//! A compiled trace class, which decodes packets.

mod build;
mod compile;
mod decode;
mod fault;
mod flat;
mod header;
mod hide;
mod op;
mod orders;
mod slots;
mod stride;
mod weight;

pub use fault::{Expected, Fault, SchemaError};
pub use flat::Flat;
pub use hide::{Hides, How, REDACTED, hash};
pub use op::Code;

use decode::{Runner, State, Window, load, updated_clock};
use header::Word;
use lastwords_bytes::{Budget, low_u8};
use lastwords_trace::class::{Scope, TraceClass};
use lastwords_trace::visit::{Ignore, NodeId, Visitor};
use std::collections::HashMap;
use std::sync::Arc;
use stride::{Simple, Stride};

/// Largest alignment that is accepted, in bits. A window over a packet begins at a multiple of it.
pub const MAX_ALIGNMENT: u64 = 1 << 15;

/// The number that packets begin with.
pub const MAGIC: u64 = 0xc1fc_1fc1;
/// Event ids below this number are looked up by position.
const DENSE: u64 = 4096;
const NONE: u32 = u32::MAX;

/// A trace class and its compiled form.
#[derive(Debug)]
pub struct Program {
    class: TraceClass,
    header: Code,
    streams: Vec<StreamProgram>,
    by_id: HashMap<u64, usize>,
    slots: usize,
    /// Pays for events whose text is out of proportion to their bytes.
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct StreamProgram {
    context: Code,
    /// Bytes of text of the context, beyond its own bytes.
    context_weight: u64,
    header: Code,
    word: Option<Word>,
    common: Code,
    events: Vec<EventProgram>,
    dense: Vec<u32>,
    /// Forms of simple events by id, for the ids in `dense`.
    simple: Vec<Option<Simple>>,
    sparse: HashMap<u64, usize>,
}

#[derive(Debug)]
struct EventProgram {
    specific: Code,
    payload: Code,
    /// Code of the common context, the specific context and the payload, with runs merged.
    merged: Code,
    /// Sizes for skipping the common context, the specific context and the payload, if they are
    /// simple and need not be paid for.
    stride: Option<Stride>,
    /// Bytes of text of an event, beyond its own bytes.
    weight: u64,
}

/// State that is kept from packet to packet of one stream.
#[derive(Debug, Clone)]
pub struct Decoder {
    state: State,
}

impl Decoder {
    /// Returns the default clock, all 64 bits.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> u64 {
        self.state.clock
    }

    /// Returns how many bytes of text were paid for because they are out of proportion to the bytes
    /// of their events.
    #[inline]
    #[must_use]
    pub fn paid(&self) -> u64 {
        self.state.paid
    }

    /// Resets the clock to its value before an event, so that the event can be decoded again.
    #[inline]
    pub fn set_clock(&mut self, clock: u64) {
        self.state.clock = clock;
    }
}

/// The contents of a packet's header and context. Lengths and positions are in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Position of the stream class in the trace class.
    pub class: usize,
    /// Id of the stream in its class.
    pub stream: Option<u64>,
    /// Length with padding; none if the packet is the whole file.
    pub total: Option<u64>,
    /// Length without padding.
    pub content: Option<u64>,
    /// Clock at the beginning, if the stream class has a clock; 0 if no field carries it.
    pub begin: Option<u64>,
    /// Clock at the end.
    pub end: Option<u64>,
    /// Events discarded since the stream's beginning.
    pub discarded: Option<u64>,
    /// Number of the packet in the stream.
    pub sequence: Option<u64>,
    /// UUID of the metadata that the packet belongs to, as its header has it.
    pub uuid: Option<[u8; 16]>,
    /// Position at which the context begins.
    pub context_at: u64,
    /// Position at which the events begin.
    pub events_at: u64,
}

/// A part of a packet's bytes.
#[derive(Debug, Clone, Copy)]
pub struct PacketPart<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Position of the first byte in the packet, in bytes: a multiple of [`MAX_ALIGNMENT`] / 8.
    pub base: u64,
    /// End of the packet's content, in bits from the packet's beginning.
    pub content_end: u64,
}

impl PacketPart<'_> {
    #[inline]
    fn window(&self) -> Window<'_> {
        let base = self.base.saturating_mul(8);
        let end = self.content_end.saturating_sub(base).min(bits_of(self.bytes));
        Window { bytes: self.bytes, end, base }
    }

    /// Returns true if the content continues after this part.
    #[inline]
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.base.saturating_add(self.bytes.len() as u64).saturating_mul(8) < self.content_end
    }
}

/// Position and time of an event. Positions are in bits from the packet's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Position of the event record class in the stream class.
    pub class: usize,
    /// The default clock.
    pub clock: u64,
    /// Position at which the header begins.
    pub at: u64,
    /// Position at which the contexts begin.
    pub body: u64,
    /// Position at which the event ends.
    pub end: u64,
}

/// The result of skipping events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passed {
    /// Number of skipped events.
    pub events: u64,
    /// End of the last skipped event, or the start position if none was skipped; in bits from the
    /// packet's beginning.
    pub end: u64,
}

impl Program {
    /// Compiles a trace class. `budget` pays for its fields, and later for events whose text is out
    /// of proportion to their bytes.
    ///
    /// # Errors
    /// The class cannot be compiled to a decoder of packets.
    pub fn new(class: TraceClass, budget: &Arc<Budget>) -> Result<Self, SchemaError> {
        build::program(class, budget, None)
    }

    /// Returns the trace class.
    #[must_use]
    pub fn class(&self) -> &TraceClass {
        &self.class
    }

    /// Returns the budget that pays for reading packets.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns a decoder for the packets of one stream.
    #[must_use]
    pub fn decoder(&self) -> Decoder {
        Decoder { state: State { slots: vec![0; self.slots], ..State::default() } }
    }

    /// Returns the code that a visitor of a scope sees; none if the stream or event record class
    /// does not exist.
    #[must_use]
    pub fn code(&self, scope: Scope, stream: usize, event: usize) -> Option<&Code> {
        let program = self.streams.get(stream);
        match scope {
            Scope::PacketHeader => Some(&self.header),
            Scope::PacketContext => Some(&program?.context),
            Scope::EventHeader => Some(&program?.header),
            Scope::CommonContext => Some(&program?.common),
            Scope::SpecificContext => Some(&program?.events.get(event)?.specific),
            Scope::Payload => Some(&program?.events.get(event)?.payload),
        }
    }

    /// Decodes a packet's header and context at the beginning of `bytes`, checks them, and sets the
    /// clock. If [`Fault::is_short`], `bytes` may be too few.
    ///
    /// # Errors
    /// The packet does not follow its class.
    pub fn packet(&self, decoder: &mut Decoder, bytes: &[u8]) -> Result<Packet, Fault> {
        let window = Window { bytes, end: bits_of(bytes), base: 0 };
        let state = &mut decoder.state;
        let (slots, paid) = (std::mem::take(&mut state.slots), state.paid);
        *state = State { slots, paid, steps: steps(window.end), ..State::default() };
        let mut check = Uuid { node: self.header.uuid, inside: false, bytes: Vec::new() };
        let mut runner = Runner { code: &self.header, window, state, visitor: &mut check, at: 0 };
        runner.run()?;
        let context_at = runner.at;
        Self::check(&window, &decoder.state)?;
        let class = self.stream_of(&window, &decoder.state)?;
        let Some(program) = self.streams.get(class) else {
            return Err(window.fault(0, 0, Expected::StreamClass));
        };
        let state = &mut decoder.state;
        state.weight = program.context_weight;
        let mut runner =
            Runner { code: &program.context, window, state, visitor: &mut Ignore, at: context_at };
        runner.run()?;
        let events_at = runner.at;
        decoder.state.context =
            weight::of_context(decoder.state.weight, events_at.wrapping_sub(context_at));
        let role_values = decoder.state.role_values;
        let (total, content) =
            lengths(&window, role_values.packet_length, role_values.content_length, events_at)?;
        let has_clock = self.class.streams.get(class).is_some_and(|stream| stream.clock.is_some());
        Ok(Packet {
            class,
            stream: role_values.stream,
            total,
            content,
            begin: has_clock.then_some(decoder.state.clock),
            end: role_values.end.filter(|_| has_clock),
            discarded: role_values.discarded,
            sequence: role_values.sequence,
            uuid: check.bytes.try_into().ok(),
            context_at,
            events_at,
        })
    }

    fn check(window: &Window<'_>, state: &State) -> Result<(), Fault> {
        if let Some(magic) = state.role_values.magic.filter(|magic| *magic != MAGIC) {
            return Err(window.fault(0, magic, Expected::Magic));
        }
        Ok(())
    }

    fn stream_of(&self, window: &Window<'_>, state: &State) -> Result<usize, Fault> {
        match state.role_values.stream_class {
            Some(id) => self
                .by_id
                .get(&id)
                .copied()
                .ok_or_else(|| window.fault(0, id, Expected::StreamClass)),
            None => Ok(0),
        }
    }

    /// Visits the context of a packet that [`Self::packet`] has accepted in the same bytes.
    ///
    /// # Errors
    /// The bytes are not those that [`Self::packet`] has accepted.
    pub fn visit_context(
        &self,
        decoder: &mut Decoder,
        packet: &Packet,
        bytes: &[u8],
        visitor: &mut impl Visitor,
    ) -> Result<(), Fault> {
        let Some(program) = self.streams.get(packet.class) else { return Ok(()) };
        let window = Window { bytes, end: bits_of(bytes), base: 0 };
        let (clock, role_values) = (decoder.state.clock, decoder.state.role_values);
        decoder.state.steps = steps(window.end);
        let state = &mut decoder.state;
        let mut runner =
            Runner { code: &program.context, window, state, visitor, at: packet.context_at };
        let done = runner.run();
        (decoder.state.clock, decoder.state.role_values) = (clock, role_values);
        done
    }

    /// Decodes the header of the event at `at` (bits from the packet's beginning), and skips the
    /// rest of the event. `stream` is the position of the stream class. If [`Fault::is_short`] and
    /// [`PacketPart::is_cut`], reset the clock and call again with more bytes.
    ///
    /// # Errors
    /// The event does not follow its class, or does not fit.
    #[inline]
    pub fn event(
        &self,
        decoder: &mut Decoder,
        stream: usize,
        part: &PacketPart<'_>,
        at: u64,
    ) -> Result<Event, Fault> {
        let window = part.window();
        let begin = at.wrapping_sub(window.base);
        let Some(program) = self.streams.get(stream) else {
            return Err(window.fault(begin, stream as u64, Expected::StreamClass));
        };
        let state = &mut decoder.state;
        state.weight = state.context;
        let (id, body) = match program.quick(&window, begin) {
            Some((id, clock, clock_bits, body)) => {
                state.update_clock(clock, clock_bits);
                (Some(id), body)
            }
            None => program.slow(&window, state, begin, part.content_end)?,
        };
        let clock = state.clock;
        let class = match id {
            Some(id) => {
                program.class(id).ok_or_else(|| window.fault(begin, id, Expected::EventClass))?
            }
            None => 0,
        };
        let Some(event) = program.events.get(class) else {
            return Err(window.fault(begin, id.unwrap_or(0), Expected::EventClass));
        };
        let end = match event.stride.and_then(|stride| stride.over(&window, body)) {
            Some(end) => end,
            None => {
                state.steps = steps(part.content_end);
                let mut runner =
                    Runner { code: &event.merged, window, state, visitor: &mut Ignore, at: body };
                runner.run()?;
                runner.at
            }
        };
        if end == begin {
            return Err(window.fault(begin, 0, Expected::Progress));
        }
        let paid = weight::pay(
            &self.budget,
            event.weight.saturating_add(state.weight),
            at,
            end.wrapping_sub(begin),
        )?;
        state.paid = state.paid.saturating_add(paid);
        let base = window.base;
        Ok(Event { class, clock, at, body: body.wrapping_add(base), end: end.wrapping_add(base) })
    }

    /// Decodes up to `most` events from `at`, as [`Self::event`] would, and passes them to `take`.
    /// Stops at the first event that has no simple form or does not end in the part. Returns the
    /// end of the last event.
    #[inline]
    pub fn ahead(
        &self,
        decoder: &mut Decoder,
        stream: usize,
        part: &PacketPart<'_>,
        at: u64,
        most: usize,
        mut take: impl FnMut(Event),
    ) -> u64 {
        let window = part.window();
        let Some(program) = self.streams.get(stream).filter(|_| decoder.state.context == 0) else {
            return at;
        };
        let mut clock = decoder.state.clock;
        let mut here = at.wrapping_sub(window.base);
        for _ in 0..most {
            let Some(found) = program.simple(&window, here) else { break };
            clock = updated_clock(clock, found.clock, found.clock_bits);
            let [at, body, end] =
                [here, found.body, found.end].map(|place| place.wrapping_add(window.base));
            take(Event { class: found.class as usize, clock, at, body, end });
            here = found.end;
        }
        decoder.state.clock = clock;
        here.wrapping_add(window.base)
    }

    /// Skips events from `at`, as [`Self::event`] would. Stops at the first event that has no
    /// simple form.
    #[must_use]
    pub fn pass(
        &self,
        decoder: &mut Decoder,
        stream: usize,
        part: &PacketPart<'_>,
        at: u64,
    ) -> Passed {
        let window = part.window();
        let mut passed = Passed { events: 0, end: at };
        let Some(program) = self.streams.get(stream).filter(|_| decoder.state.context == 0) else {
            return passed;
        };
        let mut here = at.wrapping_sub(window.base);
        while here < window.end {
            let Some(found) = program.simple(&window, here) else { break };
            decoder.state.update_clock(found.clock, found.clock_bits);
            here = found.end;
            passed.events = passed.events.wrapping_add(1);
        }
        passed.end = here.wrapping_add(window.base);
        passed
    }

    /// Visits a scope of an event that [`Self::event`] has accepted in the same bytes, and returns
    /// the end of the scope. The scopes follow each other: the common context at [`Event::body`],
    /// then the specific context, then the payload.
    ///
    /// # Errors
    /// The bytes are not those that [`Self::event`] has accepted.
    #[inline]
    pub fn visit(
        &self,
        decoder: &mut Decoder,
        code: &Code,
        part: &PacketPart<'_>,
        at: u64,
        visitor: &mut impl Visitor,
    ) -> Result<u64, Fault> {
        let window = part.window();
        let state = &mut decoder.state;
        state.steps = steps(part.content_end);
        let at = at.wrapping_sub(window.base);
        let mut runner = Runner { code, window, state, visitor, at };
        runner.run()?;
        Ok(runner.at.wrapping_add(window.base))
    }
}

/// An event of a simple form. Positions are in bits from the window's beginning.
struct SimpleEvent {
    class: u32,
    clock: u64,
    clock_bits: u8,
    body: u64,
    end: u64,
}

impl StreamProgram {
    /// Decodes the event at `begin` if it has a simple form.
    #[inline(always)]
    fn simple(&self, window: &Window<'_>, begin: u64) -> Option<SimpleEvent> {
        let (id, clock, clock_bits, body) = self.quick(window, begin)?;
        let Simple { class, stride } = (*self.simple.get(usize::try_from(id).ok()?)?)?;
        let end = stride.over(window, body)?;
        (end > begin).then_some(SimpleEvent { class, clock, clock_bits, body, end })
    }

    /// Decodes the header if it is one number. Returns the id, the clock's bits, their number, and
    /// the end of the header.
    #[inline(always)]
    fn quick(&self, window: &Window<'_>, begin: u64) -> Option<(u64, u64, u8, u64)> {
        let word = self.word.as_ref()?;
        let at =
            begin.wrapping_add(word.alignment.wrapping_sub(1)) & !word.alignment.wrapping_sub(1);
        let body = at.wrapping_add((word.size as u64).wrapping_mul(8));
        if body > window.end {
            return None;
        }
        let bytes = window.bytes.get((at / 8) as usize..)?;
        let number = match bytes.first_chunk::<4>() {
            Some(chunk) if word.size == 4 => load(chunk, word.order),
            _ => load(bytes.get(..word.size)?, word.order),
        };
        let (id, clock) = word.split(number);
        (id <= word.max_id).then_some((id, clock, word.clock_bits, body))
    }

    #[inline(never)]
    fn slow(
        &self,
        window: &Window<'_>,
        state: &mut State,
        begin: u64,
        content_end: u64,
    ) -> Result<(Option<u64>, u64), Fault> {
        state.role_values.event_class = None;
        state.steps = steps(content_end);
        let mut runner =
            Runner { code: &self.header, window: *window, state, visitor: &mut Ignore, at: begin };
        runner.run()?;
        let body = runner.at;
        Ok((state.role_values.event_class, body))
    }

    #[inline]
    fn class(&self, id: u64) -> Option<usize> {
        match self.dense.get(usize::try_from(id).ok()?) {
            Some(position) if id < DENSE => (*position != NONE).then_some(*position as usize),
            _ => self.sparse.get(&id).copied(),
        }
    }
}

/// Returns the number of bits of a buffer.
#[inline]
fn bits_of(bytes: &[u8]) -> u64 {
    (bytes.len() as u64).wrapping_mul(8)
}

/// Returns how many elements may be decoded in content of this many bits. A fixed part allows some
/// elements of no size.
#[inline]
fn steps(bits: u64) -> u64 {
    bits.saturating_add(1 << 16)
}

fn lengths(
    window: &Window<'_>,
    total: Option<u64>,
    content: Option<u64>,
    events_at: u64,
) -> Result<(Option<u64>, Option<u64>), Fault> {
    let total = total.or(content);
    let content = content.or(total);
    if let Some(bits) = total.filter(|bits| !bits.is_multiple_of(8)) {
        return Err(window.fault(0, bits, Expected::WholeBytes));
    }
    match (total, content) {
        (Some(total), Some(content)) if content > total => {
            Err(window.fault(0, content, Expected::Content))
        }
        (_, Some(content)) if content < events_at => {
            Err(window.fault(0, content, Expected::OwnHeader))
        }
        _ => Ok((total, content)),
    }
}

/// Takes the metadata's UUID from a packet header.
struct Uuid {
    node: Option<NodeId>,
    inside: bool,
    bytes: Vec<u8>,
}

impl Visitor for Uuid {
    fn integer(&mut self, _: NodeId, value: u64) {
        if self.inside && self.bytes.len() < 16 {
            self.bytes.push(low_u8(value));
        }
    }
    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        if Some(node) == self.node {
            self.bytes = bytes.get(..16).unwrap_or_default().to_vec();
        }
    }
    fn begin_array(&mut self, node: NodeId, _: u64) {
        self.inside = Some(node) == self.node;
    }
    fn end_array(&mut self, _: NodeId) {
        self.inside = false;
    }
}
