//! What a condition does when it fires.

use lastwords_abi::triggers::{TRIGGER_DISABLE, TRIGGER_ENABLE, TRIGGER_START};

/// The action of a condition when it fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A snapshot, which is saved, as [`crate::trigger`] describes.
    Snapshot,
    /// Recording stops behind the event, in all processes of the session, until `lastwords start`
    /// or [`Session::resume`](crate::Session::resume).
    Stop,
    /// Recording starts. The session's thread does it, within milliseconds.
    Start,
    /// The events of [`Condition::events`](super::condition::Condition::events) are enabled. The session's thread does it, within
    /// milliseconds.
    Enable,
    /// The events of [`Condition::events`](super::condition::Condition::events) are disabled, likewise.
    Disable,
}

impl Action {
    /// Returns true if the session's thread carries out the action and counts the firing.
    pub(crate) fn is_order(self) -> bool {
        matches!(self, Self::Start | Self::Enable | Self::Disable)
    }

    /// Returns the word of the action in [`Extra::flags`](lastwords_abi::triggers::Extra::flags); 0 for those that the rule of the
    /// condition has.
    pub(crate) fn word(self) -> u32 {
        match self {
            Self::Snapshot | Self::Stop => 0,
            Self::Start => TRIGGER_START,
            Self::Enable => TRIGGER_ENABLE,
            Self::Disable => TRIGGER_DISABLE,
        }
    }

    /// Returns the action by that word. `is_snapshot`: the rule of the condition says so.
    pub(crate) fn from_word(word: u32, is_snapshot: bool) -> Self {
        match word {
            TRIGGER_START => Self::Start,
            TRIGGER_ENABLE => Self::Enable,
            TRIGGER_DISABLE => Self::Disable,
            _ if is_snapshot => Self::Snapshot,
            _ => Self::Stop,
        }
    }
}
