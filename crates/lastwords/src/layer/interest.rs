//! Tells `tracing` which callsites the subscriber wants. `tracing` remembers one answer for each: `always` spares an event of a wanted
//! callsite the question, and `sometimes` asks for each event. Each answer leads to the same events in the sessions, because the
//! subscriber looks at the site of an event in any case. So an answer may be old for a while: the listener's thread makes `tracing` ask again.

use std::panic::catch_unwind;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use lastwords_ring::{ClockKind, os};
use tracing_core::subscriber::{Interest, NoSubscriber};
use tracing_core::{Metadata, dispatcher};

use super::site;
use crate::session::listener;

/// True once `tracing` has asked. The accesses of this module order no other memory.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// True if an answer is old. Threads that evaluate sites set it, and [`renew`] clears it.
static IS_OLD: AtomicBool = AtomicBool::new(false);
/// Time of CLOCK_MONOTONIC before which `tracing` is not made to ask again.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// Least time between two such times, in nanoseconds: a program reaches most of its callsites when it starts.
const LEAST: u64 = 200_000_000;

/// Returns the answer for a callsite.
pub(super) fn in_callsite(metadata: &'static Metadata<'static>) -> Interest {
    IS_ASKED.store(true, Relaxed);
    match !metadata.is_event() || site::is_wanted_now(metadata) {
        true => Interest::always(),
        false => Interest::sometimes(),
    }
}

/// Notes that the answer for a site is old, and wakes the thread that makes `tracing` ask again. Async-signal-safe.
pub(super) fn changed() {
    if IS_ASKED.load(Relaxed) && !IS_OLD.swap(true, Relaxed) {
        listener::tell();
    }
}

/// Makes `tracing` ask for all callsites again, if an answer is old. The listener's thread calls it.
///
/// Answers stay old in two cases. In a forked child, another thread of the parent may have held a lock of `tracing`. In a program
/// without a subscriber for all threads, `tracing` may ask the calling thread's subscriber alone, and this thread has none.
pub(crate) fn renew() {
    let now = ClockKind::Monotonic.now();
    if !IS_OLD.load(Relaxed) || now < NOT_BEFORE.load(Relaxed) || os::is_forked() {
        return;
    }
    if dispatcher::get_default(|of| of.is::<NoSubscriber>()) {
        return;
    }
    NOT_BEFORE.store(now.saturating_add(LEAST), Relaxed);
    IS_OLD.store(false, Relaxed);
    // Other subscribers are asked too. A panic there must not end the application.
    drop(catch_unwind(tracing_core::callsite::rebuild_interest_cache));
}
