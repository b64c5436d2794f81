//! Decodes the events of one packet of a session, for code that needs packets before they are a
//! trace, or event headers.
//!
//! An event header (docs/ABI.md, "Event headers") begins with a 32-bit word `clock27 << 5 | tag` in
//! the schema's byte order. More fields follow without padding, depending on the tag:
//! * 0..=28: none; the tag is the id.
//! * 29: id u16, payload size u32 (or [`NO_SIZE`]), clock u64.
//! * 30: id u16, payload size u32.
//! * 31: id u16.
//!
//! Then the channel's contexts and the payload follow without padding. A payload size is the size
//! of both.

use super::class::channel_class;
use crate::program::{self, Fault, Flat, PacketPart, Program};
use lastwords_bytes::{Budget, ByteOrder, Limits, Reader};
use lastwords_trace::class::Scope;
use lastwords_trace::schema::{Channel, Schema};
use lastwords_trace::visit::Ignore;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Tag: id, payload size and full clock follow.
pub const TAG_FULL: u32 = 29;
/// Tag: id and payload size follow.
pub const TAG_SIZE: u32 = 30;
/// Tag: id follows.
pub const TAG_ID: u32 = 31;
/// A payload size that means that the size is not known.
pub const NO_SIZE: u32 = u32::MAX;
/// Bits of the tag in a header's first word; the clock's low 27 bits are above.
pub const TAG_BITS: u32 = 5;
const TAG_MASK: u32 = (1 << TAG_BITS) - 1;
/// Offset of the payload size in a header that has one.
const SIZE_AT: usize = 6;

/// Position and time of an event. Offsets are in the packet's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawEvent {
    /// Ticks of the trace's clock, all 64 bits.
    pub clock: u64,
    /// Id of the event's class in the channel.
    pub id: u16,
    /// Offset of the header.
    pub start: usize,
    /// Offset after the header, at which the contexts begin.
    pub context_at: usize,
    /// Offset after the contexts, at which the payload begins.
    pub payload_at: usize,
    /// Offset after the payload.
    pub end: usize,
}

impl RawEvent {
    /// Returns the range of the contexts' bytes.
    #[must_use]
    pub fn context(&self) -> Range<usize> {
        self.context_at..self.payload_at
    }

    /// Returns the range of the payload's bytes.
    #[must_use]
    pub fn payload(&self) -> Range<usize> {
        self.payload_at..self.end
    }
}

/// The value or condition that the decoder expected of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// An event that follows its class.
    Class(program::Expected),
    /// The size that the channel's contexts and the class's fields have together. The value is the
    /// size in the header.
    PayloadSize(usize),
    /// A channel of the schema. The value is the position of the channel.
    Channel,
    /// An event that was written. The header is all zeros, which the caller does not accept here.
    /// The value is 0.
    Written,
    /// An event that is not later than this clock, the last that is possible. The value is the
    /// event's clock.
    NotAfter(u64),
}

/// A packet does not follow its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset in the packet's bytes.
    pub offset: usize,
    /// The value found there.
    pub value: u64,
    /// The value or condition that the decoder expected.
    pub expected: Expected,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, value, expected } = *self;
        match expected {
            Expected::Class(expected) => {
                write!(f, "{}", Fault { at: (offset as u64).saturating_mul(8), value, expected })
            }
            Expected::PayloadSize(n) => {
                write!(
                    f,
                    "offset {offset}: the header gives a payload of {value} bytes, but its fields have {n}"
                )
            }
            Expected::Channel => write!(f, "no channel {value} in the schema"),
            Expected::Written => {
                write!(f, "offset {offset}: an event header of zeros: no event was written here")
            }
            Expected::NotAfter(last) => {
                write!(
                    f,
                    "offset {offset}: a clock of {value}, later than the last, {last}: of an older lap or damaged"
                )
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// Progress of decoding a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Offset of the next event's header.
    pub offset: usize,
    /// Clock of the previous event, or of the packet's begin.
    pub clock: u64,
}

/// A schema, compiled.
#[derive(Debug)]
pub struct Decoder {
    channels: Vec<ChannelDecoder>,
}

impl Decoder {
    /// Compiles a schema.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        let channels =
            schema.channels.iter().map(|c| ChannelDecoder::new(c, schema.byte_order)).collect();
        Self { channels }
    }

    /// Returns the compiled channel at a position of [`Schema::channels`].
    #[must_use]
    pub fn channel(&self, channel: usize) -> Option<&ChannelDecoder> {
        self.channels.get(channel)
    }

    /// Returns the events of a packet's bytes. `channel` is the position in [`Schema::channels`],
    /// `begin_clock` the clock of the packet's begin, and `events_at` the offset of the first
    /// event. The iterator stops after the last event or at the first error.
    pub fn events<'a>(
        &'a self,
        channel: usize,
        bytes: &'a [u8],
        begin_clock: u64,
        events_at: usize,
    ) -> impl Iterator<Item = Result<RawEvent, DecodeError>> + use<'a> {
        let unknown = DecodeError { offset: 0, value: channel as u64, expected: Expected::Channel };
        let channel = self.channels.get(channel).ok_or(unknown);
        let mut position = Position { offset: events_at, clock: begin_clock };
        let mut is_done = false;
        std::iter::from_fn(move || {
            let item = match channel {
                _ if is_done => None,
                Ok(channel) => channel.step(&mut position, bytes).transpose(),
                Err(unknown) => Some(Err(unknown)),
            };
            is_done = !matches!(item, Some(Ok(_)));
            item
        })
    }
}

/// A compiled channel. An event class with a field that CTF cannot express is left out, so its
/// events have no class.
#[derive(Debug)]
pub struct ChannelDecoder {
    /// The compiled class; none if the channel cannot be compiled.
    program: Option<Program>,
    order: ByteOrder,
    /// Bytes of the contexts if they are the same for every event.
    context: Option<usize>,
}

impl ChannelDecoder {
    /// Compiles one channel.
    #[must_use]
    pub fn new(channel: &Channel, order: ByteOrder) -> Self {
        // The schema was checked against limits when it was read, and no text is made.
        let limits = Limits { bytes: u64::MAX, steps: u64::MAX, ..Limits::default() };
        let budget = Arc::new(Budget::new(limits));
        let program =
            channel_class(channel, order).ok().and_then(|class| Program::new(class, &budget).ok());
        let code = program.as_ref().and_then(|program| program.code(Scope::CommonContext, 0, 0));
        let flat = code.map(|code| code.flat());
        let context = match flat {
            _ if channel.contexts.is_empty() => Some(0),
            Some(Some(flat)) => size(&flat),
            _ => None,
        };
        Self { program, order, context }
    }

    /// Decodes the event at `position` and advances `position` past it. Returns none at the end of
    /// `bytes`.
    ///
    /// # Errors
    /// The bytes are not an event of this channel; `position` stays at the begin of the event.
    pub fn step(
        &self,
        position: &mut Position,
        bytes: &[u8],
    ) -> Result<Option<RawEvent>, DecodeError> {
        self.steps().step(position, bytes)
    }

    /// Returns the state for many calls of [`Steps::step`], which share it.
    #[must_use]
    pub fn steps(&self) -> Steps<'_> {
        Steps { channel: self, decoder: self.program.as_ref().map(Program::decoder) }
    }

    /// Counts the events from `offset` to the end of `bytes`. This is several times faster than
    /// [`Self::step`], because most events are skipped without decoding their fields.
    ///
    /// # Errors
    /// The first error that [`Self::step`] would return.
    pub fn count(&self, bytes: &[u8], offset: usize) -> Result<u64, DecodeError> {
        let mut position = Position { offset, clock: 0 };
        let mut count = 0u64;
        loop {
            if let Some(program) = self.program.as_ref().filter(|_| position.offset < bytes.len()) {
                let mut decoder = program.decoder();
                decoder.set_clock(position.clock);
                let passed = program.pass(&mut decoder, 0, &whole(bytes), bits(position.offset));
                count = count.saturating_add(passed.events);
                let offset = usize::try_from(passed.end / 8).unwrap_or(usize::MAX);
                position = Position { offset, clock: decoder.clock() };
            }
            if self.step(&mut position, bytes)?.is_none() {
                return Ok(count);
            }
            count = count.saturating_add(1);
        }
    }

    /// Checks that a size in the header is the size of contexts and payload.
    fn check_size(
        &self,
        bytes: &[u8],
        start: usize,
        context_at: usize,
        end: usize,
    ) -> Result<(), DecodeError> {
        let header = Reader::new(
            "event header",
            bytes.get(start..context_at).unwrap_or_default(),
            self.order,
        );
        if !header.u32_at(0).is_ok_and(|word| matches!(word & TAG_MASK, TAG_FULL | TAG_SIZE)) {
            return Ok(());
        }
        let size = header.u32_at(SIZE_AT).ok().filter(|size| *size != NO_SIZE);
        let found = end.saturating_sub(context_at);
        match size.filter(|size| usize::try_from(*size) != Ok(found)) {
            None => Ok(()),
            Some(size) => {
                let expected = Expected::PayloadSize(found);
                Err(DecodeError { offset: start, value: u64::from(size), expected })
            }
        }
    }
}

/// Decodes one event after the other with [`ChannelDecoder::step`]'s result, without an allocation
/// for each.
#[derive(Debug)]
pub struct Steps<'d> {
    channel: &'d ChannelDecoder,
    decoder: Option<program::Decoder>,
}

impl Steps<'_> {
    /// Decodes an event as [`ChannelDecoder::step`] does.
    ///
    /// # Errors
    /// The bytes are not an event of this channel; `position` stays at the begin of the event.
    pub fn step(
        &mut self,
        position: &mut Position,
        bytes: &[u8],
    ) -> Result<Option<RawEvent>, DecodeError> {
        let start = position.offset;
        if start >= bytes.len() {
            return Ok(None);
        }
        let (Some(program), Some(decoder)) = (&self.channel.program, &mut self.decoder) else {
            return Err(DecodeError { offset: start, value: 0, expected: Expected::Channel });
        };
        let part = whole(bytes);
        decoder.set_clock(position.clock);
        let event = program.event(decoder, 0, &part, bits(start)).map_err(of_fault)?;
        let [context_at, end] =
            [event.body, event.end].map(|bits| usize::try_from(bits / 8).unwrap_or(usize::MAX));
        self.channel.check_size(bytes, start, context_at, end)?;
        let payload_at = match self.channel.context {
            Some(size) => context_at.saturating_add(size),
            None => {
                let code = program.code(Scope::CommonContext, 0, event.class);
                let end =
                    code.map(|code| program.visit(decoder, code, &part, event.body, &mut Ignore));
                end.transpose().map_err(of_fault)?.map_or(context_at, |bits| (bits / 8) as usize)
            }
        };
        let class =
            program.class().streams.first().and_then(|stream| stream.events.get(event.class));
        *position = Position { offset: end, clock: event.clock };
        let id = class.and_then(|class| u16::try_from(class.id).ok()).unwrap_or(u16::MAX);
        Ok(Some(RawEvent { clock: event.clock, id, start, context_at, payload_at, end }))
    }
}

fn whole(bytes: &[u8]) -> PacketPart<'_> {
    PacketPart { bytes, base: 0, content_end: bits(bytes.len()) }
}

fn bits(bytes: usize) -> u64 {
    (bytes as u64).saturating_mul(8)
}

fn of_fault(Fault { at, value, expected }: Fault) -> DecodeError {
    let offset = usize::try_from(at / 8).unwrap_or(usize::MAX);
    DecodeError { offset, value, expected: Expected::Class(expected) }
}

/// Returns the size of a flat form in bytes; none if it contains a text of variable length.
fn size(flat: &[Flat]) -> Option<usize> {
    flat.iter().try_fold(0usize, |size, step| {
        let more = match *step {
            Flat::Begin(_) | Flat::End => 0,
            Flat::Skip(bytes) | Flat::Chars(_, bytes) => usize::try_from(bytes).ok()?,
            Flat::Integer { size, .. } => usize::from(size),
            Flat::Text(_) => return None,
        };
        size.checked_add(more)
    })
}
