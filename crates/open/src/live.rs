//! Which sessions live.

use lastwords::remote_control::{Handle, State, Summary};
use std::path::Path;

/// Someone records in the session, or may.
#[must_use]
pub fn is_live_summary(summary: &Summary) -> bool {
    summary.details.as_ref().is_ok_and(|d| matches!(d.state, State::Live | State::Unknown))
}

/// Someone records in the session of a folder, or may.
#[must_use]
pub fn is_live(folder: &Path) -> bool {
    Handle::open(folder).is_ok_and(|handle| is_live_summary(&handle.summary()))
}
