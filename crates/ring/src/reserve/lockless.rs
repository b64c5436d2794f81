//! Reserves by compare-and-swap and counts commits, for any architecture and for several CPUs on
//! one buffer.
//!
//! A recorder announces the range that it is about to reserve in its entry of the session's thread
//! table. It swaps the reserve word (position and owner), copies the event, and adds the bytes to
//! the commit counter of the sub-buffer's place. The counters are cumulative over laps. The
//! recorder that commits the last bytes of a sub-buffer except its header closes the sub-buffer: it
//! completes and commits the header. When the ring comes round to a place that is not completely
//! committed, it reclaims the place from a dead recorder and skips the place of a living one. So no
//! killed thread stops the ring.

use lastwords_abi::packet::{CHECK_FROM_END, HEADER_LEN, at};
use lastwords_abi::session::{IN_FLIGHT_COPIED, IN_FLIGHT_RESERVING, IN_FLIGHT_SWITCH, InFlight};
use lastwords_abi::stream::{
    CLOSED_BIT, HalfControl, OWNER_SHIFT, POSITION_BITS, RECLAIMED, SKIPPED, Slot,
};
use lastwords_abi::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lastwords_abi::sync::fence;

use crate::channel::Channel;
use crate::flush::{self, LINE, Persist};
use crate::header::encode;
use crate::hooks::{fault, point};
use crate::memory::Memory;
use crate::os;
use crate::packet::{self, Closing};
use crate::record::{Chunk, Lost, Record};
use crate::reserve::single_writer;
use crate::stream::Stream;
use crate::threads::{self, Level};

/// The bits of a reserve word that contain the position.
const POSITION: u64 = (1 << POSITION_BITS) - 1;
/// Number of times that a recorder reads the flip words again after it found a half that a swap has
/// closed.
const CLOSED_ROUNDS: u32 = 1024;

/// Records with compare-and-swap.
///
/// # Errors
/// The event was lost; the caller counts it.
#[inline(never)]
pub(crate) fn record<M: Memory>(
    channel: &Channel,
    stream: &Stream,
    record: &Record<'_>,
) -> Result<(), Lost> {
    let is_over = |owner, level: &InFlight| is_over(channel, owner, level);
    threads::with_level(channel.parts.threads, is_over, |level| {
        run::<M>(channel, stream, record, level)
    })
    .unwrap_or(Err(Lost::NoEntry))
}

/// The state of a half when its reserve word was read.
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

/// The result of an attempt to record that did not lose the event.
enum Attempt {
    /// The event is committed.
    Done,
    /// Another recorder was first, or the attempt made room.
    Again,
    /// A swap has closed the half.
    Closed,
}

#[inline(always)]
fn run<M: Memory>(
    channel: &Channel,
    stream: &Stream,
    record: &Record<'_>,
    level: &Level<'_>,
) -> Result<(), Lost> {
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

/// Records the event, or makes room. The function is not inlined into the loop around it. Otherwise
/// the compiler would compute values that do not change before the loop and keep them in memory.
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
    // The half may have been swapped out and reset since the flip words were read. If it was, the
    // flip words show it now.
    if channel.parts.live_half(stream) != half && !fault!(StaleHalf) {
        return Ok(Attempt::Again);
    }
    let last = control.last_clock.load(Relaxed);
    // The clock must not be older than that of the reservation in `word`. If this thread made that
    // reservation, the two readings are in program order. Otherwise the counter must not be read
    // before `word` was.
    let is_own = word >> OWNER_SHIFT == level.owner && !cfg!(loom);
    let clock = if is_own { channel.clock.now() } else { channel.clock.now_ordered() };
    let clock = super::not_before(clock, last);
    let view =
        &View { channel, stream, level, half, control, word, position: word & POSITION, clock };
    let place = stream.place(view.position);
    // The first event of a sub-buffer has the full clock, so that it can be read even if the header
    // was never written.
    let first = place.within == HEADER_LEN as u64;
    let (header, header_len) = encode(view.channel, record, view.clock, last, first);
    let len = (header_len + record.len) as u64;
    // SAFETY: `Stream::attach` checked that the data or page table of each half is in the region;
    // callers pass the `M` of the channel.
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
    // SAFETY: the reservation gave these bytes to this thread alone. `available` let the ring come
    // here only when all recorders of the lap before were done or dead.
    unsafe {
        super::write(memory, &Chunk { offset, first: &header[..header_len], parts: record.parts })
    };
    // The bytes must be persistent before the announcement can say so, and the announcement before
    // the commit can be. The position must be persistent before a commit counter can include bytes
    // behind the old position.
    if view.persists_events() {
        persist_range(memory, offset, len as usize, view.control);
    }
    point!(Written);
    level.in_flight.state.store(IN_FLIGHT_COPIED, Release);
    if view.persists_events() {
        persist_words(&[core::ptr::from_ref(level.in_flight).cast()]);
    }
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

    /// Returns the bytes that a place has committed before the lap of sub-buffer `number` begins.
    fn lap_base(&self, number: u64) -> u64 {
        (number >> self.stream.slots_shift) << self.stream.size_shift
    }

    /// Announces and reserves everything up to `end`. Returns false if another recorder was first.
    #[inline(always)]
    fn reserve(&self, end: u64, state: u64) -> bool {
        let owner = (self.word & !CLOSED_BIT) >> OWNER_SHIFT;
        if owner != self.level.owner && !fault!(NoConfirm) {
            confirm(self, owner);
        }
        let mine: &InFlight = self.level.in_flight;
        // Release: a reader that sees this value instead of the previous one also sees what was
        // committed before.
        mine.begin.store(self.position, if fault!(RelaxedBegin) { Relaxed } else { Release });
        mine.end.store(end, Relaxed);
        mine.state.store(state, Relaxed);
        if !fault!(LateAnnouncement) {
            mine.target.store(self.stream.target(self.half), Release);
            // A reader after a crash must know the holes of every reservation that the persistent
            // position includes.
            if self.persists_events() {
                persist_words(&[core::ptr::from_ref(mine).cast()]);
            }
            point!(Announced);
        }
        let new = end | (self.level.owner << OWNER_SHIFT);
        let order = if fault!(RelaxedReserve) { Relaxed } else { AcqRel };
        let reserved =
            self.control.reserve.compare_exchange(self.word, new, order, Relaxed).is_ok();
        if reserved && fault!(LateAnnouncement) {
            point!(Announced);
            mine.target.store(self.stream.target(self.half), Release);
        }
        if !reserved {
            mine.target.store(0, Release);
        }
        reserved
    }

    /// Adds committed bytes to the place of sub-buffer `number`. Closes the sub-buffer if they were
    /// the last and its header is written.
    #[inline(always)]
    fn commit<M: Memory>(&self, memory: M, number: u64, len: u64) {
        let slot = self.slot(number);
        let size = self.stream.spec.sub_buffer_size;
        let order = if fault!(RelaxedCommit) { Relaxed } else { AcqRel };
        let sum = slot
            .committed
            .fetch_add(len, order)
            .wrapping_add(len)
            .wrapping_sub(self.lap_base(number));
        if sum == size - HEADER_LEN as u64 {
            if arrive(slot, number) || fault!(EarlyClose) {
                self.close(memory, number, slot);
            }
        } else {
            let position = self.control.reserve.load(Relaxed) & POSITION;
            if position
                == ((number << self.stream.size_shift) + HEADER_LEN as u64).wrapping_add(sum)
            {
                self.control.contiguous.store(position, Relaxed);
            }
        }
        if self.persists_events() {
            self.persist_commit(slot);
        }
    }

    /// Returns true if the session's policy is to write back each event.
    #[inline(always)]
    fn persists_events(&self) -> bool {
        self.channel.persist == Persist::Event
    }

    /// Writes back the commit counter of a place, and the produced and the contiguous position.
    #[cold]
    #[inline(never)]
    fn persist_commit(&self, slot: &Slot) {
        let control = core::ptr::from_ref(self.control).cast::<u8>();
        persist_words(&[core::ptr::from_ref(slot).cast(), control, control.wrapping_add(LINE)]);
    }

    /// Completes and commits the header of a sub-buffer. All other bytes are committed, and the
    /// header is written.
    #[cold]
    #[inline(never)]
    fn close<M: Memory>(&self, memory: M, number: u64, slot: &Slot) {
        let size = self.stream.spec.sub_buffer_size;
        point!(Closing);
        let end = slot.content_end.load(Acquire);
        let mut place = self.stream.place(number * size);
        place.within = end & (size - 1);
        // SAFETY: all bytes are committed or written, and only this thread came second to `arrive`.
        let (header, sum) =
            unsafe { self.stream.closing(memory, place, slot.end_clock.load(Relaxed)) };
        // SAFETY: header and trailer belong to this thread until it commits the header's bytes.
        unsafe {
            let header_end = Chunk::new(
                place.sub_buffer + at::TIMESTAMP_END as u64,
                &header[at::TIMESTAMP_END..],
            );
            super::write(memory, &header_end);
            super::write(
                memory,
                &Chunk::new(place.sub_buffer + size - CHECK_FROM_END as u64, &sum),
            );
        }
        // The sub-buffer must be persistent before the counter that declares it closed can be.
        let persists = self.channel.persist != Persist::None;
        if persists {
            persist_range(memory, place.sub_buffer, size as usize, self.control);
        }
        point!(Closed);
        slot.committed.fetch_add(HEADER_LEN as u64, Release);
        if persists {
            self.persist_commit(slot);
        }
        self.channel.refresh_clock();
    }
}

/// Writes `len` bytes at `offset` of a half and the half's produced position back, and waits for
/// it.
#[cold]
#[inline(never)]
fn persist_range<M: Memory>(memory: M, offset: u64, len: usize, control: &HalfControl) {
    for (at, run) in memory.runs(offset, len) {
        // SAFETY: `run` bytes follow `at` in the half.
        unsafe { flush::flush(at, run) };
    }
    single_writer::persist_position(control);
}

/// Writes the lines back that begin at these addresses, and waits for it. The addresses are of
/// words of the session.
#[cold]
#[inline(never)]
fn persist_words(lines: &[*const u8]) {
    for line in lines {
        // SAFETY: the words of a session are mapped, and each caller passes the address of one.
        unsafe { flush::flush(*line, LINE) };
    }
    flush::fence();
}

/// Notes that sub-buffer `number` has its header, or all its other bytes. Returns true to the
/// recorder that comes second. So the header is not completed while the recorder that began the
/// sub-buffer may still write it.
#[cold]
fn arrive(slot: &Slot, number: u64) -> bool {
    let mark = number + 1;
    slot.arrived.fetch_update(AcqRel, Acquire, |seen| (seen < mark).then_some(mark)) == Err(mark)
}

/// Confirms to the owner in the reserve word that its reservation succeeded. This must happen
/// before the word is replaced.
#[cold]
fn confirm(view: &View<'_>, owner: u64) {
    let Some(previous) = threads::level_of(view.channel.parts.threads, owner) else { return };
    let target = view.stream.target(view.half);
    let mine = (target << POSITION_BITS) | view.position;
    // An error means that the owner is already confirmed, or has withdrawn the announcement since.
    let _ = previous.confirmed.fetch_update(AcqRel, Relaxed, |seen| {
        let same_target = seen >> POSITION_BITS == mine >> POSITION_BITS;
        let is_announced = previous.target.load(Acquire) == target;
        (is_announced && !(same_target && seen >= mine)).then_some(mine)
    });
    if view.persists_events() {
        persist_words(&[core::ptr::from_ref(previous).cast()]);
    }
}

/// Leaves the sub-buffer of the position, in which the event does not fit, for the next available
/// one.
#[cold]
#[inline(never)]
fn switch<M: Memory>(view: &View<'_>, memory: M, record: &Record<'_>) -> Result<(), Lost> {
    let stream = view.stream;
    let size = stream.spec.sub_buffer_size;
    if stream.is_too_big(record) {
        return Err(Lost::TooBig);
    }
    let place = stream.place(view.position);
    let next =
        if place.within == 0 { view.position } else { stream.next_sub_buffer(view.position) };
    let mut start = next;
    let mut has_memory = true;
    // A place that gets no memory is skipped, as one that a living thread is still writing in.
    while !available(view, start)? || !gets_memory(view, start, &mut has_memory) {
        start += size;
        if start - next >= stream.half_size() - size {
            if !has_memory {
                stream.count_refused();
            }
            return Err(Lost::Busy);
        }
    }
    if !view.reserve(start + HEADER_LEN as u64, IN_FLIGHT_SWITCH) {
        return Ok(());
    }
    point!(Switched);
    // Readers of a living session must see the position that gave up the old content before they
    // see the bytes that replace it. So must readers after a crash.
    fence(Release);
    if view.channel.persist != Persist::None {
        single_writer::persist_position(view.control);
    }
    for passed in (next..start).step_by(size as usize) {
        let slot = view.slot(passed >> stream.size_shift);
        slot.committed.fetch_add(size, AcqRel);
        if view.channel.persist != Persist::None {
            view.persist_commit(slot);
        }
        stream.control.lost[SKIPPED].fetch_add(1, Relaxed);
    }
    let number = start >> view.stream.size_shift;
    let header = packet::header(&stream.spec, number, view.clock, Closing::default());
    let at = stream.place(start).sub_buffer;
    // SAFETY: the reservation gave the header's bytes to this thread, in a place that is available.
    unsafe { super::write(memory, &Chunk::new(at, &header)) };
    if view.persists_events() {
        persist_range(memory, at, header.len(), view.control);
    }
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
    if view.persists_events() {
        persist_words(&[core::ptr::from_ref(view.level.in_flight).cast()]);
    }
    Ok(())
}

/// Returns true if the place of the sub-buffer that would begin at `start` can be written: the lap
/// before is completely committed, or dead recorders left it incomplete. Returns `Full` in discard
/// mode if its content was not consumed.
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
            // If only the header is missing, no reservation was lost: the header was never
            // completed.
            if committed + HEADER_LEN as u64 != whole {
                view.stream.control.lost[RECLAIMED].fetch_add(1, Relaxed);
            }
            return Ok(true);
        }
    }
}

/// Makes sure that the sub-buffer that would begin at `start` has memory. Returns false, also in
/// `has_memory`, if it gets none.
fn gets_memory(view: &View<'_>, start: u64, has_memory: &mut bool) -> bool {
    let stream = view.stream;
    let got = stream.grow(view.half, stream.place(start).sub_buffer + stream.spec.sub_buffer_size);
    *has_memory &= got;
    got
}

/// Returns true if a living thread has an uncommitted reservation in the place of sub-buffer
/// `number`, on any earlier lap.
#[cold]
fn is_in_flight(view: &View<'_>, number: u64) -> bool {
    let target = view.stream.target(view.half);
    let places = view.stream.slots[view.half].len() as u64;
    let here = |l: &InFlight| {
        if l.target.load(Acquire) != target {
            return false;
        }
        let first = l.begin.load(Acquire) >> view.stream.size_shift;
        let last = (l.end.load(Relaxed).wrapping_sub(1) >> view.stream.size_shift)
            .min(number.wrapping_sub(1));
        // This is the distance from `first` to the next number in the same place.
        let up = number.wrapping_sub(first) & (places - 1);
        first + up <= last && (!fault!(OneLap) || first + up + places == number)
    };
    threads::living(view.channel.parts.threads, here).next().is_some()
}

/// Returns true if the announcement of a dead thread's level (number `owner`) was never reserved,
/// or was overwritten, so that it is no longer needed. Returns false for streams of other channels.
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
        // The word is read first, because a recorder confirms the reservation before it replaces
        // the word.
        let word = control.reserve.load(Acquire) & !CLOSED_BIT;
        let confirmed = level.confirmed.load(Acquire);
        let tagged = confirmed >> POSITION_BITS == (target << POSITION_BITS) >> POSITION_BITS;
        let reserved =
            word == end | (owner << OWNER_SHIFT) || (tagged && confirmed & POSITION >= end);
        let kept = stream
            .next_sub_buffer((word & POSITION).saturating_sub(1))
            .saturating_sub(stream.half_size());
        !reserved
            || end <= kept.max(control.first.load(Relaxed) & !(stream.spec.sub_buffer_size - 1))
    })
}
