//! The fast path of `rseq`: a compact header, a payload that is at hand, room in the sub-buffer. Whatever does not fit
//! this description is left to [`super::rseq`].
//!
//! Reading the clock waits for what was begun before it (`rdtsc` does on today's processors). So what an event costs is the
//! longest chain of loads of which each needs the one before, more than the number of its instructions. Therefore a thread
//! remembers where its last event went: the [`Lane`]. Whether that is still the right one is checked beside it, by branches
//! that are predicted, and nothing waits for them.

use core::mem::offset_of;
use core::sync::atomic::AtomicPtr;

use lastwords_abi::header::MAX_COMPACT_ID;
use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN};
use lastwords_abi::session::RESERVATION_RSEQ;
use lastwords_abi::stream::{ANY_CPU, HalfControl, StreamControl};
use lastwords_abi::sync::AtomicU32;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed};

use super::lane_cache;
use super::rseq::section;
use crate::cpu;
use crate::stream::Stream;

/// The fast path of a channel that is never freed: threads remember its lanes.
#[derive(Debug)]
pub(crate) struct RseqFast {
    /// By CPU and half; none where the channel has no fast path.
    lanes: alloc::boxed::Box<[[Lane; 2]]>,
}

/// Where events of a CPU go while a half is live. Sections read it by offset.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Lane {
    /// What it is a lane of, once a thread remembers it: compared with the address of the one that would record, which is at
    /// hand before anything can be loaded from there.
    of: AtomicPtr<RseqFast>,
    pub(super) cpu: u32,
    pub(super) half: u32,
    /// The session's flip word.
    pub(super) flip: &'static AtomicU32,
    /// The stream's.
    pub(super) stream_flip: &'static AtomicU32,
    pub(super) control: &'static HalfControl,
    pub(super) data: *mut u8,
    pub(super) sub_buffer_mask: u64,
    pub(super) half_mask: u64,
    /// Largest end of an event in a sub-buffer, less the packet header.
    pub(super) room: u64,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Lane, cpu) == 8 && offset_of!(Lane, half) == 12);
    assert!(offset_of!(Lane, flip) == 16 && offset_of!(Lane, stream_flip) == 24);
    assert!(offset_of!(Lane, control) == 32 && offset_of!(Lane, data) == 40);
    assert!(
        offset_of!(Lane, sub_buffer_mask) == 48 && offset_of!(Lane, half_mask) == 56 && offset_of!(Lane, room) == 64
    );
    assert!(offset_of!(StreamControl, flip) == 0 && offset_of!(HalfControl, reserve) == 0);
    assert!(offset_of!(HalfControl, attempt) == 8 && offset_of!(HalfControl, last_clock) == 16);
};

// SAFETY: as for `Stream`, whose pointers these are.
unsafe impl Send for Lane {}
// SAFETY: as for `Stream`.
unsafe impl Sync for Lane {}

/// Records by a section, which gets the lane of the thread's last event if that was recorded here, else one that is found now.
/// False where the id is not of a compact header, there is no lane, or the section does not record. The section stands
/// in both places, not in one closure for both: what a closure holds may get into memory before it is known who calls it.
macro_rules! by_lane {
    ($quick:ident, $id:ident, $words:ident, |$lane:ident, $by:ident| $section:expr) => {
        if $id > MAX_COMPACT_ID {
            false
        } else if let Some($lane) = $quick.last() {
            let $by = $words;
            let recorded = $section;
            recorded || $quick.missed()
        } else {
            !$quick.lanes.is_empty() && $quick.by_another(*$words, move |$lane, $by| $section)
        }
    };
}

impl RseqFast {
    /// The fast path over `streams`; one that is never taken where `possible` is false or the streams do not have it.
    pub(crate) fn new(flip: &'static AtomicU32, streams: &[Stream], possible: bool) -> Self {
        let info = streams[0].info;
        let possible = possible && info.page_size == 0 && info.reservation == RESERVATION_RSEQ && cpu::has_areas();
        let bound = streams.iter().filter(|s| possible && s.info.cpu != ANY_CPU);
        let lanes = (0..).zip(bound).map(|(cpu, stream)| [0, 1].map(|half| Lane::new(stream, flip, cpu, half)));
        Self { lanes: lanes.collect() }
    }

    /// Records an event whose payload is the first `len` bytes of `words`: of all of them, where these are at most 4. Up to 11
    /// bytes behind the event may be written, all before the trailer's end and never published. False where the section was
    /// aborted or is not for this event.
    #[inline(always)]
    pub(crate) fn words<const W: usize>(&'static self, id: u16, words: &[u64; W], len: usize) -> bool {
        if len > 8 * W || (W <= 4 && len + 8 <= 8 * W) {
            return false;
        }
        // SAFETY: the id and the length are checked.
        by_lane!(self, id, words, |lane, words| unsafe { section::record_words::<W>(lane, u32::from(id), words, len) })
    }

    /// Records an event that lies in 2 or 3 words, with zeros where its header goes: `size` bytes of them, 5 at least and all
    /// but up to 11. False as for [`RseqFast::words`].
    #[inline(always)]
    pub(crate) fn framed<const W: usize>(&'static self, id: u16, words: &[u64; W], size: usize) -> bool {
        if size > 8 * W || size + 11 < 8 * W {
            return false;
        }
        // SAFETY: the id and the size are checked.
        by_lane!(self, id, words, |lane, words| unsafe {
            section::record_framed::<W>(lane, u32::from(id), words, size)
        })
    }

    /// Records an event whose first `size` bytes, 4 at least, lie in 2 words (in 3 where they are more than 16), with zeros
    /// where its header goes, and which `text` (8 bytes at least, without NUL) and a NUL follow. False as for
    /// [`RseqFast::words`].
    #[inline(always)]
    pub(crate) fn framed_text<const W: usize>(
        &'static self,
        id: u16,
        words: &[u64; W],
        size: usize,
        text: &[u8],
    ) -> bool {
        let least = if W == 2 { 4 } else { 17 };
        if size < least || size > 8 * W || text.len() < 8 {
            return false;
        }
        // SAFETY: the id, the size and the text are checked.
        by_lane!(self, id, words, |lane, words| unsafe {
            section::record_framed_text::<W>(lane, u32::from(id), words, size, text)
        })
    }

    /// The lane of the thread's last event, if that was recorded here.
    #[inline(always)]
    fn last(&'static self) -> Option<&'static Lane> {
        lane_cache::get().filter(|lane| core::ptr::eq(lane.of.load(Relaxed), self))
    }

    /// By a lane that is found now. A call of its own, and what it needs is passed by value, so that the fast path keeps its
    /// registers and needs no memory.
    #[inline(never)]
    fn by_another<const W: usize>(
        &'static self,
        words: [u64; W],
        record: impl FnOnce(&'static Lane, &[u64; W]) -> bool,
    ) -> bool {
        self.find().is_some_and(|lane| record(lane, &words) || self.missed())
    }

    /// The thread may be on another CPU now, or the other half live: the next event finds out.
    #[cold]
    #[inline(never)]
    fn missed(&'static self) -> bool {
        self.find();
        false
    }

    /// The lane of this CPU and of the live half, where there is one, for the thread's next events too.
    fn find(&'static self) -> Option<&'static Lane> {
        let lanes = self.lanes.get(cpu::area()?.cpu_id.load(Relaxed) as usize)?;
        // Acquire: whoever sees the flip sees the half as it was begun anew before.
        let half = (lanes[0].flip.load(Acquire) ^ lanes[0].stream_flip.load(Acquire)) & 1;
        let lane = &lanes[half as usize];
        lane.of.store(core::ptr::from_ref(self).cast_mut(), Relaxed);
        lane_cache::set(lane);
        Some(lane)
    }
}

impl Lane {
    fn new(stream: &Stream, flip: &'static AtomicU32, cpu: u32, half: u32) -> Self {
        let info = stream.info;
        Self {
            of: AtomicPtr::new(core::ptr::null_mut()),
            cpu,
            half,
            flip,
            stream_flip: &stream.control.flip,
            control: stream.half(half as usize),
            data: stream.data[half as usize],
            sub_buffer_mask: info.sub_buffer_size - 1,
            half_mask: stream.half_size() - 1,
            room: info.sub_buffer_size - (HEADER_LEN + TRAILER_LEN) as u64,
        }
    }
}
