//! Reads the kernel's own symbol table from its memory.
//!
//! Layout: `scripts/kallsyms.c`, `kernel/kallsyms.c`. Symbols are sorted by address. A name is a
//! sequence of one-byte tokens; the first character of the expanded name is the symbol's kind.
//! Names stay packed in memory and are expanded on demand. Where nothing names the tables'
//! addresses, `find` finds the tables by their contents.

pub(crate) mod find;
mod names;

use self::names::{NO_PLACE, name_len, read_names};
use crate::Error;
use crate::memory::Memory;
use crate::vmcoreinfo::VmcoreInfo;
use lastwords_bytes::{Budget, Error as BytesError};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

/// Name of the table in errors.
const WHAT: &str = "kallsyms";
/// Most symbols that are accepted; real kernels have 200 thousand.
const SYMBOLS_MAX: u64 = 1 << 22;
/// Number of bytes read at once; the bytes before a hole are kept.
const PIECE: usize = 64 << 10;
/// Longest name (`KSYM_NAME_LEN` is 512).
const NAME_MAX: usize = 1024;

/// Addresses of the tables, which VMCOREINFO has from Linux 6.0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables {
    /// `kallsyms_names`.
    pub names: u64,
    /// `kallsyms_num_syms`.
    pub num_syms: u64,
    /// `kallsyms_token_table`.
    pub token_table: u64,
    /// `kallsyms_token_index`.
    pub token_index: u64,
    /// `kallsyms_offsets`.
    pub offsets: u64,
    /// `kallsyms_relative_base`; none if each offset counts from its own address.
    pub relative_base: Option<u64>,
}

impl Tables {
    /// The addresses in VMCOREINFO; none if it lacks them.
    #[must_use]
    pub fn from_vmcoreinfo(info: &VmcoreInfo) -> Option<Self> {
        let symbol = |name| info.symbol(name);
        Some(Self {
            names: symbol("kallsyms_names")?,
            num_syms: symbol("kallsyms_num_syms")?,
            token_table: symbol("kallsyms_token_table")?,
            token_index: symbol("kallsyms_token_index")?,
            offsets: symbol("kallsyms_offsets")?,
            relative_base: symbol("kallsyms_relative_base"),
        })
    }
}

/// The kernel's own symbols, sorted by address.
pub struct Kallsyms {
    /// Packed names: each is a length of one or two bytes and that many tokens.
    packed: Vec<u8>,
    /// Offset in `packed` of each symbol's tokens, or [`NO_PLACE`].
    places: Vec<u32>,
    addresses: Vec<u64>,
    /// Indices of symbols before which others are missing, whose addresses are not known.
    gaps: BTreeSet<usize>,
    /// The expansions of the tokens.
    tokens: Vec<u8>,
    token_places: Vec<Range<usize>>,
    /// `(hash of the name, index)`, sorted.
    by_name: OnceLock<Vec<(u32, u32)>>,
    limits: OnceLock<Limits>,
    missing: Option<Error>,
}

/// The address ranges that the table covers.
#[derive(Debug, Clone, Default)]
struct Limits {
    whole: Range<u64>,
    init: Range<u64>,
}

impl Kallsyms {
    /// Reads the tables.
    ///
    /// # Errors
    /// The image lacks the tables, their count is implausible, or the budget is spent. Names after
    /// a hole are missing from the table; [`Kallsyms::missing`] then has the reason.
    pub fn read(memory: &dyn Memory, tables: &Tables, budget: &Budget) -> Result<Self, Error> {
        let count = memory.number(tables.num_syms, 4).map_err(Error::hole("kallsyms_num_syms"))?;
        if count > SYMBOLS_MAX {
            return Err(BytesError::value(WHAT, 0, count, "a count of symbols").into());
        }
        budget.steps(WHAT, count)?;
        let count = usize::try_from(count).unwrap_or_default();
        let mut missing = None;
        let names = read_names(memory, tables, count, budget, &mut missing)?;
        let size = count.saturating_mul(4);
        let mut offsets = Around::default();
        offsets.read_on(memory, tables.offsets, size, "kallsyms_offsets", &mut missing);
        let base = tables.relative_base.map(|at| memory.pointer(at)).transpose();
        let base = base.map_err(Error::hole("kallsyms_relative_base"))?;
        let addresses = addresses(&offsets, memory, tables.offsets, base);
        let is_whole = names.places.len() == count
            && !names.places.contains(&NO_PLACE)
            && !addresses.contains(&None);
        if missing.is_none() && !is_whole {
            missing = Some(
                BytesError::value(
                    WHAT,
                    names.places.len() as u64,
                    0,
                    "the length of a name, or an offset",
                )
                .into(),
            );
        }
        let (tokens, token_places) = read_tokens(memory, tables)?;
        let mut table = Self::of_packed(names.packed, names.places, addresses, missing);
        (table.tokens, table.token_places) = (tokens, token_places);
        Ok(table)
    }

    /// Builds a table from rows `(address, kind, name)` in any order.
    #[must_use]
    pub fn of_rows(mut rows: Vec<(u64, u8, &str)>) -> Self {
        rows.sort_by_key(|row| row.0);
        let (mut packed, mut places, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for (address, kind, name) in rows {
            let name = name.as_bytes().get(..name.len().min(NAME_MAX)).unwrap_or_default();
            let Ok(place) = u32::try_from(packed.len()) else { break };
            let len = name.len().saturating_add(1);
            let [low, high] =
                [len & 0x7f, len >> 7].map(|part| u8::try_from(part).unwrap_or_default());
            packed.extend_from_slice(&[low | 0x80, high, kind]);
            packed.extend_from_slice(name);
            places.push(place);
            addresses.push(Some(address));
        }
        Self::of_packed(packed, places, addresses, None)
    }

    /// Builds a table in which every token expands to itself. A symbol without an address is left
    /// out, and a gap is noted; one without a name remains as the end of the one before it.
    fn of_packed(
        packed: Vec<u8>,
        names: Vec<u32>,
        rows: Vec<Option<u64>>,
        missing: Option<Error>,
    ) -> Self {
        let (mut places, mut addresses, mut gaps) = (Vec::new(), Vec::new(), BTreeSet::new());
        let names = names.into_iter().chain(std::iter::repeat(NO_PLACE));
        for (place, address) in names.zip(rows) {
            match address {
                Some(address) => {
                    places.push(place);
                    addresses.push(address);
                }
                None => _ = gaps.insert(addresses.len()),
            }
        }
        Self {
            packed,
            places,
            addresses,
            gaps,
            tokens: (0..=u8::MAX).collect(),
            token_places: (0..=255).map(|at: usize| at..at.saturating_add(1)).collect(),
            by_name: OnceLock::new(),
            limits: OnceLock::new(),
            missing,
        }
    }

    /// Number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if the table has no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The reason why symbols are missing, if some are.
    #[must_use]
    pub fn missing(&self) -> Option<&Error> {
        self.missing.as_ref()
    }

    /// Address of symbol number `index`; 0 past the last.
    #[must_use]
    pub fn address(&self, index: usize) -> u64 {
        self.addresses.get(index).copied().unwrap_or_default()
    }

    /// Expands the name of symbol number `index` into `name`, and returns its kind. A name that is
    /// not known is empty.
    pub fn name(&self, index: usize, name: &mut Vec<u8>) -> u8 {
        name.clear();
        let place = self.places.get(index).map_or(usize::MAX, |place| *place as usize);
        let (len, tokens) =
            name_len(self.packed.get(place..).unwrap_or_default()).unwrap_or_default();
        for token in tokens.get(..len).unwrap_or_default() {
            let text = self
                .token_places
                .get(usize::from(*token))
                .and_then(|place| self.tokens.get(place.clone()));
            let text = text.unwrap_or_default();
            if name.len().saturating_add(text.len()) > NAME_MAX {
                break;
            }
            name.extend_from_slice(text);
        }
        if name.is_empty() { b'?' } else { name.remove(0) }
    }

    /// Indices of the symbols with this name, in the order of the table.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        let rows = self.by_name.get_or_init(|| self.index());
        let hash = hash(name.as_bytes());
        let from = rows.partition_point(|row| row.0 < hash);
        let rows = rows.get(from..).unwrap_or_default().iter().take_while(move |row| row.0 == hash);
        let mut found = Vec::new();
        rows.map(|row| row.1 as usize).filter(move |index| {
            self.name(*index, &mut found);
            found == name.as_bytes()
        })
    }

    /// Address of the first symbol with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<u64> {
        self.named(name).next().map(|index| self.address(index))
    }

    /// `(index, address, size)` of the symbol that contains `address`, computed like the kernel
    /// does; none if that symbol, or the one that follows it, is not known.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(usize, u64, u64)> {
        let limits = self.limits.get_or_init(|| self.limits());
        if !limits.whole.contains(&address) && !limits.init.contains(&address) {
            return None;
        }
        let behind = self.addresses.partition_point(|start| *start <= address);
        let start = *self.addresses.get(behind.checked_sub(1)?)?;
        // Of several symbols at one address, take the first.
        let index = self.addresses.partition_point(|other| *other < start);
        if self.gaps.range(index..=behind).next().is_some()
            || self.places.get(index) == Some(&NO_PLACE)
        {
            return None;
        }
        let limit = if limits.init.contains(&address) { limits.init.end } else { limits.whole.end };
        let end = self.addresses.get(behind).copied().unwrap_or(limit);
        Some((index, start, end.saturating_sub(start)))
    }

    /// Address range of the kernel's image: `_stext` to `_end`, or to `_etext` if the table has
    /// only functions.
    fn limits(&self) -> Limits {
        let last = self.addresses.last().map_or(0, |last| last.saturating_add(1));
        // Symbols in front of the code are offsets of variables of a CPU.
        let start = self.find("_stext").or_else(|| self.find("_text"));
        let start = start.unwrap_or(if self.missing.is_none() { 1 } else { u64::MAX });
        let end = self.find("_end").or_else(|| self.find("_etext")).unwrap_or(last);
        let init = self.find("_sinittext").unwrap_or_default()
            ..self.find("_einittext").unwrap_or_default();
        Limits { whole: start..end, init }
    }

    fn index(&self) -> Vec<(u32, u32)> {
        let mut name = Vec::new();
        let indexes = 0..u32::try_from(self.len()).unwrap_or(u32::MAX);
        let indexes = indexes.filter(|index| self.places.get(*index as usize) != Some(&NO_PLACE));
        let mut rows: Vec<(u32, u32)> = indexes
            .map(|index| {
                self.name(index as usize, &mut name);
                (hash(&name), index)
            })
            .collect();
        rows.sort_unstable();
        rows
    }
}

/// Bytes of an image; those that it lacks are zero.
#[derive(Default)]
struct Around {
    bytes: Vec<u8>,
    /// The parts that are missing, in order.
    lacking: Vec<Range<usize>>,
}

impl Around {
    /// Appends `len` bytes.
    fn read_on(
        &mut self,
        memory: &dyn Memory,
        address: u64,
        len: usize,
        what: &str,
        missing: &mut Option<Error>,
    ) {
        let mut done = 0usize;
        while done < len {
            let at = address.wrapping_add(done as u64);
            // If the large piece fails, read up to the end of the page, to keep the bytes around a
            // hole.
            let page = 4096usize.saturating_sub((at & 4095) as usize);
            let most = len.saturating_sub(done);
            for part in [most.min(PIECE), most.min(page)] {
                let old = self.bytes.len();
                self.bytes.resize(old.saturating_add(part), 0);
                let read = memory.read(at, self.bytes.get_mut(old..).unwrap_or_default());
                if read.is_err() && part > page {
                    self.bytes.truncate(old);
                    continue;
                }
                if let Err(hole) = read {
                    self.bytes.get_mut(old..).unwrap_or_default().fill(0);
                    self.lacking.push(old..self.bytes.len());
                    missing.get_or_insert(Error::Hole { what: what.into(), hole });
                }
                done = done.saturating_add(part);
                break;
            }
        }
    }

    /// Returns the first missing part of a range.
    fn lacking(&self, begin: usize, end: usize) -> Option<&Range<usize>> {
        let from = self.lacking.partition_point(|part| part.end <= begin);
        self.lacking.get(from).filter(|part| part.start < end)
    }
}

/// Returns the addresses; none for those that are not known. Only the first symbols have an offset
/// of 0, so that one behind others is of a part that reads as zero.
fn addresses(
    offsets: &Around,
    memory: &dyn Memory,
    place: u64,
    base: Option<u64>,
) -> Vec<Option<u64>> {
    let number = |raw: &[u8]| -> u32 {
        let raw = raw.first_chunk::<4>().copied().unwrap_or_default();
        u32::from_le_bytes(memory.byte_order().little(raw))
    };
    let mut is_behind = false;
    let rows: Vec<Option<u32>> = offsets
        .bytes
        .chunks_exact(4)
        .enumerate()
        .map(|(index, raw)| {
            let (offset, at) = (number(raw), index.saturating_mul(4));
            is_behind |= offset != 0;
            let is_known =
                (offset != 0 || !is_behind) && offsets.lacking(at, at.saturating_add(4)).is_none();
            is_known.then_some(offset)
        })
        .collect();
    let Some(base) = base else {
        // Each offset counts from its own address.
        let places = (0u64..).map(|index| place.wrapping_add(index.wrapping_mul(4)));
        let of = |(offset, at): (Option<u32>, u64)| {
            Some(at.wrapping_add_signed(offset?.cast_signed().into()))
        };
        return rows.into_iter().zip(places).map(of).collect();
    };
    // Per-CPU symbols are positive and absolute, all others negative and relative to the base; or
    // all are relative to the base.
    let has_absolute = rows.iter().flatten().any(|offset| offset.cast_signed() < 0);
    let of = |offset: u32| match offset.cast_signed() {
        signed if has_absolute && signed < 0 => {
            base.wrapping_sub(1).wrapping_sub(i64::from(signed).cast_unsigned())
        }
        _ if has_absolute => offset.into(),
        _ => base.wrapping_add(offset.into()),
    };
    rows.into_iter().map(|offset| offset.map(of)).collect()
}

/// Reads the expansions of the 256 tokens, and the range of each.
fn read_tokens(
    memory: &dyn Memory,
    tables: &Tables,
) -> Result<(Vec<u8>, Vec<Range<usize>>), Error> {
    let mut tokens = Vec::new();
    let mut places = Vec::new();
    for token in 0u64..256 {
        let at = tables.token_index.wrapping_add(token.wrapping_mul(2));
        let offset = memory.number(at, 2).map_err(Error::hole("kallsyms_token_index"))?;
        let text = memory.text(tables.token_table.wrapping_add(offset), NAME_MAX);
        let text = text.map_err(Error::hole("kallsyms_token_table"))?;
        let from = tokens.len();
        tokens.extend_from_slice(text.as_bytes());
        places.push(from..tokens.len());
    }
    Ok((tokens, places))
}

/// The FNV-1a hash.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
