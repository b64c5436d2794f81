//! What a trigger leads to.

use std::path::PathBuf;

use super::Error;

/// The effect of a trigger on a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A snapshot.
    Snapshot,
    /// A snapshot that the session's thread takes, as soon as the one before is saved.
    Waits,
    /// A snapshot that the session's thread takes when the trigger's window ends.
    Later,
    /// Nothing: too many snapshots were taken in a short time.
    Limited,
    /// Nothing: snapshots are not enabled.
    NoSnapshots,
    /// Recording stops.
    Stop,
    /// Recording starts.
    Start,
    /// Events are enabled.
    Enable,
    /// Events are disabled.
    Disable,
    /// Nothing: the rules of the session could not be changed.
    NoRules,
}

impl Outcome {
    /// Returns the word that the trigger's event has.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Waits => "snapshot by the session's thread",
            Self::Later => "snapshot at the end of the window",
            Self::Limited => "limited",
            Self::NoSnapshots => "snapshots are not enabled",
            Self::Stop => "recording stops",
            Self::Start => "recording starts",
            Self::Enable => "events are enabled",
            Self::Disable => "events are disabled",
            Self::NoRules => "the rules could not be changed",
        }
    }
}

/// The outcome of the listener's work, for the event that reports it.
#[derive(Debug)]
pub(crate) enum Done {
    Saved { folder: PathBuf, snapshot: u32, removed: u32 },
    Failed { snapshot: u32, error: Error },
}
