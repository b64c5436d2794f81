//! Looks up types and members by name.

use super::{
    ARRAY, Btf, CONST, ENUM, ENUM64, FLOAT, FORWARD, INT, POINTER, PROTOTYPE, RESTRICT, Raw,
    RawMember, SECTION, STRUCT, TYPE_TAG, TYPEDEF, UNION, VARIABLE, VOLATILE,
};
use crate::Error;
use lastwords_trace::symbols::{Parameter, ParameterKind};
use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// Greatest nesting of type definitions, arrays, and unnamed structures.
const DEPTH: usize = 32;
/// Most parameters of a function that are returned; registers hold fewer.
const PARAMETERS: usize = 64;
/// Most structures of the same name that are searched for a member.
const ALIKE: usize = 16;
/// Most members examined for one name, so that forged types that contain themselves cost little.
const STEPS: usize = 1 << 14;

/// Number of a type in a [`Types`]. 0 is `void`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// The kind of a member's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// An integer, a character, a boolean or an enumerator.
    Number {
        /// True for a signed number.
        signed: bool,
    },
    /// A pointer; [`Types::target`] returns the type pointed to.
    Pointer,
    /// An array.
    Array {
        /// Number of elements; 0 for a flexible array.
        count: u64,
        /// Size of an element, bytes.
        element_size: u64,
    },
    /// A structure or union.
    Structure,
    /// Another type: a function, a floating-point number, or an unknown type.
    Other,
}

/// Location and kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Offset from the start of the structure that was asked for, bytes.
    pub offset: u64,
    /// Size in bytes; for a bit field, the size of its type; 0 for a flexible array.
    pub size: u64,
    /// For a bit field: its first bit, counted from [`Member::offset`], and its number of bits.
    pub bits: Option<(u8, u8)>,
    /// Kind of the member's value.
    pub kind: MemberKind,
    /// Type of the member, without type definitions and qualifiers.
    pub type_id: TypeId,
}

/// A variable in a section of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable.
    pub name: String,
    /// Type of the variable.
    pub type_id: TypeId,
    /// Offset from the start of the section, bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// The types of a kernel, or of a kernel and one module.
#[derive(Debug)]
pub struct Types {
    btf: Arc<Btf>,
    members: RwLock<HashMap<TypeId, HashMap<Box<str>, Member>>>,
}

/// A search for a member, with the number of steps that are left.
struct Search<'a> {
    name: &'a [u8],
    steps: usize,
}

impl Types {
    /// The types of a blob and of its base.
    #[must_use]
    pub fn new(btf: Arc<Btf>) -> Self {
        Self { btf, members: RwLock::default() }
    }

    /// The blob.
    #[must_use]
    pub fn btf(&self) -> &Arc<Btf> {
        &self.btf
    }

    /// Finds the structure, union, enumeration or type definition with this name.
    ///
    /// # Errors
    /// No type has this name.
    pub fn id(&self, name: &str) -> Result<TypeId, Error> {
        let name_of = || Error::NoType(name.into());
        let found = self.btf.named(name.as_bytes());
        let whole =
            |id: &&u32| self.btf.raw(**id).is_some_and(|raw| matches!(raw.kind, STRUCT | UNION));
        found
            .iter()
            .find(whole)
            .or(found.first())
            .map(|id| TypeId(self.strip(*id)))
            .ok_or_else(name_of)
    }

    /// Finds a member of the structure named `structure`. `path` may lead through embedded
    /// structures and array elements (`core_kallsyms.symtab`, `mem[1].base`); unnamed structures
    /// are searched too. If several structures have the name, the first one that has the member is
    /// used.
    ///
    /// # Errors
    /// There is no such structure or no such member.
    pub fn member(&self, structure: &str, path: &str) -> Result<Member, Error> {
        self.member_of(self.id(structure)?, path)
    }

    /// True if the structure has the member.
    #[must_use]
    pub fn has_member(&self, structure: &str, path: &str) -> bool {
        self.member(structure, path).is_ok()
    }

    /// Same as [`Types::member`], for a type number. An empty path is the whole type.
    ///
    /// # Errors
    /// There is no such member.
    pub fn member_of(&self, id: TypeId, path: &str) -> Result<Member, Error> {
        if let Ok(cache) = self.members.read()
            && let Some(member) = cache.get(&id).and_then(|members| members.get(path))
        {
            return Ok(*member);
        }
        let mut found = self.resolve(id, path);
        if found.is_err()
            && let Some(raw) = self.btf.raw(id.0)
        {
            // Try the other structures with the same name.
            let others = self.btf.named(self.btf.string(raw.name));
            let mut others = others.into_iter().filter(|other| *other != id.0).take(ALIKE);
            found = others
                .find_map(|other| self.resolve(TypeId(self.strip(other)), path).ok())
                .ok_or(())
                .or(found);
        }
        let member = found?;
        if let Ok(mut cache) = self.members.write() {
            cache.entry(id).or_default().insert(path.into(), member);
        }
        Ok(member)
    }

    /// Size of the structure or type definition with this name, bytes.
    ///
    /// # Errors
    /// There is no such type.
    pub fn size_of(&self, name: &str) -> Result<u64, Error> {
        Ok(self.size(self.id(name)?))
    }

    /// Size of a type in bytes; 0 if it has none.
    #[must_use]
    pub fn size(&self, id: TypeId) -> u64 {
        let mut id = id.0;
        let mut count = 1u64;
        for _ in 0..DEPTH {
            id = self.strip(id);
            let Some(raw) = self.btf.raw(id) else { return 0 };
            match raw.kind {
                ARRAY => {
                    let Some((element, elements)) = raw.array() else { return 0 };
                    count = count.saturating_mul(elements.into());
                    id = element;
                }
                POINTER => return count.saturating_mul(self.word_size()),
                INT | STRUCT | UNION | ENUM | ENUM64 | FLOAT => {
                    return count.saturating_mul(raw.size_or_type.into());
                }
                _ => return 0,
            }
        }
        0
    }

    /// Value of the enumerator with this name, in any enumeration. None if enumerations have
    /// different values for the name: it is not known then which of them is meant.
    #[must_use]
    pub fn enum_value(&self, name: &str) -> Option<i64> {
        let of = |btf: &Btf| btf.enumerators(name.as_bytes());
        let values = self
            .btf
            .base()
            .map(|base| of(base))
            .filter(|values| !values.is_empty())
            .unwrap_or_else(|| of(&self.btf));
        let (first, rest) = values.split_first()?;
        rest.iter().all(|value| value == first).then_some(*first)
    }

    /// Names and values of the enumeration with this name; empty if there is none.
    #[must_use]
    pub fn enumeration(&self, name: &str) -> Vec<(String, i64)> {
        let ids = self.btf.named(name.as_bytes());
        let raws = ids.iter().filter_map(|id| self.btf.raw(*id));
        let Some(raw) = raws.into_iter().find(|raw| matches!(raw.kind, ENUM | ENUM64)) else {
            return Vec::new();
        };
        let rows = (0..raw.count).map_while(|index| raw.enumerator(index));
        rows.map(|(name, value)| (self.text(name), value)).collect()
    }

    /// Parameters of the function with this name; only functions of this blob, not of its base.
    #[must_use]
    pub fn parameters(&self, function: &str) -> Option<Vec<Parameter>> {
        let function = self.btf.raw(self.btf.function(function.as_bytes())?)?;
        let prototype = self.btf.raw(function.size_or_type).filter(|raw| raw.kind == PROTOTYPE)?;
        let rows =
            (0..prototype.count.min(PARAMETERS)).map_while(|index| prototype.parameter(index));
        Some(
            rows.map(|(name, id)| Parameter {
                name: self.text(name),
                kind: self.parameter_kind(id),
            })
            .collect(),
        )
    }

    fn parameter_kind(&self, id: u32) -> ParameterKind {
        let Some(raw) = self.btf.raw(self.strip(id)) else { return ParameterKind::Unknown };
        let other = |kind| ParameterKind::Other { kind, size: raw.size_or_type };
        match raw.kind {
            POINTER => ParameterKind::Pointer,
            INT => ParameterKind::Number { signed: raw.int().is_some_and(|int| int.0) },
            ENUM => {
                let rows = (0..raw.count).map_while(|index| raw.enumerator(index));
                ParameterKind::Enumeration {
                    names: rows.map(|(name, value)| (value, self.text(name))).collect(),
                }
            }
            STRUCT => other("STRUCT"),
            UNION => other("UNION"),
            ENUM64 => other("ENUM64"),
            FLOAT => other("FLOAT"),
            FORWARD => ParameterKind::Other { kind: "FWD", size: 0 },
            _ => ParameterKind::Unknown,
        }
    }

    /// The type that a pointer points to, or of an array's elements, without type definitions and
    /// qualifiers. A structure that is only declared there is looked up by name. None for `void *`
    /// and for other types.
    #[must_use]
    pub fn target(&self, id: TypeId) -> Option<TypeId> {
        let raw = self.btf.raw(self.strip(id.0))?;
        let target = match raw.kind {
            POINTER => self.strip(raw.size_or_type),
            ARRAY => self.strip(raw.array()?.0),
            _ => return None,
        };
        let raw = self.btf.raw(target)?;
        if raw.kind != FORWARD {
            return Some(TypeId(target));
        }
        let known = self.btf.named(self.btf.string(raw.name));
        known
            .into_iter()
            .find(|id| self.btf.raw(*id).is_some_and(|raw| matches!(raw.kind, STRUCT | UNION)))
            .map(TypeId)
    }

    /// Name of a type; empty for an unnamed type.
    #[must_use]
    pub fn name(&self, id: TypeId) -> String {
        self.btf.raw(id.0).map(|raw| self.text(raw.name)).unwrap_or_default()
    }

    /// Kind of a type's values.
    #[must_use]
    pub fn kind(&self, id: TypeId) -> MemberKind {
        let Some(raw) = self.btf.raw(self.strip(id.0)) else { return MemberKind::Other };
        match raw.kind {
            INT => MemberKind::Number { signed: raw.int().is_some_and(|int| int.0) },
            ENUM | ENUM64 => MemberKind::Number { signed: raw.flag },
            POINTER => MemberKind::Pointer,
            STRUCT | UNION => MemberKind::Structure,
            ARRAY => {
                let (element, count) = raw.array().unwrap_or_default();
                MemberKind::Array { count: count.into(), element_size: self.size(TypeId(element)) }
            }
            _ => MemberKind::Other,
        }
    }

    /// Names of a structure's members, including those of unnamed structures in it.
    #[must_use]
    pub fn members(&self, id: TypeId) -> Vec<String> {
        let mut names = Vec::new();
        let mut steps = STEPS;
        self.collect(id.0, 0, &mut steps, &mut names);
        names
    }

    /// Variables in a section of data, such as `.bss` of a BPF program; empty for other types.
    #[must_use]
    pub fn variables(&self, id: TypeId) -> Vec<Variable> {
        let Some(raw) = self.btf.raw(self.strip(id.0)).filter(|raw| raw.kind == SECTION) else {
            return Vec::new();
        };
        // In place of name, type and offset of a member there are type, offset and size.
        let rows = (0..raw.count.min(STEPS)).map_while(|index| raw.member(index));
        rows.map(|row| Variable {
            name: self.name(TypeId(row.name)),
            type_id: TypeId(self.strip(row.name)),
            offset: row.type_id.into(),
            size: row.bit_offset,
        })
        .collect()
    }

    /// Finds the first unnamed structure that has all these members.
    #[must_use]
    pub fn unnamed(&self, members: &[&str]) -> Option<TypeId> {
        let unnamed =
            |id: &u32| self.btf.raw(*id).is_some_and(|raw| raw.kind == STRUCT && raw.name == 0);
        let has = |id: &u32, name: &&str| {
            let mut search = Search { name: name.as_bytes(), steps: STEPS };
            self.find(*id, DEPTH.saturating_sub(1), &mut search).is_some()
        };
        self.btf
            .own()
            .filter(unnamed)
            .find(|id| members.iter().all(|name| has(id, name)))
            .map(TypeId)
    }

    fn collect(&self, id: u32, depth: usize, steps: &mut usize, names: &mut Vec<String>) {
        let Some(raw) = self.composite(id).filter(|_| depth < DEPTH) else { return };
        for member in (0..raw.count).map_while(|index| raw.member(index)) {
            let Some(left) = steps.checked_sub(1) else { return };
            *steps = left;
            if member.name == 0 || self.btf.string(member.name).is_empty() {
                self.collect(self.strip(member.type_id), depth.saturating_add(1), steps, names);
            } else {
                names.push(self.text(member.name));
            }
        }
    }

    /// Types of a structure's members, without type definitions and qualifiers.
    pub(super) fn member_types(&self, id: TypeId) -> Vec<TypeId> {
        let Some(raw) = self.composite(self.strip(id.0)) else { return Vec::new() };
        let members = (0..raw.count.min(STEPS)).map_while(|index| raw.member(index));
        members.map(|member| TypeId(self.strip(member.type_id))).collect()
    }

    fn word_size(&self) -> u64 {
        // A pointer is as long as a `long`; the kernel's blobs always have that integer.
        let longs = ["long unsigned int", "unsigned long"];
        let named = |id: u32| {
            self.btf.raw(id).filter(|raw| raw.kind == INT).map(|raw| (raw.name, raw.size_or_type))
        };
        let base = self.btf.base().unwrap_or(&self.btf);
        // The integer is among the first types in the output of pahole and of compilers.
        let mut ints = base.own().take(64).filter_map(named);
        ints.find(|(name, _)| longs.iter().any(|long| self.btf.string(*name) == long.as_bytes()))
            .map_or(8, |(_, size)| size.into())
    }

    fn text(&self, name: u32) -> String {
        String::from_utf8_lossy(self.btf.string(name)).into_owned()
    }

    /// Removes type definitions and qualifiers.
    fn strip(&self, id: u32) -> u32 {
        let mut id = id;
        for _ in 0..DEPTH {
            match self.btf.raw(id) {
                Some(raw)
                    if matches!(
                        raw.kind,
                        TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG | VARIABLE
                    ) =>
                {
                    id = raw.size_or_type;
                }
                _ => return id,
            }
        }
        0
    }

    fn composite(&self, id: u32) -> Option<Raw<'_>> {
        self.btf.raw(id).filter(|raw| matches!(raw.kind, STRUCT | UNION))
    }

    fn resolve(&self, id: TypeId, path: &str) -> Result<Member, Error> {
        let id = self.strip(id.0);
        let missing = |part: &str| Error::NoMember {
            structure: self.name(TypeId(id)),
            member: path.into(),
            part: part.into(),
        };
        let mut at = RawMember { name: 0, type_id: id, bit_offset: 0, bit_size: 0 };
        for part in path.split('.').filter(|part| !part.is_empty()) {
            let (name, indexes) =
                part.split_once('[').map_or((part, ""), |(name, rest)| (name, rest));
            let mut search = Search { name: name.as_bytes(), steps: STEPS };
            let found = self.find(at.type_id, 0, &mut search).ok_or_else(|| missing(part))?;
            at = RawMember { bit_offset: at.bit_offset.saturating_add(found.bit_offset), ..found };
            at.type_id = self.strip(at.type_id);
            for index in indexes.split('[').filter(|index| !index.is_empty()) {
                let index =
                    index.trim_end_matches(']').parse::<u64>().map_err(|_| missing(part))?;
                at = self.element(at, index).ok_or_else(|| missing(part))?;
            }
        }
        Ok(self.finish(at))
    }

    fn element(&self, array: RawMember, index: u64) -> Option<RawMember> {
        let raw = self.btf.raw(array.type_id).filter(|raw| raw.kind == ARRAY)?;
        let (element, count) = raw.array()?;
        let element = self.strip(element);
        let inside = count == 0 || index < u64::from(count);
        let bits =
            self.size(TypeId(element)).checked_mul(8)?.checked_mul(index).filter(|_| inside)?;
        Some(RawMember {
            type_id: element,
            bit_offset: array.bit_offset.checked_add(bits)?,
            ..array
        })
    }

    /// Finds a member by name, also in unnamed structures.
    fn find(&self, id: u32, depth: usize, search: &mut Search<'_>) -> Option<RawMember> {
        let raw = self.composite(id).filter(|_| depth < DEPTH)?;
        for member in (0..raw.count).map_while(|index| raw.member(index)) {
            search.steps = search.steps.checked_sub(1)?;
            let name = self.btf.string(member.name);
            if name == search.name {
                return Some(member);
            }
            if name.is_empty()
                && let Some(found) =
                    self.find(self.strip(member.type_id), depth.saturating_add(1), search)
            {
                return Some(RawMember {
                    bit_offset: member.bit_offset.saturating_add(found.bit_offset),
                    ..found
                });
            }
        }
        None
    }

    fn finish(&self, at: RawMember) -> Member {
        let type_id = TypeId(at.type_id);
        let size = self.size(type_id);
        let mut bit_offset = at.bit_offset;
        let mut bits = (at.bit_size != 0).then_some(at.bit_size);
        // In blobs without the flag, the position of a bit field is stored in its integer type.
        if let Some((_, offset, width)) =
            self.btf.raw(type_id.0).filter(|raw| raw.kind == INT).and_then(|raw| raw.int())
            && bits.is_none()
            && u64::from(width) < size.saturating_mul(8)
            && width != 0
        {
            bit_offset = bit_offset.saturating_add(offset.into());
            bits = Some(width);
        }
        let bit = u8::try_from(bit_offset & 7).unwrap_or_default();
        Member {
            offset: bit_offset >> 3,
            size,
            bits: bits.map(|bits| (bit, bits)),
            kind: self.kind(type_id),
            type_id,
        }
    }
}
