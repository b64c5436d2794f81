//! What the control group of a session's process shows of its end.
//!
//! The group's counter of OOM kills does not say which processes they were: it is a hint. The line
//! of the kernel's log that all processes of the group are killed (`memory.oom.group`, as systemd
//! and Kubernetes set it) is a proof.

use crate::{RecoveredSession, escape};
use lastwords_folders::ControlGroup;
use lastwords_trace::schema::EnvValue;
use lastwords_trace::source::Source as _;
use std::path::Path;

/// Returns the group that a session has recorded.
pub(super) fn recorded(found: &RecoveredSession) -> Option<ControlGroup> {
    match found.session.schema().env.get(ControlGroup::PROPERTY)? {
        EnvValue::Text(text) => ControlGroup::parse(text),
        EnvValue::Integer(_) => None,
    }
}

/// Returns what the counter shows now, in words; none if the group is gone. `root` is where control
/// groups are mounted.
pub(super) fn hint(group: &ControlGroup, root: &Path) -> Option<String> {
    let kills = group.oom_kills_now(root)?.saturating_sub(group.oom_kills);
    let path = escape(&group.path);
    Some(match kills {
        0 => format!(
            "no process of the session's control group, {path}, was killed because memory ran out since the session began"
        ),
        _ => format!(
            "the OOM killer killed {} of the session's control group, {path}, since the session began; its counter does not say which",
            if kills == 1 { "1 process".to_owned() } else { format!("{kills} processes") },
        ),
    })
}
