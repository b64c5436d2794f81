//! Geometry of a stream region, and its first bytes.

use core::ops::Range;

use lastwords_abi::region::{self, RegionHeader};
use lastwords_abi::stream::{self as abi, Slot, StreamControl, StreamInfo};
use lastwords_abi::{VERSION_MAJOR, VERSION_MINOR};

use crate::memory::PAGE;

/// What a stream is to be.
#[derive(Debug, Clone, Copy)]
pub struct StreamSpec {
    /// UUID of the session.
    pub session: [u8; 16],
    /// Index of the stream in the session.
    pub index: u32,
    /// Channel id.
    pub channel: u32,
    /// CPU, or [`abi::ANY_CPU`].
    pub cpu: u32,
    /// How it is written, one of `RESERVATION_`.
    pub reservation: u32,
    /// One of `MODE_`.
    pub mode: u32,
    /// Bytes of a sub-buffer: a power of two, at least 256 (4096 where paged).
    pub sub_buffer_size: u64,
    /// Sub-buffers of a half: a power of two, at least 2.
    pub sub_buffers: u32,
    /// 0, or 4096 for data in pages.
    pub page_size: u32,
}

impl StreamSpec {
    /// Bytes of a half's data.
    #[must_use]
    pub fn half_size(&self) -> u64 {
        self.sub_buffer_size * u64::from(self.sub_buffers)
    }

    fn slots_off(&self, half: usize) -> u64 {
        let slots = u64::from(self.sub_buffers) * size_of::<Slot>() as u64;
        (abi::CONTROL_OFF + size_of::<StreamControl>()) as u64 + slots * half as u64
    }

    /// Where a half's data (or page table) lies in the region; page-aligned.
    #[must_use]
    pub fn data_range(&self, half: usize) -> Range<u64> {
        let page = PAGE as u64;
        let len = if self.page_size == 0 { self.half_size() } else { self.half_size() / page * 8 };
        let len = len.next_multiple_of(page);
        let at = self.slots_off(2).next_multiple_of(page) + len * half as u64;
        at..at + len
    }

    /// Bytes of the region, both halves included.
    #[must_use]
    pub fn region_len(&self) -> u64 {
        self.data_range(1).end
    }

    /// The geometry makes a ring.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let least = if self.page_size == 0 { 256 } else { PAGE as u64 };
        self.sub_buffer_size.is_power_of_two()
            && (least..=1 << 30).contains(&self.sub_buffer_size)
            && self.sub_buffers.is_power_of_two()
            && (2..=1 << 20).contains(&self.sub_buffers)
            && self.half_size() <= 1 << 40
            && (self.page_size == 0 || self.page_size as usize == PAGE)
    }

    pub(crate) fn info(&self) -> StreamInfo {
        StreamInfo {
            channel: self.channel,
            cpu: self.cpu,
            reservation: self.reservation,
            mode: self.mode,
            sub_buffer_size: self.sub_buffer_size,
            sub_buffers: self.sub_buffers,
            page_size: self.page_size,
            slots_off: [self.slots_off(0), self.slots_off(1)],
            data_off: [self.data_range(0).start, self.data_range(1).start],
        }
    }
}

/// The checksum that belongs in `header`, which `fixed` follows.
#[must_use]
pub fn check_of(header: &RegionHeader, fixed: &[u8]) -> u64 {
    let covered = core::mem::offset_of!(RegionHeader, check);
    region::checksum(&[&bytes_of(header)[..covered], fixed].concat())
}

/// A region is not one that this program can record in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachError {
    /// Offset in the region of what is wrong, bytes.
    pub offset: usize,
    /// What is wrong there.
    pub what: alloc::string::String,
}

impl core::fmt::Display for AttachError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "offset {}: {}", self.offset, self.what)
    }
}

impl core::error::Error for AttachError {}

/// The header of a mapped region of that kind, all but its checksum checked.
///
/// # Errors
/// The header is not one of this version, kind and length.
///
/// # Safety
/// `region` is mapped readable for `len` bytes, 4096-aligned.
pub unsafe fn check_header(region: *const u8, len: u64, kind: u32) -> Result<RegionHeader, AttachError> {
    let wrong = |offset, what| Err(AttachError { offset, what });
    if len < region::REGION_ALIGN {
        return wrong(0, alloc::format!("the mapping has only {len} bytes"));
    }
    // SAFETY: the mapping has at least 4096 bytes and is aligned for the shape, which is plain integers.
    let header = unsafe { region.cast::<RegionHeader>().read_volatile() };
    if header.magic != region::MAGIC || header.byte_order != region::BYTE_ORDER_MARK {
        wrong(0, "no lastwords magic of this machine's byte order".into())
    } else if header.major != VERSION_MAJOR {
        wrong(16, alloc::format!("version {}, this program writes version {VERSION_MAJOR}", header.major))
    } else if header.kind != kind {
        wrong(20, alloc::format!("kind {}, expected {kind}", header.kind))
    } else if header.size != len {
        wrong(32, alloc::format!("size {}, the mapping has {len} bytes", header.size))
    } else {
        Ok(header)
    }
}

/// Where the fixed part of a region begins, which lies in the region's first 4096 bytes.
const fn fixed_off<T: Fixed>() -> usize {
    assert!(region::HEADER_SIZE as usize + size_of::<T>() <= region::REGION_ALIGN as usize);
    region::HEADER_SIZE as usize
}

/// Header and fixed part of a mapped region of that kind, checked.
///
/// # Errors
/// The header is not one of this version, kind and length, or its checksum is another.
///
/// # Safety
/// As for [`check_header`].
pub unsafe fn read_region<T: Fixed>(region: *const u8, len: u64, kind: u32) -> Result<(RegionHeader, T), AttachError> {
    // SAFETY: as the caller vouches. The region has at least 4096 bytes, as `check_header` finds, in which the shape lies, as
    // `fixed_off` finds. The region is aligned for it, and plain integers may have any bytes.
    let (header, fixed) =
        unsafe { (check_header(region, len, kind)?, region.add(const { fixed_off::<T>() }).cast::<T>().read()) };
    let (check, computed) = (header.check, check_of(&header, bytes_of(&fixed)));
    if check != computed {
        let what = alloc::format!("checksum {check:#x}, computed {computed:#x}");
        return Err(AttachError { offset: 112, what });
    }
    Ok((header, fixed))
}

/// The bytes of a shape of the ABI that has no padding and no atomics.
pub fn bytes_of<T: Fixed>(value: &T) -> &[u8] {
    // SAFETY: `Fixed` types are `repr(C)` integers without padding, so that all their bytes are initialised.
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
// SAFETY: 4 x 8, 12 x 4, then byte arrays of 16, 64, 64 and 256: each naturally aligned, 480 in all.
unsafe impl Fixed for lastwords_abi::session::SessionInfo {}

// SAFETY: an array of integers has no padding.
unsafe impl<const N: usize> Fixed for [u64; N] {}

/// Makes a stream of a region.
///
/// # Safety
/// `region` is zeroed, 4096-aligned and valid for writes of [`StreamSpec::region_len`] bytes, and nobody records in it yet.
pub unsafe fn init_stream(region: *mut u8, spec: &StreamSpec) {
    // SAFETY: as the caller vouches.
    unsafe { write_region(region, region::KIND_STREAM, spec.region_len(), spec.session, spec.index, spec.info()) }
}

/// Writes the fixed part of a region and its header. The magic is stored last, so that a reader finds a whole region or none.
///
/// # Safety
/// `region` is 4096-aligned and valid for writes of `size` bytes, 4096 or more, and nobody else writes it.
pub unsafe fn write_region<T: Fixed>(region: *mut u8, kind: u32, size: u64, session: [u8; 16], index: u32, fixed: T) {
    let mut header = RegionHeader {
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
    };
    header.check = check_of(&header, bytes_of(&fixed));
    // SAFETY: both parts lie in the first 4096 bytes, as `fixed_off` finds, which the caller gives; the region is aligned for them.
    unsafe {
        region.add(const { fixed_off::<T>() }).cast::<T>().write(fixed);
        region.cast::<RegionHeader>().write(RegionHeader { magic: [0; 16], ..header });
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        region.cast::<[u8; 16]>().write_volatile(header.magic);
    }
}
