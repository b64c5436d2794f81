//! The state of sessions: whether processes record in them.

use lastwords_control::{Details, Handle, Life, State, Summary, dirs, namespaces};
use lastwords_open::FolderState;
use std::path::{Path, PathBuf};

/// Returns what is known of the session in a folder; none if the folder cannot be read or trusted.
#[must_use]
pub fn state(folder: &Path) -> Option<FolderState> {
    let summary = match Handle::open(folder) {
        Ok(handle) => handle.summary(),
        // Root looks at sessions of others, which it does not map.
        Err(_) => namespaces::look(folder).ok()?.summary,
    };
    let is_live = is_live_summary(&summary);
    let details = summary.details.ok()?;
    let unknown_end = unknown_end(&details);
    Some(FolderState { uuid: details.uuid, is_live, ended: details.ended, unknown_end })
}

/// Returns the folder in which a program of this user would create sessions.
#[must_use]
pub fn sessions_dir() -> PathBuf {
    dirs::base_path()
}

/// Returns why it is not known whether or how the session has ended; none if that is known.
#[must_use]
pub fn unknown_end(details: &Details) -> Option<String> {
    if let Some(why) = details.unseen_end {
        return Some(why.to_owned());
    }
    let unknown = details.processes.iter().filter(|process| process.life == Life::Unknown);
    let pids: Vec<_> = unknown.map(|process| process.pid.to_string()).collect();
    let (of, pids) = (if pids.len() == 1 { "process" } else { "processes" }, pids.join(", "));
    match details.state {
        State::Copied => {
            Some(format!("of {of} {pids}, these copied files do not show whether it had ended"))
        }
        State::Unknown => Some(format!("of {of} {pids}, nothing here shows whether it lives")),
        State::Live | State::LeftOver | State::Finished => None,
    }
}

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
