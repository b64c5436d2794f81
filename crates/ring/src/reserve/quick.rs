//! The fast path of `rseq`: a compact header, a payload that is at hand, room in the sub-buffer. Whatever does not fit
//! this description is left to [`super::rseq`].

use core::mem::offset_of;

use lastwords_abi::header::MAX_COMPACT_ID;
use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN};
use lastwords_abi::session::RESERVATION_RSEQ;
use lastwords_abi::stream::{ANY_CPU, HalfControl, StreamControl};
use lastwords_abi::sync::AtomicU32;

use super::rseq::section;
use crate::cpu;
use crate::stream::Stream;

/// What the fast path reads of a channel, close together. Sections read it by offset.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Quick {
    /// From the thread pointer to a thread's area.
    pub(super) offset: isize,
    /// The session's flip word.
    pub(super) flip: &'static AtomicU32,
    pub(super) sub_buffer_mask: u64,
    pub(super) half_mask: u64,
    /// Largest end of an event in a sub-buffer, less the packet header.
    pub(super) room: u64,
    /// Of `streams`.
    places: *const Place,
    /// How many places there are; 0 where the channel has no fast path.
    cpus: u64,
    /// By CPU.
    pub(super) streams: alloc::boxed::Box<[Place]>,
}

/// Where a CPU's stream is. Sections read it by offset.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Place {
    pub(super) half: [Half; 2],
    pub(super) control: &'static StreamControl,
}

/// One half of a stream.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Half {
    pub(super) control: &'static HalfControl,
    pub(super) data: *mut u8,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Quick, offset) == 0 && offset_of!(Quick, flip) == 8);
    assert!(offset_of!(Quick, sub_buffer_mask) == 16 && offset_of!(Quick, half_mask) == 24);
    assert!(offset_of!(Quick, room) == 32 && offset_of!(Quick, places) == 40 && offset_of!(Quick, cpus) == 48);
    assert!(size_of::<Place>() == 64 && offset_of!(Place, half) == 0 && offset_of!(Place, control) == 32);
    assert!(size_of::<Half>() == 16 && offset_of!(Half, control) == 0 && offset_of!(Half, data) == 8);
    assert!(offset_of!(StreamControl, flip) == 0 && offset_of!(HalfControl, reserve) == 0);
    assert!(offset_of!(HalfControl, attempt) == 8 && offset_of!(HalfControl, last_clock) == 16);
};

// SAFETY: as for `Stream`, whose pointers these are; `places` points into `streams`, which do not change.
unsafe impl Send for Quick {}
// SAFETY: as for `Stream`.
unsafe impl Sync for Quick {}

impl Quick {
    /// The fast path over `streams`; one that is never taken where `possible` is false or the streams do not have it.
    pub(crate) fn new(flip: &'static AtomicU32, streams: &[Stream], possible: bool) -> Self {
        let info = streams[0].info;
        let possible = possible && info.page_size == 0 && info.reservation == RESERVATION_RSEQ;
        let offset = cpu::area_offset().filter(|_| possible);
        let bound = streams.iter().filter(|s| s.info.cpu != ANY_CPU);
        let places: alloc::boxed::Box<[Place]> = bound.filter(|_| offset.is_some()).map(Place::of).collect();
        Self {
            offset: offset.unwrap_or(0),
            flip,
            sub_buffer_mask: info.sub_buffer_size - 1,
            half_mask: streams[0].half_size() - 1,
            room: info.sub_buffer_size - (HEADER_LEN + TRAILER_LEN) as u64,
            places: places.as_ptr(),
            cpus: places.len() as u64,
            streams: places,
        }
    }

    /// Records an event whose payload is the first `len` bytes of `words`. Up to 11 bytes behind the event may be written,
    /// all before the trailer's end and never published. False where the section was aborted or is not for this event.
    #[inline(always)]
    pub(crate) fn words<const W: usize>(&self, id: u16, words: &[u64; W], len: usize) -> bool {
        // SAFETY: both are checked.
        self.serves(id) && unsafe { section::record_words::<W>(self, u32::from(id), words, len) }
    }

    /// Records an event whose payload is the first `head_len` bytes of `head`, then `text` (8 bytes at least, without NUL),
    /// then a NUL.
    #[inline(always)]
    pub(crate) fn text<const W: usize>(&self, id: u16, head: &[u64; W], head_len: usize, text: &[u8]) -> bool {
        // SAFETY: both are checked, and the caller gives a text of 8 bytes at least.
        self.serves(id) && unsafe { section::record_text::<W>(self, u32::from(id), head, head_len, text) }
    }

    /// Records an event that lies in 2 or 3 words, with zeros where its header goes: `size` bytes of them, 5 at least and all
    /// but up to 11. False as for [`Quick::words`].
    #[inline(always)]
    pub(crate) fn framed<const W: usize>(&self, id: u16, words: &[u64; W], size: usize) -> bool {
        // SAFETY: all is checked.
        self.serves(id) && size + 11 >= 8 * W && unsafe { section::record_framed(self, u32::from(id), words, size) }
    }

    /// Records an event whose first `size` bytes, 4 at least, lie in 2 words (in 3 where they are more than 16), with zeros
    /// where its header goes, and which `text` (8 bytes at least, without NUL) and a NUL follow. False as for
    /// [`Quick::words`].
    #[inline(always)]
    pub(crate) fn framed_text<const W: usize>(&self, id: u16, words: &[u64; W], size: usize, text: &[u8]) -> bool {
        let least = if W == 2 { 4 } else { 17 };
        let serves = self.serves(id) && size >= least && text.len() >= 8;
        // SAFETY: all is checked.
        serves && unsafe { section::record_framed_text(self, u32::from(id), words, size, text) }
    }

    #[inline(always)]
    fn serves(&self, id: u16) -> bool {
        self.cpus != 0 && id <= MAX_COMPACT_ID
    }
}

impl Place {
    fn of(stream: &Stream) -> Self {
        let half = |i: usize| Half { control: stream.half(i), data: stream.data[i] };
        Self { half: [half(0), half(1)], control: stream.control }
    }
}
