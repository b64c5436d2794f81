//! The fast path of `rseq`: a compact header, a payload that is at hand, room in the sub-buffer. Whatever does not fit
//! this description is left to [`super::rseq`].

use lastwords_abi::header::{CLOCK_BITS, LEN_COMPACT, MAX_COMPACT_ID, TAG_BITS};
use lastwords_abi::packet::{HEADER_LEN, TRAILER_LEN};
use lastwords_abi::session::RESERVATION_RSEQ;
use lastwords_abi::stream::{ANY_CPU, HalfControl, StreamControl};
use lastwords_abi::sync::AtomicU32;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed, Release};

use super::rseq::section;
use crate::cpu;
use crate::stream::Stream;

/// What the fast path reads of a channel, close together.
#[derive(Debug)]
pub(crate) struct Quick {
    /// From the thread pointer to a thread's area.
    offset: isize,
    /// The session's flip word.
    flip: &'static AtomicU32,
    sub_buffer_mask: u64,
    half_mask: u64,
    /// Largest end of an event in a sub-buffer, less the packet header.
    room: u64,
    /// By CPU; empty where the channel has no fast path.
    streams: alloc::boxed::Box<[Place]>,
}

/// Where a CPU's stream is.
#[derive(Debug)]
struct Place {
    control: &'static StreamControl,
    data: [*mut u8; 2],
}

// SAFETY: as for `Stream`, whose pointers these are.
unsafe impl Send for Quick {}
// SAFETY: as for `Stream`.
unsafe impl Sync for Quick {}

/// What a section checks, and what it publishes.
pub(crate) struct Check<'a> {
    pub(crate) half: u64,
    pub(crate) flip: *const u32,
    pub(crate) position: u64,
    pub(crate) offset: isize,
    pub(crate) cpu: u32,
    pub(crate) stream_flip: *const u32,
    pub(crate) control: &'a HalfControl,
    /// Position to publish.
    pub(crate) end: u64,
    /// Where the event goes.
    pub(crate) to: *mut u8,
    /// First word of the event.
    pub(crate) header: u32,
    /// The clock in it.
    clock: u64,
}

impl Quick {
    /// The fast path over `streams`; one that is never taken where `possible` is false or the streams do not have it.
    pub(crate) fn new(flip: &'static AtomicU32, streams: &[Stream], possible: bool) -> Self {
        let info = streams[0].info;
        let possible = possible && info.page_size == 0 && info.reservation == RESERVATION_RSEQ;
        let offset = cpu::area_offset().filter(|_| possible);
        let bound = streams.iter().filter(|s| s.info.cpu != ANY_CPU);
        Self {
            offset: offset.unwrap_or(0),
            flip,
            sub_buffer_mask: info.sub_buffer_size - 1,
            half_mask: streams[0].half_size() - 1,
            room: info.sub_buffer_size - (HEADER_LEN + TRAILER_LEN) as u64,
            streams: bound.filter(|_| offset.is_some()).map(|s| Place { control: s.control, data: s.data }).collect(),
        }
    }

    /// Where an event of `total` bytes would go; none where the fast path does not serve it.
    #[inline(always)]
    fn check(&self, id: u16, total: u64) -> Option<Check<'_>> {
        if self.streams.is_empty() {
            return None;
        }
        let cpu = cpu::cpu_at(self.offset);
        let place = self.streams.get(cpu as usize)?;
        // Acquire: whoever sees the flip sees the half as it was begun anew before.
        let half = (self.flip.load(Acquire) ^ place.control.flip.load(Acquire)) & 1;
        let control = &place.control.half[half as usize];
        let position = control.reserve.load(Relaxed);
        let behind = (position & self.sub_buffer_mask).wrapping_sub(HEADER_LEN as u64);
        let clock = crate::clock::counter();
        let fits = behind <= self.room && behind + total <= self.room;
        let near = clock.wrapping_sub(control.last_clock.load(Relaxed)) >> CLOCK_BITS == 0;
        if !fits || !near || id > MAX_COMPACT_ID {
            return None;
        }
        Some(Check {
            half: u64::from(half),
            flip: self.flip.as_ptr(),
            position,
            offset: self.offset,
            cpu,
            stream_flip: place.control.flip.as_ptr(),
            control,
            end: position + total,
            to: place.data[half as usize].wrapping_add((position & self.half_mask) as usize),
            header: ((clock as u32) << TAG_BITS) | u32::from(id),
            clock,
        })
    }

    /// Records an event whose payload is the first `len` bytes of `words`. Up to 11 bytes behind the event may be written,
    /// all before the trailer's end and never published. False where the section was aborted or is not for this event.
    #[inline(always)]
    pub(crate) fn words<const W: usize>(&self, id: u16, words: &[u64; W], len: usize) -> bool {
        let Some(check) = self.check(id, (LEN_COMPACT + len) as u64) else { return false };
        // SAFETY: `check` leaves the trailer's 16 bytes behind the event, and the copy goes at most 11 bytes past it; the
        // section copies only while this CPU's position is the one from which `to` was computed.
        let done = unsafe { section::publish_words::<W>(&check, words, len) };
        done && check.done()
    }

    /// Records an event whose payload is the first `head_len` bytes of `head`, then `text` (8 bytes at least, without NUL),
    /// then a NUL.
    #[inline(always)]
    pub(crate) fn text<const W: usize>(&self, id: u16, head: &[u64; W], head_len: usize, text: &[u8]) -> bool {
        let Some(check) = self.check(id, (LEN_COMPACT + head_len + text.len() + 1) as u64) else { return false };
        // SAFETY: `check` gives room for the whole event; head words past `head_len` are overwritten by the text, which is
        // at least a word; the section copies only while this CPU's position is the one from which `to` was computed.
        let done = unsafe { section::publish_text::<W>(&check, head, text) };
        done && check.done()
    }
}

impl Check<'_> {
    /// Half, address of the flip word and position, for sections that lack registers.
    #[inline(always)]
    pub(crate) fn seen(&self) -> [u64; 3] {
        [self.half, self.flip as u64, self.position]
    }

    /// The event is committed: its clock is not newer than the newest, whoever stores last.
    #[inline(always)]
    fn done(&self) -> bool {
        self.control.last_clock.store(self.clock, Release);
        true
    }
}
