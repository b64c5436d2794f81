//! The common part of `rseq` and `locked`: one recorder at a time works on a half, and a single
//! store publishes its work.

use lastwords_abi::packet::{CHECK_FROM_END, HEADER_LEN, at};
use lastwords_abi::stream::HalfControl;
use lastwords_abi::sync::Ordering::{Acquire, Relaxed, Release};
use lastwords_abi::sync::fence;

use super::Place;
use crate::channel::Channel;
use crate::flush::{self, Persist};
use crate::header::encode;
use crate::memory::Memory;
use crate::packet::{self, Closing};
use crate::record::{Chunk, Lost, Record};
use crate::stream::Stream;

/// The result of one step.
pub(crate) enum Step {
    /// The event is published.
    Done,
    /// A sub-buffer was closed or begun, and the recorder must continue.
    Progress,
    /// Another recorder was first, and the recorder must try again.
    Aborted,
    /// The event has more pieces than a section copies.
    TooManyPieces,
    /// The next sub-buffer has no memory, and the system gives none.
    NoMemory,
    /// The event cannot be recorded.
    Lost(Lost),
}

/// The result of an attempt to publish. The error is the step that follows if nothing was
/// published.
pub(crate) type Published = Result<(), Step>;

/// Copies and publishes if nobody else has recorded since the position was read.
pub(crate) trait Publish: Sized {
    /// Copies the chunks into the half and makes `end` the produced position, if the position is
    /// still that of the step.
    ///
    /// # Errors
    /// Nothing was published: [`Step::Aborted`] or [`Step::TooManyPieces`].
    fn publish<M: Memory>(
        &self,
        step: &Context<'_, Self, M>,
        end: u64,
        chunks: &[Chunk<'_>],
    ) -> Published;
}

/// The context of one step: the stream, its live half with its memory, and the position from which
/// the step is computed.
pub(crate) struct Context<'a, P, M> {
    pub(crate) memory: M,
    pub(crate) stream: &'a Stream,
    publish: &'a P,
    pub(crate) half: usize,
    pub(crate) position: u64,
    place: Place,
    clock: u64,
}

impl<P: Publish, M: Memory> Context<'_, P, M> {
    fn publish(&self, end: u64, chunks: &[Chunk<'_>], done: Step) -> Step {
        if let Err(refused) = self.publish.publish(self, end, chunks) {
            return refused;
        }
        if !matches!(done, Step::Progress) || self.place.within == 0 {
            // The clock belongs to a committed event, so it is not newer than the newest event,
            // whichever recorder stores last.
            self.stream.half(self.half).last_clock.store(self.clock, Relaxed);
        }
        done
    }
}

/// The state that the previous recorder left, which a step must respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// The previous recorder is done, or dead.
    Done,
    /// A recorder that may still live has stopped in the middle, and may still write what it was
    /// about to write. The rest of the open sub-buffer is left to it.
    Stopped,
    /// A recorder has stopped in the middle, and its sub-buffer was left. It may still write an
    /// older header where this sub-buffer was begun, so the next event has the whole clock.
    Left,
}

/// Records `record`, or makes the room that it needs.
pub(crate) fn step<M: Memory, P: Publish>(
    channel: &Channel,
    stream: &Stream,
    publish: &P,
    record: &Record<'_>,
    before: Before,
) -> Step {
    let half = channel.parts.live_half(stream);
    let control = stream.half(half);
    // Acquire: a close computes a checksum over bytes that others have published here.
    let position = control.reserve.load(Acquire);
    let last = control.last_clock.load(Relaxed);
    let clock = super::not_before(channel.clock.now(), last);
    // SAFETY: `Stream::attach` checked that the data or page table of each half is in the region;
    // callers pass the `M` of the channel.
    let memory = unsafe { M::at(stream.data[half]) };
    let context =
        Context { memory, stream, publish, half, position, place: stream.place(position), clock };
    if context.place.within < HEADER_LEN as u64 {
        return begin(&context);
    }
    let (header, header_len) = encode(channel, record, clock, last, before != Before::Done);
    let len = (header_len + record.len) as u64;
    if before == Before::Stopped || !stream.fits(context.place.within, len) {
        return close(channel, &context, record);
    }
    let offset = context.place.sub_buffer + context.place.within;
    let event = Chunk { offset, first: &header[..header_len], parts: record.parts };
    context.publish(position + len, &[event], Step::Done)
}

/// Begins the sub-buffer that starts at the position.
fn begin<M: Memory, P: Publish>(context: &Context<'_, P, M>) -> Step {
    let (stream, place) = (context.stream, context.place);
    let start = context.position - place.within;
    if stream.is_full(stream.half(context.half), start) {
        return Step::Lost(Lost::Full);
    }
    if !stream.grow(context.half, place.sub_buffer + stream.spec.sub_buffer_size) {
        return Step::NoMemory;
    }
    // Readers of a living session must see the position that gave up the old content before they
    // see the bytes that replace it.
    fence(Release);
    let header = packet::header(&stream.spec, place.number, context.clock, Closing::default());
    let header = Chunk::new(place.sub_buffer, &header);
    context.publish(start + HEADER_LEN as u64, &[header], Step::Progress)
}

/// Closes the sub-buffer in which the event does not fit, and moves to the start of the next. The
/// same store gives up the old content of the next sub-buffer.
fn close<M: Memory, P: Publish>(
    channel: &Channel,
    context: &Context<'_, P, M>,
    record: &Record<'_>,
) -> Step {
    let (stream, place) = (context.stream, context.place);
    if stream.is_too_big(record) {
        return Step::Lost(Lost::TooBig);
    }
    let next = stream.next_sub_buffer(context.position);
    if stream.is_full(stream.half(context.half), next) {
        return Step::Lost(Lost::Full);
    }
    channel.refresh_clock();
    // SAFETY: all bytes before the position that `publish` will check are committed, and only
    // closing threads write them. A close that was computed from another position is not published.
    let (header, sum) = unsafe { stream.closing(context.memory, place, context.clock) };
    let trailer = place.sub_buffer + stream.spec.sub_buffer_size - CHECK_FROM_END as u64;
    let trailer = Chunk::new(trailer, &sum);
    let header =
        Chunk::new(place.sub_buffer + at::TIMESTAMP_END as u64, &header[at::TIMESTAMP_END..]);
    if channel.persist == Persist::SubBuffer {
        return close_persistently(context, next, &[header, trailer]);
    }
    context.publish(next, &[header, trailer], Step::Progress)
}

/// Closes the sub-buffer in two steps. The first writes header and trailer, which nobody reads
/// while the sub-buffer is open, and writes the sub-buffer back. The second moves the position,
/// which declares the sub-buffer closed and gives up the next one. If anybody records between the
/// two, the second step is refused, and the recorder begins again.
#[cold]
#[inline(never)]
fn close_persistently<M: Memory, P: Publish>(
    context: &Context<'_, P, M>,
    next: u64,
    ends: &[Chunk<'_>; 2],
) -> Step {
    let (stream, place) = (context.stream, context.place);
    let written = context.publish(context.position, ends, Step::Progress);
    if !matches!(written, Step::Progress) {
        return written;
    }
    for (at, len) in context.memory.runs(place.sub_buffer, stream.spec.sub_buffer_size as usize) {
        // SAFETY: `len` bytes follow `at` in the half.
        unsafe { flush::flush(at, len) };
    }
    flush::fence();
    let closed = context.publish(next, &[], Step::Progress);
    if matches!(closed, Step::Progress) {
        persist_position(stream.half(context.half));
    }
    closed
}

/// Writes the produced position back and waits for it.
pub(super) fn persist_position(control: &HalfControl) {
    // SAFETY: the control is mapped, and longer than a line.
    unsafe { flush::flush(core::ptr::from_ref(control).cast(), flush::LINE) };
    flush::fence();
}
