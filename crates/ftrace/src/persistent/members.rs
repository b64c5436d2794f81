//! The offsets of the members of the metadata's structures: in the layouts that are known, and in a
//! kernel's own by its types.
//!
//! Source of the known layouts: `struct ring_buffer_meta`, `struct ring_buffer_cpu_meta` and
//! `struct buffer_data_page` in `kernel/trace/ring_buffer.c`, and `struct trace_scratch` in
//! `kernel/trace/trace.h`.

use crate::HeaderPage;
use lastwords_bytes::{ByteOrder, Reader};
use lastwords_kernel::Error;
use lastwords_kernel::btf::{Member, MemberKind, TypeId, Types};
use std::ops::Range;

/// Modules for which a kernel leaves room in the scratch area.
const ROOM: u32 = 128;
/// The layouts that are known. A kernel's types can give others ([`Members::of_types`]).
pub(super) const KNOWN: [Members; 8] = [
    Members::per_cpu(ByteOrder::Little, 8),
    Members::per_cpu(ByteOrder::Little, 4),
    Members::common(ByteOrder::Little, 8),
    Members::common(ByteOrder::Little, 4),
    Members::per_cpu(ByteOrder::Big, 8),
    Members::per_cpu(ByteOrder::Big, 4),
    Members::common(ByteOrder::Big, 8),
    Members::common(ByteOrder::Big, 4),
];

/// The form of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Linux 6.12 to 6.14: each CPU's metadata has a magic word and the addresses of the kernel.
    PerCpu,
    /// Linux 6.15 and newer: one header, a scratch area with addresses and modules, and metadata
    /// for each CPU without a magic word.
    Common,
}

/// A layout of the metadata: where the members are that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members {
    /// Byte order of the machine.
    pub byte_order: ByteOrder,
    /// Bytes of a `long` of the machine.
    pub word_size: u8,
    /// How a sub-buffer begins.
    pub header_page: HeaderPage,
    /// The magic word of a region, and the size of its structure or of both structures.
    pub(super) magic: Number,
    pub(super) sizes: Number,
    /// The structure that all CPUs have in common; none where each CPU has its own magic word.
    pub(super) common: Option<Common>,
    pub(super) cpu: Cpu,
}

/// A number in a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) at: u32,
    /// Its bytes: 4 or 8.
    pub(super) size: u8,
}

/// The structure of a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cpu {
    /// Bytes of the structure.
    pub(super) len: u32,
    /// Addresses of the kernel's code and data.
    pub(super) text: Option<Number>,
    pub(super) data: Option<Number>,
    /// Addresses of the first sub-buffer, of the oldest of the ring, and of the newest.
    pub(super) first: Number,
    pub(super) head: Number,
    pub(super) commit: Number,
    /// Bytes of a sub-buffer, and their number.
    pub(super) size: Number,
    pub(super) count: Number,
    /// The first number of the table of the order.
    pub(super) table: Number,
}

/// The structure of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Common {
    /// Bytes of the structure.
    pub(super) len: u32,
    /// Bytes of the region, and offset of the first CPU's structure.
    pub(super) total: Number,
    pub(super) buffers: Number,
    pub(super) scratch: Option<Scratch>,
}

/// The scratch area behind the structure of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scratch {
    /// Bytes of the structure.
    len: u32,
    pub(super) clock: Option<Number>,
    pub(super) text: Option<Number>,
    pub(super) modules: Option<Modules>,
}

/// The list of modules in the scratch area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Modules {
    /// How many there are.
    pub(super) count: Number,
    /// Offset of the first entry, and bytes of each.
    pub(super) at: u32,
    pub(super) len: u32,
    /// Address and name in an entry.
    pub(super) address: Number,
    pub(super) name: (u32, u32),
}

impl Number {
    /// Number `index` of equal numbers from an offset on.
    const fn nth(at: u32, size: u8, index: u32) -> Self {
        Self { at: at.saturating_add(index.saturating_mul(size as u32)), size }
    }

    /// Offset of the bytes behind it.
    pub(super) const fn end(self) -> u32 {
        self.at.saturating_add(self.size as u32)
    }

    /// The number in a structure; none beyond the end.
    pub(super) fn read(self, structure: &Reader<'_>) -> Option<u64> {
        let at = self.at as usize;
        if self.size == 8 {
            structure.u64_at(at).ok()
        } else {
            structure.u32_at(at).ok().map(u64::from)
        }
    }
}

impl Cpu {
    /// The members of all known layouts, from an offset on: three addresses, two numbers and the
    /// table.
    const fn from(at: u32, word: u8, addresses: Option<(Number, Number)>) -> Self {
        let numbers = Number::nth(at, word, 3).at;
        let table = Number::nth(numbers, 4, 2);
        let (text, data) = match addresses {
            Some((text, data)) => (Some(text), Some(data)),
            None => (None, None),
        };
        Self {
            len: table.at,
            text,
            data,
            first: Number::nth(at, word, 0),
            head: Number::nth(at, word, 1),
            commit: Number::nth(at, word, 2),
            size: Number::nth(numbers, 4, 0),
            count: Number::nth(numbers, 4, 1),
            table,
        }
    }
}

impl Members {
    /// Linux 6.12 to 6.14.
    const fn per_cpu(byte_order: ByteOrder, word: u8) -> Self {
        let addresses = (Number::nth(8, word, 0), Number::nth(8, word, 1));
        Self::known(
            byte_order,
            word,
            None,
            Cpu::from(Number::nth(8, word, 2).at, word, Some(addresses)),
        )
    }

    /// Linux 6.15 and newer.
    const fn common(byte_order: ByteOrder, word: u8) -> Self {
        let (count, entries) = (Number::nth(0, word, 2), Number::nth(0, word, 3).at);
        let name = (word as u32, 64u32.saturating_sub(word as u32));
        let modules =
            Modules { count, at: entries, len: 64, address: Number::nth(0, word, 0), name };
        let (clock, text) = (Some(Number::nth(0, 4, 0)), Some(Number::nth(0, word, 1)));
        let scratch = Some(Scratch { len: entries, clock, text, modules: Some(modules) });
        let (total, buffers) = (Number::nth(8, word, 0), Number::nth(8, word, 1));
        let common = Common { len: buffers.end(), total, buffers, scratch };
        Self::known(byte_order, word, Some(common), Cpu::from(0, word, None))
    }

    const fn known(byte_order: ByteOrder, word_size: u8, common: Option<Common>, cpu: Cpu) -> Self {
        let header_page = HeaderPage::of_word_size(word_size);
        let (magic, sizes) = (Number::nth(0, 4, 0), Number::nth(0, 4, 1));
        Self { byte_order, word_size, header_page, magic, sizes, common, cpu }
    }

    /// The layout of a kernel with these types. `header_page`: how a sub-buffer begins, if the
    /// kernel itself said so.
    ///
    /// # Errors
    /// A structure or a member is not there, has another kind than expected, or is outside its
    /// structure or on top of another.
    pub fn of_types(types: &Types, header_page: Option<HeaderPage>) -> Result<Self, Error> {
        let header_page = self::header_page(types, header_page)?;
        let mut head = Structure::find(types, "ring_buffer_meta")?;
        let magic = head.number("magic")?;
        let (sizes, common, cpu);
        if let Ok(own) = types.id("ring_buffer_cpu_meta") {
            sizes = head.number("struct_sizes")?;
            let (total, buffers) = (head.number("total_size")?, head.number("buffers_offset")?);
            common = Some(Common { len: head.len, total, buffers, scratch: scratch(types)? });
            cpu = self::cpu(Structure::new(types, own)?)?;
        } else {
            sizes = head.number("struct_size")?;
            common = None;
            cpu = self::cpu(head)?;
        }
        let word_size = cpu.first.size;
        if header_page.commit_size != word_size {
            let (structure, member) = ("buffer_data_page".to_owned(), "commit".to_owned());
            return Err(Error::Shape { structure, member, expected: "as long as an address" });
        }
        Ok(Self {
            byte_order: types.btf().byte_order(),
            word_size,
            header_page,
            magic,
            sizes,
            common,
            cpu,
        })
    }

    /// The form.
    #[must_use]
    pub fn form(&self) -> Form {
        if self.common.is_some() { Form::Common } else { Form::PerCpu }
    }

    /// It is one of the layouts that need no types.
    #[must_use]
    pub fn is_known(&self) -> bool {
        KNOWN.contains(self)
    }

    /// The value of the word of sizes.
    pub(super) fn expected_sizes(&self) -> u64 {
        let common = self.common.map_or(0, |common| u64::from(common.len));
        common << 16 | u64::from(self.cpu.len)
    }

    /// The word of sizes is not the expected one, and could be that of these structures in another
    /// layout.
    pub(super) fn could_have_sizes(&self, word: u64) -> bool {
        let could_be = |size: u64| size.is_multiple_of(4) && (16..=u64::from(PAGE)).contains(&size);
        let (common, cpu) = (word >> 16, word & 0xffff);
        word != self.expected_sizes()
            && could_be(cpu)
            && (could_be(common) && self.common.is_some() || common == 0)
    }

    /// Offset of the metadata of CPU 0, where the header does not say otherwise.
    pub(super) fn begin(&self) -> u64 {
        let Some(common) = self.common else { return 0 };
        let scratch = common.scratch.map_or(0, |scratch| {
            let entry = scratch.modules.map_or(0, |modules| modules.len);
            scratch.len.saturating_add(entry.saturating_mul(ROOM))
        });
        u64::from(common.len.saturating_add(scratch))
    }

    /// Members that other kernels save and this layout lacks, in words.
    pub(super) fn lacks(&self) -> Vec<&'static str> {
        let mut lacks = Vec::new();
        let mut need = |has: bool, what| (!has).then(|| lacks.push(what));
        match self.common {
            None => {
                need(self.cpu.text.is_some(), "the address of the code");
                need(self.cpu.data.is_some(), "the address of the data");
            }
            Some(Common { scratch: None, .. }) => _ = need(false, "a scratch area"),
            Some(Common { scratch: Some(scratch), .. }) => {
                need(scratch.text.is_some(), "the address of the code");
                need(scratch.clock.is_some(), "the clock");
                need(scratch.modules.is_some(), "a list of modules");
            }
        }
        lacks
    }
}

/// A structure of a kernel's types, with the bytes that members have taken.
struct Structure<'a> {
    types: &'a Types,
    id: TypeId,
    len: u32,
    members: Vec<String>,
    taken: Vec<Range<u64>>,
}

impl<'a> Structure<'a> {
    fn find(types: &'a Types, name: &str) -> Result<Self, Error> {
        Self::new(types, types.id(name)?)
    }

    fn new(types: &'a Types, id: TypeId) -> Result<Self, Error> {
        let size = types.size(id);
        let len = u32::try_from(size).ok().filter(|len| *len > 0 && *len <= PAGE);
        let too_long = || Error::Shape {
            structure: types.name(id),
            member: "sizeof".to_owned(),
            expected: "between 1 byte and a page",
        };
        Ok(Self {
            types,
            id,
            len: len.ok_or_else(too_long)?,
            members: types.members(id),
            taken: Vec::new(),
        })
    }

    fn shape(&self, member: &str, expected: &'static str) -> Error {
        Error::Shape { structure: self.types.name(self.id), member: member.to_owned(), expected }
    }

    /// A member of this structure alone: another structure of the same name does not count.
    fn member(&self, name: &str) -> Result<Member, Error> {
        if !self.members.iter().any(|member| member == name) {
            let structure = self.types.name(self.id);
            return Err(Error::NoMember {
                structure,
                member: name.to_owned(),
                part: name.to_owned(),
            });
        }
        let member = self.types.member_of(self.id, name)?;
        if member.bits.is_some() {
            Err(self.shape(name, "a whole number of bytes"))
        } else {
            Ok(member)
        }
    }

    /// Takes the bytes of a member; those up to the end of all for a flexible array.
    fn take(&mut self, name: &str, at: u64, len: Option<u64>) -> Result<u32, Error> {
        let end = len.map_or(u64::MAX, |len| at.saturating_add(len));
        let is_inside = at.max(len.map_or(at, |_| end)) <= u64::from(self.len);
        let is_apart = self.taken.iter().all(|other| other.end <= at || end <= other.start);
        let place = u32::try_from(at).ok().filter(|_| is_inside && is_apart);
        self.taken.push(at..end);
        place.ok_or_else(|| self.shape(name, "inside the structure and apart from other members"))
    }

    fn place(&mut self, name: &str, member: Member) -> Result<Number, Error> {
        let size = u8::try_from(member.size).ok().filter(|size| matches!(size, 4 | 8));
        let size = size.ok_or_else(|| self.shape(name, "4 or 8 bytes long"))?;
        Ok(Number { at: self.take(name, member.offset, Some(member.size))?, size })
    }

    fn number(&mut self, name: &str) -> Result<Number, Error> {
        let member = self.member(name)?;
        if !matches!(member.kind, MemberKind::Number { .. }) {
            return Err(self.shape(name, "a number"));
        }
        self.place(name, member)
    }

    /// A number that not every kernel has.
    fn any_number(&mut self, name: &str) -> Result<Option<Number>, Error> {
        match self.number(name) {
            Err(Error::NoMember { .. }) => Ok(None),
            number => number.map(Some),
        }
    }

    /// The array at the end of the structure: its offset, and its elements' type and bytes.
    fn tail(&mut self, name: &str) -> Result<(u32, TypeId, u64), Error> {
        let member = self.member(name)?;
        let (MemberKind::Array { element_size, .. }, Some(element)) =
            (member.kind, self.types.target(member.type_id))
        else {
            return Err(self.shape(name, "an array"));
        };
        Ok((self.take(name, member.offset, None)?, element, element_size))
    }
}

fn cpu(mut own: Structure<'_>) -> Result<Cpu, Error> {
    let first = own.number("first_buffer")?;
    let (head, commit) = (own.number("head_buffer")?, own.number("commit_buffer")?);
    let (size, count) = (own.number("subbuf_size")?, own.number("nr_subbufs")?);
    let (text, data) = (own.any_number("text_addr")?, own.any_number("data_addr")?);
    let (at, element, bytes) = own.tail("buffers")?;
    let is_number = matches!(own.types.kind(element), MemberKind::Number { .. });
    let bytes = u8::try_from(bytes).ok().filter(|bytes| is_number && matches!(bytes, 4 | 8));
    let table = Number {
        at,
        size: bytes.ok_or_else(|| own.shape("buffers", "an array of numbers of 4 or 8 bytes"))?,
    };
    Ok(Cpu { len: own.len, text, data, first, head, commit, size, count, table })
}

/// The scratch area; none where the types have no structure for it.
fn scratch(types: &Types) -> Result<Option<Scratch>, Error> {
    let Ok(own) = types.id("trace_scratch") else { return Ok(None) };
    let mut own = Structure::new(types, own)?;
    let (clock, text) = (own.any_number("clock_id")?, own.any_number("text_addr")?);
    let mut modules = None;
    if let Some(count) = own.any_number("nr_entries")? {
        let (at, entry, _) = own.tail("entries")?;
        let mut entry = Structure::new(types, entry)?;
        let (address, name) = (entry.number("mod_addr")?, entry.member("mod_name")?);
        if !matches!(name.kind, MemberKind::Array { element_size: 1, .. }) {
            return Err(entry.shape("mod_name", "an array of characters"));
        }
        let name_len = u32::try_from(name.size).unwrap_or(u32::MAX);
        let name = (entry.take("mod_name", name.offset, Some(name.size))?, name_len);
        modules = Some(Modules { count, at, len: entry.len, address, name });
    }
    Ok(Some(Scratch { len: own.len, clock, text, modules }))
}

/// How a sub-buffer begins: as the kernel said, which its types must not contradict, or as its
/// types have it.
fn header_page(types: &Types, said: Option<HeaderPage>) -> Result<HeaderPage, Error> {
    let mut own = match (types.id("buffer_data_page"), said) {
        (Err(_), Some(said)) => return Ok(said),
        (own, _) => Structure::new(types, own?)?,
    };
    let time = own.number("time_stamp")?;
    if time != (Number { at: 0, size: 8 }) {
        return Err(own.shape("time_stamp", "a number of 8 bytes at offset 0"));
    }
    // The word is a structure around a number.
    let commit = own.member("commit")?;
    let commit = own.place("commit", commit)?;
    if commit.at != 8 {
        return Err(own.shape("commit", "at offset 8"));
    }
    let found = HeaderPage { commit_size: commit.size, data_offset: own.tail("data")?.0 };
    // A header with more members is believed if the kernel said so too: nothing in a region could
    // contradict it.
    if found != said.unwrap_or(HeaderPage::of_word_size(found.commit_size)) {
        return Err(own.shape(
            "data",
            "where the kernel said it is (events/header_page), or right behind the commit word",
        ));
    }
    Ok(found)
}

/// Bytes of a page, the smallest sub-buffer.
pub(super) const PAGE: u32 = 4096;
