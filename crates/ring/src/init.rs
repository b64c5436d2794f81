//! The geometry of a stream region, and the initialisation of a region.

use core::ops::Range;

use lastwords_abi::region::{self, RegionHeader};
use lastwords_abi::stream::{self as abi, Slot, StreamControl, StreamInfo};
use lastwords_abi::{VERSION_MAJOR, VERSION_MAJOR_ADDED, VERSION_MINOR};

use crate::memory::PAGE;

/// Identity and geometry of a stream, as the fields of [`StreamInfo`] describe it.
#[derive(Debug, Clone, Copy)]
pub struct StreamSpec {
    /// UUID of the session.
    pub session: [u8; 16],
    /// Index of the stream in the session.
    pub index: u32,
    pub(crate) info: StreamInfo,
}

impl core::ops::Deref for StreamSpec {
    type Target = StreamInfo;

    #[inline(always)]
    fn deref(&self) -> &StreamInfo {
        &self.info
    }
}

/// The end of the control words in the region.
const CONTROL_END: u64 = (abi::CONTROL_OFF + size_of::<StreamControl>()) as u64;

/// A field of [`StreamInfo`], its value, and the rule that the value violates.
pub type Misfit = (&'static str, u64, &'static str);

impl StreamSpec {
    /// Computes the layout of a stream. The offsets in `info` are computed, whatever they were, but
    /// for the order of slots and data: the data are in front where they were, as in a ring that
    /// came over a network; in a new one, the slots are.
    ///
    /// # Errors
    /// The geometry is not valid for a ring.
    pub fn new(session: [u8; 16], index: u32, info: StreamInfo) -> Result<Self, Misfit> {
        let StreamInfo { sub_buffer_size: size, sub_buffers: count, page_size, .. } = info;
        let least = if page_size == 0 { 256 } else { PAGE as u64 };
        if !count.is_power_of_two() || !(2..=1 << 20).contains(&count) {
            return Err((
                "sub_buffers",
                count.into(),
                "it must be a power of two from 2 to 1048576",
            ));
        }
        if !size.is_power_of_two() || !(least..=1 << 30).contains(&size) {
            let rule = "it must be a power of two from 256 (4096 on the heap) to 2^30 bytes";
            return Err(("sub_buffer_size", size, rule));
        }
        if size * u64::from(count) > 1 << 40 {
            return Err((
                "sub_buffers",
                count.into(),
                "all sub-buffers together take at most 2^40 bytes",
            ));
        }
        if ![0, PAGE as u32].contains(&page_size) {
            return Err(("page_size", page_size.into(), "it must be 0 or 4096"));
        }
        let mut spec = Self { session, index, info };
        let slots_off = [0, 1].map(|half| spec.slots_off(half));
        let data_off = [0, 1].map(|half| spec.data_range(half).start);
        (spec.info.slots_off, spec.info.data_off) = (slots_off, data_off);
        Ok(spec)
    }

    /// Returns the bytes of a half's data.
    #[must_use]
    pub fn half_size(&self) -> u64 {
        self.sub_buffer_size * u64::from(self.sub_buffers)
    }

    fn has_data_in_front(&self) -> bool {
        self.info.data_off[0] < self.info.slots_off[0]
    }

    fn slots_off(&self, half: u64) -> u64 {
        let slots = u64::from(self.sub_buffers) * size_of::<Slot>() as u64;
        let begin = if self.has_data_in_front() { self.data_range(1).end } else { CONTROL_END };
        begin + slots * half
    }

    /// Returns the range of a half's data (or page table) in the region. It begins on a page
    /// boundary.
    #[must_use]
    pub fn data_range(&self, half: usize) -> Range<u64> {
        let page = PAGE as u64;
        let len = if self.page_size == 0 { self.half_size() } else { self.half_size() / page * 8 };
        let len = len.next_multiple_of(page);
        let before = if self.has_data_in_front() { CONTROL_END } else { self.slots_off(2) };
        let at = before.next_multiple_of(page) + len * half as u64;
        at..at + len
    }

    /// Returns the bytes of the region, both halves included.
    #[must_use]
    pub fn region_len(&self) -> u64 {
        self.data_range(1).end.max(self.slots_off(2).next_multiple_of(PAGE as u64))
    }
}

/// Returns the checksum of `header` and the fixed part that follows it.
#[must_use]
pub fn check_of(header: &RegionHeader, fixed: &[u8]) -> u64 {
    let covered = core::mem::offset_of!(RegionHeader, check);
    region::checksum(&[&bytes_of(header)[..covered], fixed].concat())
}

/// This program cannot record in the region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset}: {what}")]
pub struct AttachError {
    /// Offset of the error in the region, in bytes.
    pub offset: usize,
    /// Description of the error.
    pub what: alloc::string::String,
}

/// Reads the header of a mapped region of that kind, and checks everything except the checksum.
///
/// # Errors
/// The header does not have this version, kind and length.
///
/// # Safety
/// `region` is mapped readable for `len` bytes, 4096-aligned.
pub unsafe fn check_header(
    region: *const u8,
    len: u64,
    kind: u32,
) -> Result<RegionHeader, AttachError> {
    let wrong = |offset, what| Err(AttachError { offset, what });
    if len < region::REGION_ALIGN {
        return wrong(0, alloc::format!("the mapping has only {len} bytes"));
    }
    // SAFETY: the mapping has at least 4096 bytes and is aligned for the shape, which is plain
    // integers.
    let header = unsafe { region.cast::<RegionHeader>().read_volatile() };
    if header.magic != region::MAGIC || header.byte_order != region::BYTE_ORDER_MARK {
        wrong(0, "no lastwords magic of this machine's byte order".into())
    } else if header.major != VERSION_MAJOR && !is_added(&header) {
        wrong(
            16,
            alloc::format!("version {}, this program writes version {VERSION_MAJOR}", header.major),
        )
    } else if header.kind != kind {
        wrong(20, alloc::format!("kind {}, expected {kind}", header.kind))
    } else if header.size != len {
        wrong(32, alloc::format!("size {}, the mapping has {len} bytes", header.size))
    } else {
        Ok(header)
    }
}

/// Returns true for the stream of a channel that was created while the session recorded.
fn is_added(header: &RegionHeader) -> bool {
    header.major == VERSION_MAJOR_ADDED && header.kind == region::KIND_STREAM
}

/// Returns the offset of the fixed part of a region, which is in the region's first 4096 bytes.
const fn fixed_off<T: Fixed>() -> usize {
    assert!(region::HEADER_SIZE as usize + size_of::<T>() <= region::REGION_ALIGN as usize);
    region::HEADER_SIZE as usize
}

/// Reads and checks the header and the fixed part of a mapped region of that kind.
///
/// # Errors
/// The header does not have this version, kind and length, or its checksum is wrong.
///
/// # Safety
/// The conditions of [`check_header`] apply.
pub unsafe fn read_region<T: Fixed>(
    region: *const u8,
    len: u64,
    kind: u32,
) -> Result<(RegionHeader, T), AttachError> {
    // SAFETY: the caller guarantees the mapping. The region has at least 4096 bytes, as
    // `check_header` checks, and the shape is in them, as `fixed_off` checks. The region is aligned
    // for the shape, and plain integers may have any bytes.
    let (header, fixed) = unsafe {
        (
            check_header(region, len, kind)?,
            region.add(const { fixed_off::<T>() }).cast::<T>().read(),
        )
    };
    let (check, computed) = (header.check, check_of(&header, bytes_of(&fixed)));
    if check != computed {
        let what = alloc::format!("checksum {check:#x}, computed {computed:#x}");
        return Err(AttachError { offset: 112, what });
    }
    Ok((header, fixed))
}

/// Returns the bytes of a shape of the ABI that has no padding and no atomics.
pub fn bytes_of<T: Fixed>(value: &T) -> &[u8] {
    // SAFETY: `Fixed` types are `repr(C)` integers without padding, so that all their bytes are
    // initialised.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Shapes whose bytes are all initialised.
///
/// # Safety
/// `repr(C)`, integers and arrays of integers only, no padding.
pub unsafe trait Fixed: Copy {}
// SAFETY: fields of 16, 2+2+4+4+4, 8, 16, 4+4, 48, 8, 8 bytes: each naturally aligned, 128 in all.
unsafe impl Fixed for RegionHeader {}
// SAFETY: fields of 4 x 4, 8, 4 + 4, 16, 16 bytes: each naturally aligned, 64 in all.
unsafe impl Fixed for StreamInfo {}
// SAFETY: 4 x 8, 12 x 4, then byte arrays of 16, 64, 64 and 256: each naturally aligned, 480 in
// all.
unsafe impl Fixed for lastwords_abi::session::SessionInfo {}

// SAFETY: 16 fields of 4 bytes, 64 in all.
unsafe impl Fixed for lastwords_abi::counters::CountersInfo {}

// SAFETY: an array of integers has no padding.
unsafe impl<const N: usize> Fixed for [u64; N] {}

/// Initialises a region as a stream.
///
/// # Safety
/// `region` is zeroed, 4096-aligned and valid for writes of [`StreamSpec::region_len`] bytes, and
/// nobody records in it yet.
pub unsafe fn init_stream(region: *mut u8, spec: &StreamSpec) {
    // SAFETY: the caller guarantees the conditions.
    unsafe {
        write_region(
            region,
            region::KIND_STREAM,
            spec.region_len(),
            spec.session,
            spec.index,
            spec.info,
        )
    }
}

/// Initialises a region as a stream of a channel that is created while the session records.
///
/// # Safety
/// The conditions of [`init_stream`] apply.
pub unsafe fn init_added_stream(region: *mut u8, spec: &StreamSpec) {
    let header =
        header::<StreamInfo>(region::KIND_STREAM, spec.region_len(), spec.session, spec.index);
    // SAFETY: the caller guarantees the conditions.
    unsafe { write_with(region, RegionHeader { major: VERSION_MAJOR_ADDED, ..header }, spec.info) }
}

/// Writes the fixed part of a region and its header. The magic is stored last, so that a reader
/// finds a complete region or none.
///
/// # Safety
/// `region` is 4096-aligned and valid for writes of `size` bytes, 4096 or more, and nobody else
/// writes it.
pub unsafe fn write_region<T: Fixed>(
    region: *mut u8,
    kind: u32,
    size: u64,
    session: [u8; 16],
    index: u32,
    fixed: T,
) {
    // SAFETY: the caller guarantees the conditions.
    unsafe { write_with(region, header::<T>(kind, size, session, index), fixed) }
}

/// Returns the header of a region with a fixed part of this type, without its checksum.
fn header<T: Fixed>(kind: u32, size: u64, session: [u8; 16], index: u32) -> RegionHeader {
    RegionHeader {
        magic: region::MAGIC,
        major: VERSION_MAJOR,
        minor: VERSION_MINOR,
        kind,
        byte_order: region::BYTE_ORDER_MARK,
        word_size: size_of::<usize>() as u32,
        size,
        session,
        index,
        fixed_len: size_of::<T>() as u32,
        reserved: [0; 6],
        check: 0,
        reserved2: 0,
    }
}

/// Writes a header, with its checksum, and the fixed part.
///
/// # Safety
/// The conditions of [`write_region`] apply.
unsafe fn write_with<T: Fixed>(region: *mut u8, mut header: RegionHeader, fixed: T) {
    header.check = check_of(&header, bytes_of(&fixed));
    // SAFETY: both parts are in the first 4096 bytes, as `fixed_off` checks, and the caller
    // provides these bytes. The region is aligned for both parts.
    unsafe {
        region.add(const { fixed_off::<T>() }).cast::<T>().write(fixed);
        region.cast::<RegionHeader>().write(RegionHeader { magic: [0; 16], ..header });
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        region.cast::<[u8; 16]>().write_volatile(header.magic);
    }
}
