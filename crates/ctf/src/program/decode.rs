//! Runs compiled field classes over the bytes of a packet.

use super::fault::{Expected, Fault};
use super::hide::{Gathered, Hidden};
use super::op::{Choice, Code, Count, Kind, Op};
use lastwords_bytes::{ByteOrder, low_u16, low_u32};
use lastwords_trace::class::Role;
use lastwords_trace::visit::{NodeId, Visitor};

/// The values of fields with roles, for one packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RoleValues {
    pub(super) magic: Option<u64>,
    pub(super) stream_class: Option<u64>,
    pub(super) stream: Option<u64>,
    pub(super) packet_length: Option<u64>,
    pub(super) content_length: Option<u64>,
    pub(super) end: Option<u64>,
    pub(super) discarded: Option<u64>,
    pub(super) sequence: Option<u64>,
    pub(super) event_class: Option<u64>,
}

/// State that is kept from field to field.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Numbers that other fields depend on.
    pub(super) slots: Vec<u64>,
    /// The default clock, all 64 bits.
    pub(super) clock: u64,
    pub(super) role_values: RoleValues,
    pub(super) last: u64,
    /// Number of bits of the last variable-length integer.
    pub(super) last_bits: u8,
    /// Byte order of the last field that was not whole bytes.
    pub(super) order: Option<ByteOrder>,
    /// Number of elements that may still be decoded. It limits loops over elements that take no
    /// bytes of the packet.
    pub(super) steps: u64,
    /// Bytes of text that the decoded elements become beyond their own bytes.
    pub(super) weight: u64,
    /// Bytes of text of the packet's context, which is printed with each event.
    pub(super) context: u64,
    /// Total bytes of text that were paid for because they are out of proportion to the events.
    pub(super) paid: u64,
}

impl State {
    #[inline]
    pub(super) fn update_clock(&mut self, value: u64, bits: u8) {
        self.clock = updated_clock(self.clock, value, bits);
    }
}

/// Returns the clock after a reading of its low bits: CTF2-SPEC-2.0, "Clock value update
/// procedure".
#[inline]
pub(super) fn updated_clock(clock: u64, value: u64, bits: u8) -> u64 {
    if bits >= 64 {
        return value;
    }
    let mask = (1u64 << bits).wrapping_sub(1);
    let high = clock & !mask;
    // A value below the last reading means that the low bits wrapped once.
    if value < clock & mask {
        high.wrapping_add(mask).wrapping_add(1) | value
    } else {
        high | value
    }
}

/// The bytes of a packet, or of a part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) bytes: &'a [u8],
    /// End of the content in `bytes`, in bits.
    pub(super) end: u64,
    /// Position of `bytes` in the packet, in bits: a multiple of [`super::MAX_ALIGNMENT`].
    pub(super) base: u64,
}

impl Window<'_> {
    #[cold]
    #[inline(never)]
    pub(super) fn fault(&self, at: u64, value: u64, expected: Expected) -> Fault {
        Fault { at: self.base.saturating_add(at), value, expected }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn short(&self, at: u64, bits: u64) -> Fault {
        self.fault(at, self.end.saturating_sub(at), Expected::Bits(bits))
    }
}

/// Runs code. `at` is the current position, in bits from the window's beginning.
pub(super) struct Runner<'a, 'w, V> {
    pub(super) code: &'a Code,
    pub(super) window: Window<'w>,
    pub(super) state: &'a mut State,
    pub(super) visitor: &'a mut V,
    pub(super) at: u64,
}

impl<V: Visitor> Runner<'_, '_, V> {
    /// Runs all of the code.
    #[inline]
    pub(super) fn run(&mut self) -> Result<(), Fault> {
        self.range(0, self.code.ops.len())
    }

    fn range(&mut self, mut next: usize, end: usize) -> Result<(), Fault> {
        let code = self.code;
        while next < end {
            let Some(op) = code.ops.get(next) else { break };
            next = next.wrapping_add(1);
            match *op {
                Op::Align(bits) => self.align(u64::from(bits))?,
                Op::Advance(bits) => self.advance(bits)?,
                Op::Bytes { node, size, order, kind } => self.bytes(node, size, order, kind)?,
                Op::Bits { node, bits, kind } => self.bits(node, bits, kind)?,
                Op::Variable { node, signed } => self.variable(node, signed)?,
                Op::Quadruple { node, order } => self.quadruple(node, order)?,
                Op::Save(slot) => {
                    if let Some(place) = self.state.slots.get_mut(usize::from(slot)) {
                        *place = self.state.last;
                    }
                }
                Op::Role(role) => self.role(role),
                Op::Clock(bits) => {
                    let bits = if bits == 0 { self.state.last_bits } else { bits };
                    self.state.update_clock(self.state.last, bits);
                }
                Op::Text { node, unit } => self.text(node, unit)?,
                Op::Run { node, count, text } => self.length(node, count, text)?,
                Op::Stride { count, bits } => self.stride(count, bits)?,
                Op::Hide { node, hidden } => {
                    if let Some(hidden) = code.hidden.get(hidden as usize) {
                        self.hide(node, hidden)?;
                    }
                }
                Op::Begin(node) => self.visitor.begin(node),
                Op::End(node) => self.visitor.end(node),
                Op::Loop { node, count, end } => {
                    let end = end as usize;
                    self.repeat(node, count, next, end)?;
                    next = end;
                }
                Op::Choose { node, slot, choice, end } => {
                    self.choose(node, slot, code.choices.get(choice as usize))?;
                    next = end as usize;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn align(&mut self, bits: u64) -> Result<(), Fault> {
        let at = self.at.wrapping_add(bits.wrapping_sub(1)) & !bits.wrapping_sub(1);
        if at > self.window.end {
            return Err(self.window.short(self.at, at.wrapping_sub(self.at)));
        }
        self.at = at;
        Ok(())
    }

    #[inline]
    fn advance(&mut self, bits: u64) -> Result<(), Fault> {
        match self.at.checked_add(bits) {
            Some(at) if at <= self.window.end => {
                self.at = at;
                Ok(())
            }
            _ => Err(self.window.short(self.at, bits)),
        }
    }

    #[inline]
    fn bytes(&mut self, node: NodeId, size: u8, order: ByteOrder, kind: Kind) -> Result<(), Fault> {
        let bits = u64::from(size).wrapping_mul(8);
        let at = self.at.wrapping_add(7) & !7;
        let byte = (at / 8) as usize;
        if at.wrapping_add(bits) > self.window.end {
            return Err(self.window.short(self.at, bits));
        }
        let Some(bytes) = self.window.bytes.get(byte..byte.wrapping_add(usize::from(size))) else {
            return Err(self.window.short(self.at, bits));
        };
        let raw = load(bytes, order);
        self.at = at.wrapping_add(bits);
        self.number(node, raw, size.wrapping_mul(8), kind);
        Ok(())
    }

    #[inline]
    fn number(&mut self, node: NodeId, raw: u64, length: u8, kind: Kind) {
        match kind {
            Kind::Unsigned => {
                self.state.last = raw;
                self.visitor.integer(node, raw);
            }
            Kind::Signed => {
                let value = extend(raw, length);
                self.state.last = value;
                self.visitor.integer(node, value);
            }
            Kind::Half => self.visitor.float(node, half(low_u16(raw))),
            Kind::Single => self.visitor.float(node, f64::from(f32::from_bits(low_u32(raw)))),
            Kind::Double => self.visitor.float(node, f64::from_bits(raw)),
        }
    }

    fn bits(
        &mut self,
        node: NodeId,
        bits: lastwords_trace::class::Bits,
        kind: Kind,
    ) -> Result<(), Fault> {
        let length = u64::from(bits.length);
        if !self.at.is_multiple_of(8) && self.state.order.is_some_and(|order| order != bits.order) {
            return Err(self.window.fault(self.at, self.at % 8, Expected::SameOrder));
        }
        let begin = self.at;
        self.advance(length)?;
        self.state.order = Some(bits.order);
        let (first, last) = ((begin / 8) as usize, (self.at.wrapping_add(7) / 8) as usize);
        let Some(bytes) = self.window.bytes.get(first..last) else {
            self.at = begin;
            return Err(self.window.short(begin, length));
        };
        let shift = begin % 8;
        // The field has at most 9 bytes: 64 bits that begin inside a byte.
        let mut raw: u128 = 0;
        match bits.order {
            ByteOrder::Little => bytes.iter().rev().for_each(|b| raw = raw << 8 | u128::from(*b)),
            ByteOrder::Big => bytes.iter().for_each(|b| raw = raw << 8 | u128::from(*b)),
        }
        let raw = match bits.order {
            ByteOrder::Little => raw >> shift,
            ByteOrder::Big => {
                raw >> (bytes.len() as u64).wrapping_mul(8).wrapping_sub(shift).wrapping_sub(length)
            }
        };
        let mask = u64::MAX >> 64u64.wrapping_sub(length);
        let mut raw = u64::try_from(raw & u128::from(mask)).unwrap_or(mask);
        if bits.reversed {
            raw = raw.reverse_bits() >> 64u64.wrapping_sub(length);
        }
        self.number(node, raw, bits.length, kind);
        Ok(())
    }

    fn variable(&mut self, node: NodeId, signed: bool) -> Result<(), Fault> {
        self.align(8)?;
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let at = self.at;
            self.advance(8)?;
            let Some(byte) = self.window.bytes.get((at / 8) as usize).copied() else {
                return Err(self.window.short(at, 8));
            };
            let part = u64::from(byte & 0x7f);
            let fits = shift < 64
                && (shift < 58 || part >> 64u32.wrapping_sub(shift) == 0 || signed && part == 0x7f);
            if !fits {
                return Err(self.window.fault(at, u64::from(byte), Expected::Variable));
            }
            value |= part << shift;
            shift = shift.wrapping_add(7);
            if byte & 0x80 == 0 {
                if signed && byte & 0x40 != 0 && shift < 64 {
                    value |= u64::MAX << shift;
                }
                break;
            }
        }
        self.state.last = value;
        self.state.last_bits = shift.min(64) as u8;
        self.visitor.integer(node, value);
        Ok(())
    }

    fn quadruple(&mut self, node: NodeId, order: ByteOrder) -> Result<(), Fault> {
        let at = self.at;
        self.advance(128)?;
        let byte = (at / 8) as usize;
        let Some(bytes) = self.window.bytes.get(byte..).and_then(|b| b.first_chunk::<16>()) else {
            return Err(self.window.short(at, 128));
        };
        self.visitor.float(node, quad(u128::from_le_bytes(order.little(*bytes))));
        Ok(())
    }

    fn role(&mut self, role: Role) {
        let (role_values, last) = (&mut self.state.role_values, Some(self.state.last));
        match role {
            Role::Magic => role_values.magic = last,
            Role::StreamClassId => role_values.stream_class = last,
            Role::StreamId => role_values.stream = last,
            Role::PacketLength => role_values.packet_length = last,
            Role::ContentLength => role_values.content_length = last,
            Role::PacketEnd => role_values.end = last,
            Role::Discarded => role_values.discarded = last,
            Role::Sequence => role_values.sequence = last,
            Role::EventClassId => role_values.event_class = last,
            Role::TraceUuid | Role::Clock => {}
        }
    }

    #[inline]
    fn text(&mut self, node: NodeId, unit: u8) -> Result<(), Fault> {
        self.align(8)?;
        let (first, last) = ((self.at / 8) as usize, (self.window.end / 8) as usize);
        let rest = self.window.bytes.get(first..last).unwrap_or_default();
        let end = match unit {
            1 => memchr::memchr(0, rest),
            unit => {
                let units = rest.chunks_exact(usize::from(unit));
                units
                    .into_iter()
                    .position(|unit| unit.iter().all(|b| *b == 0))
                    .map(|n| n.wrapping_mul(usize::from(unit)))
            }
        };
        let Some(end) = end else {
            return Err(self.window.fault(
                self.at,
                (rest.len() as u64).wrapping_mul(8),
                Expected::Nul,
            ));
        };
        self.at = self.at.wrapping_add((end as u64).wrapping_add(u64::from(unit)).wrapping_mul(8));
        self.visitor.text(node, rest.get(..end).unwrap_or_default());
        Ok(())
    }

    #[inline]
    fn count(&self, count: Count) -> u64 {
        match count {
            Count::Fixed(count) => count,
            Count::Slot(slot, _) => self.state.slots.get(usize::from(slot)).copied().unwrap_or(0),
        }
    }

    fn length(&mut self, node: NodeId, count: Count, text: bool) -> Result<(), Fault> {
        self.align(8)?;
        let length = self.count(count);
        let at = self.at;
        let bytes = usize::try_from(length).ok().and_then(|length| {
            let rest = self.window.bytes.get((at / 8) as usize..(self.window.end / 8) as usize)?;
            rest.get(..length)
        });
        let Some(bytes) = bytes else {
            return Err(self.window.fault(at, length, Expected::Length));
        };
        self.at = self.at.wrapping_add(length.wrapping_mul(8));
        if text {
            self.visitor.text(node, bytes);
        } else {
            self.visitor.blob(node, bytes);
        }
        Ok(())
    }

    #[cold]
    fn hide(&mut self, node: NodeId, hidden: &Hidden) -> Result<(), Fault> {
        let mut gathered = Gathered::new(hidden);
        let (window, at) = (self.window, self.at);
        let mut runner = Runner {
            code: &hidden.code,
            window,
            state: &mut *self.state,
            visitor: &mut gathered,
            at,
        };
        runner.run()?;
        self.at = runner.at;
        self.visitor.text(node, gathered.shown(&hidden.how).as_bytes());
        Ok(())
    }

    #[inline]
    fn stride(&mut self, count: Count, bits: u32) -> Result<(), Fault> {
        let count = self.count(count);
        match count.checked_mul(u64::from(bits)).and_then(|bits| self.at.checked_add(bits)) {
            Some(at) if at <= self.window.end => {
                self.at = at;
                Ok(())
            }
            _ => Err(self.window.fault(self.at, count, Expected::Length)),
        }
    }

    fn repeat(
        &mut self,
        node: NodeId,
        count: Count,
        begin: usize,
        end: usize,
    ) -> Result<(), Fault> {
        let weight = if let Count::Slot(_, weight) = count { weight } else { 0 };
        let count = self.count(count);
        self.state.weight =
            self.state.weight.saturating_add(count.saturating_mul(u64::from(weight)));
        if count > self.state.steps {
            return Err(self.window.fault(self.at, count, Expected::Length));
        }
        self.state.steps = self.state.steps.wrapping_sub(count);
        self.visitor.begin_array(node, count);
        for index in 0..count {
            self.visitor.element(index);
            self.range(begin, end)?;
        }
        self.visitor.end_array(node);
        Ok(())
    }

    fn choose(&mut self, node: NodeId, slot: u16, choice: Option<&Choice>) -> Result<(), Fault> {
        let Some(choice) = choice else { return Ok(()) };
        let value = self.state.slots.get(usize::from(slot)).copied().unwrap_or(0);
        let case = choice.case(value);
        match case.and_then(|case| choice.cases.get(case)) {
            Some((begin, end)) => {
                self.visitor.begin_case(node, case);
                self.range(*begin as usize, *end as usize)?;
                self.visitor.end_case(node);
                Ok(())
            }
            None if choice.optional => {
                self.visitor.begin_case(node, None);
                Ok(())
            }
            None => Err(self.window.fault(self.at, value, Expected::Option)),
        }
    }
}

/// Reads 1 to 8 bytes as an unsigned integer.
#[inline]
pub(super) fn load(bytes: &[u8], order: ByteOrder) -> u64 {
    match (bytes, order) {
        ([b], _) => u64::from(*b),
        ([a, b], order) => u16::from_le_bytes(order.little([*a, *b])).into(),
        ([a, b, c, d], order) => u32::from_le_bytes(order.little([*a, *b, *c, *d])).into(),
        ([a, b, c, d, e, f, g, h], order) => {
            u64::from_le_bytes(order.little([*a, *b, *c, *d, *e, *f, *g, *h]))
        }
        (bytes, ByteOrder::Little) => {
            bytes.iter().rev().fold(0, |value, b| value << 8 | u64::from(*b))
        }
        (bytes, ByteOrder::Big) => bytes.iter().fold(0, |value, b| value << 8 | u64::from(*b)),
    }
}

/// Extends the sign of a two's complement number of `length` bits to 64 bits.
#[inline]
fn extend(raw: u64, length: u8) -> u64 {
    let shift = 64u32.wrapping_sub(u32::from(length.clamp(1, 64)));
    ((raw << shift).cast_signed() >> shift).cast_unsigned()
}

/// Converts a float of 16 bits.
fn half(raw: u16) -> f64 {
    let sign = if raw >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(raw >> 10 & 0x1f), f64::from(raw & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1.0 + fraction / 1024.0) * 2f64.powi(exponent.wrapping_sub(15)),
    }
}

/// Converts a float of 128 bits to the nearest float of 64 bits. Numbers out of range become
/// infinity or zero.
fn quad(raw: u128) -> f64 {
    let sign = if raw >> 127 == 1 { -1.0 } else { 1.0 };
    let exponent = ((raw >> 112 & 0x7fff) as i32).wrapping_sub(16383);
    let fraction = raw & (u128::MAX >> 16);
    sign * match exponent {
        16384 if fraction == 0 => f64::INFINITY,
        16384 => f64::NAN,
        1024.. => f64::INFINITY,
        ..=-1075 => 0.0,
        exponent => {
            (fraction | 1 << 112) as f64
                * 2f64.powi(-112)
                * 2f64.powi(exponent / 2)
                * 2f64.powi(exponent.wrapping_sub(exponent / 2))
        }
    }
}
