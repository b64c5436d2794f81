//! Exchanging live and spare halves for a snapshot, while recording goes on.
//!
//! One store to the session's flip word (or to one stream's) moves all recorders to the other half. What was recorded
//! before it is in the old half, what is recorded after it is not. Then the old half comes to rest: sections that still run
//! are restarted and see the new half, lockless reservations are closed off and awaited, locks are held across the store.

use lastwords_abi::session::Thread;
use lastwords_abi::stream::{ANY_CPU, CLOSED_BIT};
use lastwords_abi::sync::Ordering::{AcqRel, Acquire, SeqCst};

use crate::channel::SessionParts;
use crate::hooks::{fault, point};
use crate::os::{self, Lock};
use crate::stream::Stream;
use crate::threads;

/// What could not be made sure of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rest {
    /// CPUs on which this thread may not run and whose sections were only waited for.
    pub unvisited: Vec<u32>,
    /// Reservations of living threads that were not finished in bounded time.
    pub in_flight: usize,
}

/// A swap of all streams of a session, or of one.
#[derive(Debug)]
pub struct Swap<'a> {
    /// The session.
    pub parts: SessionParts,
    /// Its streams that are swapped.
    pub streams: &'a [&'a Stream],
    /// These are all that the session has, and are swapped by one store; else each by a store of its own.
    pub are_all: bool,
    /// All recorders are threads of this process: one system call restarts the sections that still run in the old half. Where
    /// others record, this thread runs for a moment on each CPU.
    pub is_alone: bool,
}

/// A living recorder kept the lock of a locked stream, or was still writing in the spare of a lockless one, for longer than
/// is waited; nothing was swapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHeld {
    /// Its process; 0 when unknown.
    pub owner: u32,
}

impl Swap<'_> {
    /// Swaps.
    ///
    /// # Errors
    /// A living recorder kept a stream's lock, or is still in the spare; nothing was changed but that the spare may be empty.
    ///
    /// # Safety
    /// The spare halves have memory, and nobody else swaps these streams meanwhile.
    pub unsafe fn run(&self) -> Result<Rest, LockHeld> {
        let chosen = self.streams;
        for stream in chosen {
            // A recorder that the last swap gave up to wait for would add to counters that are not its own any more.
            if !fault!(NoWaitForSpare) {
                close_spare(self.parts, stream)?;
            }
            // SAFETY: this is the spare, as nobody else swaps, and `close_spare` has found no living recorder in it.
            unsafe { stream.reset_half(self.parts.live_half(stream) ^ 1) };
        }
        let mine = threads::lock_word();
        let locked: Vec<&&Stream> = chosen.iter().filter(|s| is_locked(s)).collect();
        for (held, stream) in locked.iter().enumerate() {
            if os::lock(&stream.control.lock, mine, || self.parts.is_foreign()) == Lock::Refused {
                locked[..held].iter().for_each(|s| os::unlock(&s.control.lock, mine));
                return Err(LockHeld { owner: 0 });
            }
        }
        // SAFETY: these are the spares, as nobody else swaps, and `close_spare` has found no living recorder in them.
        chosen.iter().for_each(|s| unsafe { s.keep_ahead(self.parts.live_half(s) ^ 1) });
        point!(Swapping);
        let one_word = self.are_all.then_some(self.parts.flip);
        let a_word_each = chosen.iter().filter(|_| !self.are_all).map(|s| &s.control.flip);
        one_word.into_iter().chain(a_word_each).for_each(|flip| _ = flip.fetch_xor(1, SeqCst));
        locked.iter().for_each(|s| os::unlock(&s.control.lock, mine));
        Ok(self.settle())
    }

    /// Waits until nobody writes in the old halves.
    fn settle(&self) -> Rest {
        let (mut rest, chosen) = (Rest::default(), self.streams);
        for stream in chosen.iter().filter(|s| s.is_lockless()) {
            let old = self.parts.live_half(stream) ^ 1;
            if !fault!(NoClosedBit) {
                stream.half(old).reserve.fetch_or(CLOSED_BIT, AcqRel);
            }
            rest.in_flight += wait_for_reservations(self.parts.threads, stream, old).len();
        }
        let has_sections = chosen.iter().any(|s| !s.is_lockless() && !is_locked(s));
        if has_sections && !(self.is_alone && os::restart_sections()) {
            rest.unvisited = os::visit_cpus(chosen.iter().map(|s| s.spec.cpu).filter(|&c| c != ANY_CPU));
        }
        rest
    }
}

/// Closes the spare of a lockless stream and waits until no living recorder is left in it. Nobody swaps meanwhile. What is
/// in the spare stays; nobody comes into it before a swap has begun it anew. Others do not outlast the swap that left it.
///
/// # Errors
/// A living recorder is still in it.
pub fn close_spare(parts: SessionParts, stream: &Stream) -> Result<(), LockHeld> {
    let spare = parts.live_half(stream) ^ 1;
    if !stream.is_lockless() {
        return Ok(());
    }
    stream.half(spare).reserve.fetch_or(CLOSED_BIT, AcqRel);
    let left = wait_for_reservations(parts.threads, stream, spare);
    left.first().map_or(Ok(()), |thread| Err(LockHeld { owner: thread.owner.load(Acquire) as u32 }))
}

fn is_locked(stream: &Stream) -> bool {
    stream.spec.reservation == lastwords_abi::session::RESERVATION_LOCKED
}

/// Waits for the reservations of living threads in a closed half; the threads that still have one after a bounded time.
fn wait_for_reservations<'a>(threads: &'a [Thread], stream: &Stream, half: usize) -> Vec<&'a Thread> {
    let target = stream.target(half);
    let writers = || threads::living(threads, |level| level.target.load(Acquire) == target);
    (0..WAIT_ROUNDS).take_while(|_| writers().next().is_some()).for_each(os::pause);
    writers().collect()
}

const WAIT_ROUNDS: u32 = if cfg!(loom) { 2 } else { 1024 };
