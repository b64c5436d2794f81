//! Tells which sessions are live.

use lastwords::remote_control::{Handle, State, Summary};
use std::path::Path;

/// Returns true if a process records in the session, or if that is unknown.
#[must_use]
pub fn is_live_summary(summary: &Summary) -> bool {
    summary.details.as_ref().is_ok_and(|d| matches!(d.state, State::Live | State::Unknown))
}

/// Returns true if a process records in the session of a folder, or if that is unknown.
#[must_use]
pub fn is_live(folder: &Path) -> bool {
    Handle::open(folder).is_ok_and(|handle| is_live_summary(&handle.summary()))
}
