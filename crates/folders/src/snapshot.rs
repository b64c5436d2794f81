//! The state of a session's snapshot.

use lastwords_abi::session as abi;

/// The state of a session's snapshot, by its number in the control area of the session
/// (docs/ABI.md).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SnapshotState {
    /// The session has no spare memory for one.
    #[default]
    Off,
    /// There is none.
    Ready,
    /// One is being taken, or the process died that took it.
    Swapping,
    /// There is one.
    Taken,
    /// There is one, and a process reads it.
    Reading,
    /// A state of a later version.
    Unknown,
}

impl SnapshotState {
    /// Returns the state of a number.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        match number {
            abi::SNAPSHOT_OFF => Self::Off,
            abi::SNAPSHOT_READY => Self::Ready,
            abi::SNAPSHOT_SWAPPING => Self::Swapping,
            abi::SNAPSHOT_TAKEN => Self::Taken,
            abi::SNAPSHOT_READING => Self::Reading,
            _ => Self::Unknown,
        }
    }

    /// Returns the state in one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Ready => "ready",
            Self::Swapping => "swapping",
            Self::Taken => "taken",
            Self::Reading => "reading",
            Self::Unknown => "unknown",
        }
    }

    /// Returns true if there is a snapshot.
    #[must_use]
    pub fn is_there(self) -> bool {
        matches!(self, Self::Taken | Self::Reading)
    }
}
