//! Compiles field classes to flat code: once with every field, for visitors, and once with runs of
//! fixed size merged.

mod hidden;

use super::fault::SchemaError;
use super::hide::{Hides, How};
use super::op::{Choice, Code, Count, Kind, Op};
use super::orders::inside_bytes;
use super::slots::{ClassSlots, Target};
use super::{MAX_ALIGNMENT, weight};
use lastwords_trace::class::{
    Array, Bits, FieldClass, Integer, Labels, Length, MAX_DEPTH, Path, Range, RangeIndex, Role,
    Scope, Struct, Text,
};
use lastwords_trace::visit::{Node, NodeId, Shape};

/// Largest number of selector ranges that are searched one after the other.
const FEW: usize = 8;

/// Knowledge about a position: it is `offset` modulo `modulus` bits. `modulus` is a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) modulus: u64,
    pub(super) offset: u64,
}

impl Known {
    /// Nothing is known of the position.
    pub(super) const NOTHING: Self = Self { modulus: 1, offset: 0 };

    fn advanced(self, bits: u64) -> Self {
        Self {
            modulus: self.modulus,
            offset: self.offset.wrapping_add(bits) & self.modulus.wrapping_sub(1),
        }
    }

    /// Returns what is still known after an advance by any multiple of `bits`.
    fn strided(self, bits: u64) -> Self {
        self.modulo(if bits == 0 { self.modulus } else { 1 << bits.trailing_zeros().min(15) })
    }

    fn modulo(self, modulus: u64) -> Self {
        let modulus = self.modulus.min(modulus);
        Self { modulus, offset: self.offset & modulus.wrapping_sub(1) }
    }

    /// Returns what is known if either of two positions is possible.
    fn meet(self, other: Self) -> Self {
        let mut modulus = self.modulus.min(other.modulus);
        while self.modulo(modulus).offset != other.modulo(modulus).offset {
            modulus >>= 1;
        }
        self.modulo(modulus)
    }
}

/// Compiles one scope to flat code.
pub(super) struct Compiler<'a> {
    slots: ClassSlots<'a>,
    scope: Scope,
    names: Vec<String>,
    code: Code,
    /// Runs are merged and nodes are left out.
    merge: bool,
    /// Fields that begin or end inside a byte are not merged: their byte orders differ, and each
    /// must be checked at its own position.
    mixed: bool,
    known: Known,
    depth: usize,
    /// What chooses the hidden fields, and the name of the event.
    hides: Option<(&'a dyn Hides, &'a str)>,
    /// The value of the optional field that is being compiled is hidden.
    within: Option<How>,
}

/// A field in its structure.
#[derive(Clone, Copy)]
struct Member<'f> {
    name: &'f str,
    /// Number of shown fields before it.
    position: usize,
    shown: bool,
}

impl Member<'_> {
    /// A field that is no member of a structure.
    const NAMELESS: Self = Self { name: "", position: 0, shown: true };
}

impl<'a> Compiler<'a> {
    /// Compiles every field of `root`. `hides` chooses hidden fields of the event that it names.
    pub(super) fn visited(
        slots: ClassSlots<'a>,
        scope: Scope,
        root: &Struct,
        hides: Option<(&'a dyn Hides, &'a str)>,
    ) -> Result<Code, SchemaError> {
        let mut compiler = Self::new(slots, scope, false, Known::NOTHING);
        compiler.hides = hides;
        compiler.root(root)?;
        Ok(compiler.code)
    }

    /// Compiles the scopes in order with runs merged, beginning at a position of which `known` is
    /// known. Returns the code and what is known of the position after it. `mixed`: fields inside
    /// bytes, in these scopes or before them, have both byte orders.
    pub(super) fn merged(
        slots: ClassSlots<'a>,
        scopes: &[(Scope, Option<&Struct>)],
        known: Known,
        mixed: bool,
    ) -> Result<(Code, Known), SchemaError> {
        let mut compiler = Self::new(slots, Scope::Payload, true, known);
        compiler.mixed = mixed;
        for (scope, root) in scopes {
            if let Some(root) = root {
                compiler.scope = *scope;
                compiler.root(root)?;
            }
        }
        Ok((compiler.code, compiler.known))
    }

    fn new(slots: ClassSlots<'a>, scope: Scope, merge: bool, known: Known) -> Self {
        Self {
            slots,
            scope,
            names: Vec::new(),
            code: Code::default(),
            merge,
            mixed: false,
            known,
            depth: 0,
            hides: None,
            within: None,
        }
    }

    fn root(&mut self, root: &Struct) -> Result<(), SchemaError> {
        let node = self.node(Member::NAMELESS, || Shape::Struct)?;
        self.structure(root, node)
    }

    fn node(
        &mut self,
        Member { name, position, shown }: Member<'_>,
        shape: impl FnOnce() -> Shape,
    ) -> Result<NodeId, SchemaError> {
        let id =
            u32::try_from(self.code.nodes.len()).map_err(|_| SchemaError::TooMany("fields"))?;
        if !self.merge {
            let depth = self.names.len();
            self.code.nodes.push(Node {
                name: name.to_owned(),
                position,
                depth,
                shown,
                shape: shape(),
            });
        }
        Ok(id)
    }

    fn align(&mut self, bits: u64) -> Result<(), SchemaError> {
        if bits <= 1 {
            return Ok(());
        }
        if !bits.is_power_of_two() || bits > MAX_ALIGNMENT {
            return Err(SchemaError::Alignment(bits));
        }
        if bits > self.known.modulus {
            self.code.ops.push(Op::Align(u32::try_from(bits).unwrap_or(u32::MAX)));
            self.known = Known { modulus: bits, offset: 0 };
        } else {
            self.advance(self.known.offset.wrapping_neg() & bits.wrapping_sub(1));
        }
        Ok(())
    }

    fn advance(&mut self, bits: u64) {
        self.known = self.known.advanced(bits);
        if bits == 0 {
            return;
        }
        match self.code.ops.last_mut() {
            // A jump can target the position after the last op only at the ends of loops and
            // choices, which `seal` marks.
            Some(Op::Advance(run)) if run.checked_add(bits).is_some() => {
                *run = run.saturating_add(bits)
            }
            _ => self.code.ops.push(Op::Advance(bits)),
        }
    }

    fn here(&self) -> u32 {
        u32::try_from(self.code.ops.len()).unwrap_or(u32::MAX)
    }

    /// Prevents merging across this position.
    fn seal(&mut self) {
        if matches!(self.code.ops.last(), Some(Op::Advance(_))) {
            self.code.ops.push(Op::Align(1));
        }
    }

    fn structure(&mut self, of: &Struct, node: NodeId) -> Result<(), SchemaError> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        if !self.merge {
            self.code.ops.push(Op::Begin(node));
        }
        self.align(of.alignment())?;
        let mut position = 0;
        for field in &of.fields {
            let shown = is_shown(&field.class);
            self.names.push(field.name.clone());
            self.member(&field.class, Member { name: &field.name, position, shown })?;
            self.names.pop();
            position = position.saturating_add(usize::from(shown));
        }
        if !self.merge {
            self.code.ops.push(Op::End(node));
        }
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    fn field(&mut self, class: &FieldClass, member: Member<'_>) -> Result<(), SchemaError> {
        self.slots.budget().steps("fields", 1).map_err(|_| SchemaError::Budget)?;
        match class {
            FieldClass::Integer(integer) => {
                let node = self.node(member, || integer_shape(integer))?;
                let kind = if integer.signed { Kind::Signed } else { Kind::Unsigned };
                self.fixed(node, integer.bits, kind, &integer.roles)
            }
            FieldClass::Bool(bits) => {
                let node = self.node(member, || Shape::Bool)?;
                self.fixed(node, *bits, Kind::Unsigned, &[])
            }
            FieldClass::BitArray(bits) => {
                let node = self.node(member, || Shape::BitArray { flags: Labels::default() })?;
                self.fixed(node, *bits, Kind::Unsigned, &[])
            }
            FieldClass::BitMap(bits, flags) => {
                let node = self.node(member, || Shape::BitArray { flags: flags.clone() })?;
                self.fixed(node, *bits, Kind::Unsigned, &[])
            }
            FieldClass::Float(float) => {
                let node = self.node(member, || Shape::Float(float.bits.length))?;
                self.float(node, float.bits)
            }
            FieldClass::Variable(integer) => {
                let node = self.node(member, || integer_shape(integer))?;
                self.align(8)?;
                self.code.ops.push(Op::Variable { node, signed: integer.signed });
                self.known = Known { modulus: 8, offset: 0 };
                self.uses(0, &integer.roles)
            }
            FieldClass::Text(text) => {
                let node = self.node(member, || Shape::Text(text.encoding))?;
                self.text(node, text)
            }
            FieldClass::Blob(blob) => {
                let node = self.node(member, || Shape::Blob)?;
                self.code.uuid = if blob.is_uuid { Some(node) } else { self.code.uuid };
                self.run(node, &blob.length, false)
            }
            FieldClass::Struct(of) => {
                let node = self.node(member, || Shape::Struct)?;
                self.structure(of, node)
            }
            FieldClass::Array(array) => {
                let node = self.node(member, || Shape::Array)?;
                self.code.uuid = if array.is_uuid { Some(node) } else { self.code.uuid };
                self.array(node, array)
            }
            FieldClass::Variant(_) | FieldClass::Optional(_) => self.choice(class, member),
        }
    }

    fn fixed(
        &mut self,
        node: NodeId,
        bits: Bits,
        kind: Kind,
        roles: &[Role],
    ) -> Result<(), SchemaError> {
        let Bits { length, alignment, order, reversed } = bits;
        if !(1..=64).contains(&length) {
            return Err(SchemaError::Length(length));
        }
        self.align(u64::from(alignment))?;
        let is_inside = self.mixed && inside_bytes(bits);
        if self.merge && roles.is_empty() && !self.is_wanted() && !is_inside {
            self.advance(u64::from(length));
            return Ok(());
        }
        let on_a_byte =
            alignment >= 8 || self.known.modulus >= 8 && self.known.offset.is_multiple_of(8);
        let whole = matches!(length, 8 | 16 | 32 | 64) && !reversed;
        let op = if on_a_byte && whole {
            Op::Bytes { node, size: length / 8, order, kind }
        } else {
            Op::Bits { node, bits, kind }
        };
        self.code.ops.push(op);
        self.known = self.known.advanced(u64::from(length));
        self.uses(length, roles)
    }

    fn float(&mut self, node: NodeId, bits: Bits) -> Result<(), SchemaError> {
        let kind = match bits.length {
            16 => Kind::Half,
            32 => Kind::Single,
            64 => Kind::Double,
            128 if bits.alignment >= 8 => {
                self.align(u64::from(bits.alignment))?;
                self.code.ops.push(Op::Quadruple { node, order: bits.order });
                self.known = self.known.advanced(128);
                return Ok(());
            }
            length => return Err(SchemaError::Length(length)),
        };
        self.fixed(node, bits, kind, &[])
    }

    fn is_wanted(&self) -> bool {
        self.target().is_some()
    }

    fn target(&self) -> Option<Target> {
        self.slots.find(&Path { scope: self.scope, names: self.names.clone() })
    }

    fn uses(&mut self, length: u8, roles: &[Role]) -> Result<(), SchemaError> {
        if let Some(target) = self.target() {
            self.code.ops.push(Op::Save(target.slot));
        }
        for role in roles {
            self.code.ops.push(match role {
                Role::Clock => Op::Clock(length),
                role => Op::Role(*role),
            });
        }
        Ok(())
    }

    fn text(&mut self, node: NodeId, text: &Text) -> Result<(), SchemaError> {
        if let Some(length) = &text.length {
            return self.run(node, length, true);
        }
        self.align(8)?;
        self.code
            .ops
            .push(Op::Text { node, unit: u8::try_from(text.encoding.unit()).unwrap_or(1) });
        self.known = Known { modulus: 8, offset: 0 };
        Ok(())
    }

    /// Compiles text or bytes with a length.
    fn run(&mut self, node: NodeId, length: &Length, text: bool) -> Result<(), SchemaError> {
        self.align(8)?;
        let count = self.count(length)?;
        if self.merge {
            match count {
                Count::Fixed(bytes) => {
                    self.advance(bytes.checked_mul(8).ok_or(SchemaError::TooLong(bytes))?)
                }
                Count::Slot(..) => {
                    self.code.ops.push(Op::Stride { count, bits: 8 });
                    self.known = self.known.strided(8);
                }
            }
        } else {
            self.code.ops.push(Op::Run { node, count, text });
            self.known = self.known.strided(8);
        }
        Ok(())
    }

    fn count(&self, length: &Length) -> Result<Count, SchemaError> {
        Ok(match length {
            Length::Fixed(count) => Count::Fixed(*count),
            Length::Of(path) => Count::Slot(self.slots.need(path)?.slot, 0),
        })
    }

    fn array(&mut self, node: NodeId, array: &Array) -> Result<(), SchemaError> {
        self.align(array.alignment.max(array.element.alignment()))?;
        let count = self.count(&array.length)?;
        if self.merge
            && let Some(stride) = self.stride(&array.element)
        {
            match count {
                Count::Fixed(count) => {
                    self.advance(count.checked_mul(stride).ok_or(SchemaError::TooLong(count))?)
                }
                Count::Slot(..) => {
                    let bits = u32::try_from(stride).map_err(|_| SchemaError::TooLong(stride))?;
                    self.code.ops.push(Op::Stride { count, bits });
                    self.known = self.known.strided(stride);
                }
            }
            return Ok(());
        }
        let begin = self.code.ops.len();
        let before = self.known;
        self.seal();
        let count = match count {
            Count::Slot(slot, _) => {
                Count::Slot(slot, u32::try_from(weight::of_element(array)).unwrap_or(u32::MAX))
            }
            fixed @ Count::Fixed(_) => fixed,
        };
        self.code.ops.push(Op::Loop { node, count, end: 0 });
        self.known = Known::NOTHING;
        self.deeper(|this| this.field(&array.element, Member::NAMELESS))?;
        self.seal();
        let end = self.here();
        if let Some(Op::Loop { end: place, .. }) =
            self.code.ops.get_mut(begin..).and_then(first_loop)
        {
            *place = end;
        }
        self.known = before.meet(self.known);
        Ok(())
    }

    /// Returns the bits from one element to the next if they are always the same and no other field
    /// depends on an element.
    fn stride(&self, element: &FieldClass) -> Option<u64> {
        let bits = match element {
            FieldClass::Integer(integer) if integer.roles.is_empty() && !self.is_wanted() => {
                integer.bits
            }
            FieldClass::Bool(bits) if !self.is_wanted() => *bits,
            FieldClass::BitArray(bits) | FieldClass::BitMap(bits, _) => *bits,
            FieldClass::Float(float) => float.bits,
            _ => return None,
        };
        if self.mixed && inside_bytes(bits) {
            return None;
        }
        let (length, alignment) = (u64::from(bits.length), u64::from(bits.alignment).max(1));
        (length.is_multiple_of(alignment) && weight::is_element_free(element, length))
            .then_some(length)
    }

    fn deeper(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return Err(SchemaError::TooDeep);
        }
        body(self)?;
        self.depth = self.depth.saturating_sub(1);
        Ok(())
    }

    fn choice(&mut self, class: &FieldClass, member: Member<'_>) -> Result<(), SchemaError> {
        let (selector, optional, shape) = match class {
            FieldClass::Variant(variant) => (&variant.selector, false, Shape::Variant),
            FieldClass::Optional(optional) => (&optional.selector, true, Shape::Optional),
            _ => return Ok(()),
        };
        let node = self.node(member, || shape)?;
        let target = self.slots.need(selector)?;
        let at = self.code.ops.len();
        let number = self.code.choices.len();
        let choice = u32::try_from(number).map_err(|_| SchemaError::TooMany("choices"))?;
        self.code.ops.push(Op::Choose { node, slot: target.slot, choice, end: 0 });
        self.code.choices.push(Choice {
            signed: target.signed,
            ranges: Vec::new(),
            index: None,
            cases: Vec::new(),
            optional,
        });
        let before = self.known;
        let mut after = if optional { Some(before) } else { None };
        for (case, (ranges, class)) in cases(class).into_iter().enumerate() {
            if !target.signed
                && ranges.iter().any(|range| (i128::from(i64::MIN)..0).contains(&range.lower))
            {
                return Err(SchemaError::Negative(selector.clone()));
            }
            self.known = before;
            let begin = self.here();
            let within = self.within.take();
            self.deeper(|this| match within.clone() {
                Some(how) => this.hidden(class, Member::NAMELESS, how),
                None => this.field(class, Member::NAMELESS),
            })?;
            self.within = within;
            self.seal();
            let end = self.here();
            after = Some(after.map_or(self.known, |known| known.meet(self.known)));
            let case = u32::try_from(case).map_err(|_| SchemaError::TooMany("options"))?;
            if let Some(choice) = self.code.choices.get_mut(number) {
                choice.ranges.extend(ranges.into_iter().map(|range| (case, range)));
                choice.cases.push((begin, end));
            }
        }
        if let Some(choice) =
            self.code.choices.get_mut(number).filter(|choice| choice.ranges.len() > FEW)
        {
            choice.index = Some(RangeIndex::new(choice.ranges.iter().copied()));
        }
        self.known = after.unwrap_or(before);
        let here = self.here();
        if let Some(Op::Choose { end, .. }) = self.code.ops.get_mut(at) {
            *end = here;
        }
        Ok(())
    }
}

fn first_loop(ops: &mut [Op]) -> Option<&mut Op> {
    ops.iter_mut().find(|op| matches!(op, Op::Loop { .. }))
}

/// Returns the options, each with the values that select it.
fn cases(class: &FieldClass) -> Vec<(Vec<Range>, &FieldClass)> {
    match class {
        FieldClass::Variant(variant) => {
            variant.options.iter().map(|option| (option.ranges.clone(), &option.class)).collect()
        }
        FieldClass::Optional(optional) => {
            let ranges = match &optional.ranges {
                Some(ranges) => ranges.clone(),
                // A boolean selects the option with any value except 0.
                None => vec![
                    Range { lower: i128::MIN, upper: -1 },
                    Range { lower: 1, upper: i128::MAX },
                ],
            };
            vec![(ranges, &optional.class)]
        }
        _ => Vec::new(),
    }
}

fn integer_shape(integer: &Integer) -> Shape {
    Shape::Integer {
        length: integer.bits.length,
        signed: integer.signed,
        base: integer.base,
        mappings: integer.mappings.clone(),
    }
}

/// Returns false for unsigned integers with a role, and for arrays of them: babeltrace2 does not
/// show them.
fn is_shown(class: &FieldClass) -> bool {
    match class {
        FieldClass::Integer(integer) | FieldClass::Variable(integer) => {
            integer.signed || integer.roles.is_empty()
        }
        FieldClass::Array(array) => is_shown(&array.element),
        FieldClass::Optional(optional) => is_shown(&optional.class),
        _ => true,
    }
}
