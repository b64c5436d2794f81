//! Reads BTF, the types that the kernel carries in its own memory.
//!
//! Layout: `include/uapi/linux/btf.h`. A blob is a header, a section of types (12 bytes each, plus
//! what the kind adds) and a section of strings. Type numbers start at 1; a module's blob continues
//! the kernel's type numbers and string offsets. A blob is indexed once, and types are decoded on
//! demand.

pub(crate) mod blob;
mod build;
mod file;
mod types;

pub use build::Builder;
pub use file::of_module;
pub use types::{Member, MemberKind, TypeId, Types, Variable};

use lastwords_bytes::{Budget, ByteOrder, Error, Reader};
use std::sync::{Arc, OnceLock};

/// Name of the blob in errors.
const WHAT: &str = "BTF";
/// Length of a type without the bytes that its kind adds.
const TYPE_SIZE: usize = 12;
/// Longest name that is read, bytes. Names of kernel symbols have at most 512.
const NAME_MAX: usize = 1024;
/// Most types of a blob that are accepted; a kernel has 200 thousand.
const TYPES_MAX: usize = 1 << 24;

pub(crate) const INT: u8 = 1;
pub(crate) const POINTER: u8 = 2;
pub(crate) const ARRAY: u8 = 3;
pub(crate) const STRUCT: u8 = 4;
pub(crate) const UNION: u8 = 5;
pub(crate) const ENUM: u8 = 6;
pub(crate) const FORWARD: u8 = 7;
pub(crate) const TYPEDEF: u8 = 8;
pub(crate) const VOLATILE: u8 = 9;
pub(crate) const CONST: u8 = 10;
pub(crate) const RESTRICT: u8 = 11;
pub(crate) const FUNCTION: u8 = 12;
pub(crate) const PROTOTYPE: u8 = 13;
pub(crate) const VARIABLE: u8 = 14;
pub(crate) const SECTION: u8 = 15;
pub(crate) const FLOAT: u8 = 16;
pub(crate) const DECL_TAG: u8 = 17;
pub(crate) const TYPE_TAG: u8 = 18;
pub(crate) const ENUM64: u8 = 19;

/// An indexed blob.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    order: ByteOrder,
    base: Option<Arc<Btf>>,
    /// Number of the blob's first type: 1, or the number after the base's last.
    first: u32,
    /// Offset in `bytes` of each type.
    places: Vec<u32>,
    /// Range of the strings in `bytes`.
    strings: std::ops::Range<usize>,
    /// Offset of the blob's first string: 0, or the end of the base's strings.
    first_string: u32,
    /// Named structures, unions, enumerations and type definitions: (hash of the name, type
    /// number), sorted.
    names: Vec<(u32, u32)>,
    /// Functions in the same form; built at the first lookup.
    functions: OnceLock<Vec<(u32, u32)>>,
    /// Enumerators: (hash of the name, its offset among the strings, value), sorted; built at the
    /// first lookup.
    enumerators: OnceLock<Vec<(u32, u32, i64)>>,
}

/// One type as stored in the blob.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    pub(crate) name: u32,
    pub(crate) kind: u8,
    /// Number of members, enumerators or parameters.
    pub(crate) count: usize,
    pub(crate) flag: bool,
    /// Depending on the kind: size in bytes, or the number of the type that this type refers to.
    pub(crate) size_or_type: u32,
    body: Reader<'a>,
}

/// One member of a structure or union.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMember {
    pub(crate) name: u32,
    pub(crate) type_id: u32,
    /// Offset from the start of the structure, bits.
    pub(crate) bit_offset: u64,
    /// Width of a bit field, bits; 0 for other members.
    pub(crate) bit_size: u8,
}

/// The parts of the header.
struct Header {
    types: std::ops::Range<usize>,
    strings: std::ops::Range<usize>,
    /// By kind: (fixed bytes, bytes per element) that the kind adds, if the blob has this table.
    layouts: Vec<(u8, u8)>,
}

impl Btf {
    /// Indexes a blob. A module's blob needs the kernel's as `base`.
    ///
    /// # Errors
    /// The bytes are no BTF, a section or a type is outside of them, a kind is unknown, or the
    /// budget's bytes or steps are spent.
    pub fn parse(bytes: Vec<u8>, base: Option<Arc<Self>>, budget: &Budget) -> Result<Self, Error> {
        budget.bytes(WHAT, bytes.len() as u64)?;
        let order = match bytes.first_chunk::<2>() {
            Some([0x9f, 0xeb]) => ByteOrder::Little,
            Some([0xeb, 0x9f]) => ByteOrder::Big,
            Some(magic) => {
                return Err(Error::value(
                    WHAT,
                    0,
                    u16::from_le_bytes(*magic).into(),
                    "magic 0xeb9f",
                ));
            }
            None => return Err(Error::short(WHAT, 0, bytes.len() as u64, "a header")),
        };
        let header = header(&Reader::new(WHAT, &bytes, order))?;
        let first = base.as_ref().map_or(1, |base| base.end());
        let first_string = base.as_ref().map_or(0, |base| base.string_end());
        let Index { places, named } = index(&bytes, order, &header, budget)?;
        let strings = header.strings;
        check_strings(bytes.get(strings.clone()).unwrap_or_default(), strings.start)?;
        let mut btf = Self {
            bytes,
            order,
            base,
            first,
            places,
            strings,
            first_string,
            names: Vec::new(),
            functions: OnceLock::new(),
            enumerators: OnceLock::new(),
        };
        let row = |(name, index): (u32, u32)| {
            let name = btf.string(name);
            budget.bytes(WHAT, name.len() as u64)?;
            Ok((hash(name), first.saturating_add(index)))
        };
        btf.names = named.into_iter().map(row).collect::<Result<_, Error>>()?;
        btf.names.sort_unstable();
        Ok(btf)
    }

    /// Byte order of the blob, which is that of its machine.
    #[must_use]
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// Number after that of the last type.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.first.saturating_add(u32::try_from(self.places.len()).unwrap_or(u32::MAX))
    }

    fn string_end(&self) -> u32 {
        self.first_string.saturating_add(u32::try_from(self.strings.len()).unwrap_or(u32::MAX))
    }

    /// The string at an offset, up to its NUL or to the longest name; empty if there is no string.
    pub(crate) fn string(&self, offset: u32) -> &[u8] {
        let Some(at) = offset.checked_sub(self.first_string) else {
            return self.base.as_ref().map_or(&[], |base| base.string(offset));
        };
        let strings = self.bytes.get(self.strings.clone()).unwrap_or_default();
        let rest = strings.get(at as usize..).unwrap_or_default();
        rest.get(..NAME_MAX).unwrap_or(rest).split(|b| *b == 0).next().unwrap_or_default()
    }

    /// The type with a number; none for `void` and for unknown numbers.
    pub(crate) fn raw(&self, id: u32) -> Option<Raw<'_>> {
        let Some(index) = id.checked_sub(self.first) else {
            return if id == 0 { None } else { self.base.as_ref()?.raw(id) };
        };
        let place = *self.places.get(index as usize)? as usize;
        let mut body = Reader::new(WHAT, self.bytes.get(place..)?, self.order).based(place as u64);
        raw(&mut body).ok()
    }

    /// Numbers of the structures, unions, enumerations and type definitions with this name; those
    /// of the base come first.
    pub(crate) fn named(&self, name: &[u8]) -> Vec<u32> {
        let mut found = self.base.as_ref().map(|base| base.named(name)).unwrap_or_default();
        let hash = hash(name);
        for row in alike(&self.names, hash, |row| row.0) {
            if self.raw(row.1).is_some_and(|raw| self.string(raw.name) == name) {
                found.push(row.1);
            }
        }
        found
    }

    /// Number of the first function with this name in this blob, without the base.
    pub(crate) fn function(&self, name: &[u8]) -> Option<u32> {
        let functions = self.functions.get_or_init(|| {
            let raws = self
                .own()
                .filter_map(|id| Some((self.raw(id).filter(|raw| raw.kind == FUNCTION)?, id)));
            let mut rows: Vec<_> =
                raws.map(|(raw, id)| (hash(self.string(raw.name)), id)).collect();
            rows.sort_unstable();
            rows
        });
        let hash = hash(name);
        let mut rows = alike(functions, hash, |row| row.0);
        rows.find(|row| self.raw(row.1).is_some_and(|raw| self.string(raw.name) == name))
            .map(|row| row.1)
    }

    /// Values of the enumerators with this name in this blob, without the base, by enumeration.
    pub(crate) fn enumerators(&self, name: &[u8]) -> Vec<i64> {
        let enumerators = self.enumerators.get_or_init(|| {
            let raws = self
                .own()
                .filter_map(|id| self.raw(id))
                .filter(|raw| matches!(raw.kind, ENUM | ENUM64));
            let rows =
                raws.flat_map(|raw| (0..raw.count).map_while(move |index| raw.enumerator(index)));
            let mut rows: Vec<_> =
                rows.map(|(text, value)| (hash(self.string(text)), text, value)).collect();
            rows.sort_unstable();
            rows.shrink_to_fit();
            rows
        });
        let hash = hash(name);
        let rows = alike(enumerators, hash, |row| row.0);
        rows.filter(|row| self.string(row.1) == name).map(|row| row.2).collect()
    }

    /// The blob that this one continues.
    pub(crate) fn base(&self) -> Option<&Arc<Self>> {
        self.base.as_ref()
    }

    /// Numbers of the types of this blob, without the base.
    pub(crate) fn own(&self) -> std::ops::Range<u32> {
        self.first..self.end()
    }
}

impl<'a> Raw<'a> {
    /// Member number `index` of a structure or union.
    pub(crate) fn member(&self, index: usize) -> Option<RawMember> {
        let at = index.checked_mul(12)?;
        let name = self.body.u32_at(at).ok()?;
        let type_id = self.body.u32_at(at.checked_add(4)?).ok()?;
        let offset = self.body.u32_at(at.checked_add(8)?).ok()?;
        // With the flag, the upper 8 bits are the width of a bit field.
        let (bit_offset, bit_size) =
            if self.flag { (offset & 0xff_ffff, offset.to_be_bytes()[0]) } else { (offset, 0) };
        Some(RawMember { name, type_id, bit_offset: bit_offset.into(), bit_size })
    }

    /// Type number of the elements, and number of elements, of an array.
    pub(crate) fn array(&self) -> Option<(u32, u32)> {
        Some((self.body.u32_at(0).ok()?, self.body.u32_at(8).ok()?))
    }

    /// `(is signed, bit offset, bits)` of an integer.
    pub(crate) fn int(&self) -> Option<(bool, u8, u8)> {
        let [encoding, offset, _, bits] = self.body.u32_at(0).ok()?.to_be_bytes();
        Some((encoding & 1 != 0, offset, bits))
    }

    /// Name and type of parameter number `index` of a function prototype.
    pub(crate) fn parameter(&self, index: usize) -> Option<(u32, u32)> {
        let at = index.checked_mul(8)?;
        Some((self.body.u32_at(at).ok()?, self.body.u32_at(at.checked_add(4)?).ok()?))
    }

    /// Name and value of enumerator number `index`.
    pub(crate) fn enumerator(&self, index: usize) -> Option<(u32, i64)> {
        if self.kind == ENUM {
            let at = index.checked_mul(8)?;
            let value = self.body.u32_at(at.checked_add(4)?).ok()?;
            let value = if self.flag { i64::from(value.cast_signed()) } else { i64::from(value) };
            return Some((self.body.u32_at(at).ok()?, value));
        }
        let at = index.checked_mul(12)?;
        let low = self.body.u32_at(at.checked_add(4)?).ok()?;
        let high = self.body.u32_at(at.checked_add(8)?).ok()?;
        Some((self.body.u32_at(at).ok()?, (u64::from(high) << 32 | u64::from(low)).cast_signed()))
    }
}

fn header(reader: &Reader<'_>) -> Result<Header, Error> {
    let len = reader.u32_at(4)? as usize;
    let section = |at: usize| -> Result<std::ops::Range<usize>, Error> {
        let offset = reader.u32_at(at)? as usize;
        let size = reader.u32_at(at.saturating_add(4))? as usize;
        let from = len.saturating_add(offset);
        let to = from.saturating_add(size);
        if to > reader.len() {
            return Err(Error::value(WHAT, at as u64, offset as u64, "a section inside the blob"));
        }
        Ok(from..to)
    };
    let mut layouts = Vec::new();
    // Newer blobs have a table of the lengths of kinds. Its offset and length follow those of the
    // strings.
    if len >= 32 {
        let range = section(24)?;
        let table = reader.bytes_at(range.start, range.len())?;
        layouts =
            table.chunks_exact(4).filter_map(|row| Some((*row.first()?, *row.get(1)?))).collect();
    }
    Ok(Header { types: section(8)?, strings: section(16)?, layouts })
}

/// The result of one pass over the types.
struct Index {
    /// Offset of each type.
    places: Vec<u32>,
    /// `(name, index)` of the types that are looked up by name.
    named: Vec<(u32, u32)>,
}

fn index(bytes: &[u8], order: ByteOrder, header: &Header, budget: &Budget) -> Result<Index, Error> {
    let section = bytes.get(header.types.clone()).unwrap_or_default();
    let mut reader = Reader::new(WHAT, section, order).based(header.types.start as u64);
    let mut places = Vec::with_capacity((section.len() / 28).min(TYPES_MAX));
    let mut named = Vec::new();
    while reader.left() >= TYPE_SIZE {
        budget.steps(WHAT, 1)?;
        let place = u32::try_from(reader.offset())
            .map_err(|_| reader.unexpected(0, "a blob below 4 GiB"))?;
        let index = u32::try_from(places.len()).ok().filter(|_| places.len() < TYPES_MAX);
        let index = index.ok_or_else(|| reader.unexpected(places.len() as u64, "fewer types"))?;
        let raw = raw(&mut reader)?;
        let len = body_len(&raw, &header.layouts)
            .ok_or_else(|| reader.unexpected(raw.kind.into(), "a known kind"))?;
        check_members(&raw, len, &reader)?;
        reader.skip(len)?;
        if raw.name != 0 && matches!(raw.kind, STRUCT | UNION | ENUM | ENUM64 | TYPEDEF) {
            named.push((raw.name, index));
        }
        places.push(place);
    }
    Ok(Index { places, named })
}

/// Refuses strings of which a part reads as zero: only the first string is empty. Without them,
/// members would seem not to exist.
fn check_strings(strings: &[u8], place: usize) -> Result<(), Error> {
    // The end may be padded.
    let end = strings.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
    let empty = strings.get(..end).unwrap_or_default().windows(2).position(|pair| pair == [0, 0]);
    let error = |at: usize| {
        Error::value(WHAT, place.saturating_add(at) as u64, 0, "a string that is not empty")
    };
    empty.map_or(Ok(()), |at| Err(error(at)))
}

/// Refuses members and enumerators that read as zero: members have a type, and enumerators have a
/// name.
fn check_members(raw: &Raw<'_>, len: usize, reader: &Reader<'_>) -> Result<(), Error> {
    let (size, at) = match raw.kind {
        STRUCT | UNION => (12, 4),
        ENUM => (8, 0),
        ENUM64 => (12, 0),
        _ => return Ok(()),
    };
    let mut body = raw.body;
    let members = body.take(len.min(body.left()))?;
    match members
        .chunks_exact(size)
        .any(|member| member.get(at..).is_some_and(|word| word.starts_with(&[0; 4])))
    {
        true => Err(reader.unexpected(0, "members with names and types")),
        false => Ok(()),
    }
}

/// Reads the first 12 bytes of a type; `body` is the rest.
fn raw<'a>(reader: &mut Reader<'a>) -> Result<Raw<'a>, Error> {
    let name = reader.u32()?;
    let info = reader.u32()?;
    let size_or_type = reader.u32()?;
    let body = reader.clone().sub(reader.left())?;
    Ok(Raw {
        name,
        kind: info.to_be_bytes()[0] & 0x7f,
        // The count has 24 bits; until Linux 7.0 it had 16, and the 8 above were zero.
        count: (info & 0xff_ffff) as usize,
        flag: info >> 31 != 0,
        size_or_type,
        body,
    })
}

/// Number of bytes that the kind adds to a type; none for an unknown kind.
fn body_len(raw: &Raw<'_>, layouts: &[(u8, u8)]) -> Option<usize> {
    let each = match raw.kind {
        INT | VARIABLE | DECL_TAG => return Some(4),
        ARRAY => return Some(12),
        POINTER | FORWARD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNCTION | FLOAT | TYPE_TAG => {
            return Some(0);
        }
        STRUCT | UNION | SECTION | ENUM64 => 12,
        ENUM | PROTOTYPE => 8,
        0 => return None,
        kind => {
            let (fixed, each) = layouts.get(usize::from(kind))?;
            return raw.count.checked_mul((*each).into())?.checked_add((*fixed).into());
        }
    };
    raw.count.checked_mul(each)
}

/// Returns the rows with this hash, by which they are sorted.
fn alike<T>(rows: &[T], hash: u32, of: impl Fn(&T) -> u32) -> impl Iterator<Item = &T> {
    let from = rows.partition_point(|row| of(row) < hash);
    rows.get(from..).unwrap_or_default().iter().take_while(move |row| of(row) == hash)
}

/// The FNV-1a hash.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
