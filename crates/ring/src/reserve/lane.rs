//! The destination of the fast path on one CPU.

#[cfg(not(loom))]
use core::sync::atomic::AtomicPtr;
#[cfg(loom)]
use loom::sync::atomic::AtomicPtr;

use lastwords_abi::stream::HalfControl;
use lastwords_abi::sync::AtomicU32;
#[cfg(not(loom))]
use lastwords_abi::sync::Ordering::Relaxed;

/// The destination of a CPU's events while a half is live. Sections read it by offset, except those
/// of the model checker.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Lane {
    /// The fast path that owns this lane; stored before a thread caches the lane. A thread
    /// compares this pointer with its own fast path before it uses the cached lane; the comparison
    /// needs no load from the stream.
    pub(super) owner: AtomicPtr<()>,
    pub(crate) cpu: u32,
    pub(crate) half: u32,
    /// The session's flip word.
    pub(crate) flip: &'static AtomicU32,
    /// The stream's flip word.
    pub(crate) stream_flip: &'static AtomicU32,
    pub(crate) control: &'static HalfControl,
    pub(crate) data: *mut u8,
    pub(crate) sub_buffer_mask: u64,
    pub(crate) half_mask: u64,
    /// Bytes of a sub-buffer between the packet header and the trailer.
    pub(crate) room: u64,
}

#[cfg(all(target_pointer_width = "64", not(loom)))]
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Lane, cpu) == 8 && offset_of!(Lane, half) == 12);
    assert!(offset_of!(Lane, flip) == 16 && offset_of!(Lane, stream_flip) == 24);
    assert!(offset_of!(Lane, control) == 32 && offset_of!(Lane, data) == 40);
    assert!(
        offset_of!(Lane, sub_buffer_mask) == 48
            && offset_of!(Lane, half_mask) == 56
            && offset_of!(Lane, room) == 64
    );
    assert!(
        offset_of!(lastwords_abi::stream::StreamControl, flip) == 0
            && offset_of!(HalfControl, reserve) == 0
    );
    assert!(offset_of!(HalfControl, attempt) == 8 && offset_of!(HalfControl, last_clock) == 16);
};

impl Lane {
    /// Takes the values of a new lane without an owner. A thread that has cached this one reads
    /// `owner` alone until it finds its own fast path there: it found that path after these stores.
    #[cfg(not(loom))]
    pub(super) fn fill(&mut self, new: Self) {
        let Self {
            owner,
            cpu,
            half,
            flip,
            stream_flip,
            control,
            data,
            sub_buffer_mask,
            half_mask,
            room,
        } = new;
        (self.cpu, self.half, self.flip, self.stream_flip) = (cpu, half, flip, stream_flip);
        (self.control, self.data) = (control, data);
        (self.sub_buffer_mask, self.half_mask, self.room) = (sub_buffer_mask, half_mask, room);
        // Relaxed: `RseqFast::find_lane` stores the owner later.
        self.owner.store(owner.into_inner(), Relaxed);
    }
}

// SAFETY: as for `Stream`, whose pointers these are.
unsafe impl Send for Lane {}

// SAFETY: as for `Stream`.
unsafe impl Sync for Lane {}
