//! Builds types that no blob has: for modules whose image has no types of their own.
//!
//! A [`Builder`] lays out structures like the compiler (System V ABI: each member at the next
//! multiple of its alignment). It takes sizes and alignments of the kernel's types from the
//! kernel's blob.

use super::blob::{Blob, Head, number};
use super::{ARRAY, FORWARD, INT, POINTER, STRUCT, TypeId, Types};
use crate::Error;
use lastwords_bytes::{Budget, ByteOrder, Error as BytesError};
use std::collections::HashMap;
use std::sync::Arc;

/// Greatest nesting of structures when an alignment is computed.
const DEPTH: usize = 16;

/// A type that members can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Built {
    id: u32,
    size: u64,
    align: u64,
}

/// Builds a blob that continues the kernel's blob.
pub struct Builder {
    kernel: Arc<Types>,
    word: u64,
    blob: Blob,
    known: HashMap<String, Built>,
}

impl Builder {
    /// Starts a blob of types in addition to those of `kernel`, whose pointers have `word` bytes.
    #[must_use]
    pub fn new(kernel: &Arc<Types>, order: ByteOrder, word: u8) -> Self {
        let blob = Blob::new(Some(Arc::clone(kernel.btf())), order);
        Self { kernel: Arc::clone(kernel), word: word.into(), blob, known: HashMap::new() }
    }

    /// Adds a structure from its declaration: members of the form `TYPE NAME`, separated by
    /// semicolons.
    ///
    /// Types: `u8`, `u32`, `u64`, `int`, `long`; `*` is an untyped pointer, `*NAME` a pointer to a
    /// structure of this builder (added before or later), and `**NAME` a pointer to such a pointer;
    /// `@NAME` is a type of the kernel, `NAME` a structure added before. `NAME[4]` is an array,
    /// `NAME[]` a flexible array, `NAME:1` a bit field at the start of a `u32`.
    ///
    /// # Errors
    /// A type is unknown.
    pub fn structure(&mut self, name: &str, declaration: &str) -> Result<(), Error> {
        let mut members = Vec::new();
        let (mut end, mut align) = (0u64, 1u64);
        for member in declaration.split(';').map(str::trim).filter(|member| !member.is_empty()) {
            let (type_name, declarator) = member
                .rsplit_once(' ')
                .ok_or_else(|| Error::NoType(format!("of member {member} of {name}")))?;
            let mut built = self.by_name(type_name.trim())?;
            let (field, bits) = match declarator.split_once(':') {
                Some((field, bits)) => (field, bits.parse().unwrap_or(0u8)),
                None => (declarator, 0),
            };
            let field = match field.split_once('[') {
                Some((field, count)) => {
                    built = self.array(built, count.trim_end_matches(']').parse().unwrap_or(0));
                    field
                }
                None => field,
            };
            let at = end.checked_next_multiple_of(built.align.max(1)).unwrap_or(end);
            let place = number(at.saturating_mul(8)) | u32::from(bits) << 24;
            members.extend([self.blob.string(field.as_bytes()), built.id, place]);
            end = at.saturating_add(built.size);
            align = align.max(built.align);
        }
        let size = end.checked_next_multiple_of(align).unwrap_or(end);
        let count = members.len() / 3;
        let name_at = self.blob.string(name.as_bytes());
        let head =
            Head { name: name_at, kind: STRUCT, flag: true, count, size_or_type: number(size) };
        let id = self.blob.add(head, &members);
        self.known.insert(name.to_owned(), Built { id, size, align });
        Ok(())
    }

    /// Size of a structure that was added, bytes.
    #[must_use]
    pub fn size_of(&self, name: &str) -> Option<u64> {
        self.known.get(name).map(|built| built.size)
    }

    /// Returns the kernel's types together with the added ones.
    ///
    /// # Errors
    /// There are too many types.
    pub fn finish(self, budget: &Budget) -> Result<Types, BytesError> {
        self.blob.types(budget)
    }

    fn by_name(&mut self, name: &str) -> Result<Built, Error> {
        if let Some(built) = self.known.get(name) {
            return Ok(*built);
        }
        if let Some(target) = name.strip_prefix('*') {
            let to = match target {
                "" => 0,
                target if target.starts_with('*') => self.by_name(target)?.id,
                target => self.forward(target),
            };
            let id =
                self.blob.add(Head { kind: POINTER, size_or_type: to, ..Head::default() }, &[]);
            let built = Built { id, size: self.word, align: self.word };
            self.known.insert(name.to_owned(), built);
            return Ok(built);
        }
        if let Some(name) = name.strip_prefix('@') {
            let id = self.kernel.id(name)?;
            return Ok(Built {
                id: id.0,
                size: self.kernel.size(id),
                align: self.kernel.align(id),
            });
        }
        let size = match name {
            "u8" => 1,
            "u32" | "int" => 4,
            "u64" => 8,
            "long" => self.word,
            _ => return Err(Error::NoType(name.to_owned())),
        };
        let head = Head { name: self.blob.string(name.as_bytes()), kind: INT, ..Head::default() };
        // Sign at bit 24, then offset 0, then the number of bits.
        let bits = u32::from(name == "int") << 24 | number(size.saturating_mul(8));
        let id = self.blob.add(Head { size_or_type: number(size), ..head }, &[bits]);
        let built = Built { id, size, align: size };
        self.known.insert(name.to_owned(), built);
        Ok(built)
    }

    fn forward(&mut self, name: &str) -> u32 {
        let head =
            Head { name: self.blob.string(name.as_bytes()), kind: FORWARD, ..Head::default() };
        self.blob.add(head, &[])
    }

    fn array(&mut self, element: Built, count: u32) -> Built {
        // Element type, index type (not used), count.
        let id = self
            .blob
            .add(Head { kind: ARRAY, ..Head::default() }, &[element.id, element.id, count]);
        Built { id, size: element.size.saturating_mul(count.into()), ..element }
    }
}

impl Types {
    /// Alignment of a type in bytes, computed from its members. Attributes that raise the alignment
    /// are not visible in a blob.
    #[must_use]
    pub fn align(&self, id: TypeId) -> u64 {
        self.align_within(id, DEPTH)
    }

    fn align_within(&self, id: TypeId, depth: usize) -> u64 {
        use super::MemberKind;
        match self.kind(id) {
            MemberKind::Array { .. } => {
                let element = self.target(id);
                element
                    .filter(|_| depth > 0)
                    .map_or(1, |id| self.align_within(id, depth.saturating_sub(1)))
            }
            MemberKind::Structure => {
                let members = self.member_types(id).into_iter().take(256);
                let below =
                    |id| if depth > 0 { self.align_within(id, depth.saturating_sub(1)) } else { 1 };
                members.map(below).max().unwrap_or(1)
            }
            _ => self.size(id).clamp(1, 16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Btf;
    use super::*;

    /// A kernel blob with one structure of 12 bytes, aligned to 4.
    fn kernel() -> Arc<Types> {
        let blob = Btf::parse(empty(), None, &Budget::default()).expect("a blob");
        let mut builder = Builder::new(&Arc::new(Types::new(Arc::new(blob))), ByteOrder::Little, 8);
        builder.structure("three", "u32 a; u32 b; u8 c").expect("known types");
        Arc::new(builder.finish(&Budget::default()).expect("a blob"))
    }

    fn empty() -> Vec<u8> {
        let mut blob = vec![0x9f, 0xeb, 1, 0];
        [24u32, 0, 0, 0, 1].iter().for_each(|word| blob.extend(word.to_le_bytes()));
        blob.push(0);
        blob
    }

    #[test]
    fn laid_out_as_compilers_do() {
        let mut builder = Builder::new(&kernel(), ByteOrder::Little, 8);
        builder.structure("row", "*table next; u32 n").expect("known types");
        let declaration =
            "u8 flag; @three three; row rows[3]; **row each; long last; u32 held:1; u8 tail[]";
        builder.structure("table", declaration).expect("known types");
        assert!(builder.structure("odd", "none x").is_err());
        assert_eq!((builder.size_of("row"), builder.size_of("table")), (Some(16), Some(88)));
        let types = builder.finish(&Budget::default()).expect("a blob");
        let at = |path: &str| {
            types.member("table", path).map(|m| (m.offset, m.size, m.bits)).expect("a member")
        };
        assert_eq!(at("three.c"), (12, 1, None));
        assert_eq!(at("rows[2].n"), (56, 4, None));
        assert_eq!(at("last"), (72, 8, None));
        assert_eq!(at("held"), (80, 4, Some((0, 1))));
        assert_eq!(at("tail").0, 84);
        let each = types.member("table", "each").expect("a member");
        let row =
            types.target(types.target(each.type_id).expect("a pointer")).expect("a structure");
        assert_eq!(types.name(row), "row");
        let next = types.member_of(row, "next").expect("a member");
        assert_eq!(types.name(types.target(next.type_id).expect("a structure")), "table");
    }
}
