//! A stream region that is mapped in this process.

use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN};
use lastwords_abi::region::{self, RegionHeader};
use lastwords_abi::session::MODE_DISCARD;
use lastwords_abi::stream::{self as abi, HalfControl, Slot, StreamControl, StreamInfo};
use lastwords_abi::sync::Ordering::{Acquire, Relaxed};

use crate::init;
use crate::packet::Identity;
use crate::record::Lost;

/// A mapped stream. The mapping stays for the life of the process.
#[derive(Debug)]
pub struct Stream {
    pub(crate) control: &'static StreamControl,
    pub(crate) data: [*mut u8; 2],
    pub(crate) slots: [&'static [Slot]; 2],
    pub(crate) info: StreamInfo,
    pub(crate) identity: Identity,
    /// Logarithms of the sub-buffer size and of the number of sub-buffers.
    pub(crate) size_shift: u32,
    pub(crate) slots_shift: u32,
}

// SAFETY: all shared state is behind atomics; the data bytes are written by the protocols of `reserve`, which give each byte
// one writer at a time.
unsafe impl Send for Stream {}
// SAFETY: as for Send.
unsafe impl Sync for Stream {}

/// How far ahead of the live half the spare begins, bytes: more than is recorded between its beginning and the swap.
const HEADROOM: u64 = 1 << 28;

/// A region is not a stream that this program can record in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachError {
    /// The magic is not there.
    NoMagic,
    /// Another version, with the major number found.
    Version(u16),
    /// Not a stream region, with the kind found.
    Kind(u32),
    /// The header's size against that of the mapping.
    Size(u64, u64),
    /// The checksum in the header against the one computed.
    Check(u64, u64),
    /// The geometry does not describe a ring that lies in the region.
    Geometry,
}

impl core::fmt::Display for AttachError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoMagic => write!(f, "offset 0: no lastwords magic"),
            Self::Version(v) => {
                write!(f, "offset 16: version {v}, this program records version {}", lastwords_abi::VERSION_MAJOR)
            }
            Self::Kind(k) => write!(f, "offset 20: kind {k}, a stream is kind {}", region::KIND_STREAM),
            Self::Size(said, is) => write!(f, "offset 32: size {said}, the mapping has {is} bytes"),
            Self::Check(said, is) => write!(f, "offset 112: checksum {said:#x}, computed {is:#x}"),
            Self::Geometry => write!(f, "offset 128: the geometry is not that of a ring in this region"),
        }
    }
}

impl core::error::Error for AttachError {}

impl Stream {
    /// The stream in a mapped region.
    ///
    /// # Errors
    /// The region is not a stream of this version, or its geometry does not fit its length.
    ///
    /// # Safety
    /// `region` is mapped readable and writable for `len` bytes, 4096-aligned, until the process ends. Where the stream is
    /// paged, the entries of its page table are addresses of pages of this process, for as long as they are not 0.
    pub unsafe fn attach(region: *mut u8, len: u64) -> Result<Self, AttachError> {
        if len < 4096 {
            return Err(AttachError::Size(0, len));
        }
        // SAFETY: the mapping has at least 4096 bytes and is aligned for both shapes, which are plain integers.
        let (header, info) = unsafe {
            let info = region.add(region::HEADER_SIZE as usize).cast::<StreamInfo>().read();
            (region.cast::<RegionHeader>().read(), info)
        };
        check_header(&header, &info, len)?;
        let spec = spec_of(&header, &info);
        let is_whole = spec.is_valid() && spec.region_len() == len;
        if !is_whole || init::bytes_of(&spec.info()) != init::bytes_of(&info) {
            return Err(AttachError::Geometry);
        }
        // SAFETY: all of `info`, the offsets of slots and data with it, is what `spec` computes: the slots lie behind the control,
        // aligned for their shape, and in front of the data, which end at `len`. Atomics may be shared with other processes;
        // the mapping outlives the process's recorders as the caller vouches.
        unsafe {
            let slots = |half: usize| {
                let at = region.add(info.slots_off[half] as usize).cast::<Slot>();
                core::slice::from_raw_parts(at, info.sub_buffers as usize)
            };
            Ok(Self {
                control: &*region.add(abi::CONTROL_OFF).cast::<StreamControl>(),
                data: [0, 1].map(|h: usize| region.add(info.data_off[h] as usize)),
                slots: [slots(0), slots(1)],
                info,
                identity: identity_of(&header, &info),
                size_shift: info.sub_buffer_size.trailing_zeros(),
                slots_shift: info.sub_buffers.trailing_zeros(),
            })
        }
    }

    /// The geometry.
    #[must_use]
    pub fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// What changes.
    #[must_use]
    pub fn control(&self) -> &StreamControl {
        self.control
    }

    /// Bytes of a half's data.
    #[must_use]
    pub fn half_size(&self) -> u64 {
        self.info.sub_buffer_size << self.slots_shift
    }

    /// The produced position of a half.
    #[must_use]
    pub fn position(&self, half: usize) -> u64 {
        let word = self.half(half).reserve.load(Acquire);
        if self.is_lockless() { word & ((1 << abi::POSITION_BITS) - 1) } else { word }
    }

    pub(crate) fn half(&self, half: usize) -> &'static HalfControl {
        &self.control.half[half & 1]
    }

    pub(crate) fn is_lockless(&self) -> bool {
        self.info.reservation == lastwords_abi::session::RESERVATION_LOCKLESS
    }

    /// Makes a half empty. Its first position lies far beyond all positions of the other half, which goes on, so that
    /// sub-buffer numbers are not used twice.
    ///
    /// # Safety
    /// The half is the spare, and no recorder is in it: [`crate::swap`] sees to that.
    pub unsafe fn reset_half(&self, half: usize) {
        let other = self.position(half ^ 1).max(self.position(half));
        let size = self.half_size();
        init::reset(
            self.half(half),
            self.slots[half & 1],
            self.info.sub_buffer_size,
            (other / size + HEADROOM.div_ceil(size).max(3)) * size,
        );
    }

    /// What is in the spare, and was not consumed, is about to be dropped: the other half, which was recorded next, says so.
    /// Bytes. Nobody swaps meanwhile.
    pub fn drop_spare(&self, spare: usize) -> u64 {
        let half = self.half(spare);
        let bytes = self.position(spare).saturating_sub(half.first.load(Acquire)).min(self.half_size());
        let before = half.dropped.load(Relaxed);
        self.half(spare ^ 1).dropped.store(bytes.saturating_add(before), Relaxed);
        bytes
    }

    /// A consuming reader has told of `bytes` that were dropped before a half.
    pub fn told_of_dropped(&self, half: usize, bytes: u64) {
        // Where it is another number, a snapshot was dropped since.
        let _ = self.half(half).dropped.compare_exchange(bytes, 0, Relaxed, Relaxed);
    }

    /// Begins the spare anew once more, should the live half have come near its positions since that was done.
    ///
    /// # Safety
    /// As for [`Stream::reset_half`].
    pub(crate) unsafe fn keep_ahead(&self, spare: usize) {
        let first = self.half(spare).first.load(Relaxed);
        if self.position(spare ^ 1).saturating_add(HEADROOM / 2) > first {
            // SAFETY: as the caller vouches.
            unsafe { self.reset_half(spare) };
        }
    }

    /// Events lost so far, all causes.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.control.lost[..=abi::LOST_LOCK].iter().map(|c| c.load(Relaxed)).sum()
    }

    #[cold]
    pub(crate) fn count(&self, cause: Lost) {
        self.control.lost[cause.counter()].fetch_add(1, Relaxed);
    }

    /// Bytes of events that a sub-buffer can hold.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.info.sub_buffer_size - (HEADER_LEN + TRAILER_LEN) as u64
    }

    /// Discard mode: the sub-buffer that begins at `start` would overwrite one that was neither consumed nor cleared. A start that
    /// lies before what was consumed is stale: the ring is not full, and the recorder that computed it will find another
    /// position when it reserves.
    pub(crate) fn is_full(&self, half: &HalfControl, start: u64) -> bool {
        if self.info.mode != MODE_DISCARD {
            return false;
        }
        let gone = half.first.load(Acquire) & !(self.info.sub_buffer_size - 1);
        start.saturating_sub(gone) >= self.half_size()
    }
}

fn check_header(header: &RegionHeader, info: &StreamInfo, len: u64) -> Result<(), AttachError> {
    if header.magic != region::MAGIC || header.byte_order != region::BYTE_ORDER_MARK {
        return Err(AttachError::NoMagic);
    }
    if header.major != lastwords_abi::VERSION_MAJOR {
        return Err(AttachError::Version(header.major));
    }
    if header.kind != region::KIND_STREAM {
        return Err(AttachError::Kind(header.kind));
    }
    if header.size != len {
        return Err(AttachError::Size(header.size, len));
    }
    let computed = init::check_of(header, init::bytes_of(info));
    if header.check == computed { Ok(()) } else { Err(AttachError::Check(header.check, computed)) }
}

fn spec_of(header: &RegionHeader, info: &StreamInfo) -> init::StreamSpec {
    init::StreamSpec {
        session: header.session,
        index: header.index,
        channel: info.channel,
        cpu: info.cpu,
        reservation: info.reservation,
        mode: info.mode,
        sub_buffer_size: info.sub_buffer_size,
        sub_buffers: info.sub_buffers,
        page_size: info.page_size,
    }
}

fn identity_of(header: &RegionHeader, info: &StreamInfo) -> Identity {
    Identity {
        session: header.session,
        channel: info.channel,
        stream: header.index,
        cpu: info.cpu,
        sub_buffer_size: info.sub_buffer_size,
    }
}

impl Stream {
    /// Sub-buffer `number` of a half is closed: its events and its header are complete, and nobody writes in it until the
    /// ring comes round to its place.
    #[must_use]
    pub fn is_closed(&self, half: usize, number: u64) -> bool {
        let size = self.info.sub_buffer_size;
        if !self.is_lockless() {
            return self.position(half) >= (number + 1) * size;
        }
        let slots = self.slots[half & 1];
        let committed = slots[(number & (slots.len() as u64 - 1)) as usize].committed.load(Acquire);
        committed == ((number >> self.slots_shift) + 1) * size
    }

    /// A copy of a half's data.
    ///
    /// # Safety
    /// The half has memory, and nobody writes in it meanwhile.
    #[must_use]
    pub unsafe fn copy_half(&self, half: usize) -> alloc::vec::Vec<u8> {
        // SAFETY: as the caller vouches.
        unsafe { self.copy_bytes(half, 0, self.half_size() as usize) }
    }

    /// A copy of the place of sub-buffer `number`.
    ///
    /// # Safety
    /// The half has memory, and nobody writes in that sub-buffer meanwhile.
    #[must_use]
    pub unsafe fn copy_sub_buffer(&self, half: usize, number: u64) -> alloc::vec::Vec<u8> {
        let size = self.info.sub_buffer_size;
        // SAFETY: as the caller vouches.
        unsafe { self.copy_bytes(half, ((number * size) & (self.half_size() - 1)) as usize, size as usize) }
    }

    /// # Safety
    /// The half has memory, and nobody writes these bytes meanwhile.
    unsafe fn copy_bytes(&self, half: usize, first: usize, size: usize) -> alloc::vec::Vec<u8> {
        use crate::memory::{Contiguous, Memory, Paged};
        let base = self.data[half & 1];
        let mut bytes = alloc::vec![0u8; size];
        let mut at = 0;
        while at < size {
            let offset = (first + at) as u64;
            // SAFETY: data or page table of the half are there, as `attach` found.
            let (from, run) = unsafe {
                match self.info.page_size {
                    0 => Contiguous::at(base).run(offset),
                    _ => Paged::at(base).run(offset),
                }
            };
            let len = run.min(size - at);
            // SAFETY: `run` gives bytes of this half's memory, which nobody writes, as the caller vouches; the destination is
            // our own.
            unsafe { core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr().add(at), len) };
            at += len;
        }
        bytes
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use lastwords_abi::session::RESERVATION_LOCKLESS;

    /// A region of 4 sub-buffers, 256 bytes each; its memory is never freed.
    fn region() -> (*mut u8, u64) {
        let spec = init::StreamSpec {
            session: [7; 16],
            index: 0,
            channel: 0,
            cpu: 0,
            reservation: RESERVATION_LOCKLESS,
            mode: MODE_DISCARD,
            sub_buffer_size: 256,
            sub_buffers: 4,
            page_size: 0,
        };
        let layout = core::alloc::Layout::from_size_align(spec.region_len() as usize, 4096).expect("a layout");
        // SAFETY: the layout has a size, and the fresh region is that of the specification.
        unsafe {
            let region = alloc::alloc::alloc_zeroed(layout);
            init::init_stream(region, &spec);
            (region, spec.region_len())
        }
    }

    #[test]
    fn offsets_of_slots_are_checked() {
        for half in 0..2 {
            for offset in [0, 8, 1 << 20, u64::MAX - 64, u64::MAX] {
                let (region, len) = region();
                // SAFETY: the region is ours alone, initialised, and aligned for both shapes.
                unsafe {
                    let info = &mut *region.add(region::HEADER_SIZE as usize).cast::<StreamInfo>();
                    info.slots_off[half] = offset;
                    let header = &mut *region.cast::<RegionHeader>();
                    header.check = init::check_of(header, init::bytes_of(info));
                    assert_eq!(Stream::attach(region, len).err(), Some(AttachError::Geometry), "{half} at {offset}");
                }
            }
        }
    }

    #[test]
    fn a_stale_position_is_not_a_full_ring() {
        let (region, len) = region();
        // SAFETY: the region is initialised and stays.
        let stream = unsafe { Stream::attach(region, len) }.expect("a stream");
        let half = stream.half(0);
        assert!(!stream.is_full(half, 3 * 256) && stream.is_full(half, 4 * 256), "four sub-buffers have room");
        // A recorder has read position 512; the ring went on, and all up to 2048 was consumed.
        stream.consume(0, 2048);
        assert!(!stream.is_full(half, 512), "the position is stale");
        assert!(!stream.is_full(half, 2048 + 3 * 256) && stream.is_full(half, 2048 + 4 * 256));
    }
}
