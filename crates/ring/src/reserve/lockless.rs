//! Compare-and-swap reservation, commit counters, a contiguous count: any architecture, several CPUs on one buffer.
//!
//! A recorder announces what it is about to reserve in its entry of the session's thread table, swaps the reserve word
//! (position and owner), copies, and adds the bytes to the commit counter of the sub-buffer's place. The counters are
//! cumulative over laps. A sub-buffer's header bytes are committed by whoever commits the last of the others: that
//! thread closes it. When the ring comes round to a place that is not whole, a dead recorder's hole is made good, and a
//! living recorder's place is passed over: no killed thread stops the ring.

use lastwords_abi::packet::{CHECK_FROM_END, HEADER_LEN, at};
use lastwords_abi::session::{IN_FLIGHT_COPIED, IN_FLIGHT_RESERVING, IN_FLIGHT_SWITCH, InFlight};
use lastwords_abi::stream::{CLOSED_BIT, HalfControl, OWNER_SHIFT, POSITION_BITS, RECLAIMED, SKIPPED, Slot};
use lastwords_abi::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lastwords_abi::sync::fence;

use crate::channel::Channel;
use crate::header::encode;
use crate::hooks::{fault, point};
use crate::memory::Memory;
use crate::packet::{self, Closing};
use crate::record::{Chunk, Lost, Record};
use crate::stream::Stream;
use crate::threads::{self, Level};
use crate::{flush, os};

/// Bits of a reserve word that are the position.
const POSITION: u64 = (1 << POSITION_BITS) - 1;
/// Times a recorder reads the flip words again after it met a half that was closed by a swap.
const CLOSED_ROUNDS: u32 = 1024;

/// Records with compare-and-swap.
///
/// # Errors
/// The event was lost; the caller counts it.
#[inline(never)]
pub(crate) fn record<M: Memory>(channel: &Channel, stream: &Stream, record: &Record<'_>) -> Result<(), Lost> {
    let is_over = |owner, level: &InFlight| is_over(channel, owner, level);
    threads::with_level(channel.parts.threads, is_over, |level| run::<M>(channel, stream, record, level))
        .unwrap_or(Err(Lost::NoEntry))
}

/// A half as it was when its reserve word was read.
struct View<'a> {
    channel: &'a Channel,
    stream: &'a Stream,
    level: &'a Level<'a>,
    half: usize,
    control: &'a HalfControl,
    /// The reserve word.
    word: u64,
    position: u64,
    clock: u64,
}

/// How an attempt to record ended that did not lose the event.
enum Attempt {
    /// The event is committed.
    Done,
    /// Another recorder came first, or room was made.
    Again,
    /// A swap has closed the half.
    Closed,
}

#[inline(always)]
fn run<M: Memory>(channel: &Channel, stream: &Stream, record: &Record<'_>, level: &Level<'_>) -> Result<(), Lost> {
    let mut closed = 0;
    loop {
        match attempt::<M>(channel, stream, record, level)? {
            Attempt::Done => return Ok(()),
            Attempt::Again => {}
            Attempt::Closed if closed == CLOSED_ROUNDS => return Err(Lost::Busy),
            Attempt::Closed => {
                closed += 1;
                os::pause(closed);
            }
        }
    }
}

/// Records, or makes room. It is not inlined into the loop around it: what does not change there would be computed before the
/// loop and kept in memory.
#[inline(never)]
fn attempt<M: Memory>(
    channel: &Channel,
    stream: &Stream,
    record: &Record<'_>,
    level: &Level<'_>,
) -> Result<Attempt, Lost> {
    let half = channel.parts.live_half(stream);
    point!(Chosen);
    let control = stream.half(half);
    let word = control.reserve.load(Acquire);
    if word & CLOSED_BIT != 0 {
        return Ok(Attempt::Closed);
    }
    // The half may have been swapped out and begun anew since the flip words were read; if it was, they say so now.
    if channel.parts.live_half(stream) != half && !fault!(StaleHalf) {
        return Ok(Attempt::Again);
    }
    let last = control.last_clock.load(Relaxed);
    // The clock is not older than that of the reservation that `word` tells of. Where that was this very thread's, the two readings
    // are in program order; else the counter must not be read before the word was.
    let is_own = word >> OWNER_SHIFT == level.owner && !cfg!(loom);
    let clock = if is_own { channel.clock.now() } else { channel.clock.now_ordered() };
    let clock = super::not_before(clock, last);
    let view = &View { channel, stream, level, half, control, word, position: word & POSITION, clock };
    let place = stream.place(view.position);
    // The first event of a sub-buffer has the full clock, so that it can be read where the header was never written.
    let first = place.within == HEADER_LEN as u64;
    let (header, header_len) = encode(view.channel, record, view.clock, last, first);
    let len = (header_len + record.len) as u64;
    // SAFETY: `Stream::attach` found data or page table of each half in the region; callers give the `M` of the channel.
    let memory = unsafe { M::at(stream.data[view.half]) };
    if !stream.fits(place.within, len) {
        return switch(view, memory, record).map(|()| Attempt::Again);
    }
    if !view.reserve(view.position + len, IN_FLIGHT_RESERVING) {
        return Ok(Attempt::Again);
    }
    if fault!(CommitBeforeCopy) {
        view.commit(memory, place.number, len);
    }
    point!(Reserved);
    let offset = place.sub_buffer + place.within;
    // SAFETY: the reservation gave these bytes to this thread alone: `available` let the ring come here only when all
    // recorders of the lap before were done or dead.
    unsafe { super::write(memory, &Chunk { offset, first: &header[..header_len], parts: record.parts }) };
    view.persist(memory, offset, len as usize);
    point!(Written);
    level.in_flight.state.store(IN_FLIGHT_COPIED, Release);
    point!(Copied);
    view.control.last_clock.store(view.clock, Relaxed);
    if !fault!(CommitBeforeCopy) {
        view.commit(memory, place.number, len);
    }
    point!(Committed);
    level.in_flight.target.store(0, Release);
    Ok(Attempt::Done)
}

impl View<'_> {
    fn slot(&self, number: u64) -> &Slot {
        let slots = self.stream.slots[self.half];
        &slots[(number & (slots.len() as u64 - 1)) as usize]
    }

    /// Bytes that a place has committed before lap of sub-buffer `number` begins.
    fn lap_base(&self, number: u64) -> u64 {
        (number >> self.stream.slots_shift) << self.stream.size_shift
    }

    /// Announces and reserves all up to `end`; false when another came first.
    #[inline(always)]
    fn reserve(&self, end: u64, state: u64) -> bool {
        let owner = (self.word & !CLOSED_BIT) >> OWNER_SHIFT;
        if owner != self.level.owner && !fault!(NoConfirm) {
            confirm(self, owner);
        }
        let mine: &InFlight = self.level.in_flight;
        // Released: whoever sees it, in the place of the one before, sees what was committed then.
        mine.begin.store(self.position, if fault!(RelaxedBegin) { Relaxed } else { Release });
        mine.end.store(end, Relaxed);
        mine.state.store(state, Relaxed);
        if !fault!(LateAnnouncement) {
            mine.target.store(self.stream.target(self.half), Release);
            point!(Announced);
        }
        let new = end | (self.level.owner << OWNER_SHIFT);
        let order = if fault!(RelaxedReserve) { Relaxed } else { AcqRel };
        let reserved = self.control.reserve.compare_exchange(self.word, new, order, Relaxed).is_ok();
        if reserved && fault!(LateAnnouncement) {
            point!(Announced);
            mine.target.store(self.stream.target(self.half), Release);
        }
        if !reserved {
            mine.target.store(0, Release);
        }
        reserved
    }

    /// Adds committed bytes to the place of sub-buffer `number`; closes it if they were the last and its header is written.
    #[inline(always)]
    fn commit<M: Memory>(&self, memory: M, number: u64, len: u64) {
        let slot = self.slot(number);
        let size = self.stream.spec.sub_buffer_size;
        let order = if fault!(RelaxedCommit) { Relaxed } else { AcqRel };
        let sum = slot.committed.fetch_add(len, order).wrapping_add(len).wrapping_sub(self.lap_base(number));
        if sum == size - HEADER_LEN as u64 {
            if arrive(slot, number) || fault!(EarlyClose) {
                self.close(memory, number, slot);
            }
        } else {
            let position = self.control.reserve.load(Relaxed) & POSITION;
            if position == ((number << self.stream.size_shift) + HEADER_LEN as u64).wrapping_add(sum) {
                self.control.contiguous.store(position, Relaxed);
            }
        }
        if self.channel.persist {
            self.persist_commit(slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn persist_commit(&self, slot: &Slot) {
        // SAFETY: slot and control are mapped, and as long.
        unsafe {
            flush::flush(core::ptr::from_ref(slot).cast(), 64);
            flush::flush(core::ptr::from_ref(self.control).cast(), 128);
        }
        flush::fence();
    }

    /// All of the sub-buffer but its header is committed, and that is written: completes the header, and commits it.
    #[cold]
    #[inline(never)]
    fn close<M: Memory>(&self, memory: M, number: u64, slot: &Slot) {
        let size = self.stream.spec.sub_buffer_size;
        point!(Closing);
        let end = slot.content_end.load(Acquire);
        let mut place = self.stream.place(number * size);
        place.within = end & (size - 1);
        // SAFETY: all bytes are committed or written, and only this thread came second to `arrive`.
        let (header, sum) = unsafe { self.stream.closing(memory, place, slot.end_clock.load(Relaxed)) };
        // SAFETY: header and trailer are this thread's until it commits the header's bytes.
        unsafe {
            let header_end = Chunk::of(place.sub_buffer + at::TIMESTAMP_END as u64, &header[at::TIMESTAMP_END..]);
            super::write(memory, &header_end);
            super::write(memory, &Chunk::of(place.sub_buffer + size - CHECK_FROM_END as u64, &sum));
        }
        self.persist(memory, place.sub_buffer, size as usize);
        point!(Closed);
        slot.committed.fetch_add(HEADER_LEN as u64, Release);
        self.channel.refresh_clock();
    }

    /// Writes `len` bytes at `offset` of the half back to memory that keeps them.
    #[inline(always)]
    fn persist<M: Memory>(&self, memory: M, offset: u64, len: usize) {
        if self.channel.persist {
            Self::persist_range(memory, offset, len);
        }
    }

    #[cold]
    #[inline(never)]
    fn persist_range<M: Memory>(memory: M, offset: u64, len: usize) {
        for (at, run) in memory.runs(offset, len) {
            // SAFETY: `run` bytes lie behind `at` in the half.
            unsafe { flush::flush(at, run) };
        }
        flush::fence();
    }
}

/// Notes that sub-buffer `number` has its header, or all its other bytes. True for whoever comes second: the header of a
/// sub-buffer is not completed while the one who began it may still write it.
#[cold]
fn arrive(slot: &Slot, number: u64) -> bool {
    let mark = number + 1;
    slot.arrived.fetch_update(AcqRel, Acquire, |seen| (seen < mark).then_some(mark)) == Err(mark)
}

/// Tells the owner that the reserve word names that its reservation succeeded, before the word forgets it.
#[cold]
fn confirm(view: &View<'_>, owner: u64) {
    let Some(previous) = threads::level_of(view.channel.parts.threads, owner) else { return };
    let target = view.stream.target(view.half);
    let mine = (target << POSITION_BITS) | view.position;
    // An error says that the owner knows it, or has withdrawn the announcement since.
    let _ = previous.confirmed.fetch_update(AcqRel, Relaxed, |seen| {
        let same_target = seen >> POSITION_BITS == mine >> POSITION_BITS;
        let is_announced = previous.target.load(Acquire) == target;
        (is_announced && !(same_target && seen >= mine)).then_some(mine)
    });
}

/// Leaves the sub-buffer of the position, in which the event does not fit, for the next that can be had.
#[cold]
#[inline(never)]
fn switch<M: Memory>(view: &View<'_>, memory: M, record: &Record<'_>) -> Result<(), Lost> {
    let stream = view.stream;
    let size = stream.spec.sub_buffer_size;
    if stream.is_too_big(record) {
        return Err(Lost::TooBig);
    }
    let place = stream.place(view.position);
    let next = if place.within == 0 { view.position } else { stream.next_sub_buffer(view.position) };
    let mut start = next;
    while !available(view, start)? {
        start += size;
        if start - next >= stream.half_size() - size {
            return Err(Lost::Busy);
        }
    }
    if !view.reserve(start + HEADER_LEN as u64, IN_FLIGHT_SWITCH) {
        return Ok(());
    }
    point!(Switched);
    // The position that gave the old content up is seen before what replaces it: readers of a living session rely on that.
    fence(Release);
    for passed in (next..start).step_by(size as usize) {
        view.slot(passed >> stream.size_shift).committed.fetch_add(size, AcqRel);
        stream.control.lost[SKIPPED].fetch_add(1, Relaxed);
    }
    let number = start >> view.stream.size_shift;
    let header = packet::header(&stream.spec, number, view.clock, Closing::default());
    let at = stream.place(start).sub_buffer;
    // SAFETY: the reservation gave the header's bytes to this thread, in a place that is available.
    unsafe { super::write(memory, &Chunk::of(at, &header)) };
    view.persist(memory, at, header.len());
    point!(Begun);
    if arrive(view.slot(number), number) && !fault!(EarlyClose) {
        view.close(memory, number, view.slot(number));
    }
    if place.within != 0 {
        let left = view.slot(place.number);
        left.content_end.store(view.position, Relaxed);
        left.end_clock.store(view.clock, Relaxed);
        view.commit(memory, place.number, size - place.within);
    }
    point!(Committed);
    view.level.in_flight.target.store(0, Release);
    Ok(())
}

/// The place of the sub-buffer that would begin at `start` can be written: all of the lap before is committed, or was
/// left by recorders that are dead. `Full` in discard mode where it was not consumed.
fn available(view: &View<'_>, start: u64) -> Result<bool, Lost> {
    if view.stream.is_full(view.control, start) {
        return Err(Lost::Full);
    }
    let number = start >> view.stream.size_shift;
    let slot = view.slot(number);
    let whole = view.lap_base(number);
    loop {
        let committed = slot.committed.load(Acquire);
        if committed >= whole {
            return Ok(true);
        }
        if is_in_flight(view, number) && !fault!(ReclaimLiving) {
            return Ok(fault!(NoWait));
        }
        if slot.committed.compare_exchange(committed, whole, AcqRel, Relaxed).is_ok() {
            // Where only the header is missing, nothing was reserved and lost: it was never completed.
            if committed + HEADER_LEN as u64 != whole {
                view.stream.control.lost[RECLAIMED].fetch_add(1, Relaxed);
            }
            return Ok(true);
        }
    }
}

/// A living thread has reserved in the place of sub-buffer `number` on an earlier lap, any earlier one, and not committed.
#[cold]
fn is_in_flight(view: &View<'_>, number: u64) -> bool {
    let target = view.stream.target(view.half);
    let places = view.stream.slots[view.half].len() as u64;
    let here = |l: &InFlight| {
        if l.target.load(Acquire) != target {
            return false;
        }
        let first = l.begin.load(Acquire) >> view.stream.size_shift;
        let last = (l.end.load(Relaxed).wrapping_sub(1) >> view.stream.size_shift).min(number.wrapping_sub(1));
        // From `first` up to the next number that lies in the place.
        let up = number.wrapping_sub(first) & (places - 1);
        first + up <= last && (!fault!(OneLap) || first + up + places == number)
    };
    threads::living(view.channel.parts.threads, here).next().is_some()
}

/// What a dead thread's level (number `owner`) announced was never reserved, or was overwritten: nobody asks for it any more.
/// False for streams of other channels.
#[cold]
fn is_over(channel: &Channel, owner: u64, level: &InFlight) -> bool {
    let target = level.target.load(Acquire);
    if target == 0 {
        return true;
    }
    let end = level.end.load(Relaxed);
    let of = |s: &&Stream| u64::from(s.spec.index) == (target - 1) >> 1;
    channel.streams().iter().find(of).is_some_and(|stream| {
        let control = stream.half(((target - 1) & 1) as usize);
        // The word first: who replaced it had confirmed before.
        let word = control.reserve.load(Acquire) & !CLOSED_BIT;
        let confirmed = level.confirmed.load(Acquire);
        let tagged = confirmed >> POSITION_BITS == (target << POSITION_BITS) >> POSITION_BITS;
        let reserved = word == end | (owner << OWNER_SHIFT) || (tagged && confirmed & POSITION >= end);
        let kept = stream.next_sub_buffer((word & POSITION).saturating_sub(1)).saturating_sub(stream.half_size());
        !reserved || end <= kept.max(control.first.load(Relaxed) & !(stream.spec.sub_buffer_size - 1))
    })
}
