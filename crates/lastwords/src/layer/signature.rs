//! The types of an event's values, by field.

use std::mem::MaybeUninit;

use crate::session::desc::FieldType;

/// Largest number of a callsite's fields that are recorded. The values of later fields are counted
/// as left out.
pub(super) const MOST_FIELDS: usize = 512;
/// Bits for the type of a field.
const BITS: usize = 4;
/// Fields whose types are in one word.
pub(super) const A_WORD: usize = 64 / BITS;
const WORDS: usize = MOST_FIELDS / A_WORD;
/// Bytes of the bits of optional fields, if all fields are optional.
pub(super) const MASK_ROOM: usize = MOST_FIELDS / 8;
/// The lowest bit of each field in a word.
const LOWEST: u64 = 0x1111_1111_1111_1111;

/// Type of a value: one more than its position in [`TYPES`]; 0 means that the field has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Unsigned = 1,
    Signed = 2,
    Float = 3,
    Bool = 4,
    Text = 5,
}

const TYPES: [(Type, FieldType); 5] = [
    (Type::Unsigned, FieldType::Unsigned { bytes: 8, base: 10 }),
    (Type::Signed, FieldType::Signed { bytes: 8, base: 10 }),
    (Type::Float, FieldType::Float { bytes: 8 }),
    (Type::Bool, FieldType::Bool),
    (Type::Text, FieldType::String),
];

impl Type {
    /// Returns the type of a field in the description of an event.
    pub(super) const fn field(self) -> &'static FieldType {
        &TYPES[self as usize - 1].1
    }

    fn from_bits(bits: u64) -> Option<Self> {
        TYPES.get((bits as usize).checked_sub(1)?).map(|(ty, _)| *ty)
    }
}

/// The types of an event's values: which fields have values, and of which types. Only the words of
/// the callsite's fields are in use. Nearly all callsites use one.
#[repr(C)]
pub(super) struct Signature {
    /// The first word, and behind it the others.
    first: u64,
    more: [MaybeUninit<u64>; WORDS - 1],
    used: usize,
}

/// Returns the words that a callsite with this many fields uses.
fn words_for(fields: usize) -> usize {
    fields.div_ceil(A_WORD).clamp(1, WORDS)
}

impl Signature {
    /// Makes the signature of an event without values, whose callsite uses one word.
    #[inline(always)]
    pub(super) fn empty() -> Self {
        Self { first: 0, more: [const { MaybeUninit::uninit() }; WORDS - 1], used: 1 }
    }

    /// Uses the words of a callsite with this many fields. It is called before there are values.
    #[inline(always)]
    pub(super) fn make_room(&mut self, fields: usize) {
        if fields > A_WORD {
            self.make_more_room(words_for(fields));
        }
    }

    #[inline(never)]
    fn make_more_room(&mut self, words: usize) {
        self.more[..words - 1].fill(MaybeUninit::new(0));
        self.used = words;
    }

    /// Makes the signature of an event without values. The callsite has this many fields.
    #[cfg(test)]
    fn new(fields: usize) -> Self {
        let mut new = Self::empty();
        new.make_room(fields);
        new
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &[u64] {
        // SAFETY: the words are at the begin of `self`, and `make_more_room` has initialised those
        // in use behind the first.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), self.used) }
    }

    #[inline(always)]
    fn word(&mut self, field: usize) -> &mut u64 {
        if field < A_WORD {
            return &mut self.first;
        }
        let used = &mut self.more[..self.used - 1];
        // SAFETY: `make_more_room` has initialised the words in use.
        unsafe { used[field / A_WORD - 1].assume_init_mut() }
    }

    /// Sets the type of a field that has none.
    #[inline(always)]
    pub(super) fn add(&mut self, field: usize, ty: Type) {
        *self.word(field) |= (ty as u64) << (field % A_WORD * BITS);
    }

    /// Returns true if this field of the first word, and all behind it in the word, have no type.
    #[inline(always)]
    pub(super) fn is_behind_first(&self, field: usize) -> bool {
        self.first >> (field % A_WORD * BITS) == 0
    }

    /// Sets the type of a field of the first word that has none.
    #[inline(always)]
    pub(super) fn add_to_first(&mut self, field: usize, ty: Type) {
        self.first |= (ty as u64) << (field % A_WORD * BITS);
    }

    /// Returns true if this field or one behind it has a type.
    #[inline]
    pub(super) fn has_from(&self, field: usize) -> bool {
        let behind = self.words().get(field / A_WORD..).unwrap_or_default();
        let Some((first, rest)) = behind.split_first() else { return false };
        first >> (field % A_WORD * BITS) != 0 || rest.iter().any(|types| *types != 0)
    }

    pub(super) fn remove(&mut self, field: usize) {
        *self.word(field) &= !(0xf << (field % A_WORD * BITS));
    }

    /// Returns the type of the field's value.
    pub(super) fn field(&self, field: usize) -> Option<Type> {
        Type::from_bits(self.words().get(field / A_WORD)? >> (field % A_WORD * BITS) & 0xf)
    }
}

/// The types of the values in a class of events: those of every event, and those of optional
/// fields, each of which an event may lack.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The types of all values, if they are in one word and none is optional; otherwise
    /// [`NOT_EXACT`].
    exact: u64,
    first: ShapeWord,
    /// The words behind the first.
    more: Box<[ShapeWord]>,
    /// Bytes of the bits in front of an event's values: one bit for each optional field.
    mask_len: usize,
    /// The number of the first optional field, if all of them are in the first word and follow
    /// each other; otherwise [`SCATTERED`].
    optional_from: u32,
}

/// A word that no signature has.
const NOT_EXACT: u64 = u64::MAX;
/// The number of no field.
const SCATTERED: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ShapeWord {
    types: u64,
    /// All bits of the fields that each event has.
    required: u64,
    /// A bit for each optional field.
    optional: u16,
}

impl ShapeWord {
    #[inline(always)]
    fn fits(&self, types: u64) -> bool {
        let present = spread(types);
        self.types & present == types && self.required & !present == 0
    }
}

impl Shape {
    fn from_words(words: &[ShapeWord]) -> Self {
        let [first, more @ ..] = words else { unreachable!("a signature has a word") };
        let optional: usize = words.iter().map(|word| word.optional.count_ones() as usize).sum();
        let exact = if more.is_empty() && optional == 0 { first.types } else { NOT_EXACT };
        let from = first.optional.trailing_zeros();
        let is_run = (u32::from(first.optional) >> (from % 16)).wrapping_add(1).is_power_of_two();
        let optional_from =
            if more.is_empty() && optional > 0 && is_run { from } else { SCATTERED };
        Self {
            exact,
            first: *first,
            more: more.into(),
            mask_len: optional.div_ceil(8),
            optional_from,
        }
    }

    fn words(&self) -> impl Iterator<Item = &ShapeWord> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Makes the shape of events with exactly these values.
    pub(super) fn exact(signature: &Signature) -> Self {
        let word = |types: &u64| ShapeWord { types: *types, required: spread(*types), optional: 0 };
        Self::from_words(&signature.words().iter().map(word).collect::<Vec<_>>())
    }

    /// Makes the shape of the events that this shape has and of events with these values. Returns
    /// `None` if a field has different types.
    pub(super) fn with(&self, signature: &Signature) -> Option<Self> {
        let both = |(word, types): (&ShapeWord, &u64)| {
            let (old, new) = (spread(word.types), spread(*types));
            let types_of_all = word.types | types;
            let required = word.required & new;
            let optional = gather((old | new) & !required & LOWEST);
            let agrees = (word.types ^ types) & old & new == 0;
            agrees.then_some(ShapeWord { types: types_of_all, required, optional })
        };
        let words = self.words().zip(signature.words()).map(both).collect::<Option<Vec<_>>>()?;
        Some(Self::from_words(&words))
    }

    /// Returns true if the shape has one word, no field is optional, and an event with these values
    /// has it.
    #[inline(always)]
    pub(super) fn is_exactly(&self, signature: &Signature) -> bool {
        self.exact == signature.first
    }

    /// Returns true if the events have no values.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.exact == 0
    }

    /// Returns true if an event with these values has this shape.
    #[inline(always)]
    pub(super) fn fits(&self, signature: &Signature) -> bool {
        self.first.fits(signature.first) && (self.more.is_empty() || self.fits_behind(signature))
    }

    #[inline(never)]
    fn fits_behind(&self, signature: &Signature) -> bool {
        self.more.iter().zip(&signature.words()[1..]).all(|(word, types)| word.fits(*types))
    }

    /// Returns the type of a field, and whether it is optional; none if no event has the field.
    pub(super) fn field(&self, field: usize) -> Option<(Type, bool)> {
        let word = self.words().nth(field / A_WORD)?;
        let ty = Type::from_bits(word.types >> (field % A_WORD * BITS) & 0xf)?;
        Some((ty, word.optional >> (field % A_WORD) & 1 != 0))
    }

    /// Returns the bytes of the bits in front of an event's values: one for each optional field.
    #[inline(always)]
    pub(super) fn mask_len(&self) -> usize {
        self.mask_len
    }

    /// Returns the bits that say which optional fields an event with these values has, in memory
    /// order, and the number of bytes that contain them: one or two. Returns none if the event does
    /// not have this shape, or if the shape is not as nearly all are: 16 fields at most, of which
    /// the optional ones follow each other.
    #[inline(always)]
    pub(super) fn short_mask(&self, signature: &Signature) -> Option<(u32, usize)> {
        let is_short = self.optional_from != SCATTERED && cfg!(target_endian = "little");
        match is_short && self.first.fits(signature.first) {
            true => Some((u32::from(self.run_of_bits(signature)), self.mask_len)),
            false => None,
        }
    }

    /// Returns the bits of the optional fields, which are in the first word and follow each other.
    #[inline(always)]
    fn run_of_bits(&self, signature: &Signature) -> u16 {
        (gather(lowest(signature.first)) & self.first.optional) >> (self.optional_from % 16)
    }

    /// Writes the bits that say which optional fields an event has into the last [`Self::mask_len`]
    /// bytes of the room.
    #[inline(always)]
    pub(super) fn put_mask(&self, signature: &Signature, to: &mut [MaybeUninit<u8>; MASK_ROOM]) {
        if self.optional_from == SCATTERED || cfg!(target_endian = "big") {
            return self.put_scattered_mask(
                signature,
                &mut to[MASK_ROOM - self.mask_len.min(MASK_ROOM)..],
            );
        }
        // Nearly always there are 16 fields at most, and the optional ones follow each other. They
        // are in one or two bytes.
        let bits = self.run_of_bits(signature);
        let bits = if self.mask_len == 1 { bits << 8 } else { bits };
        *to.last_chunk_mut().expect("two bytes") = bits.to_le_bytes().map(MaybeUninit::new);
    }

    #[inline(never)]
    fn put_scattered_mask(&self, signature: &Signature, to: &mut [MaybeUninit<u8>]) {
        let (mut bits, mut count, mut to) = (0u64, 0u32, to.iter_mut());
        let mut put = |bits: u64| {
            let byte = if cfg!(target_endian = "little") {
                bits as u8
            } else {
                (bits as u8).reverse_bits()
            };
            if let Some(place) = to.next() {
                place.write(byte);
            }
        };
        for (word, types) in self.words().zip(signature.words()) {
            bits |= u64::from(extract(gather(lowest(*types)), word.optional)) << count;
            count += word.optional.count_ones();
            while count >= 8 {
                put(bits);
                (bits, count) = (bits >> 8, count - 8);
            }
        }
        if count > 0 {
            put(bits);
        }
    }
}

/// Sets the lowest bit of the fields that have a type, and no other.
#[inline(always)]
fn lowest(types: u64) -> u64 {
    (types | types >> 1 | types >> 2) & LOWEST
}

/// Sets all bits of the fields that have a type.
#[inline(always)]
fn spread(types: u64) -> u64 {
    lowest(types) * 0xf
}

/// Moves the lowest bits of the fields of a word together.
#[inline(always)]
fn gather(lowest: u64) -> u16 {
    let pairs = (lowest | lowest >> 3) & 0x0303_0303_0303_0303;
    let fours = (pairs | pairs >> 6) & 0x000f_000f_000f_000f;
    let eights = (fours | fours >> 12) & 0x0000_00ff_0000_00ff;
    (eights | eights >> 24) as u16
}

/// Moves the bits that `mask` selects together.
#[inline(always)]
fn extract(bits: u16, mask: u16) -> u16 {
    let bits = bits & mask;
    let (mut rest, mut to, mut out) = (mask, 0, 0);
    while rest != 0 {
        out |= (bits >> rest.trailing_zeros() & 1) << to;
        rest &= rest - 1;
        to += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use lastwords_testkit::random::Random;

    use super::*;

    const ALL: [Type; 5] = [Type::Unsigned, Type::Signed, Type::Float, Type::Bool, Type::Text];

    fn signature(fields: &[Option<Type>]) -> Signature {
        let mut signature = Signature::new(fields.len());
        for (at, ty) in fields.iter().enumerate() {
            ty.iter().for_each(|ty| signature.add(at, *ty));
        }
        signature
    }

    /// Random events of callsites with 1 to 100 optional fields. A list of options judges the shape
    /// and its mask.
    #[test]
    fn shapes_grow_as_lists_of_options_do() {
        let mut random = Random(1);
        let (most, step, events) = if cfg!(miri) { (20, 16, 2) } else { (100, 1, 20) };
        let mut short_masks = 0;
        for count in (1..most).step_by(step) {
            let types: Vec<Type> = (0..count).map(|_| *random.pick(&ALL)).collect();
            let mut event =
                || types.iter().map(|ty| (!random.one_in(3)).then_some(*ty)).collect::<Vec<_>>();
            let mut seen = vec![event()];
            let mut shape = Shape::exact(&signature(&seen[0]));
            for _ in 0..events {
                let fields = event();
                shape = shape.with(&signature(&fields)).expect("each field has one type");
                seen.push(fields);
                for fields in &seen {
                    let signature = signature(fields);
                    assert!(shape.fits(&signature));
                    let is_optional = |at: &usize| {
                        let has = |event: &&Vec<Option<Type>>| event[*at].is_some();
                        seen.iter().any(|event| has(&event))
                            && !seen.iter().all(|event| has(&event))
                    };
                    let bits = (0..count).filter(is_optional).map(|at| fields[at].is_some());
                    let bits: Vec<bool> = bits.collect();
                    let mut mask = [MaybeUninit::new(0xff); MASK_ROOM];
                    shape.put_mask(&signature, &mut mask);
                    assert_eq!(shape.mask_len(), bits.len().div_ceil(8));
                    let mask = &mask[MASK_ROOM - shape.mask_len()..];
                    // SAFETY: all bytes were initialised.
                    let mask: Vec<u8> =
                        mask.iter().map(|byte| unsafe { byte.assume_init() }).collect();
                    if let Some((short, len)) = shape.short_mask(&signature) {
                        assert_eq!(short.to_ne_bytes()[..len], mask, "{count} fields");
                        short_masks += 1;
                    }
                    for (at, bit) in bits.iter().enumerate() {
                        let byte = mask[at / 8];
                        let place =
                            if cfg!(target_endian = "little") { at % 8 } else { 7 - at % 8 };
                        assert_eq!(byte >> place & 1 != 0, *bit, "{count} fields, bit {at}");
                    }
                }
            }
            // A field of another type needs another shape.
            let other = types
                .iter()
                .map(|ty| Some(if *ty == Type::Bool { Type::Text } else { Type::Bool }));
            let other = signature(&other.collect::<Vec<_>>());
            assert!(
                !shape.fits(&other)
                    && shape.short_mask(&other).is_none()
                    && (0..count).all(|at| shape.field(at).is_none())
                        == shape.with(&other).is_some()
            );
        }
        assert!(cfg!(any(miri, target_endian = "big")) || short_masks > 100, "{short_masks}");
    }
}
