//! The fast path of `rseq`. It records events if the open sub-buffer has room: a payload in words,
//! with or without a tail, with a compact header, and a payload in memory with any id.
//! [`super::rseq`] records all others.
//!
//! On today's processors, `rdtsc` waits for the instructions before it. So the cost of an event is
//! its longest chain of dependent loads, more than the number of its instructions. Therefore a
//! thread caches the [`Lane`] in which it recorded last: the addresses of the stream's half that
//! was live, on the CPU where the thread ran. The section checks the CPU and the half outside of
//! that chain, by predicted branches.

#[cfg(not(loom))]
use core::sync::atomic::AtomicPtr;
#[cfg(loom)]
use loom::sync::atomic::AtomicPtr;

use lastwords_abi::header::{LEN_COMPACT, LEN_ID, MAX_COMPACT_ID, TAG_ID};
use lastwords_abi::session::RESERVATION_RSEQ;
use lastwords_abi::stream::ANY_CPU;
use lastwords_abi::sync::AtomicU32;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed};

use super::lane::Lane;
use super::lane_cache;
use super::rseq::section;
use crate::cpu;
use crate::grow;
use crate::hooks::fault;
use crate::record::{Padded, ShortText, Tail, VARYING, prepend};
use crate::stream::Stream;

/// The fast path of a channel. The channel is freed when no thread uses it any more, but a thread
/// may still have cached one of its lanes.
#[derive(Debug)]
pub(crate) struct RseqFast {
    /// The lanes by CPU and half; empty if the channel has no fast path.
    lanes: Lanes,
}

type Lanes = alloc::boxed::Box<[[Lane; 2]]>;

/// The lanes of channels that were freed, for new ones. A thread that has cached a lane of a
/// channel reads its `owner` later, so the memory of a lane always has a lane.
#[cfg(not(loom))]
static FREED: std::sync::Mutex<alloc::vec::Vec<Lanes>> =
    std::sync::Mutex::new(alloc::vec::Vec::new());

#[cfg(not(loom))]
impl Drop for RseqFast {
    fn drop(&mut self) {
        let lanes = core::mem::take(&mut self.lanes);
        // The address of this fast path may become that of another one.
        lanes.iter().flatten().for_each(|lane| lane.owner.store(core::ptr::null_mut(), Relaxed));
        if !lanes.is_empty() {
            FREED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(lanes);
        }
    }
}

/// Returns lanes with these values, in memory of freed ones if there are as many.
fn lanes(new: impl ExactSizeIterator<Item = [Lane; 2]>) -> Lanes {
    #[cfg(not(loom))]
    {
        let mut freed = FREED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(at) = freed.iter().position(|lanes| lanes.len() == new.len()) {
            let mut lanes = freed.swap_remove(at);
            lanes.iter_mut().zip(new).for_each(|(old, new)| {
                old.iter_mut().zip(new).for_each(|(old, new)| old.fill(new))
            });
            return lanes;
        }
    }
    new.collect()
}

/// Runs `$section` with the cached lane if this fast path owns it, else with the lane of this CPU.
/// False if there is no lane, the event needs another header, or the section did not record. A
/// closure may spill its captures to the stack before it is inlined, so the section is written out
/// in both branches.
macro_rules! in_lane {
    ($fast:ident, $id:ident, $words:ident, |$lane:ident, $by:ident| $section:expr) => {
        if $id > MAX_COMPACT_ID {
            false
        } else if let Some($lane) = $fast.cached_lane() {
            let $by = $words;
            let recorded = $section;
            recorded || $fast.aborted()
        } else {
            !$fast.lanes.is_empty() && $fast.in_new_lane(*$words, move |$lane, $by| $section)
        }
    };
}

impl RseqFast {
    /// Makes the fast path over `streams`. It is never used if `possible` is false or the streams
    /// do not support it.
    pub(crate) fn new(flip: &'static AtomicU32, streams: &[Stream], possible: bool) -> Self {
        let spec = streams[0].spec;
        let possible = possible
            && spec.page_size == 0
            && spec.reservation == RESERVATION_RSEQ
            && cpu::area().is_some();
        let bound: alloc::vec::Vec<_> =
            streams.iter().filter(|s| possible && s.spec.cpu != ANY_CPU).collect();
        let lane = |cpu, stream: &Stream, half: u32| Lane {
            owner: AtomicPtr::new(core::ptr::null_mut()),
            cpu,
            half,
            flip,
            stream_flip: &stream.control.flip,
            control: stream.half(half as usize),
            data: stream.data[half as usize],
            sub_buffer_mask: stream.spec.sub_buffer_size - 1,
            half_mask: stream.half_size() - 1,
            room: stream.room(),
        };
        let new = bound
            .into_iter()
            .enumerate()
            .map(|(cpu, stream)| [0, 1].map(|half| lane(cpu as u32, stream, half)));
        Self { lanes: lanes(new) }
    }

    /// Records an event whose payload is the first `len` bytes of `words`, followed by `tail`.
    /// After the event, the section may write as many bytes as the trailer of a sub-buffer has, and
    /// never publishes them. Returns false if nothing was recorded. A tail of fewer than 8 bytes is
    /// never recorded here; such bytes belong into the words. Without a tail, the words of `most`
    /// bytes are stored, which is `len` or up to 7 more.
    #[inline(always)]
    pub(crate) fn record<const W: usize>(
        &'static self,
        id: u16,
        words: &[u64; W],
        len: usize,
        most: usize,
        tail: Option<Tail<'_>>,
    ) -> bool {
        if most > 8 * W
            || most.wrapping_sub(len) > 7
            || tail.is_some_and(|tail| tail.bytes().len() < 8)
        {
            return false;
        }
        // SAFETY: the id is of a compact header, the words have `most` bytes, which is near `len`,
        // and a tail has at least 8.
        in_lane!(self, id, words, |lane, words| unsafe {
            section::record(lane, u32::from(id), words, len, most, tail)
        })
    }

    /// Records an event in the lane that this thread cached. The payload is `first`, if it is
    /// given, followed by `bytes`. Returns false if nothing was recorded, which is always so for
    /// fewer than 8 bytes.
    #[inline(always)]
    pub(crate) fn record_bytes(&'static self, id: u16, first: Option<u32>, bytes: &[u8]) -> bool {
        let lane = self.cached_lane().filter(|_| id <= MAX_COMPACT_ID && bytes.len() >= 8);
        let words = prepend::<1>(first.unwrap_or(0), &[]);
        let len = if first.is_some() { 4 } else { 0 };
        let tail = Some(Tail::Bytes(bytes));
        // SAFETY: the id is of a compact header, the word has `len` bytes, and the tail has at
        // least 8.
        lane.is_some_and(|lane| unsafe {
            section::record(lane, u32::from(id), &words, len, len, tail)
        })
    }

    /// Records an event in the lane that this thread cached, in a section that has no jump which
    /// depends on the length of `tail`. The payload is the first `len` bytes of `head`, followed by
    /// `tail`. Returns false if nothing was recorded, which is always so for more than 8 bytes of
    /// `head`, for a tail whose length is not in [`VARYING`], and on an architecture without such a
    /// section.
    #[inline(always)]
    pub(crate) fn record_varying(
        &'static self,
        id: u16,
        head: u64,
        len: usize,
        tail: &[u8],
    ) -> bool {
        let lane = self
            .cached_lane()
            .filter(|_| id <= MAX_COMPACT_ID && len <= 8 && VARYING.contains(&tail.len()));
        // SAFETY: the id is of a compact header, the head has `len` bytes, and the section takes a
        // tail of this length.
        lane.is_some_and(|lane| unsafe {
            section::record_varying(lane, u32::from(id), head, len, tail)
        })
    }

    /// Records an event in the lane that this thread cached. The payload is the first `len` bytes
    /// of two words, followed by a short text of C. Returns false if nothing was recorded, which is
    /// always so on an architecture without a section for such texts.
    ///
    /// # Safety
    /// The text fulfils the conditions of [`ShortText`].
    #[inline(always)]
    pub(crate) unsafe fn record_short_text(
        &'static self,
        id: u16,
        words: (u64, u64),
        len: usize,
        text: ShortText,
    ) -> bool {
        let lane = self.cached_lane().filter(|_| id <= MAX_COMPACT_ID && len <= 16);
        // SAFETY: the id is of a compact header, the words have `len` bytes, and the caller
        // guarantees the text.
        lane.is_some_and(|lane| unsafe {
            section::record_short_text(lane, u32::from(id), words, len, text)
        })
    }

    /// Records an event of any id whose payload is in memory, in the lane that this thread cached.
    /// Returns false if nothing was recorded.
    #[inline(always)]
    pub(crate) fn record_padded(&'static self, id: u16, payload: Padded<'_>) -> bool {
        let (tag, header) =
            if id > MAX_COMPACT_ID { (TAG_ID, LEN_ID) } else { (u32::from(id), LEN_COMPACT) };
        // SAFETY: the tag and the length of the header belong to the id.
        self.cached_lane()
            .is_some_and(|lane| unsafe { section::record_padded(lane, tag, id, header, payload) })
    }

    /// Caches the lane of this CPU, and records there like [`Self::record_padded`].
    pub(crate) fn record_padded_in_new_lane(&'static self, id: u16, payload: Padded<'_>) -> bool {
        !self.lanes.is_empty() && self.find_lane().is_some() && self.record_padded(id, payload)
    }

    /// Returns the time of the newest event in the lane that this thread cached.
    #[inline(always)]
    pub(crate) fn newest_time(&'static self) -> Option<u64> {
        // Relaxed: any newer time is right too. A half that was emptied since has none.
        self.cached_lane()
            .map(|lane| lane.control.last_clock.load(Relaxed))
            .filter(|clock| *clock != 0)
    }

    /// Returns the address that the lanes of this fast path have as their owner.
    #[inline(always)]
    fn address(&self) -> *mut () {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the lane that this thread cached, if this fast path owns it.
    #[inline(always)]
    fn cached_lane(&'static self) -> Option<&'static Lane> {
        lane_cache::get()
            .filter(|lane| lane.owner.load(Relaxed) == self.address() || fault!(OtherOwner))
    }

    /// Records in the lane of this CPU, and caches that lane. The function is not inlined and takes
    /// its arguments by value, so that the path of the cached lane keeps them in registers.
    #[inline(never)]
    fn in_new_lane<const W: usize>(
        &'static self,
        words: [u64; W],
        record: impl FnOnce(&'static Lane, &[u64; W]) -> bool,
    ) -> bool {
        self.find_lane().is_some_and(|lane| record(lane, &words) || self.aborted())
    }

    /// Handles a section that did not record. The thread may have moved to another CPU, or the
    /// other half may be live now, so it finds the lane for the next event again.
    #[cold]
    #[inline(never)]
    fn aborted(&'static self) -> bool {
        self.find_lane();
        fault!(ForgetAborted)
    }

    /// Finds the lane of this CPU and of the live half, if there is one, and caches it for the
    /// thread.
    fn find_lane(&'static self) -> Option<&'static Lane> {
        let lanes = self.lanes.get(cpu::area()?.cpu_id.load(Relaxed) as usize)?;
        // Acquire: a recorder that sees the flip also sees the reset of the half that happened
        // before it.
        let half = (lanes[0].flip.load(Acquire) ^ lanes[0].stream_flip.load(Acquire)) & 1;
        let lane = &lanes[half as usize];
        lane.owner.store(self.address(), Relaxed);
        lane_cache::set(Some(lane));
        grow::look();
        Some(lane)
    }
}
