//! What `rseq` and `locked` share: one recorder at a time works on a half, and a single store publishes what it did.

use lastwords_abi::packet::{CHECK_FROM_END, HEADER_LEN, at};
use lastwords_abi::sync::Ordering::{Acquire, Relaxed, Release};
use lastwords_abi::sync::fence;

use super::{Place, encode};
use crate::channel::Channel;
use crate::memory::Memory;
use crate::packet::{self, Closing};
use crate::record::{Lost, Pieces, Record};
use crate::stream::Stream;

/// How far one step came.
pub(crate) enum Step {
    /// The event is published.
    Done,
    /// A sub-buffer was closed or begun; go on.
    Progress,
    /// Another recorder came first; try again.
    Aborted,
    /// The event cannot be recorded.
    Lost(Lost),
}

/// The half and position from which a step was computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) half: u32,
    pub(crate) position: u64,
}

/// Copies and publishes, if nobody else has recorded since the position was read.
pub(crate) trait Publish {
    /// Does the copies and makes `end` the produced position, if `at` still stands. False when it does not.
    fn publish(&self, stream: &Stream, at: At, end: u64, pieces: &Pieces) -> bool;
}

/// Everything of one step but the sub-buffer's memory.
struct Context<'a, P> {
    stream: &'a Stream,
    publish: &'a P,
    at: At,
    place: Place,
    clock: u64,
}

impl<P: Publish> Context<'_, P> {
    fn publish(&self, end: u64, pieces: &Pieces, done: Step) -> Step {
        if !self.publish.publish(self.stream, self.at, end, pieces) {
            return Step::Aborted;
        }
        if !matches!(done, Step::Progress) || self.place.within == 0 {
            // The reading of something committed: not newer than the newest event, whoever stores last.
            self.stream.half(self.at.half as usize).last_clock.store(self.clock, Relaxed);
        }
        done
    }
}

/// What a step has to keep clear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// Whoever recorded last is done, or dead.
    Done,
    /// A recorder that may live has stopped in the middle, and may yet write what it was about to: the rest of the open
    /// sub-buffer is left to it.
    Stopped,
    /// The same, and its sub-buffer was left. It may write an older header where this one was begun, so the next event
    /// has the whole clock.
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
    let half = channel.live_half(stream);
    let control = stream.half(half as usize);
    // Acquire: a close sums what others have published here.
    let position = control.reserve.load(Acquire);
    let last = control.last_clock.load(Relaxed);
    let clock = super::not_before(channel.clock.now(), last);
    let at = At { half, position };
    let context = Context { stream, publish, at, place: stream.place(position), clock };
    let memory = M::at(stream.data[half as usize]);
    if context.place.within < HEADER_LEN as u64 {
        return begin(&context, memory);
    }
    let (header, header_len) = encode(channel, record, clock, last, before != Before::Done);
    let len = (header_len + record.len) as u64;
    if before == Before::Stopped || !stream.fits(context.place.within, len) {
        return close(channel, &context, memory, len);
    }
    match super::pieces(memory, context.place, &header[..header_len], record) {
        Some(pieces) => context.publish(position + len, &pieces, Step::Done),
        None => Step::Lost(Lost::TooBig),
    }
}

/// Begins the sub-buffer at whose start the position stands.
fn begin<M: Memory, P: Publish>(context: &Context<'_, P>, memory: M) -> Step {
    let (stream, place) = (context.stream, context.place);
    let start = context.at.position - place.within;
    if stream.is_full(stream.half(context.at.half as usize), start) {
        return Step::Lost(Lost::Full);
    }
    // The position that gave the old content up is seen before what replaces it: readers of a living session rely on that.
    fence(Release);
    let header = packet::header(&stream.identity, place.number, context.clock, Closing::default());
    let mut pieces = Pieces::new();
    pieces.add(memory, place.sub_buffer, &header);
    context.publish(start + HEADER_LEN as u64, &pieces, Step::Progress)
}

/// Closes the sub-buffer in which an event of `len` bytes does not fit, and moves to the start of the next, whose old
/// content is given up by that very store.
fn close<M: Memory, P: Publish>(channel: &Channel, context: &Context<'_, P>, memory: M, len: u64) -> Step {
    let (stream, place) = (context.stream, context.place);
    if len > stream.room() {
        return Step::Lost(Lost::TooBig);
    }
    let next = stream.next_sub_buffer(context.at.position);
    if stream.is_full(stream.half(context.at.half as usize), next) {
        return Step::Lost(Lost::Full);
    }
    channel.refresh_clock();
    // SAFETY: all bytes before the position that `publish` will check are committed, and only closing threads write them; a
    // close that computed with another position is not published.
    let (header, sum) = unsafe { stream.closing(memory, place, context.clock) };
    let mut pieces = Pieces::new();
    let fields = at::TIMESTAMP_END;
    pieces.add(memory, place.sub_buffer + fields as u64, &header[fields..]);
    pieces.add(memory, place.sub_buffer + stream.info.sub_buffer_size - CHECK_FROM_END as u64, &sum);
    context.publish(next, &pieces, Step::Progress)
}
