//! Converts DWARF entries to BTF types.

use super::WHAT;
use super::entries::{Bit, Entry, Unit};
use crate::btf::blob::{Blob, Head, number};
use crate::btf::{
    ARRAY, Btf, CONST, ENUM, ENUM64, FLOAT, FORWARD, INT, POINTER, RESTRICT, STRUCT, TYPEDEF,
    UNION, VOLATILE,
};
use lastwords_bytes::{Budget, ByteOrder, Error, low_u32};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Longest chain of types that refer to each other without a structure in between.
const DEPTH: usize = 32;
/// Number of types along a member's type that identify a structure.
const DESCRIBED: usize = 6;
/// Largest blob that is built, bytes.
const BLOB_MAX: usize = 256 << 20;

/// Converts units to a blob.
pub(super) struct Converter {
    blob: Blob,
    /// Numbers of the types added so far, by hash of their contents.
    known: HashMap<u64, u32>,
    /// True if the integer was added by which readers find the size of pointers.
    has_long: bool,
}

/// The conversion of one unit.
struct Pass<'c, 'u, 'a> {
    to: &'c mut Converter,
    unit: &'u Unit<'a>,
    /// Type numbers by index of the entry.
    done: HashMap<usize, u32>,
    /// Structures whose members are not written yet: index of the entry, type number.
    open: Vec<(usize, u32)>,
}

impl Converter {
    pub(super) fn new(base: Option<&Arc<Btf>>, order: ByteOrder) -> Self {
        let has_long = base.is_some();
        Self { blob: Blob::new(base.cloned(), order), known: HashMap::new(), has_long }
    }

    /// True if no unit has given a type.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Adds the types of a unit that are new.
    ///
    /// # Errors
    /// The budget is spent, or the blob is too large.
    pub(super) fn add(&mut self, unit: &Unit<'_>, budget: &Budget) -> Result<(), Error> {
        if !self.has_long {
            self.has_long = true;
            let word = u32::from(unit.word);
            let name = self.blob.string(b"long unsigned int");
            let head = Head { name, kind: INT, size_or_type: word, ..Head::default() };
            self.blob.add(head, &[word.saturating_mul(8)]);
        }
        let mut pass = Pass { to: self, unit, done: HashMap::new(), open: Vec::new() };
        for (index, entry) in unit.entries.iter().enumerate() {
            if entry.depth == 1 && !entry.is_declaration && is_looked_up(entry) {
                pass.type_of(index, DEPTH);
                pass.close(budget)?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.blob.bytes()
    }

    /// Returns the number of the type with this hash; adds the type with `make` if it is new.
    fn known(&mut self, key: u64, make: impl FnOnce(&mut Blob) -> u32) -> u32 {
        if let Some(id) = self.known.get(&key) {
            return *id;
        }
        let id = make(&mut self.blob);
        self.known.insert(key, id);
        id
    }
}

impl Pass<'_, '_, '_> {
    /// Number of the type that an entry refers to; 0 if that type is not in this unit.
    fn target(&mut self, entry: &Entry<'_>, depth: usize) -> u32 {
        let index = entry.target.and_then(|offset| self.unit.find(offset));
        index.map_or(0, |index| self.type_of(index, depth))
    }

    /// Number of the type of the entry at `index`; adds the type if it is new.
    fn type_of(&mut self, index: usize, depth: usize) -> u32 {
        if let Some(id) = self.done.get(&index) {
            return *id;
        }
        let unit = self.unit;
        let (Some(entry), Some(depth)) = (unit.entries.get(index), depth.checked_sub(1)) else {
            return 0;
        };
        let id = match entry.tag {
            gimli::DW_TAG_base_type => self.base(entry),
            gimli::DW_TAG_pointer_type => self.reference(entry, POINTER, depth),
            gimli::DW_TAG_typedef => self.reference(entry, TYPEDEF, depth),
            gimli::DW_TAG_const_type => self.reference(entry, CONST, depth),
            gimli::DW_TAG_volatile_type => self.reference(entry, VOLATILE, depth),
            gimli::DW_TAG_restrict_type => self.reference(entry, RESTRICT, depth),
            gimli::DW_TAG_atomic_type => self.target(entry, depth),
            gimli::DW_TAG_array_type => self.array(index, entry, depth),
            gimli::DW_TAG_enumeration_type => self.enumeration(index, entry),
            gimli::DW_TAG_structure_type => self.structure(index, entry, STRUCT),
            gimli::DW_TAG_union_type => self.structure(index, entry, UNION),
            _ => 0,
        };
        self.done.insert(index, id);
        id
    }

    fn base(&mut self, entry: &Entry<'_>) -> u32 {
        let size = number(entry.size.unwrap_or_default());
        let key = hash(&(INT, entry.name, size, entry.encoding));
        let is = |encoding: gimli::DwAte| entry.encoding == u64::from(encoding.0);
        let is_signed = is(gimli::DW_ATE_signed) || is(gimli::DW_ATE_signed_char);
        let is_float = is(gimli::DW_ATE_float) || is(gimli::DW_ATE_complex_float);
        self.to.known(key, |blob| {
            let kind = if is_float { FLOAT } else { INT };
            let head =
                Head { name: blob.string(entry.name), kind, size_or_type: size, ..Head::default() };
            // Sign at bit 24, then offset 0, then the number of bits.
            let bits = u32::from(is_signed) << 24 | size.saturating_mul(8) & 0xff;
            blob.add(head, if is_float { &[] } else { std::slice::from_ref(&bits) })
        })
    }

    fn reference(&mut self, entry: &Entry<'_>, kind: u8, depth: usize) -> u32 {
        let target = self.target(entry, depth);
        // Only type definitions have names.
        let name = if kind == TYPEDEF { entry.name } else { &[] };
        self.to.known(hash(&(kind, name, target)), |blob| {
            let head =
                Head { name: blob.string(name), kind, size_or_type: target, ..Head::default() };
            blob.add(head, &[])
        })
    }

    fn array(&mut self, index: usize, entry: &Entry<'_>, depth: usize) -> u32 {
        let unit = self.unit;
        let element = self.target(entry, depth);
        let ranges =
            unit.children(index).filter(|(_, child)| child.tag == gimli::DW_TAG_subrange_type);
        let counts = ranges.map(|(_, range)| range.count.unwrap_or_default());
        // BTF has one array of all elements. A bound of -1 may have been stored in 32 bits.
        let count = u32::try_from(counts.fold(1u64, u64::saturating_mul)).unwrap_or_default();
        self.to.known(hash(&(ARRAY, element, count)), |blob| {
            // Element type, index type (not used), count.
            blob.add(Head { kind: ARRAY, ..Head::default() }, &[element, element, count])
        })
    }

    fn enumeration(&mut self, index: usize, entry: &Entry<'_>) -> u32 {
        if entry.is_declaration {
            return self.forward(entry);
        }
        let unit = self.unit;
        let of = unit.children(index).filter(|(_, child)| child.tag == gimli::DW_TAG_enumerator);
        let rows: Vec<(&[u8], i128)> = of.map(|(_, child)| (child.name, child.value)).collect();
        let size = entry.size.unwrap_or(4);
        self.to.known(hash(&(ENUM, entry.name, size, &rows)), |blob| {
            let is_long = size > 4;
            let mut body = Vec::new();
            for (name, value) in &rows {
                body.push(blob.string(name));
                let raw = u64::try_from(value.cast_unsigned() & u128::from(u64::MAX)).unwrap_or(0);
                body.push(low_u32(raw));
                body.extend(is_long.then_some(low_u32(raw >> 32)));
            }
            let head = Head {
                name: blob.string(entry.name),
                kind: if is_long { ENUM64 } else { ENUM },
                flag: rows.iter().any(|row| row.1 < 0),
                count: rows.len(),
                size_or_type: number(size),
            };
            blob.add(head, &body)
        })
    }

    fn forward(&mut self, entry: &Entry<'_>) -> u32 {
        self.to.known(hash(&(FORWARD, entry.name)), |blob| {
            let head = Head { name: blob.string(entry.name), kind: FORWARD, ..Head::default() };
            blob.add(head, &[])
        })
    }

    /// Adds a structure or union. Its members are written later, so that they may refer to it.
    fn structure(&mut self, index: usize, entry: &Entry<'_>, kind: u8) -> u32 {
        if entry.is_declaration {
            return self.forward(entry);
        }
        let key = self.signature(index, entry, kind);
        let mut is_new = false;
        let id = self.to.known(key, |blob| {
            is_new = true;
            blob.reserve()
        });
        if is_new {
            self.open.push((index, id));
        }
        id
    }

    /// Hash that identifies a structure across units: its name, and its members' names, offsets and
    /// names of types.
    fn signature(&self, index: usize, entry: &Entry<'_>, kind: u8) -> u64 {
        let mut hasher = DefaultHasher::new();
        (kind, entry.name, entry.size).hash(&mut hasher);
        for (_, member) in members(self.unit, index) {
            (member.name, member.location, bit(member), member.bits).hash(&mut hasher);
            let mut at = member.target;
            for _ in 0..DESCRIBED {
                let Some(found) = at.and_then(|at| self.unit.entries.get(self.unit.find(at)?))
                else {
                    break;
                };
                (found.tag.0, found.name).hash(&mut hasher);
                at = found.target.filter(|_| found.name.is_empty());
            }
        }
        hasher.finish()
    }

    /// Writes the members of the structures found so far.
    fn close(&mut self, budget: &Budget) -> Result<(), Error> {
        while let Some((index, id)) = self.open.pop() {
            budget.steps(WHAT, 1)?;
            let unit = self.unit;
            let Some(entry) = unit.entries.get(index) else { continue };
            let flag = members(unit, index).any(|(_, member)| member.bits != 0);
            let mut body = Vec::new();
            for (_, member) in members(unit, index) {
                let type_id = self.target(member, DEPTH);
                let at = number(self.place(member));
                let place = if flag { at & 0xff_ffff | number(member.bits) << 24 } else { at };
                body.extend([self.to.blob.string(member.name), type_id, place]);
            }
            let kind = if entry.tag == gimli::DW_TAG_union_type { UNION } else { STRUCT };
            let name = self.to.blob.string(entry.name);
            let size_or_type = number(entry.size.unwrap_or_default());
            self.to.blob.write(
                id,
                Head { name, kind, flag, count: body.len() / 3, size_or_type },
                &body,
            );
            if self.to.blob.len() > BLOB_MAX {
                return Err(Error::value(
                    WHAT,
                    entry.offset as u64,
                    BLOB_MAX as u64,
                    "types of up to 256 MiB",
                ));
            }
        }
        Ok(())
    }

    /// Offset of a member in its structure, bits.
    fn place(&self, member: &Entry<'_>) -> u64 {
        let bytes = member.location.saturating_mul(8);
        match member.bit {
            Bit::Low(bit) => bytes.saturating_add(bit),
            // Counted from the highest bit of the storage unit, which is last in memory in this
            // byte order.
            Bit::Above(above) => {
                let own = || self.unit.entries.get(self.unit.find(member.target?)?)?.size;
                let storage = member.size.or_else(own).unwrap_or_default().saturating_mul(8);
                bytes.saturating_add(storage.saturating_sub(above.saturating_add(member.bits)))
            }
        }
    }
}

/// The members of the structure at `index`.
fn members<'u, 'a>(
    unit: &'u Unit<'a>,
    index: usize,
) -> impl Iterator<Item = (usize, &'u Entry<'a>)> {
    unit.children(index).filter(|(_, child)| child.tag == gimli::DW_TAG_member)
}

/// True if the type is looked up by its name or by the names of its enumerators.
fn is_looked_up(entry: &Entry<'_>) -> bool {
    match entry.tag {
        gimli::DW_TAG_enumeration_type => true,
        gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type | gimli::DW_TAG_typedef => {
            !entry.name.is_empty()
        }
        _ => false,
    }
}

fn bit(member: &Entry<'_>) -> (bool, u64) {
    match member.bit {
        Bit::Low(bit) => (false, bit),
        Bit::Above(bit) => (true, bit),
    }
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
