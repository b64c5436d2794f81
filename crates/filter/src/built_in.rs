//! Names that mean the same for traces of several kinds.

use crate::Name;

/// A name that has the same meaning for traces of several kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltIn {
    /// The CPU.
    Cpu,
    /// The name of the task.
    Comm,
    /// The id of the process.
    Pid,
    /// The id of the thread.
    Tid,
    /// The severity.
    Level,
    /// The whole name of the event.
    Event,
    /// The name of the channel.
    Channel,
}

impl BuiltIn {
    /// Returns what a name means if no field has the name. `$ctx.` may stand before the names that
    /// are contexts.
    #[must_use]
    pub fn from_name(name: &Name) -> Option<Self> {
        let found = match name.plain()? {
            "cpu" | "CPU" | "cpu_id" => Self::Cpu,
            "comm" | "COMM" => Self::Comm,
            "pid" => Self::Pid,
            "tid" | "common_pid" => Self::Tid,
            "level" => Self::Level,
            "event" => Self::Event,
            "channel" => Self::Channel,
            _ => return None,
        };
        let is_context = !matches!(found, Self::Level | Self::Event | Self::Channel);
        (is_context || !name.is_context()).then_some(found)
    }

    /// Returns true for `CPU` and `COMM`, which mean the same where a field has the name.
    #[must_use]
    pub fn is_above_fields(name: &Name) -> bool {
        matches!(name.plain(), Some("CPU" | "COMM"))
    }
}
