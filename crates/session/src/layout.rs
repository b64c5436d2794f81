//! Reads the structs of `abi` from bytes, field by field, in the byte order of the writer.

use super::region::Region;
use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN};
use lastwords_abi::session::{self as abi, InFlight, MAX_LEVELS, Thread};
use lastwords_abi::stream::{self, HalfControl, Slot, StreamControl};
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_image::Image;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Largest sub-buffer that is accepted; limits the memory that a damaged geometry can request.
const MAX_SUB_BUFFER: u64 = 1 << 30;
/// Most sub-buffers of a half that are accepted.
const MAX_SUB_BUFFERS: u32 = 1 << 20;
/// Largest page of a page table that is accepted.
const MAX_PAGE: u32 = 1 << 30;

/// Reads a field of a struct that begins at offset `$base` of the reader.
macro_rules! field {
    ($reader:expr, $base:expr, $shape:ty, $field:ident, $read:ident) => {
        $reader.$read(usize::saturating_add($base, std::mem::offset_of!($shape, $field)))
    };
    ($reader:expr, $base:expr, $shape:ty, $field:ident, $read:ident, $len:expr) => {
        $reader.$read(usize::saturating_add($base, std::mem::offset_of!($shape, $field)), $len)
    };
}
pub(crate) use field;

/// Reads `len` bytes at `offset` of a region.
pub(crate) fn part(
    image: &dyn Image,
    region: &Region,
    offset: u64,
    len: usize,
    budget: &Budget,
) -> Result<Vec<u8>, Error> {
    let what = region.place();
    let end = offset.saturating_add(len as u64);
    if end > region.size {
        return Err(Error::value(
            &what,
            offset,
            len as u64,
            &format!("a part inside the region of {} bytes", region.size),
        ));
    }
    // Checked before allocating the buffer.
    if end > region.held {
        let left = region.held.saturating_sub(offset);
        return Err(Error::short(&what, offset, left, &format!("{len} bytes")));
    }
    budget.bytes(&what, len as u64)?;
    let mut bytes = vec![0u8; len];
    image.read(region.address.saturating_add(offset), &mut bytes).map_err(|hole| {
        let got = hole.address.saturating_sub(region.address);
        Error::short(&what, got, 0, &format!("{len} bytes ({})", hole.cause.word()))
    })?;
    Ok(bytes)
}

/// Geometry of a stream; slots and data were checked to lie in the region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) channel: u32,
    pub(crate) cpu: u32,
    pub(crate) reservation: u32,
    pub(crate) mode: u32,
    /// Bytes of a sub-buffer.
    pub(crate) size: u64,
    /// Number of sub-buffers in a half.
    pub(crate) count: u64,
    pub(crate) page_size: u64,
    pub(crate) slots_off: [u64; 2],
    pub(crate) data_off: [u64; 2],
}

impl Geometry {
    /// Reads and checks the fixed part of a stream region.
    pub(crate) fn parse(region: &Region) -> Result<Self, Error> {
        use stream::StreamInfo as Shape;
        let what = region.place();
        let base = u64::from(lastwords_abi::region::HEADER_SIZE);
        let r = Reader::new(&what, &region.fixed, region.order).based(base);
        let geometry = Self {
            channel: field!(r, 0, Shape, channel, u32_at)?,
            cpu: field!(r, 0, Shape, cpu, u32_at)?,
            reservation: field!(r, 0, Shape, reservation, u32_at)?,
            mode: field!(r, 0, Shape, mode, u32_at)?,
            size: field!(r, 0, Shape, sub_buffer_size, u64_at)?,
            count: u64::from(field!(r, 0, Shape, sub_buffers, u32_at)?),
            page_size: u64::from(field!(r, 0, Shape, page_size, u32_at)?),
            slots_off: pair(&r, offset_of!(Shape, slots_off))?,
            data_off: pair(&r, offset_of!(Shape, data_off))?,
        };
        let at = |offset: usize| base.saturating_add(offset as u64);
        geometry.check(&what, region.size, &at)?;
        Ok(geometry)
    }

    fn check(&self, what: &str, region: u64, at: &dyn Fn(usize) -> u64) -> Result<(), Error> {
        use stream::StreamInfo as Shape;
        let Self { size, count, page_size, .. } = *self;
        let bad = |offset: usize, value: u64, expected: &str| {
            Err(Error::value(what, at(offset), value, expected))
        };
        let least = (HEADER_LEN.saturating_add(TRAILER_LEN)) as u64;
        if !size.is_power_of_two() || size < least || size > MAX_SUB_BUFFER {
            return bad(
                offset_of!(Shape, sub_buffer_size),
                size,
                "a power of two from 128 to 2^30",
            );
        }
        if !count.is_power_of_two() || count < 2 || count > u64::from(MAX_SUB_BUFFERS) {
            return bad(offset_of!(Shape, sub_buffers), count, "a power of two from 2 to 2^20");
        }
        if page_size != 0
            && (!page_size.is_power_of_two() || page_size < 16 || page_size > u64::from(MAX_PAGE))
        {
            return bad(
                offset_of!(Shape, page_size),
                page_size,
                "0 or a power of two from 16 to 2^30",
            );
        }
        let fits = |offset: u64, len: u64| {
            offset >= stream::CONTROL_OFF as u64
                && offset.checked_add(len).is_some_and(|end| end <= region)
        };
        for (half, offset) in self.slots_off.iter().enumerate() {
            if !fits(*offset, count.saturating_mul(size_of::<Slot>() as u64)) {
                let field = offset_of!(Shape, slots_off).saturating_add(half.saturating_mul(8));
                return bad(field, *offset, "a slot table inside the region");
            }
        }
        for (half, offset) in self.data_off.iter().enumerate() {
            if !fits(*offset, self.data_len()) {
                let field = offset_of!(Shape, data_off).saturating_add(half.saturating_mul(8));
                return bad(field, *offset, "data inside the region");
            }
        }
        Ok(())
    }

    /// Bytes of the region that a half's data, or its page table, takes.
    pub(crate) fn data_len(&self) -> u64 {
        let data = self.half_size();
        if self.page_size == 0 { data } else { data.div_ceil(self.page_size).saturating_mul(8) }
    }

    /// Bytes of a half's data.
    pub(crate) fn half_size(&self) -> u64 {
        self.size.saturating_mul(self.count)
    }

    /// Index of the place of a sub-buffer in the half.
    pub(crate) fn place(&self, number: u64) -> u64 {
        number & self.count.wrapping_sub(1)
    }

    /// Lap in which a sub-buffer is written.
    pub(crate) fn lap(&self, number: u64) -> u64 {
        number.checked_div(self.count).unwrap_or(0)
    }

    /// Number of the sub-buffer that contains a position.
    pub(crate) fn number(&self, position: u64) -> u64 {
        position.checked_div(self.size).unwrap_or(0)
    }

    /// Offset of a position in its sub-buffer.
    pub(crate) fn within(&self, position: u64) -> u64 {
        position & self.size.wrapping_sub(1)
    }

    /// Position of the start of a sub-buffer.
    pub(crate) fn start(&self, number: u64) -> u64 {
        number.saturating_mul(self.size)
    }

    /// Greatest possible offset of the end of a sub-buffer's events.
    pub(crate) fn content_limit(&self) -> u64 {
        self.size.saturating_sub(TRAILER_LEN as u64)
    }

    pub(crate) fn is_lockless(&self) -> bool {
        self.reservation == abi::RESERVATION_LOCKLESS
    }
}

fn pair(r: &Reader<'_>, at: usize) -> Result<[u64; 2], Error> {
    Ok([r.u64_at(at)?, r.u64_at(at.saturating_add(8))?])
}

/// The control words of a stream that change while it is written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Control {
    pub(crate) flip: u32,
    pub(crate) lost: [u64; 7],
    /// Events among those lost as busy for which the ring got no memory.
    pub(crate) refused: u32,
    pub(crate) half: [Half; 2],
}

/// The control words of one half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Half {
    pub(crate) reserve: u64,
    pub(crate) attempt: u64,
    /// Clock of a committed event, the newest or one of the newest; 0 = none.
    pub(crate) last_clock: u64,
    pub(crate) first: u64,
    pub(crate) consumed: u64,
    /// Bytes of snapshots that were dropped before this half was recorded.
    pub(crate) dropped: u64,
    /// Lockless streams: all bytes before this position in its sub-buffer were committed.
    pub(crate) contiguous: u64,
}

impl Control {
    pub(crate) fn read(image: &dyn Image, region: &Region, budget: &Budget) -> Result<Self, Error> {
        let bytes =
            part(image, region, stream::CONTROL_OFF as u64, size_of::<StreamControl>(), budget)?;
        let what = region.place();
        let r = Reader::new(&what, &bytes, region.order).based(stream::CONTROL_OFF as u64);
        let flip = field!(r, 0, StreamControl, flip, u32_at)?;
        let mut control = Self {
            flip,
            refused: field!(r, 0, StreamControl, refused, u32_at)?,
            ..Self::default()
        };
        for (i, lost) in control.lost.iter_mut().enumerate() {
            *lost =
                r.u64_at(offset_of!(StreamControl, lost).saturating_add(i.saturating_mul(8)))?;
        }
        for (i, half) in control.half.iter_mut().enumerate() {
            let skip = i.saturating_mul(size_of::<HalfControl>());
            let base = offset_of!(StreamControl, half).saturating_add(skip);
            *half = Half {
                reserve: field!(r, base, HalfControl, reserve, u64_at)?,
                attempt: field!(r, base, HalfControl, attempt, u64_at)?,
                last_clock: field!(r, base, HalfControl, last_clock, u64_at)?,
                contiguous: field!(r, base, HalfControl, contiguous, u64_at)?,
                first: field!(r, base, HalfControl, first, u64_at)?,
                consumed: field!(r, base, HalfControl, consumed, u64_at)?,
                dropped: field!(r, base, HalfControl, dropped, u64_at)?,
            };
        }
        Ok(control)
    }

    /// Says why events were lost as busy.
    pub(crate) fn why_busy(&self) -> &'static str {
        let busy = self.lost.get(stream::LOST_BUSY).copied().unwrap_or(0);
        match u64::from(self.refused) {
            0 => "every sub-buffer was still being written",
            refused if refused >= busy => "the ring got no memory",
            _ => "every sub-buffer was still being written, or the ring got no memory",
        }
    }

    /// Number of lost events, summed over all causes.
    pub(crate) fn lost_events(&self) -> u64 {
        lost_events(&self.lost)
    }
}

/// Sum of those counters that count lost events.
pub(crate) fn lost_events(counters: &[u64; 7]) -> u64 {
    counters
        .iter()
        .take(stream::LOST_LOCK.saturating_add(1))
        .fold(0, |sum, n| sum.saturating_add(*n))
}

impl Half {
    /// The position in the reserve word of a lockless half.
    pub(crate) fn lockless_position(&self) -> u64 {
        self.reserve & (1u64 << stream::POSITION_BITS).wrapping_sub(1)
    }

    /// The owner in the reserve word of a lockless half.
    pub(crate) fn lockless_owner(&self) -> u64 {
        (self.reserve & !stream::CLOSED_BIT).wrapping_shr(stream::OWNER_SHIFT)
    }

    /// The produced position of the half.
    pub(crate) fn position(&self, geometry: &Geometry) -> u64 {
        if geometry.is_lockless() { self.lockless_position() } else { self.reserve }
    }
}

/// A slot of a lockless stream.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SlotState {
    pub(crate) committed: u64,
    pub(crate) content_end: u64,
    pub(crate) end_clock: u64,
}

/// Slots that are read together: 64 KiB.
const SLOTS: usize = 1024;

/// The slots of one half of which the image has bytes, [`SLOTS`] at a time. The others are zeros:
/// memory follows the bytes that the file has, not the number of slots that the ring claims.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slots {
    count: u64,
    /// By the number of the first one.
    held: BTreeMap<u64, Vec<SlotState>>,
}

impl Slots {
    /// Returns the slot of a place; none if the slots could not be read.
    pub(crate) fn state(&self, place: u64) -> Option<SlotState> {
        let first = place.checked_div(SLOTS as u64).unwrap_or(0).saturating_mul(SLOTS as u64);
        let within = usize::try_from(place.saturating_sub(first)).unwrap_or(usize::MAX);
        let held = || {
            self.held.get(&first).and_then(|slots| slots.get(within)).copied().unwrap_or_default()
        };
        (place < self.count).then(held)
    }

    /// Returns true if the slots could not be read.
    pub(crate) fn are_unknown(&self) -> bool {
        self.count == 0
    }
}

/// Reads the slots of one half.
pub(crate) fn slots(
    image: &dyn Image,
    region: &Region,
    geometry: &Geometry,
    half: usize,
    budget: &Budget,
) -> Result<Slots, Error> {
    let size = size_of::<Slot>() as u64;
    let count = geometry.count;
    let table = geometry.slots_off.get(half).copied().unwrap_or(0);
    let (begin, end) =
        (region.address.saturating_add(table), table.saturating_add(count.saturating_mul(size)));
    if end > region.held {
        // The error names the place.
        some_slots(image, region, table, usize::try_from(count).unwrap_or(0), budget)?;
    }
    let mut slots = Slots { count, held: BTreeMap::new() };
    let mut first = 0u64;
    while first < count {
        let at = begin.saturating_add(first.saturating_mul(size));
        let skipped = image.next_data(at, region.address.saturating_add(end)).saturating_sub(at);
        let whole = (SLOTS as u64).saturating_mul(size);
        first = first
            .saturating_add(skipped.checked_div(whole).unwrap_or(0).saturating_mul(SLOTS as u64));
        let some = usize::try_from(count.saturating_sub(first)).unwrap_or(0).min(SLOTS);
        if some > 0 {
            let at = table.saturating_add(first.saturating_mul(size));
            slots.held.insert(first, some_slots(image, region, at, some, budget)?);
        }
        first = first.saturating_add(SLOTS as u64);
    }
    Ok(slots)
}

/// Reads the slot of a place.
pub(crate) fn slot(
    image: &dyn Image,
    region: &Region,
    geometry: &Geometry,
    (half, place): (usize, u64),
    budget: &Budget,
) -> Result<SlotState, Error> {
    let table = geometry.slots_off.get(half).copied().unwrap_or(0);
    let at = table.saturating_add(place.saturating_mul(size_of::<Slot>() as u64));
    Ok(some_slots(image, region, at, 1, budget)?.first().copied().unwrap_or_default())
}

/// Reads slots that follow each other.
fn some_slots(
    image: &dyn Image,
    region: &Region,
    offset: u64,
    count: usize,
    budget: &Budget,
) -> Result<Vec<SlotState>, Error> {
    let bytes = part(image, region, offset, count.saturating_mul(size_of::<Slot>()), budget)?;
    let what = region.place();
    let r = Reader::new(&what, &bytes, region.order).based(offset);
    (0..count)
        .map(|i| {
            let base = i.saturating_mul(size_of::<Slot>());
            Ok(SlotState {
                committed: field!(r, base, Slot, committed, u64_at)?,
                content_end: field!(r, base, Slot, content_end, u64_at)?,
                end_clock: field!(r, base, Slot, end_clock, u64_at)?,
            })
        })
        .collect()
}

/// A reservation that a thread has announced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Announced {
    /// Number of the thread's level, as in the owner bits of reserve words.
    pub(crate) owner: u64,
    pub(crate) target: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) confirmed: u64,
    pub(crate) state: u64,
}

/// Location of the thread table in the session region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadTable {
    pub(crate) offset: u64,
    pub(crate) threads: usize,
}

/// Reads the announcements of the thread table, without the idle ones.
pub(crate) fn announced(
    image: &dyn Image,
    session: &Region,
    table: ThreadTable,
    budget: &Budget,
) -> Result<Vec<Announced>, Error> {
    let bytes = part(
        image,
        session,
        table.offset,
        table.threads.saturating_mul(size_of::<Thread>()),
        budget,
    )?;
    let what = session.place();
    let r = Reader::new(&what, &bytes, session.order).based(table.offset);
    let mut found = Vec::new();
    for entry in 0..table.threads {
        for level in 0..MAX_LEVELS {
            let skip = level.saturating_mul(size_of::<InFlight>());
            let base = entry
                .saturating_mul(size_of::<Thread>())
                .saturating_add(offset_of!(Thread, levels));
            let base = base.saturating_add(skip);
            let target = field!(r, base, InFlight, target, u64_at)?;
            if target == 0 {
                continue;
            }
            let owner =
                entry.saturating_mul(MAX_LEVELS).saturating_add(level).saturating_add(1) as u64;
            found.push(Announced {
                owner,
                target,
                begin: field!(r, base, InFlight, begin, u64_at)?,
                end: field!(r, base, InFlight, end, u64_at)?,
                confirmed: field!(r, base, InFlight, confirmed, u64_at)?,
                state: field!(r, base, InFlight, state, u64_at)?,
            });
        }
    }
    Ok(found)
}
