//! How many snapshots triggers may take.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;

use lastwords_abi::sync::AtomicU64;
use lastwords_abi::triggers::Triggers;

use super::session_region::SessionRegion;
use super::window::Window;

/// How many snapshots the triggers of a session may take, and whether these are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) most: u32,
    pub(crate) period: Duration,
    pub(crate) saves: bool,
    pub(crate) window: Window,
}

impl Default for Limits {
    fn default() -> Self {
        Self { most: 4, period: Duration::from_secs(60), saves: true, window: Window::default() }
    }
}

/// Writes the limits of a new session.
pub(crate) fn init(view: &SessionRegion, limits: Limits) {
    let triggers = view.triggers();
    triggers.most.store(limits.most.max(1), Relaxed);
    triggers.period.store(limits.period.as_nanos().try_into().unwrap_or(u64::MAX), Relaxed);
    triggers.saves.store(u32::from(limits.saves), Relaxed);
    let (before, after) = limits.window.words();
    triggers.before.store(before, Relaxed);
    triggers.after.store(after, Relaxed);
}

/// Returns the number of snapshots and the nanoseconds of the session's limit.
pub(crate) fn limit(triggers: &Triggers) -> (u32, u64) {
    (triggers.most.load(Relaxed), triggers.period.load(Relaxed))
}

/// Takes one of `most` places in a period, if there is one. `used_to` is the time up to which
/// places are taken.
pub(crate) fn is_within_limit((most, period): (u32, u64), used_to: &AtomicU64, now: u64) -> bool {
    let each = period / u64::from(most.max(1));
    let next = |due: u64| {
        // A time that is too far ahead is that of another boot.
        let due = if due > now.saturating_add(period) { now } else { due.max(now) };
        let next = due.saturating_add(each);
        (next - now <= period).then_some(next)
    };
    used_to.fetch_update(AcqRel, Acquire, next).is_ok()
}
