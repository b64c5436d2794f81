//! The flat decoder: a schema compiled once, so that a packet splits into events without a look at field classes.
//!
//! Event headers (docs/ABI.md, "Event headers"): a 32-bit word `clock27 << 5 | tag` in the schema's byte order; then,
//! packed, by tag: 0..=28 nothing (the tag is the id); 29 id u16, payload size u32 (or [`NO_SIZE`]), clock u64; 30 id
//! u16, payload size u32; 31 id u16. Then the channel's contexts and the payload, packed; a payload size counts both.
//!
//! The 27 bits of clock: the full reading is the previous one with its low bits replaced, plus 2^27 where that is less.

use crate::schema::{Channel, Field, FieldClass, Schema};
use lastwords_bytes::ByteOrder;
use std::fmt;
use std::ops::Range;

/// Largest id that the tag itself holds.
pub const MAX_COMPACT_ID: u64 = 28;
/// Tag: id, payload size and full clock follow.
pub const TAG_FULL: u32 = 29;
/// Tag: id and payload size follow.
pub const TAG_SIZE: u32 = 30;
/// Tag: id follows.
pub const TAG_ID: u32 = 31;
/// A payload size that says nothing.
pub const NO_SIZE: u32 = u32::MAX;

/// Bits of the tag in a header's first word; the clock's low 27 bits are above.
pub const TAG_BITS: u32 = 5;
const TAG_MASK: u32 = (1 << TAG_BITS) - 1;
const CLOCK_SPAN: u64 = 1 << 27;
const ABSENT: u32 = u32::MAX;

/// Where an event stands in its packet's bytes, and when it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawEvent {
    /// Ticks of the trace's clock, all 64 bits.
    pub clock: u64,
    /// Id of its class in the channel.
    pub id: u16,
    /// Position of its class in [`Channel::events`].
    pub class: usize,
    /// Offset of its header.
    pub start: usize,
    /// Offset behind its header: where the contexts begin.
    pub context_at: usize,
    /// Offset behind the contexts: where the payload begins.
    pub payload_at: usize,
    /// Offset behind its payload.
    pub end: usize,
}

impl RawEvent {
    /// The contexts' bytes.
    #[must_use]
    pub fn context(&self) -> Range<usize> {
        self.context_at..self.payload_at
    }

    /// The payload's bytes.
    #[must_use]
    pub fn payload(&self) -> Range<usize> {
        self.payload_at..self.end
    }
}

/// What stood where something else was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// An event's header; the packet ends before it does. The value is the number of bytes left.
    Header,
    /// The id of an event class of the channel. The value is the id.
    KnownId,
    /// That many more bytes of a field. The value is the number of bytes left.
    Bytes(usize),
    /// A NUL before the end of the packet. The value is the number of bytes left.
    Nul,
    /// The size that the channel's contexts and the class's fields have together. The value is the size in the header.
    PayloadSize(usize),
    /// A field class that can be decoded: scalar elements. The value is the event id.
    Scalar,
    /// A channel of the schema. The value is its position.
    Channel,
    /// A header that somebody wrote: this one is all zeros, and that is not believed here. The value is 0.
    Written,
    /// A clock up to this one, the last that can be. The value is the clock.
    NotAfter(u64),
}

/// A packet is not as its schema says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// Offset in the packet's bytes.
    pub offset: usize,
    /// What stands there.
    pub value: u64,
    /// What should.
    pub expected: Expected,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, value, expected } = *self;
        match expected {
            Expected::Header => write!(f, "offset {offset}: {value} bytes left, less than an event header"),
            Expected::KnownId => {
                write!(f, "offset {offset}: event id {value} is not in the channel")
            }
            Expected::Bytes(n) => write!(f, "offset {offset}: a field needs {n} bytes, {value} are left"),
            Expected::Nul => write!(f, "offset {offset}: no NUL ends the string in the {value} bytes left"),
            Expected::PayloadSize(n) => {
                write!(f, "offset {offset}: the header says a payload of {value} bytes, its fields have {n}")
            }
            Expected::Scalar => write!(f, "offset {offset}: a field class of event id {value} cannot be decoded"),
            Expected::Channel => write!(f, "no channel {value} in the schema"),
            Expected::Written => write!(f, "offset {offset}: an event header of zeros: no event was written here"),
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

/// One step over the bytes of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    /// That many bytes, whatever is in them.
    Skip(usize),
    /// Up to and with a NUL.
    Nul,
    /// A u32 count, then that many elements of so many bytes.
    Counted(usize),
    /// A class that has no bytes to walk.
    Opaque,
}

/// A run of fields, compiled.
#[derive(Debug, Clone, Default)]
struct Plan {
    ops: Vec<Op>,
    /// Its bytes where every event has the same; the only thing looked at then.
    fixed: Option<usize>,
}

impl Plan {
    fn new(fields: &[Field]) -> Self {
        let mut ops: Vec<Op> = Vec::new();
        for field in fields {
            match (op(&field.class), ops.last_mut()) {
                (Op::Skip(more), Some(Op::Skip(run))) => *run = run.saturating_add(more),
                (next, _) => ops.push(next),
            }
        }
        let fixed = match ops.as_slice() {
            [] => Some(0),
            [Op::Skip(n)] => Some(*n),
            _ => None,
        };
        Self { ops, fixed }
    }
}

fn op(class: &FieldClass) -> Op {
    match class {
        FieldClass::String => Op::Nul,
        FieldClass::Bytes => Op::Counted(1),
        FieldClass::Sequence(element) if element.is_scalar() => element.fixed_size().map_or(Op::Opaque, Op::Counted),
        FieldClass::Array { element, .. } if !element.is_scalar() => Op::Opaque,
        FieldClass::Integer { .. } | FieldClass::Float { .. } | FieldClass::Enum { .. } if !class.is_scalar() => {
            Op::Opaque
        }
        other => other.fixed_size().map_or(Op::Opaque, Op::Skip),
    }
}

/// How a whole event, header included, is passed over where the tag is the id and it has no more than one string.
#[derive(Debug, Clone, Copy, Default)]
struct Stride {
    /// Bytes before the string, or all; 0 where the event is of another form.
    before: u32,
    /// A string follows, with so many bytes behind it.
    string: Option<u32>,
}

impl Stride {
    fn new(contexts: &Plan, payload: &Plan) -> Option<Self> {
        let front = contexts.fixed?.checked_add(4)?;
        let (before, string) = match payload.ops.as_slice() {
            [] => (0, None),
            [Op::Skip(all)] => (*all, None),
            [Op::Nul] => (0, Some(0)),
            [Op::Nul, Op::Skip(behind)] => (0, Some(*behind)),
            [Op::Skip(before), Op::Nul] => (*before, Some(0)),
            [Op::Skip(before), Op::Nul, Op::Skip(behind)] => (*before, Some(*behind)),
            _ => return None,
        };
        let string = match string {
            Some(behind) => Some(u32::try_from(behind).ok()?),
            None => None,
        };
        Some(Self { before: u32::try_from(front.checked_add(before)?).ok()?, string })
    }

    /// Behind the event at the front of `rest`, if it ends there.
    #[inline]
    fn over(self, rest: &[u8]) -> Option<&[u8]> {
        let mut rest = rest.get(self.before as usize..)?;
        if let Some(behind) = self.string {
            rest = rest.get(crate::nul::find(rest)? + 1..)?;
            rest = rest.get(behind as usize..)?;
        }
        Some(rest)
    }
}

/// A channel, compiled.
#[derive(Debug, Clone)]
pub struct ChannelDecoder {
    little: bool,
    contexts: Plan,
    /// Event id to position in `payloads`, or [`ABSENT`].
    ids: Vec<u32>,
    payloads: Vec<Plan>,
    /// Bytes of contexts and payload together, where both are fixed; by position, like `payloads`.
    fixed: Vec<Option<usize>>,
    /// By tag: how an event is passed over without a look at its clock.
    strides: [Stride; 1 << TAG_BITS],
}

/// A schema, compiled.
#[derive(Debug, Clone)]
pub struct Decoder {
    channels: Vec<ChannelDecoder>,
}

/// How far a packet is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Offset of the next event's header.
    pub offset: usize,
    /// Clock of the event before, or of the packet's begin.
    pub clock: u64,
}

impl Decoder {
    /// Compiles a schema.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        let channels = schema.channels.iter().map(|c| ChannelDecoder::new(c, schema.byte_order)).collect();
        Self { channels }
    }

    /// The compiled channel at a position of [`Schema::channels`].
    #[must_use]
    pub fn channel(&self, channel: usize) -> Option<&ChannelDecoder> {
        self.channels.get(channel)
    }

    /// The events of a packet's bytes. `channel` is the position in [`Schema::channels`], `begin_clock` the packet's
    /// begin, `events_at` the offset of the first event. Stops behind the last event or at the first error.
    #[must_use]
    pub fn events<'a>(&'a self, channel: usize, bytes: &'a [u8], begin_clock: u64, events_at: usize) -> Events<'a> {
        Events {
            channel: self.channels.get(channel).ok_or(channel),
            bytes,
            position: Position { offset: events_at, clock: begin_clock },
            done: false,
        }
    }
}

impl ChannelDecoder {
    /// Compiles one channel.
    #[must_use]
    pub fn new(channel: &Channel, order: ByteOrder) -> Self {
        let mut ids = Vec::new();
        for (position, class) in channel.events.iter().enumerate() {
            let (Ok(id), Ok(position)) = (u16::try_from(class.id), u32::try_from(position)) else {
                continue;
            };
            let id = usize::from(id);
            if ids.len() <= id {
                ids.resize(id + 1, ABSENT);
            }
            if ids[id] == ABSENT {
                ids[id] = position;
            }
        }
        let contexts = Plan::new(&channel.contexts);
        let payloads: Vec<Plan> = channel.events.iter().map(|e| Plan::new(&e.fields)).collect();
        let fixed: Vec<Option<usize>> =
            payloads.iter().map(|payload| contexts.fixed?.checked_add(payload.fixed?)).collect();
        let mut strides = [Stride::default(); 1 << TAG_BITS];
        for (position, stride) in ids.iter().zip(&mut strides[..TAG_FULL as usize]) {
            let payload = payloads.get(*position as usize);
            *stride = payload.and_then(|payload| Stride::new(&contexts, payload)).unwrap_or_default();
        }
        Self { little: order == ByteOrder::Little, contexts, ids, payloads, fixed, strides }
    }

    /// The event at `position`, which moves behind it; none at the end of `bytes`.
    ///
    /// # Errors
    /// The bytes are not an event of this channel; `position` stays where the event begins.
    #[inline]
    pub fn step(&self, position: &mut Position, bytes: &[u8]) -> Result<Option<RawEvent>, DecodeError> {
        let start = position.offset;
        if start >= bytes.len() {
            return Ok(None);
        }
        let Header { id, clock, size, end: context_at } = self.header(bytes, start, position.clock)?;
        let class =
            self.class(id).ok_or(DecodeError { offset: start, value: u64::from(id), expected: Expected::KnownId })?;
        let (payload_at, end) = match self.fixed[class] {
            Some(total) if total <= bytes.len() - context_at => {
                (context_at + self.contexts.fixed.unwrap_or(0), context_at + total)
            }
            _ => {
                let payload_at = self.walk(&self.contexts, bytes, context_at, id)?;
                (payload_at, self.walk(&self.payloads[class], bytes, payload_at, id)?)
            }
        };
        if size != NO_SIZE && usize::try_from(size) != Ok(end - context_at) {
            let expected = Expected::PayloadSize(end - context_at);
            return Err(DecodeError { offset: start, value: u64::from(size), expected });
        }
        *position = Position { offset: end, clock };
        Ok(Some(RawEvent { clock, id, class, start, context_at, payload_at, end }))
    }

    /// How many events there are from `offset` to the end of `bytes`. Several times faster than [`Self::step`]: looks at
    /// sizes only, not at clocks.
    ///
    /// # Errors
    /// The first that [`Self::step`] would meet.
    pub fn count(&self, bytes: &[u8], offset: usize) -> Result<u64, DecodeError> {
        let mut position = Position { offset, clock: 0 };
        let mut count = 0;
        loop {
            let mut rest = bytes.get(position.offset..).unwrap_or_default();
            while let Some(word) = self.u32_at(rest, 0) {
                let stride = self.strides[(word & TAG_MASK) as usize];
                if stride.before == 0 {
                    break;
                }
                let Some(behind) = stride.over(rest) else { break };
                rest = behind;
                count += 1;
            }
            position.offset = bytes.len() - rest.len();
            if self.step(&mut position, bytes)?.is_none() {
                return Ok(count);
            }
            count += 1;
        }
    }

    /// Position in [`Channel::events`] of the class of an id.
    #[inline]
    #[must_use]
    pub fn class(&self, id: u16) -> Option<usize> {
        let position = *self.ids.get(usize::from(id))?;
        if position == ABSENT { None } else { usize::try_from(position).ok() }
    }

    #[inline]
    fn header(&self, bytes: &[u8], start: usize, previous: u64) -> Result<Header, DecodeError> {
        let rest = bytes.get(start..).unwrap_or_default();
        let short = DecodeError { offset: start, value: rest.len() as u64, expected: Expected::Header };
        let word = self.u32_at(rest, 0).ok_or(short)?;
        let clock = full_clock(previous, u64::from(word >> TAG_BITS));
        let tag = word & TAG_MASK;
        if tag < TAG_FULL {
            return Ok(Header { id: tag as u16, clock, size: NO_SIZE, end: start + 4 });
        }
        let id = self.u16_at(rest, 4).ok_or(short)?;
        if tag == TAG_ID {
            return Ok(Header { id, clock, size: NO_SIZE, end: start + 6 });
        }
        let size = self.u32_at(rest, 6).ok_or(short)?;
        if tag == TAG_SIZE {
            return Ok(Header { id, clock, size, end: start + 10 });
        }
        let clock = self.u64_at(rest, 10).ok_or(short)?;
        Ok(Header { id, clock, size, end: start + 18 })
    }

    #[inline]
    fn walk(&self, plan: &Plan, bytes: &[u8], at: usize, id: u16) -> Result<usize, DecodeError> {
        match plan.fixed {
            Some(size) => skip(bytes, at, size),
            None => self.walk_ops(&plan.ops, bytes, at, id),
        }
    }

    fn walk_ops(&self, ops: &[Op], bytes: &[u8], mut at: usize, id: u16) -> Result<usize, DecodeError> {
        for op in ops {
            let rest = bytes.get(at..).unwrap_or_default();
            let left = rest.len() as u64;
            at = match *op {
                Op::Skip(size) => skip(bytes, at, size)?,
                Op::Nul => {
                    let nul = crate::nul::find(rest);
                    at + 1 + nul.ok_or(DecodeError { offset: at, value: left, expected: Expected::Nul })?
                }
                Op::Counted(element) => {
                    let short = DecodeError { offset: at, value: left, expected: Expected::Bytes(4) };
                    let count = self.u32_at(rest, 0).ok_or(short)?;
                    let size = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(element);
                    skip(bytes, at + 4, size)?
                }
                Op::Opaque => {
                    return Err(DecodeError { offset: at, value: u64::from(id), expected: Expected::Scalar });
                }
            };
        }
        Ok(at)
    }

    #[inline]
    fn u16_at(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(if self.little { u16::from_le_bytes(raw) } else { u16::from_be_bytes(raw) })
    }

    #[inline]
    fn u32_at(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(if self.little { u32::from_le_bytes(raw) } else { u32::from_be_bytes(raw) })
    }

    #[inline]
    fn u64_at(&self, bytes: &[u8], at: usize) -> Option<u64> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(if self.little { u64::from_le_bytes(raw) } else { u64::from_be_bytes(raw) })
    }
}

struct Header {
    id: u16,
    clock: u64,
    size: u32,
    end: usize,
}

/// The full reading of 27 bits, not before `previous`.
#[inline]
#[must_use]
pub fn full_clock(previous: u64, low: u64) -> u64 {
    let base = previous & !(CLOCK_SPAN - 1);
    let clock = base | low;
    if clock < previous { clock.wrapping_add(CLOCK_SPAN) } else { clock }
}

#[inline]
fn skip(bytes: &[u8], at: usize, size: usize) -> Result<usize, DecodeError> {
    let left = bytes.len().saturating_sub(at);
    if size > left {
        return Err(DecodeError { offset: at, value: left as u64, expected: Expected::Bytes(size) });
    }
    Ok(at + size)
}

/// Iterator over a packet's events; after an error it is at its end.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    channel: Result<&'a ChannelDecoder, usize>,
    bytes: &'a [u8],
    position: Position,
    done: bool,
}

impl Events<'_> {
    /// How far it has come: behind the last event yielded.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }
}

impl Iterator for Events<'_> {
    type Item = Result<RawEvent, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = match self.channel {
            Ok(channel) => channel.step(&mut self.position, self.bytes).transpose(),
            Err(value) => Some(Err(DecodeError { offset: 0, value: value as u64, expected: Expected::Channel })),
        };
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}
