//! A stream region that is mapped in this process.

use core::sync::atomic::AtomicU64;

use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN};
use lastwords_abi::region;
use lastwords_abi::session::MODE_DISCARD;
use lastwords_abi::stream::{self as abi, HalfControl, Slot, StreamControl, StreamInfo};
use lastwords_abi::sync::Ordering::{Acquire, Relaxed, Release};

use crate::flush;
use crate::init::{self, AttachError, StreamSpec};
use crate::record::Lost;

/// A mapped stream. The mapping stays for the life of the process.
#[derive(Debug, Clone)]
pub struct Stream {
    pub(crate) control: &'static StreamControl,
    pub(crate) data: [*mut u8; 2],
    pub(crate) slots: [&'static [Slot]; 2],
    pub(crate) spec: StreamSpec,
    /// Base-2 logarithms of the sub-buffer size and of the number of sub-buffers.
    pub(crate) size_shift: u32,
    pub(crate) slots_shift: u32,
}

// SAFETY: all shared state is behind atomics; the protocols of `reserve` write the data bytes and
// give each byte one writer at a time.
unsafe impl Send for Stream {}
// SAFETY: as for Send.
unsafe impl Sync for Stream {}

/// Distance by which the spare begins ahead of the live half, in bytes. It is more than what is
/// recorded between the reset of the spare and the swap.
pub const HEADROOM: u64 = 1 << 28;

impl Stream {
    /// Attaches to the stream in a mapped region.
    ///
    /// # Errors
    /// The region is not a stream of this version, or its geometry does not fit its length.
    ///
    /// # Safety
    /// `region` is mapped readable and writable for `len` bytes, 4096-aligned, until the process
    /// ends. If the stream is paged, the entries of its page table are addresses of pages of this
    /// process, for as long as they are not 0.
    pub unsafe fn attach(region: *mut u8, len: u64) -> Result<Self, AttachError> {
        // SAFETY: the caller guarantees the mapping.
        let (header, info) =
            unsafe { init::read_region::<StreamInfo>(region, len, region::KIND_STREAM) }?;
        let is_whole = |spec: &StreamSpec| {
            spec.region_len() == len && init::bytes_of(&spec.info) == init::bytes_of(&info)
        };
        let spec = StreamSpec::new(header.session, header.index, info)
            .ok()
            .filter(is_whole)
            .ok_or_else(|| AttachError {
                offset: 128,
                what: "the geometry is not that of a ring in this region".into(),
            })?;
        // SAFETY: `spec` has computed all of `info`, including the offsets of slots and data. So
        // both are after the control and end before `len`, none overlaps another, and the slots are
        // aligned for their shape. Atomics may be shared with other processes. The caller
        // guarantees that the mapping outlives the process's recorders.
        unsafe {
            let slots = |half: usize| {
                let at = region.add(info.slots_off[half] as usize).cast::<Slot>();
                core::slice::from_raw_parts(at, info.sub_buffers as usize)
            };
            Ok(Self {
                control: &*region.add(abi::CONTROL_OFF).cast::<StreamControl>(),
                data: [0, 1].map(|h: usize| region.add(info.data_off[h] as usize)),
                slots: [slots(0), slots(1)],
                spec,
                size_shift: info.sub_buffer_size.trailing_zeros(),
                slots_shift: info.sub_buffers.trailing_zeros(),
            })
        }
    }

    /// Returns identity and geometry.
    #[must_use]
    pub fn spec(&self) -> &StreamSpec {
        &self.spec
    }

    /// Returns the control words, which change while the stream is in use.
    #[must_use]
    pub fn control(&self) -> &StreamControl {
        self.control
    }

    /// Returns the bytes of a half's data.
    #[must_use]
    pub fn half_size(&self) -> u64 {
        self.spec.sub_buffer_size << self.slots_shift
    }

    /// Returns the address of a half's data, or of its page table if the stream is paged.
    #[must_use]
    pub fn data(&self, half: usize) -> *mut u8 {
        self.data[half & 1]
    }

    /// Returns the page table of a half. Entries are addresses in the memory of the process that
    /// made the stream, or 0 for a page without memory. The table is empty if the stream is not
    /// paged.
    #[must_use]
    pub fn page_table(&self, half: usize) -> &'static [AtomicU64] {
        let pages = self.half_size().checked_div(self.spec.page_size.into()).unwrap_or(0);
        // SAFETY: `attach` has checked that a table of this many entries, aligned to a page, is
        // inside the region.
        unsafe { core::slice::from_raw_parts(self.data(half).cast(), pages as usize) }
    }

    /// Returns the slots of a half: one for each place of a sub-buffer, with the bytes committed
    /// there.
    #[must_use]
    pub fn slots(&self, half: usize) -> &'static [Slot] {
        self.slots[half & 1]
    }

    /// Returns the produced position of a half.
    #[must_use]
    pub fn position(&self, half: usize) -> u64 {
        let word = self.half(half).reserve.load(Acquire);
        if self.is_lockless() { word & ((1 << abi::POSITION_BITS) - 1) } else { word }
    }

    /// Returns the position where readers of a half begin: positions before it never existed, were
    /// consumed or were cleared.
    #[must_use]
    pub fn first(&self, half: usize) -> u64 {
        self.half(half).first.load(Acquire)
    }

    /// Returns true if a half has anything for readers.
    #[must_use]
    pub fn has_rest(&self, half: usize) -> bool {
        self.first(half) < self.position(half)
    }

    pub(crate) fn half(&self, half: usize) -> &'static HalfControl {
        &self.control.half[half & 1]
    }

    /// Returns the value that announces a reservation in this half; see
    /// [`lastwords_abi::session::InFlight::target`].
    pub(crate) fn target(&self, half: usize) -> u64 {
        ((u64::from(self.spec.index) << 1) | half as u64) + 1
    }

    pub(crate) fn is_lockless(&self) -> bool {
        self.spec.reservation == lastwords_abi::session::RESERVATION_LOCKLESS
    }

    /// Makes a half empty. Its first position is far beyond all positions of the other half, which
    /// continues, so that sub-buffer numbers are not used twice.
    ///
    /// # Safety
    /// The half is the spare, and no recorder is in it. [`crate::swap`] ensures this.
    pub unsafe fn reset_half(&self, half: usize) {
        let other = self.position(half ^ 1).max(self.position(half));
        let size = self.half_size();
        let laps = other / size + HEADROOM.div_ceil(size).max(3);
        let (first, slots, half) = (laps * size, self.slots(half), self.half(half));
        // `first` is stored before all other changes. A produced position before the first one
        // means that the half is empty.
        half.first.store(first, Relaxed);
        half.dropped.store(0, Relaxed);
        for slot in slots {
            slot.committed.store(laps * self.spec.sub_buffer_size, Release);
            slot.content_end.store(0, Release);
        }
        half.last_clock.store(0, Relaxed);
        half.contiguous.store(first, Relaxed);
        half.consumed.store(first, Relaxed);
        half.attempt.store(first, Relaxed);
        half.reserve.store(first, Release);
    }

    /// Writes the words of the stream back that recorders and readers change, without waiting for
    /// it.
    pub(crate) fn persist_control(&self) {
        // SAFETY: the control and both tables are mapped, and the lengths are theirs.
        unsafe {
            flush::flush(core::ptr::from_ref(self.control).cast(), size_of::<StreamControl>());
            self.slots
                .iter()
                .for_each(|slots| flush::flush(slots.as_ptr().cast(), size_of_val(*slots)));
        }
    }

    /// Prepares for dropping the unconsumed contents of the spare. Stores their size in the other
    /// half, which was recorded next. Returns the size in bytes. There must be no swap during the
    /// call.
    pub fn drop_spare(&self, spare: usize) -> u64 {
        let half = self.half(spare);
        let bytes =
            self.position(spare).saturating_sub(half.first.load(Acquire)).min(self.half_size());
        let before = half.dropped.load(Relaxed);
        self.half(spare ^ 1).dropped.store(bytes.saturating_add(before), Relaxed);
        bytes
    }

    /// Clears the count of `bytes` that were dropped before a half, after a consuming reader has
    /// reported them.
    pub fn told_of_dropped(&self, half: usize, bytes: u64) {
        // If the count is another number, a snapshot was dropped since, and the count stays.
        let _ = self.half(half).dropped.compare_exchange(bytes, 0, Relaxed, Relaxed);
    }

    /// Resets the spare once more if the live half has come near its positions since the last
    /// reset.
    ///
    /// # Safety
    /// The conditions of [`Stream::reset_half`] apply.
    pub(crate) unsafe fn keep_ahead(&self, spare: usize) {
        let first = self.half(spare).first.load(Relaxed);
        if self.position(spare ^ 1).saturating_add(HEADROOM / 2) > first {
            // SAFETY: the caller guarantees the conditions.
            unsafe { self.reset_half(spare) };
        }
    }

    /// Returns the number of events lost so far, for all causes.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.control.lost[..=abi::LOST_LOCK].iter().map(|c| c.load(Relaxed)).sum()
    }

    #[cold]
    pub(crate) fn count(&self, cause: Lost) {
        self.control.lost[cause as usize].fetch_add(1, Relaxed);
    }

    /// Returns the bytes of events that a sub-buffer can contain.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.spec.sub_buffer_size - (HEADER_LEN + TRAILER_LEN) as u64
    }

    /// Returns true if, in discard mode, the sub-buffer that begins at `start` would overwrite one
    /// that was neither consumed nor cleared. A start before the consumed position is stale: the
    /// ring is not full, and the recorder that computed it will find another position when it
    /// reserves.
    pub(crate) fn is_full(&self, half: &HalfControl, start: u64) -> bool {
        if self.spec.mode != MODE_DISCARD {
            return false;
        }
        let gone = half.first.load(Acquire) & !(self.spec.sub_buffer_size - 1);
        start.saturating_sub(gone) >= self.half_size()
    }
}
