//! Limits how many refusals a receiver reports. Anybody who reaches it can connect in a loop, and
//! each line goes into the log of whoever runs it.

use super::Told;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time for which [`MOST`] refusals are reported.
const PERIOD: Duration = Duration::from_secs(60);
/// Most refusals that are reported in this time, of all peers.
const MOST: u64 = 100;

/// The refusals of a program that listens, of which so many are reported in a minute.
///
/// ```
/// let refusals = lastwords_stream::Refusals::default();
/// assert_eq!(refusals.limited("no".to_owned()).as_deref(), Some("no"));
/// ```
#[derive(Debug, Default)]
pub struct Refusals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the period began; none before the first refusal.
    since: Option<Instant>,
    /// Refusals that were reported in the period.
    reported: u64,
    /// Refusals that were not reported since the last one that was.
    left_out: u64,
}

impl Refusals {
    /// Returns what is to be reported, with the number of refusals that were left out before; none
    /// if it is a refusal, and there were too many.
    pub(super) fn admit(&self, told: Told) -> Option<Told> {
        let Told::Refused { peer, why } = told else { return Some(told) };
        self.limited(why).map(|why| Told::Refused { peer, why })
    }

    /// Returns the text of a refusal that is to be reported, with the number of refusals that were
    /// left out before; none if there were too many.
    #[must_use]
    pub fn limited(&self, why: String) -> Option<String> {
        self.limited_at(why, Instant::now())
    }

    fn limited_at(&self, mut why: String, now: Instant) -> Option<String> {
        let state = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            (state.since, state.reported) = (Some(now), 0);
        }
        if state.reported >= MOST {
            state.left_out = state.left_out.saturating_add(1);
            return None;
        }
        state.reported = state.reported.saturating_add(1);
        let left_out = std::mem::take(&mut state.left_out);
        if left_out > 0 {
            why.push_str(&format!(" (refused before, without a line: {left_out})"));
        }
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_limited_and_those_left_out_are_counted() {
        let (refusals, begun) = (Refusals::default(), Instant::now());
        let refused = |now| refusals.limited_at("w".into(), now);
        for _ in 0..MOST {
            assert_eq!(refused(begun).as_deref(), Some("w"));
        }
        for second in 0..5 {
            assert_eq!(refused(begun + Duration::from_secs(second)), None);
        }
        // Other messages are always reported.
        let other = Told::Listening { address: "a".into() };
        assert!(matches!(refusals.admit(other), Some(Told::Listening { .. })));
        let next = refused(begun + PERIOD);
        assert_eq!(next.as_deref(), Some("w (refused before, without a line: 5)"));
        assert_eq!(refused(begun + PERIOD).as_deref(), Some("w"));
    }
}
