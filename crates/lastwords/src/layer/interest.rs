//! Tells `tracing` which callsites the subscriber wants. `tracing` remembers one answer for each:
//! `always` spares an event of a wanted callsite the question, and `sometimes` asks for each event.
//! Each answer leads to the same events in the sessions, because the subscriber looks at the site
//! of an event in any case. So an answer may be old for a while: the listener's thread makes
//! `tracing` ask again.

use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use lastwords_ring::{ClockKind, forks};
use tracing_core::subscriber::{Interest, NoSubscriber};
use tracing_core::{Metadata, dispatcher};

use crate::session::listener;

/// The function that makes `tracing` ask again; none before it has asked once. So a library that
/// has no subscriber does not contain the function, nor the memory that `tracing` wants of each
/// thread.
static ASK_AGAIN: OnceLock<fn()> = OnceLock::new();
/// True if an answer is old. Threads that evaluate sites set it, and [`ask_again`] clears it. The
/// accesses of this module order no other memory.
static IS_OLD: AtomicBool = AtomicBool::new(false);
/// Time of CLOCK_MONOTONIC before which `tracing` is not made to ask again.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// Least time between two such times, in nanoseconds: a program reaches most of its callsites when
/// it starts.
const LEAST: u64 = 200_000_000;

/// Returns the answer for a callsite. `is_wanted_now` is asked for events, once changes are noted.
pub(super) fn in_callsite(
    metadata: &'static Metadata<'static>,
    is_wanted_now: impl FnOnce(&'static Metadata<'static>) -> bool,
) -> Interest {
    ASK_AGAIN.get_or_init(|| ask_again);
    match !metadata.is_event() || is_wanted_now(metadata) {
        true => Interest::always(),
        false => Interest::sometimes(),
    }
}

/// Notes that the answer for a site is old, and wakes the thread that makes `tracing` ask again.
/// Async-signal-safe.
pub(super) fn changed() {
    if ASK_AGAIN.get().is_some() && !IS_OLD.swap(true, Relaxed) {
        listener::tell();
    }
}

/// Makes `tracing` ask for all callsites again, if an answer is old. The listener's thread calls
/// it.
pub(crate) fn renew() {
    if IS_OLD.load(Relaxed)
        && let Some(ask_again) = ASK_AGAIN.get()
    {
        ask_again();
    }
}

/// Makes `tracing` ask for all callsites again.
///
/// Answers stay old in two cases. In a forked child, another thread of the parent may have held a
/// lock of `tracing`. In a program without a subscriber for all threads, `tracing` may ask the
/// calling thread's subscriber alone, and this thread has none.
fn ask_again() {
    let now = ClockKind::Monotonic.now();
    if now < NOT_BEFORE.load(Relaxed) || forks::is_forked() {
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
