//! The words that metadata of a region begins with, and whether they can be metadata.

use super::members::{Members, PAGE};
use lastwords_bytes::Reader;

/// First word of the metadata.
pub(super) const MAGIC: u64 = 0x0bad_feed;
/// Most sub-buffers of a CPU, as an `int` counts them, and far below.
pub(super) const MOST_SUB_BUFFERS: u32 = 1 << 22;

/// How many of the two words that tell a layout are right: that of a region, and that of the sizes.
fn right(head: &[u8], layout: &Members) -> u8 {
    let reader = Reader::new("", head, layout.byte_order);
    let magic = layout.magic.read(&reader) == Some(MAGIC);
    let sizes = layout.sizes.read(&reader) == Some(layout.expected_sizes());
    u8::from(magic).saturating_add(u8::from(sizes))
}

/// Returns true if one of the two words at the beginning of memory is that of a region. The other
/// may be damaged.
pub(super) fn may_begin(head: &[u8], layouts: &[Members]) -> bool {
    layouts.iter().any(|layout| right(head, layout) > 0)
}

/// The layouts of which the first words of a region of `len` bytes can be, the likeliest first;
/// none where they are no metadata. One of the two words that tell the layout may be damaged where
/// the words behind them can be metadata.
pub(super) fn recognise(head: &[u8], len: u64, layouts: &[Members]) -> Vec<Members> {
    recognise_with(head, len, layouts, &|_, total, _| total == len)
}

/// The same for a region at the beginning of `len` bytes of memory, which may have more than the
/// region.
pub(super) fn recognise_within(head: &[u8], len: u64, layouts: &[Members]) -> Vec<Members> {
    recognise_with(head, len, layouts, &|layout, total, buffers| {
        buffers == layout.begin()
            && total > buffers
            && total <= len
            && total.is_multiple_of(u64::from(PAGE))
    })
}

/// `is_total`: the size of a region and the offset of its first metadata of a CPU can be, as its
/// header has them.
fn recognise_with(
    head: &[u8],
    len: u64,
    layouts: &[Members],
    is_total: &dyn Fn(&Members, u64, u64) -> bool,
) -> Vec<Members> {
    let fits = |layout: &Members| {
        let reader = Reader::new("", head, layout.byte_order);
        match layout.common {
            None => Fixed::read(&reader, layout).is_some_and(|fixed| fixed.fits(len)),
            Some(common) => common.total.read(&reader).is_some_and(|total| {
                is_total(layout, total, common.buffers.read(&reader).unwrap_or(0))
            }),
        }
    };
    let rows = layouts.iter().map(|layout| (right(head, layout), layout));
    let likely: Vec<_> =
        rows.filter(|(words, layout)| *words == 2 || *words == 1 && fits(layout)).collect();
    let most = likely.iter().map(|(words, _)| *words).max().unwrap_or(0);
    let mut best: Vec<Members> =
        likely.iter().filter(|(words, _)| *words == most).map(|(_, layout)| **layout).collect();
    // Types alone make no layout likely: both words must speak for them against a layout that is
    // known.
    best.sort_by_key(|layout| most < 2 && !layout.is_known());
    best
}

/// The words of a CPU's metadata before the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fixed {
    /// The magic word, where each CPU has one.
    pub(super) magic: Option<u64>,
    pub(super) text: u64,
    pub(super) data: u64,
    pub(super) first: u64,
    pub(super) head: u64,
    pub(super) commit: u64,
    pub(super) size: u32,
    pub(super) count: u32,
}

impl Fixed {
    pub(super) fn read(structure: &Reader<'_>, layout: &Members) -> Option<Self> {
        let cpu = layout.cpu;
        let magic =
            if layout.common.is_none() { Some(layout.magic.read(structure)?) } else { None };
        let [text, data] = [cpu.text, cpu.data]
            .map(|place| place.and_then(|place| place.read(structure)).unwrap_or(0));
        // A value that does not fit becomes the largest number, which no region can have.
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Some(Self {
            magic,
            text,
            data,
            first: cpu.first.read(structure)?,
            head: cpu.head.read(structure)?,
            commit: cpu.commit.read(structure)?,
            size: number(cpu.size.read(structure)?),
            count: number(cpu.count.read(structure)?),
        })
    }

    /// Size and count can be those of sub-buffers in `len` bytes.
    pub(super) fn has_geometry(&self, len: u64) -> bool {
        let bytes = u64::from(self.size).saturating_mul(u64::from(self.count));
        let counts = 2..=MOST_SUB_BUFFERS;
        self.size.is_power_of_two()
            && self.size >= PAGE
            && counts.contains(&self.count)
            && bytes <= len
    }

    /// All words can be metadata: the addresses are those of sub-buffers.
    pub(super) fn fits(&self, len: u64) -> bool {
        let end =
            self.first.checked_add(u64::from(self.size).saturating_mul(u64::from(self.count)));
        let holds = |address: u64| address >= self.first && end.is_some_and(|end| address < end);
        self.has_geometry(len)
            && self.first != 0
            && self.first.is_multiple_of(u64::from(PAGE))
            && holds(self.head)
            && holds(self.commit)
    }

    /// The head and the commit are the addresses of sub-buffers: neither is inside one.
    pub(super) fn has_sub_buffers(&self) -> bool {
        let is_one = |address: u64| {
            let distance = address.wrapping_sub(self.first);
            distance.checked_rem(self.size.into()) == Some(0)
                && distance
                    .checked_div(self.size.into())
                    .is_some_and(|number| number < u64::from(self.count))
        };
        is_one(self.head) && is_one(self.commit)
    }
}

/// Most sub-buffers that have room in so many bytes.
pub(super) fn most(room: u64) -> u32 {
    u32::try_from(room.checked_div(u64::from(PAGE)).unwrap_or(0)).unwrap_or(0).min(MOST_SUB_BUFFERS)
}

/// The most numbers at the beginning of a table that are each number from 0 on once.
pub(super) fn permuted(table: &[i32]) -> u32 {
    let mut seen = vec![false; table.len()];
    let (mut most, mut highest) = (0, 0);
    for (index, number) in table.iter().enumerate() {
        let place = usize::try_from(*number).ok().and_then(|n| seen.get_mut(n));
        match place {
            Some(seen) if !*seen => *seen = true,
            _ => break,
        }
        highest = highest.max(usize::try_from(*number).unwrap_or(0));
        if highest == index {
            most = index.saturating_add(1);
        }
    }
    u32::try_from(most).unwrap_or(0)
}
