//! The words that metadata of a region begins with, and whether they can be metadata.

use super::layout::Form;
use lastwords_bytes::{ByteOrder, Reader};

/// First word of the metadata.
pub(super) const MAGIC: u32 = 0x0bad_feed;
/// The second word of a region: the size of the structure, or of both structures; the size of a `long`; the form.
pub(super) const SIZES: [(u32, u8, Form); 4] =
    [(0x38, 8, Form::PerCpu), (0x24, 4, Form::PerCpu), (0x0018_0020, 8, Form::Common), (0x0010_0014, 4, Form::Common)];
/// Offset of the metadata of CPU 0 in the layout with a common header, in all kernels up to 7.2.
pub(super) const COMMON: u64 = 0x2030;
/// Bytes of a page, the smallest sub-buffer.
pub(super) const PAGE: u32 = 4096;
/// Most sub-buffers of a CPU, as an `int` counts them, and far below.
pub(super) const MOST_SUB_BUFFERS: u32 = 1 << 22;

/// Returns true if one of the first two words of memory is that of a region. The other may be damaged.
pub(super) fn may_begin(head: &[u8; 8]) -> bool {
    [ByteOrder::Little, ByteOrder::Big].into_iter().any(|order| {
        let reader = Reader::new("", head, order);
        let sizes = reader.u32_at(4).unwrap_or(0);
        reader.u32_at(0).is_ok_and(|magic| magic == MAGIC) || SIZES.iter().any(|(known, ..)| *known == sizes)
    })
}

/// Byte order, word size and form, as the first words of a region of `len` bytes tell them; none where they are no metadata. One of the
/// two words that tell the layout may be damaged where the words behind them can be metadata.
pub(super) fn recognise(head: &[u8], len: u64) -> Option<(ByteOrder, u8, Form)> {
    recognise_with(head, len, &|total, _| total == len)
}

/// The same for a region at the beginning of `len` bytes of memory, which may have more than the region.
pub(super) fn recognise_within(head: &[u8], len: u64) -> Option<(ByteOrder, u8, Form)> {
    recognise_with(head, len, &|total, buffers| {
        buffers == COMMON && total > buffers && total <= len && total.is_multiple_of(u64::from(PAGE))
    })
}

/// `is_total`: the size of a region and the offset of its first metadata of a CPU can be, as its header has them.
fn recognise_with(head: &[u8], len: u64, is_total: &dyn Fn(u64, u64) -> bool) -> Option<(ByteOrder, u8, Form)> {
    let forms = [ByteOrder::Little, ByteOrder::Big].into_iter().flat_map(|order| {
        let forms = SIZES.iter().map(move |(sizes, word_size, form)| (order, *sizes, *word_size, *form));
        forms.map(|(order, sizes, word_size, form)| {
            let reader = Reader::new("", head, order);
            let is = |at: usize, value: u32| u8::from(reader.u32_at(at).is_ok_and(|found| found == value));
            (is(0, MAGIC).saturating_add(is(4, sizes)), (order, word_size, form))
        })
    });
    let fits = |(order, word_size, form): (ByteOrder, u8, Form)| {
        let reader = Reader::new("", head, order);
        match form {
            Form::PerCpu => Fixed::read(&reader, form, word_size).is_some_and(|fixed| fixed.fits(len)),
            Form::Common if word_size == 8 => {
                reader.u64_at(8).is_ok_and(|total| is_total(total, reader.u64_at(16).unwrap_or(0)))
            }
            Form::Common => false,
        }
    };
    let likely = forms.filter(|(words, form)| *words == 2 || *words == 1 && fits(*form));
    likely.max_by_key(|(words, _)| *words).map(|(_, form)| form)
}

/// The words of a CPU's metadata before the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fixed {
    /// The magic word and the size of the structure, where the form has them.
    pub(super) marks: Option<(u32, u32)>,
    pub(super) text: u64,
    pub(super) data: u64,
    pub(super) first: u64,
    pub(super) head: u64,
    pub(super) commit: u64,
    pub(super) size: u32,
    pub(super) count: u32,
}

impl Fixed {
    /// Bytes of the words.
    pub(super) fn len(form: Form, word_size: u8) -> usize {
        let word = usize::from(word_size);
        match form {
            Form::PerCpu => 16usize.saturating_add(word.saturating_mul(5)),
            Form::Common => 8usize.saturating_add(word.saturating_mul(3)),
        }
    }

    pub(super) fn read(reader: &Reader<'_>, form: Form, word_size: u8) -> Option<Self> {
        let mut at = 0usize;
        let mut next = |size: u8| {
            let value = if size == 8 { reader.u64_at(at) } else { reader.u32_at(at).map(u64::from) };
            at = at.saturating_add(usize::from(size));
            value.ok()
        };
        let (mut marks, mut text, mut data) = (None, 0, 0);
        if form == Form::PerCpu {
            marks = Some((u32::try_from(next(4)?).ok()?, u32::try_from(next(4)?).ok()?));
            (text, data) = (next(word_size)?, next(word_size)?);
        }
        let (first, head, commit) = (next(word_size)?, next(word_size)?, next(word_size)?);
        let (size, count) = (u32::try_from(next(4)?).ok()?, u32::try_from(next(4)?).ok()?);
        Some(Self { marks, text, data, first, head, commit, size, count })
    }

    /// Size and count can be those of sub-buffers in `len` bytes.
    pub(super) fn has_geometry(&self, len: u64) -> bool {
        let bytes = u64::from(self.size).saturating_mul(u64::from(self.count));
        let counts = 2..=MOST_SUB_BUFFERS;
        self.size.is_power_of_two() && self.size >= PAGE && counts.contains(&self.count) && bytes <= len
    }

    /// All words can be metadata: the addresses are those of sub-buffers.
    pub(super) fn fits(&self, len: u64) -> bool {
        let end = self.first.checked_add(u64::from(self.size).saturating_mul(u64::from(self.count)));
        let holds = |address: u64| address >= self.first && end.is_some_and(|end| address < end);
        self.has_geometry(len)
            && self.first != 0
            && self.first.is_multiple_of(u64::from(PAGE))
            && holds(self.head)
            && holds(self.commit)
    }
}
