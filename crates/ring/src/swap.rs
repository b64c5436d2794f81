//! Exchanges live and spare halves for a snapshot, while recording continues.
//!
//! One store to the session's flip word (or to one stream's) moves all recorders to the other half.
//! Events recorded before the store are in the old half; events recorded after it are not. Then the
//! swap waits until no recorder writes in the old half. Sections that still run are restarted and
//! see the new half. Lockless reservations are refused in the old half from then on, and the swap
//! waits for those that exist. The swap holds the locks of locked streams across the store.

use lastwords_abi::session::Thread;
use lastwords_abi::stream::{ANY_CPU, CLOSED_BIT};
use lastwords_abi::sync::Ordering::{AcqRel, Acquire, SeqCst};

use crate::channel::SessionParts;
use crate::flush;
use crate::hooks::{fault, point};
use crate::os::{self, Lock};
use crate::stream::Stream;
use crate::threads;

/// Recorders for which the swap could not confirm that they have left the old half.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rest {
    /// CPUs on which this thread may not run. The swap only waited for their sections.
    pub unvisited: Vec<u32>,
    /// Number of reservations of living threads that were not finished in bounded time.
    pub in_flight: usize,
}

/// A swap of all streams of a session, or of one.
#[derive(Debug)]
pub struct Swap<'a> {
    /// The session.
    pub parts: SessionParts,
    /// The streams to swap.
    pub streams: &'a [&'a Stream],
    /// The streams are all streams of the session, so one store swaps them. Otherwise each stream
    /// is swapped by its own store.
    pub are_all: bool,
    /// All recorders are threads of this process, so one system call restarts the sections that
    /// still run in the old half. If other processes record, this thread runs briefly on each CPU
    /// instead.
    pub is_alone: bool,
    /// The streams are in persistent memory: what says which half is live is written back before
    /// locked recorders enter the other half. A lockless recorder may enter it a moment earlier.
    pub persists: bool,
}

/// A living recorder held the lock of a locked stream, or was still writing in the spare of a
/// lockless one, for longer than the swap waits. Nothing was swapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHeld {
    /// Process of the recorder; 0 when unknown.
    pub owner: u32,
}

impl Swap<'_> {
    /// Swaps the halves.
    ///
    /// # Errors
    /// A living recorder held a stream's lock, or is still in the spare. Nothing was changed,
    /// except that the spare may be empty.
    ///
    /// # Safety
    /// The spare halves have memory, and nobody else swaps these streams meanwhile.
    pub unsafe fn run(&self) -> Result<Rest, LockHeld> {
        let chosen = self.streams;
        for stream in chosen {
            // If the last swap stopped waiting for a recorder, that recorder would add to counters
            // that belong to others after the reset.
            if !fault!(NoWaitForSpare) {
                close_spare(self.parts, stream)?;
            }
            // SAFETY: this is the spare, because nobody else swaps, and `close_spare` has found no
            // living recorder in it.
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
        // SAFETY: these are the spares, because nobody else swaps, and `close_spare` has found no
        // living recorder in them.
        chosen.iter().for_each(|s| unsafe { s.keep_ahead(self.parts.live_half(s) ^ 1) });
        if self.persists {
            chosen.iter().for_each(|s| s.persist_control());
            flush::fence();
        }
        point!(Swapping);
        let one_word = self.are_all.then_some(self.parts.flip);
        let a_word_each = chosen.iter().filter(|_| !self.are_all).map(|s| &s.control.flip);
        for flip in one_word.into_iter().chain(a_word_each) {
            flip.fetch_xor(1, SeqCst);
            if self.persists {
                // SAFETY: the word is mapped.
                unsafe { flush::flush(core::ptr::from_ref(flip).cast(), size_of_val(flip)) };
            }
        }
        if self.persists {
            flush::fence();
        }
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
            rest.unvisited =
                os::visit_cpus(chosen.iter().map(|s| s.spec.cpu).filter(|&c| c != ANY_CPU));
        }
        rest
    }
}

/// Closes the spare of a lockless stream and waits until no living recorder is left in it. There
/// must be no swap during the call. The contents of the spare stay, and no recorder enters it
/// before a swap has reset it. Other kinds of streams need no wait: their recorders have left the
/// half when the swap returns.
///
/// # Errors
/// A living recorder is still in the spare.
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

/// Waits for the reservations of living threads in a closed half. Returns the threads that still
/// have one after a bounded time.
fn wait_for_reservations<'a>(
    threads: &'a [Thread],
    stream: &Stream,
    half: usize,
) -> Vec<&'a Thread> {
    let target = stream.target(half);
    let writers = || threads::living(threads, |level| level.target.load(Acquire) == target);
    (0..WAIT_ROUNDS).take_while(|_| writers().next().is_some()).for_each(os::pause);
    writers().collect()
}

const WAIT_ROUNDS: u32 = if cfg!(loom) { 2 } else { 1024 };
