//! Reads the entries of one unit that describe types (DWARF 5, chapter 5).

use super::sections::Sections;
use gimli::{
    Abbreviation, Attribute, AttributeValue, DebugAbbrev, DebugInfo, DebugLineStr, DebugStr,
    DebugStrOffsets, DebugStrOffsetsBase, DwTag, EndianSlice, EntriesRaw, Format, RunTimeEndian,
    UnitOffset,
};
use lastwords_bytes::Budget;
use object::Endianness;

/// Bytes of the file, with their byte order.
pub(super) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// The attributes of an entry that describe a type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    /// Offset in the unit, bytes.
    pub(super) offset: usize,
    /// Depth in the tree of entries; the unit's own entry has depth 0.
    pub(super) depth: u32,
    pub(super) tag: DwTag,
    pub(super) name: &'a [u8],
    /// Size, bytes.
    pub(super) size: Option<u64>,
    /// Offset of the entry of the type that this entry refers to.
    pub(super) target: Option<usize>,
    /// Offset of a member: bytes, and further bits in `bit`.
    pub(super) location: u64,
    pub(super) bit: Bit,
    /// Width of a bit field, bits.
    pub(super) bits: u64,
    /// Number of elements of an array, if given.
    pub(super) count: Option<u64>,
    /// Value of an enumerator.
    pub(super) value: i128,
    pub(super) encoding: u64,
    /// The definition is in another entry or missing.
    pub(super) is_declaration: bool,
}

/// Position of a bit field, counted in one of two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bit {
    /// From the lowest bit of the member's location.
    Low(u64),
    /// Number of bits above the field in its storage unit (DWARF 2 and 3).
    Above(u64),
}

/// One unit.
pub(super) struct Unit<'a> {
    pub(super) entries: Vec<Entry<'a>>,
    /// Size of a pointer, bytes.
    pub(super) word: u8,
}

/// The sections with strings.
struct Texts<'a> {
    strings: DebugStr<Slice<'a>>,
    line_strings: DebugLineStr<Slice<'a>>,
    offsets: DebugStrOffsets<Slice<'a>>,
    base: DebugStrOffsetsBase<usize>,
    format: Format,
}

impl<'a> Unit<'a> {
    /// Reads the types of a unit; none for a unit without C types.
    pub(super) fn read<F>(
        bytes: &'a [u8],
        sections: &'a Sections<F>,
        budget: &Budget,
    ) -> Result<Option<Self>, Failure> {
        let endian = match sections.endian {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        };
        let Some(header) = DebugInfo::new(bytes, endian).units().next()? else { return Ok(None) };
        let abbreviations =
            header.abbreviations(&DebugAbbrev::new(&sections.abbreviations, endian))?;
        let mut texts = Texts {
            strings: DebugStr::new(&sections.strings, endian),
            line_strings: DebugLineStr::new(&sections.line_strings, endian),
            offsets: DebugStrOffsets::from(EndianSlice::new(&sections.string_offsets, endian)),
            base: DebugStrOffsetsBase(0),
            format: header.format(),
        };
        let mut raw = header.entries_raw(&abbreviations, None)?;
        let mut unit = Self { entries: Vec::new(), word: header.address_size() };
        // Tracks the depth after skipping siblings, because the reader below starts again at 0.
        let mut depth = 0u32;
        while !raw.is_empty() {
            budget.steps(super::WHAT, 1)?;
            let offset = raw.next_offset().0;
            let Some(abbreviation) = raw.read_abbreviation()? else {
                depth = depth.saturating_sub(1);
                continue;
            };
            let found = read(&mut raw, abbreviation, (offset, depth), &mut texts)?;
            if found.is_foreign {
                return Ok(None);
            }
            let is_kept = is_kept(abbreviation.tag());
            if is_kept {
                unit.entries.push(found.entry);
            }
            if abbreviation.has_children() {
                match found
                    .sibling
                    .filter(|sibling| !is_kept && depth > 0 && *sibling > raw.next_offset().0)
                {
                    Some(sibling) => {
                        raw = header.entries_raw(&abbreviations, Some(UnitOffset(sibling)))?
                    }
                    None => depth = depth.saturating_add(1),
                }
            }
        }
        Ok(Some(unit))
    }

    /// Index of the entry at an offset in the unit.
    pub(super) fn find(&self, offset: usize) -> Option<usize> {
        self.entries.binary_search_by_key(&offset, |entry| entry.offset).ok()
    }

    /// The direct children of the entry at `index`.
    pub(super) fn children(&self, index: usize) -> impl Iterator<Item = (usize, &Entry<'a>)> {
        let depth = self.entries.get(index).map_or(u32::MAX, |entry| entry.depth);
        let behind = self.entries.iter().enumerate().skip(index.saturating_add(1));
        let below = behind.take_while(move |(_, entry)| entry.depth > depth);
        below.filter(move |(_, entry)| entry.depth == depth.saturating_add(1))
    }
}

/// The reason why a unit cannot be read.
#[derive(Debug)]
pub(super) enum Failure {
    /// The unit is damaged.
    Damaged(gimli::Error),
    /// The budget is spent.
    Spent(lastwords_bytes::Error),
}

impl From<gimli::Error> for Failure {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error)
    }
}

impl From<lastwords_bytes::Error> for Failure {
    fn from(error: lastwords_bytes::Error) -> Self {
        Self::Spent(error)
    }
}

fn is_kept(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_base_type
            | gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_enumerator
            | gimli::DW_TAG_member
            | gimli::DW_TAG_array_type
            | gimli::DW_TAG_subrange_type
            | gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
    )
}

/// An entry, the offset of the next entry after its children, and whether its unit's language has
/// other types than C.
struct ReadEntry<'a> {
    entry: Entry<'a>,
    sibling: Option<usize>,
    is_foreign: bool,
}

fn read<'a>(
    raw: &mut EntriesRaw<'_, Slice<'a>>,
    abbreviation: &Abbreviation,
    (offset, depth): (usize, u32),
    texts: &mut Texts<'a>,
) -> Result<ReadEntry<'a>, gimli::Error> {
    let entry = Entry {
        offset,
        depth,
        tag: abbreviation.tag(),
        name: &[],
        size: None,
        target: None,
        location: 0,
        bit: Bit::Low(0),
        bits: 0,
        count: None,
        value: 0,
        encoding: 0,
        is_declaration: false,
    };
    let mut found = ReadEntry { entry, sibling: None, is_foreign: false };
    for specification in abbreviation.attributes() {
        let attribute = raw.read_attribute_inline(*specification)?;
        take(&mut found, &attribute, texts);
    }
    Ok(found)
}

fn take<'a>(found: &mut ReadEntry<'a>, attribute: &Attribute<Slice<'a>>, texts: &mut Texts<'a>) {
    let entry = &mut found.entry;
    let count = || attribute.udata_value();
    let reference = || match attribute.raw_value() {
        AttributeValue::UnitRef(offset) => Some(offset.0),
        _ => None,
    };
    match attribute.name() {
        gimli::DW_AT_name => entry.name = texts.text(&attribute.raw_value()),
        gimli::DW_AT_byte_size => entry.size = count(),
        gimli::DW_AT_type => entry.target = reference(),
        gimli::DW_AT_sibling => found.sibling = reference(),
        gimli::DW_AT_data_member_location => entry.location = location(attribute),
        gimli::DW_AT_data_bit_offset => entry.bit = Bit::Low(count().unwrap_or_default()),
        gimli::DW_AT_bit_offset => entry.bit = Bit::Above(count().unwrap_or_default()),
        gimli::DW_AT_bit_size => entry.bits = count().unwrap_or_default(),
        gimli::DW_AT_count => entry.count = count(),
        // The upper bound of an array without elements is -1.
        gimli::DW_AT_upper_bound => entry.count = count().map(|last| last.wrapping_add(1)),
        gimli::DW_AT_const_value => entry.value = value(attribute),
        gimli::DW_AT_encoding => {
            if let AttributeValue::Encoding(encoding) = attribute.value() {
                entry.encoding = encoding.0.into();
            }
        }
        gimli::DW_AT_declaration => entry.is_declaration = true,
        gimli::DW_AT_str_offsets_base => {
            if let AttributeValue::DebugStrOffsetsBase(base) = attribute.value() {
                texts.base = base;
            }
        }
        gimli::DW_AT_language => {
            found.is_foreign =
                matches!(attribute.value(), AttributeValue::Language(gimli::DW_LANG_Rust));
        }
        _ => {}
    }
}

impl<'a> Texts<'a> {
    fn text(&self, value: &AttributeValue<Slice<'a>>) -> &'a [u8] {
        let text = match value {
            AttributeValue::String(text) => return text.slice(),
            AttributeValue::DebugStrRef(at) => self.strings.get_str(*at),
            AttributeValue::DebugLineStrRef(at) => self.line_strings.get_str(*at),
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let at = self.offsets.get_str_offset(self.format, self.base, *index);
                at.and_then(|at| self.strings.get_str(at))
            }
            _ => return &[],
        };
        text.map(|text| text.slice()).unwrap_or_default()
    }
}

/// Offset in the structure in bytes: a constant, or an expression that adds one (DWARF 2).
fn location(attribute: &Attribute<Slice<'_>>) -> u64 {
    use gimli::Reader as _;
    if let Some(bytes) = attribute.udata_value() {
        return bytes;
    }
    let mut code = match attribute.raw_value() {
        AttributeValue::Exprloc(expression) => expression.0,
        AttributeValue::Block(block) => block,
        _ => return 0,
    };
    match code.read_u8() {
        Ok(operation) if operation == gimli::DW_OP_plus_uconst.0 => {
            code.read_uleb128().unwrap_or_default()
        }
        _ => 0,
    }
}

/// Numbers of fixed size are unsigned, as compilers write them for enumerators.
fn value(attribute: &Attribute<Slice<'_>>) -> i128 {
    match attribute.raw_value() {
        AttributeValue::Data1(value) => value.into(),
        AttributeValue::Data2(value) => value.into(),
        AttributeValue::Data4(value) => value.into(),
        AttributeValue::Data8(value) | AttributeValue::Udata(value) => value.into(),
        AttributeValue::Sdata(value) => value.into(),
        _ => 0,
    }
}
