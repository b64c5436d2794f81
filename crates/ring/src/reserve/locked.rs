//! Records with signals blocked, under a lock that names its owner, so that a dead owner does not
//! keep it.
//!
//! One store publishes an event, as in the restartable sequences. So a dead owner leaves only bytes
//! after the produced position, and the next owner of the lock simply continues. If processes of
//! several pid namespaces record, a recorder cannot distinguish a dead owner from a stopped one. It
//! takes the lock from either. Nobody records where the previous owner may still write, until the
//! ring comes round.

use lastwords_abi::sync::Ordering::{Relaxed, Release};

use super::single_writer::{self, Before, Context, Publish, Published, Step};
use crate::channel::Channel;
use crate::flush::{self, Persist};
use crate::hooks::{bytes, fault, point};
use crate::memory::Memory;
use crate::os::{self, Lock};
use crate::record::{Chunk, Lost, Piece, Record};
use crate::signals::SignalsBlocked;
use crate::stream::Stream;
use crate::threads;

/// Records under the stream's lock.
///
/// # Errors
/// The event was lost; the caller counts it.
#[inline(never)]
pub(crate) fn record<M: Memory>(
    channel: &Channel,
    stream: &Stream,
    record: &Record<'_>,
) -> Result<(), Lost> {
    let _signals = SignalsBlocked::now();
    let mine = threads::lock_word();
    let before = match os::lock(&stream.control.lock, mine, || channel.parts.is_foreign()) {
        Lock::Refused => return Err(Lost::Lock),
        Lock::Held => Before::Done,
        Lock::Usurped if fault!(StayBeside) => Before::Done,
        Lock::Usurped => Before::Stopped,
    };
    point!(Locked);
    let done = run::<M>(channel, stream, record, before);
    os::unlock(&stream.control.lock, mine);
    done
}

fn run<M: Memory>(
    channel: &Channel,
    stream: &Stream,
    record: &Record<'_>,
    mut before: Before,
) -> Result<(), Lost> {
    loop {
        match single_writer::step::<M, _>(channel, stream, channel, record, before) {
            Step::Done => return Ok(()),
            Step::Progress if before == Before::Stopped => before = Before::Left,
            Step::Progress => {}
            // Another recorder took the lock while this thread was stopped, and recorded.
            Step::Aborted | Step::TooManyPieces => return Err(Lost::Lock),
            Step::NoMemory => {
                stream.count_refused();
                return Err(Lost::Busy);
            }
            Step::Lost(cause) => return Err(cause),
        }
    }
}

/// Publishes while it holds the lock.
impl Publish for Channel {
    fn publish<M: Memory>(
        &self,
        step: &Context<'_, Self, M>,
        end: u64,
        chunks: &[Chunk<'_>],
    ) -> Published {
        let control = step.stream.half(step.half);
        if control.reserve.load(Relaxed) != step.position {
            return Err(Step::Aborted);
        }
        let each_event = self.persist == Persist::Event;
        control.attempt.store(end, Relaxed);
        if fault!(PublishFirst) {
            control.reserve.store(end, Release);
        }
        let mut each = |p: Piece| {
            point!(Step);
            bytes!(writes, p.dst, p.len);
            // SAFETY: the lock is held and the position has not changed, so nobody else writes
            // after it. (A recorder that takes the lock from this one leaves this sub-buffer
            // alone.) `single_writer` ensures that each copy is between position and end, or in the
            // header of the open sub-buffer. The payload is not ring memory.
            unsafe { core::ptr::copy_nonoverlapping(p.src, p.dst, p.len) };
            if each_event {
                // SAFETY: the copy has just been made there.
                unsafe { flush::flush(p.dst, p.len) };
            }
            true
        };
        for chunk in chunks {
            chunk.pieces(step.memory, &mut each);
        }
        if each_event {
            // The bytes must be persistent before the position that commits them can be.
            flush::fence();
        }
        point!(Step);
        // If another recorder took the lock, it has continued from this position. The position must
        // never go back.
        let is_ours =
            control.reserve.compare_exchange(step.position, end, Release, Relaxed).is_ok();
        if fault!(Rewind) {
            control.reserve.store(end, Release);
        } else if !is_ours && !fault!(PublishFirst) {
            return Err(Step::Aborted);
        }
        point!(Published);
        if each_event {
            single_writer::persist_position(control);
        }
        Ok(())
    }
}
