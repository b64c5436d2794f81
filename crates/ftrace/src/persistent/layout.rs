//! The metadata of a persistent ring buffer: where each CPU's sub-buffers lie, and in which order.
//!
//! All addresses in the metadata are virtual addresses of the boot that wrote them; only their
//! distance from the first sub-buffer has a meaning later.

use super::members::{Common, Form, KNOWN, Members, Number, PAGE, Scratch};
use super::source::{Geometry, Place, Source, places};
use super::words::{Fixed, MAGIC, most, permuted, recognise, recognise_within};
use crate::page;
use lastwords_bytes::{ByteOrder, Error, Reader};

/// Bytes at the beginning of a region in which the first CPU's metadata is looked for, where its
/// offset is damaged.
const HEAD: u64 = 64 << 10;
/// Most CPUs that are looked for.
const MOST_CPUS: usize = 8192;
/// Most modules of a list.
const MOST_MODULES: u64 = 4096;

/// A module that was loaded when the buffer was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Address of its code.
    pub address: u64,
    /// Name.
    pub name: String,
}

/// Facts of the metadata about the boot that wrote the buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boot {
    /// Address of a symbol of the kernel's code (6.12: `rb_range_meta_init`; later: `_text`), if
    /// it is saved.
    pub text_address: Option<u64>,
    /// Address of a symbol of the kernel's data, if it is saved.
    pub data_address: Option<u64>,
    /// Position of its clock in the kernel's list of clocks, if it is saved.
    pub clock: Option<u32>,
    /// Its modules, if the layout lists them.
    pub modules: Vec<Module>,
}

/// The metadata of one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CpuMeta {
    /// Offset in the region.
    pub(super) at: u64,
    /// Offset in the region of the first sub-buffer.
    pub(super) data: u64,
    pub(super) sub_buffer_size: u32,
    /// Numbers of sub-buffers: the reader's first, then the ring in its order.
    pub(super) order: Vec<i32>,
    /// Numbers of the sub-buffers with the oldest event of the ring, and with the newest; none
    /// where the address is out of range.
    pub(super) head: Option<u32>,
    pub(super) commit: Option<u32>,
    /// The faults of the metadata, one sentence each.
    pub(super) faults: Vec<String>,
}

impl CpuMeta {
    /// Offset in the region of the end of the sub-buffers.
    fn end(&self) -> u64 {
        self.data
            .saturating_add(u64::from(self.sub_buffer_size).saturating_mul(self.order.len() as u64))
    }

    /// Offset in the region of a sub-buffer.
    pub(super) fn offset_of(&self, number: u32) -> u64 {
        self.data.saturating_add(u64::from(self.sub_buffer_size).saturating_mul(u64::from(number)))
    }
}

/// The metadata of a region.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) members: Members,
    pub(super) boot: Boot,
    pub(super) cpus: Vec<CpuMeta>,
    pub(super) notes: Vec<String>,
    /// Offsets at the end of the region where no metadata of a CPU could be read.
    pub(super) unread: Option<std::ops::Range<u64>>,
    /// Size and number of sub-buffers by the first metadata of a CPU that is whole: all CPUs have
    /// the same.
    pub(super) hint: Option<Geometry>,
    /// Offset of the metadata of CPU 0, where the words before it are damaged.
    begin: Option<u64>,
}

/// The layouts that are tried: those of given types, then those that are known.
pub(super) fn with_known(given: &[Members]) -> Vec<Members> {
    given.iter().chain(&KNOWN).copied().collect()
}

/// A region in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Its bytes.
    pub(super) len: u64,
    /// The bytes of each CPU with metadata of its own, which stand one behind the other.
    pub(super) per_cpu: Option<u64>,
}

/// The bytes by which a region is recognised.
fn head(source: &Source<'_>) -> Result<Vec<u8>, Error> {
    source.bytes(0, usize::try_from(source.len.min(PAGE.into())).unwrap_or(0))
}

/// The region at the beginning of memory, of which the source may have more; none where there is no
/// region.
///
/// # Errors
/// The metadata cannot be read; the budget is spent.
pub(super) fn extent(source: &Source<'_>) -> Result<Option<Extent>, Error> {
    let Some(mut layout) = Layout::within(source)? else { return Ok(None) };
    if let Some(common) = layout.members.common {
        let begin = layout.common(source, common)?;
        let len = layout.number(source, common.total)?;
        return Ok(Some(Extent { len, per_cpu: None })
            .filter(|extent| extent.len > begin && extent.len <= source.len));
    }
    let mut end = 0;
    let mut per_cpu = None;
    // The first words are recognised already, and one of them may be damaged.
    while let Some((size, count)) =
        layout.metadata(source, end, end > 0)?.filter(|own| layout.is_hinted(*own))
    {
        layout.hint = Some((size, count));
        let behind = layout.end(end, (size, count));
        per_cpu = Some(behind.saturating_sub(end));
        end = behind;
    }
    Ok(Some(Extent { len: end, per_cpu })
        .filter(|extent| extent.len > 0 && extent.len <= source.len))
}

/// The beginning of memory may be a CPU of a region whose metadata are damaged: they can be
/// metadata in part, or all pages behind them can be sub-buffers, and some have events.
///
/// # Errors
/// The memory cannot be read; the budget is spent.
pub(super) fn may_be_cpu(source: &Source<'_>, like: &Source<'_>) -> Result<bool, Error> {
    let Some(layout) = Layout::within(like)? else { return Ok(false) };
    let Some((size, count)) = layout.metadata(like, 0, false)? else { return Ok(false) };
    if layout.is_likely(source, 0)? {
        return Ok(true);
    }
    let begin = layout.data(0, (size, count));
    let mut used = 0u32;
    for number in 0..u64::from(count) {
        let bytes =
            source.bytes(begin.saturating_add(number.saturating_mul(u64::from(size))), 16)?;
        let (order, commit_size) =
            (layout.members.byte_order, layout.members.header_page.commit_size);
        let (time, commit) = (
            page::long(&bytes, 0, order),
            page::native(&bytes, 8, commit_size, order) & 0x3fff_ffff,
        );
        if commit > u64::from(size) || commit > 0 && time == 0 {
            return Ok(false);
        }
        used = used.saturating_add(u32::from(commit > 0));
    }
    Ok(used > 0)
}

/// Reads the metadata of a region.
///
/// # Errors
/// The region does not begin with metadata of a known layout, or cannot be read; the budget is
/// spent.
pub(super) fn read(source: &Source<'_>) -> Result<Layout, Error> {
    let mut layout = Layout::begin(source)?;
    let mut at = match layout.begin {
        Some(begin) => begin,
        None => match layout.members.common {
            Some(common) => layout.common(source, common)?,
            None => 0,
        },
    };
    let lacks = layout.members.lacks();
    if !lacks.is_empty() {
        layout.notes.push(format!(
            "the kernel that wrote the region saves less than others: not {}",
            lacks.join(", not ")
        ));
    }
    layout.hint = layout.first_followed(source, at)?.map(|(_, geometry)| geometry);
    while layout.cpus.len() < MOST_CPUS && at < source.len {
        let Some(cpu) = layout.cpu(source, at)? else { break };
        at = cpu.end();
        layout
            .hint
            .get_or_insert((cpu.sub_buffer_size, u32::try_from(cpu.order.len()).unwrap_or(0)));
        layout.cpus.push(cpu);
    }
    if !layout.is_slack(source.len.saturating_sub(at), PAGE) {
        layout.unread = Some(at..source.len);
    }
    Ok(layout)
}

impl Layout {
    fn new(members: Members) -> Self {
        let (boot, cpus, notes) = (Boot::default(), Vec::new(), Vec::new());
        Self { members, boot, cpus, notes, unread: None, hint: None, begin: None }
    }

    /// A region whose first words are damaged: the first metadata of a CPU that is whole tells the
    /// layout. CPU 0 is as many CPUs before that one as have room.
    fn without_head(source: &Source<'_>) -> Result<Option<Self>, Error> {
        for members in source.layouts {
            let (mut layout, is_common) = (Self::new(*members), members.form() == Form::Common);
            let mut found = None;
            if is_common {
                found = layout.first_whole_word(source, 0)?;
            }
            let found = if found.is_some() { found } else { layout.first_whole(source, 0)? };
            let Some((at, geometry)) = found else { continue };
            let first = members.begin();
            let (span, begins) =
                (layout.end(at, geometry).saturating_sub(at), layout.end(first, geometry));
            let is_behind = at >= begins && at.saturating_sub(begins).checked_rem(span) == Some(0);
            let begin = if is_behind { first } else { at };
            layout.begin = Some(begin);
            layout.notes.push(format!(
                "offset 0: the region does not begin with the magic word {MAGIC:#x}; the first metadata of a CPU that is whole is at \
                 offset {at:#x}, and that of CPU 0 is taken to be at {begin:#x}"
            ));
            return Ok(Some(layout));
        }
        Ok(None)
    }

    /// The layout among several that are likely: the first by which most of the beginning of the
    /// region can be.
    fn likeliest(source: &Source<'_>, likely: &[Members]) -> Result<Option<Self>, Error> {
        let mut best = None;
        for members in likely {
            let layout = Self::new(*members);
            let score = if likely.len() > 1 { layout.score(source)? } else { 0 };
            if best.as_ref().is_none_or(|(highest, _)| score > *highest) {
                best = Some((score, layout));
            }
        }
        Ok(best.map(|(_, layout)| layout))
    }

    /// The metadata of CPU 0 are whole, which counts most, and the address of the code can be one.
    fn score(&self, source: &Source<'_>) -> Result<u8, Error> {
        let is_whole = self.whole(source, self.first(source)?)?.is_some();
        let mut has_code = false;
        if let Some((len, text)) =
            self.members.common.and_then(|common| Some((common.len, common.scratch?.text?)))
        {
            let text = self.number(source, Number { at: len.saturating_add(text.at), ..text })?;
            has_code = text != 0 && is_code(text);
        }
        Ok(u8::from(is_whole).saturating_mul(2).saturating_add(has_code.into()))
    }

    /// The layout of a region at the beginning of memory, of which the source may have more; none
    /// where no region begins.
    fn within(source: &Source<'_>) -> Result<Option<Self>, Error> {
        Self::likeliest(source, &recognise_within(&head(source)?, source.len, source.layouts))
    }

    /// Of the first words of a region.
    fn begin(source: &Source<'_>) -> Result<Self, Error> {
        let head = head(source)?;
        let Some(mut layout) =
            Self::likeliest(source, &recognise(&head, source.len, source.layouts))?
        else {
            if let Some(layout) = Self::without_head(source)? {
                return Ok(layout);
            }
            let found = Reader::new(source.name, &head, ByteOrder::Little).u64_at(0)?;
            let expected = "the magic word 0x0badfeed of a persistent ring buffer, and the sizes of a known layout";
            return Err(Error::value(source.name, 0, found, expected));
        };
        let members = layout.members;
        let reader = Reader::new(source.name, &head, members.byte_order);
        let read = |place: Number| place.read(&reader).unwrap_or(0);
        let first = layout.first(source)?;
        // A table that is whole proves the layout; the size and the count alone do not.
        if members.could_have_sizes(read(members.sizes))
            && layout.first_of(source, &mut places(source, first))?.is_none()
        {
            let expected = "the sizes of a known layout";
            return Err(Error::value(
                source.name,
                members.sizes.at.into(),
                read(members.sizes),
                expected,
            ));
        }
        for (place, expected) in [(members.magic, MAGIC), (members.sizes, members.expected_sizes())]
        {
            let (at, found) = (place.at, read(place));
            if found != expected {
                layout.notes.push(format!(
                    "offset {at}: {found:#x} in place of {expected:#x}; the words behind it are metadata"
                ));
            }
        }
        Ok(layout)
    }

    /// Offset of the metadata of CPU 0, as the region has it.
    fn first(&self, source: &Source<'_>) -> Result<u64, Error> {
        self.members.common.map_or(Ok(0), |common| self.number(source, common.buffers))
    }

    fn word(&self) -> usize {
        usize::from(self.members.word_size)
    }

    fn reader<'a>(&self, source: &'a Source<'_>, bytes: &'a [u8]) -> Reader<'a> {
        Reader::new(source.name, bytes, self.members.byte_order)
    }

    /// A number at the beginning of the region.
    fn number(&self, source: &Source<'_>, place: Number) -> Result<u64, Error> {
        let bytes = source.bytes(0, place.end() as usize)?;
        place
            .read(&self.reader(source, &bytes))
            .ok_or_else(|| Error::short(source.name, place.at.into(), 0, "a number"))
    }

    /// Reads the header that all CPUs have in common, and the scratch area; returns the offset of
    /// the first CPU's metadata.
    fn common(&mut self, source: &Source<'_>, common: Common) -> Result<u64, Error> {
        let size = u64::from(common.len);
        let (total, mut buffers) =
            (self.number(source, common.total)?, self.number(source, common.buffers)?);
        let (at_total, at_buffers) = (common.total.at, common.buffers.at);
        if total != source.len {
            self.notes.push(format!(
                "offset {at_total}: the region had {total} bytes when it was made, {} are here",
                source.len
            ));
        }
        if !self.is_likely(source, buffers)? {
            // The first CPU's metadata is damaged, or the offset of it is, or both.
            let begin = self.members.begin();
            let usual =
                if begin != buffers && self.is_likely(source, begin)? { Some(begin) } else { None };
            // Where CPU 0 alone is damaged, the first that is whole is CPU 1 or one behind.
            let is_behind = |(at, geometry): (u64, Geometry)| at == self.end(buffers, geometry);
            let found = match usual {
                Some(begin) => Some(begin),
                None => self
                    .first_whole_word(source, size)?
                    .filter(|place| !is_behind(*place))
                    .map(|(at, _)| at),
            };
            if let Some(found) = found {
                self.notes.push(format!(
                    "offset {at_buffers}: the metadata of CPU 0 is at offset {found:#x} and not at {buffers:#x}"
                ));
                buffers = found;
            }
        }
        if buffers < size || buffers >= source.len {
            let expected = "an offset inside the region";
            return Err(Error::value(source.name, at_buffers.into(), buffers, expected));
        }
        if let Some(scratch) = common.scratch {
            let len = usize::try_from(buffers.saturating_sub(size)).unwrap_or(0);
            let bytes = source.bytes(size, len)?;
            self.scratch(&self.reader(source, &bytes), scratch);
        }
        Ok(buffers)
    }

    /// Reads the scratch area: clock, address of the kernel's code, modules. An area that holds
    /// nothing is all zeroes.
    fn scratch(&mut self, reader: &Reader<'_>, scratch: Scratch) {
        let read = |place: Number| place.read(reader).unwrap_or(0);
        let text = scratch.text.map(read);
        if text == Some(0) {
            return;
        }
        let clock = scratch.clock.and_then(|place| u32::try_from(read(place)).ok());
        let (mut modules, mut count) = (Vec::new(), 0);
        if let Some(list) = scratch.modules {
            count = read(list.count);
            let len = list.len as usize;
            let places = (0..count.min(MOST_MODULES)).scan(list.at as usize, |next, _| {
                let at = *next;
                *next = at.saturating_add(len);
                Some(at)
            });
            for at in places {
                let Ok(entry) = reader.bytes_at(at, len) else { break };
                let address = list
                    .address
                    .read(&Reader::new("", entry, self.members.byte_order))
                    .unwrap_or(0);
                let name = entry.get(list.name.0 as usize..).unwrap_or_default();
                let name = name.get(..list.name.1 as usize).unwrap_or(name);
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                if address == 0 || name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
                    break;
                }
                modules.push(Module { address, name: String::from_utf8_lossy(name).into_owned() });
            }
        }
        if (modules.len() as u64) < count {
            self.notes.push(format!(
                "the scratch area says {count} modules, {} can be read",
                modules.len()
            ));
        }
        if let Some(text) = text.filter(|text| !is_code(*text)) {
            self.notes.push(format!(
                "the scratch area has {text:#x} in place of the address of the kernel's code"
            ));
        }
        self.boot = Boot {
            text_address: text.filter(|text| is_code(*text)),
            data_address: None,
            clock,
            modules,
        };
    }

    /// All CPUs of a region have the same geometry.
    fn is_hinted(&self, geometry: Geometry) -> bool {
        self.hint.is_none_or(|hint| hint == geometry)
    }

    /// A CPU's metadata at an offset, if all of it can be: size and number of its sub-buffers.
    pub(super) fn whole(&self, source: &Source<'_>, at: u64) -> Result<Option<Geometry>, Error> {
        self.metadata(source, at, true)
    }

    /// The same, and the magic word may be damaged unless it is needed.
    fn metadata(
        &self,
        source: &Source<'_>,
        at: u64,
        needs_magic: bool,
    ) -> Result<Option<Geometry>, Error> {
        let Some(geometry) = self.words(source, at, needs_magic)? else { return Ok(None) };
        let is_whole = permuted(&self.table(source, at, geometry.1)?) == geometry.1;
        Ok(is_whole.then_some(geometry))
    }

    /// The same, and the table may be damaged too.
    pub(super) fn words(
        &self,
        source: &Source<'_>,
        at: u64,
        needs_magic: bool,
    ) -> Result<Option<Geometry>, Error> {
        let fixed = self.fixed(source, at)?;
        let fixed =
            fixed.filter(|fixed| !needs_magic || fixed.magic.is_none_or(|magic| magic == MAGIC));
        let fixed = fixed.filter(|fixed| fixed.fits(source.len.saturating_sub(at)));
        Ok(fixed.map(|fixed| (fixed.size, fixed.count)))
    }

    /// The words at an offset, as those of a CPU's metadata; none where these do not fit.
    fn fixed(&self, source: &Source<'_>, at: u64) -> Result<Option<Fixed>, Error> {
        let len = self.members.cpu.len as usize;
        if at.saturating_add(len as u64) > source.len {
            return Ok(None);
        }
        let bytes = source.bytes(at, len)?;
        Ok(Fixed::read(&self.reader(source, &bytes), &self.members))
    }

    /// Metadata of a CPU may be at an offset: of its geometry, its addresses and its table, two can
    /// be.
    pub(super) fn is_likely(&self, source: &Source<'_>, at: u64) -> Result<bool, Error> {
        let Some(fixed) = self.fixed(source, at)? else { return Ok(false) };
        let room = source.len.saturating_sub(at);
        let reach = |address: u64| {
            fixed.first != 0 && address.checked_sub(fixed.first).is_some_and(|far| far < room)
        };
        let addresses =
            fixed.first.is_multiple_of(u64::from(PAGE)) && reach(fixed.head) && reach(fixed.commit);
        let table = permuted(&self.table(source, at, most(room))?) >= 2;
        Ok([fixed.has_geometry(room), addresses, table].map(u8::from).iter().sum::<u8>() >= 2)
    }

    /// The first metadata of a CPU that is followed, or else that is whole: at `first`, or on a
    /// page boundary behind.
    fn first_whole(&self, source: &Source<'_>, first: u64) -> Result<Place, Error> {
        let followed = self.first_followed(source, first)?;
        if followed.is_some() {
            Ok(followed)
        } else {
            self.first_of(source, &mut places(source, first))
        }
    }

    /// The first metadata of a CPU that is whole, at the beginning of the region on a boundary of
    /// words.
    fn first_whole_word(&self, source: &Source<'_>, from: u64) -> Result<Place, Error> {
        self.first_of(source, &mut (from..source.len.min(HEAD)).step_by(self.word()))
    }

    fn first_of(
        &self,
        source: &Source<'_>,
        places: &mut dyn Iterator<Item = u64>,
    ) -> Result<Place, Error> {
        for at in places {
            if let Some(geometry) = self.whole(source, at)? {
                return Ok(Some((at, geometry)));
            }
        }
        Ok(None)
    }

    /// The table of a CPU's metadata. A value that does not fit becomes -1.
    pub(super) fn table(
        &self,
        source: &Source<'_>,
        at: u64,
        count: u32,
    ) -> Result<Vec<i32>, Error> {
        let Number { at: offset, size } = self.members.cpu.table;
        let begin = at.saturating_add(offset.into());
        let room = usize::try_from(source.len.saturating_sub(begin)).unwrap_or(usize::MAX);
        let bytes = source.bytes(begin, (count as usize).saturating_mul(size.into()).min(room))?;
        let number = |bytes: &[u8]| {
            i32::try_from(page::native(bytes, 0, size, self.members.byte_order)).unwrap_or(-1)
        };
        Ok(bytes.chunks_exact(size.into()).map(number).collect())
    }

    /// Reads a CPU's metadata at an offset; none where no metadata of a CPU can stand.
    fn cpu(&mut self, source: &Source<'_>, at: u64) -> Result<Option<CpuMeta>, Error> {
        let Some(fixed) = self.fixed(source, at)? else { return Ok(None) };
        let Some((size, count)) = self.geometry(source, at, &fixed)? else { return Ok(None) };
        let mut faults = Vec::new();
        if let Some(magic) = fixed.magic.filter(|magic| *magic != MAGIC && at > 0) {
            faults
                .push(format!("offset {at:#x}: {magic:#x} in place of the magic word {MAGIC:#x}"));
        }
        if (size, count) != (fixed.size, fixed.count) {
            let (size_here, count_here) = (fixed.size, fixed.count);
            faults.push(format!(
                "offset {at:#x}: metadata of {count_here} sub-buffers of {size_here} bytes, where there are {count} of {size}"
            ));
        }
        let step = u64::from(size);
        let mut number = |what: &str, address: u64| {
            let distance = address.wrapping_sub(fixed.first);
            let number = distance
                .checked_div(step)
                .filter(|n| *n < u64::from(count) && distance.is_multiple_of(step));
            if number.is_none() {
                let first = fixed.first;
                faults.push(format!(
                    "the {what} address {address:#x} is none of the {count} sub-buffers from {first:#x} on"
                ));
            }
            number.and_then(|n| u32::try_from(n).ok())
        };
        let (head, commit) = (number("head", fixed.head), number("commit", fixed.commit));
        if fixed.magic == Some(MAGIC) && self.boot.text_address.is_none() {
            [self.boot.text_address, self.boot.data_address] = [fixed.text, fixed.data]
                .map(|address| Some(address).filter(|address| *address != 0));
        }
        let order = self.table(source, at, count)?;
        Ok(Some(CpuMeta {
            at,
            data: self.data(at, (size, count)),
            sub_buffer_size: size,
            order,
            head,
            commit,
            faults,
        }))
    }
}

/// An address can be that of a kernel's code, which begins with a page.
fn is_code(address: u64) -> bool {
    address.is_multiple_of(u64::from(PAGE))
}
