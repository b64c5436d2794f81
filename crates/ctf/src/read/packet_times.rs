//! Gives packets of a copy the time at which they begin. babeltrace2 2.1 aborts if a stream has a
//! clock and its packets have no such time.
//!
//! The time is a new first field of the packet context. Behind it is padding, if needed, so that
//! the rest of the packet moves by a multiple of the largest alignment in the stream: each other
//! field keeps its bytes. Lengths in the context grow by as much. Readers show the padding as
//! a field; only streams with alignments of more than 64 bits have it.

use lastwords_bytes::ByteOrder;
use lastwords_trace::class::{
    Array, Attributes, Bits, Field, FieldClass, Integer, Length, Role, StreamClass, Struct,
    TraceClass,
};

/// Size of the time, in bits.
const TIME: u64 = 64;

/// How the packets of one stream class get their times.
pub(super) struct Times {
    context: Struct,
    /// Number of bits by which the rest of a packet moves.
    shift: u64,
}

impl Times {
    /// Returns how packets of a stream class get their times; none if they have times, or need none
    /// because the stream has no clock.
    pub(super) fn from_class(class: &StreamClass) -> Option<Self> {
        class.clock?;
        let context = class.packet_context.clone().unwrap_or_default();
        if context.fields.iter().any(|field| has_clock(&field.class)) {
            return None;
        }
        let events =
            class.events.iter().flat_map(|event| [&event.specific_context, &event.payload]);
        let roots =
            [&class.event_header, &class.common_context].into_iter().chain(events).flatten();
        let shift = roots.map(widest_of).fold(widest_of(&context).max(TIME), u64::max);
        Some(Self { context, shift })
    }

    /// Adds the fields to the class.
    fn extend(&self, class: &mut StreamClass) {
        let context = class.packet_context.get_or_insert_default();
        let taken: Vec<String> = context.fields.iter().map(|field| field.name.clone()).collect();
        let field = |name: &str, class| {
            let mut name = name.to_owned();
            while taken.contains(&name) {
                name.push('_');
            }
            Field { name, class, attributes: Attributes::default() }
        };
        let mut time = Integer::new(Bits::bytes(8, ByteOrder::Little), false, 10);
        time.roles.push(Role::Clock);
        let mut fields = vec![field("timestamp_begin", FieldClass::Integer(time))];
        if self.shift > TIME {
            let element =
                FieldClass::Integer(Integer::new(Bits::bytes(1, ByteOrder::Little), false, 16));
            let length = Length::Fixed(self.shift.saturating_sub(TIME) / 8);
            let array = Array::new(length, element);
            fields.push(field("padding", FieldClass::Array(Box::new(array))));
        }
        context.fields.splice(0..0, fields);
    }

    /// Inserts the time into the first bytes of a packet, which have its header and context whole;
    /// `header_end` is the end of the packet header, in bits. Returns none if that cannot be done:
    /// the context begins inside a byte, or a length is no integer of whole bytes before all fields
    /// of variable size, or becomes too large.
    pub(super) fn insert(&self, head: &[u8], header_end: u64, begin: u64) -> Option<Vec<u8>> {
        let at = header_end.checked_next_multiple_of(self.context.alignment())?;
        let place = usize::try_from(at / 8).ok().filter(|_| at.is_multiple_of(8))?;
        let (before, behind) = head.split_at_checked(place)?;
        let mut behind = behind.to_vec();
        let mut lengths = Lengths { at: Some(at), found: Vec::new() };
        lengths.structure(&self.context)?;
        for (position, bits) in lengths.found {
            let from = usize::try_from(position.checked_sub(at)? / 8).ok()?;
            let bytes = behind.get_mut(from..from.checked_add(usize::from(bits.length / 8))?)?;
            grow(bytes, bits.order, self.shift)?;
        }
        let padding = usize::try_from(self.shift.saturating_sub(TIME) / 8).ok()?;
        Some([before, &begin.to_le_bytes(), &vec![0; padding], &behind].concat())
    }
}

/// Returns the trace class of the copy, if packets of a stream class get times; none if all have
/// them.
pub(super) fn extended(class: &TraceClass) -> Option<TraceClass> {
    let times: Vec<Option<Times>> = class.streams.iter().map(Times::from_class).collect();
    times.iter().any(Option::is_some).then(|| {
        let mut class = class.clone();
        let streams = class.streams.iter_mut().zip(&times);
        streams.for_each(|(stream, times)| times.iter().for_each(|times| times.extend(stream)));
        class
    })
}

/// Adds `by` to an unsigned integer. Returns none if the sum does not fit.
fn grow(bytes: &mut [u8], order: ByteOrder, by: u64) -> Option<()> {
    let size = bytes.len();
    let mut word = [0; 8];
    word.get_mut(..size)?.copy_from_slice(bytes);
    if order == ByteOrder::Big {
        word.get_mut(..size)?.reverse();
    }
    let mut word = u64::from_le_bytes(word).checked_add(by)?.to_le_bytes();
    if word.get(size..)?.iter().any(|byte| *byte != 0) {
        return None;
    }
    if order == ByteOrder::Big {
        word.get_mut(..size)?.reverse();
    }
    bytes.copy_from_slice(word.get(..size)?);
    Some(())
}

/// Finds the lengths in a packet context.
struct Lengths {
    /// Position of the next field in the packet, in bits; none after a field of variable size.
    at: Option<u64>,
    found: Vec<(u64, Bits)>,
}

impl Lengths {
    /// Walks the members. Returns none if the position of a length is not known, or it has no whole
    /// bytes.
    fn structure(&mut self, of: &Struct) -> Option<()> {
        self.align(of.alignment());
        of.fields.iter().try_for_each(|field| self.field(&field.class))
    }

    fn align(&mut self, bits: u64) {
        self.at = self.at.and_then(|at| at.checked_next_multiple_of(bits.max(1)));
    }

    fn advance(&mut self, bits: u64) {
        self.at = self.at.and_then(|at| at.checked_add(bits));
    }

    fn field(&mut self, class: &FieldClass) -> Option<()> {
        self.align(class.alignment());
        match class {
            FieldClass::Integer(integer) if is_length(integer) => {
                let position = self.at.filter(|at| at.is_multiple_of(8))?;
                let bits = integer.bits;
                let is_whole = bits.length.is_multiple_of(8) && !bits.reversed;
                self.found.push(is_whole.then_some((position, bits))?);
                self.advance(u64::from(bits.length));
            }
            FieldClass::Variable(integer) if is_length(integer) => return None,
            FieldClass::Struct(of) => self.structure(of)?,
            other => match size(other) {
                Some(bits) => self.advance(bits),
                None => self.at = None,
            },
        }
        Some(())
    }
}

fn is_length(integer: &Integer) -> bool {
    integer.has(Role::PacketLength) || integer.has(Role::ContentLength)
}

/// Returns the size of a field that is no structure, in bits; none if it varies.
fn size(class: &FieldClass) -> Option<u64> {
    match class {
        FieldClass::Integer(integer) => Some(u64::from(integer.bits.length)),
        FieldClass::Bool(bits) | FieldClass::BitArray(bits) | FieldClass::BitMap(bits, _) => {
            Some(u64::from(bits.length))
        }
        FieldClass::Float(float) => Some(u64::from(float.bits.length)),
        FieldClass::Array(array) => match array.length {
            Length::Fixed(count) => {
                let element =
                    size(&array.element)?.checked_next_multiple_of(array.element.alignment())?;
                count.checked_mul(element)
            }
            Length::Of(_) => None,
        },
        _ => None,
    }
}

fn has_clock(class: &FieldClass) -> bool {
    match class {
        FieldClass::Integer(integer) | FieldClass::Variable(integer) => integer.has(Role::Clock),
        FieldClass::Struct(of) => of.fields.iter().any(|field| has_clock(&field.class)),
        _ => false,
    }
}

fn widest_of(root: &Struct) -> u64 {
    root.fields.iter().map(|field| widest(&field.class)).fold(root.alignment(), u64::max)
}

/// Returns the largest alignment in a field, also where it depends on a selector.
fn widest(class: &FieldClass) -> u64 {
    match class {
        FieldClass::Struct(of) => widest_of(of),
        FieldClass::Array(array) => class.alignment().max(widest(&array.element)),
        FieldClass::Optional(optional) => widest(&optional.class),
        FieldClass::Variant(variant) => {
            variant.options.iter().map(|option| widest(&option.class)).fold(1, u64::max)
        }
        _ => class.alignment(),
    }
}
