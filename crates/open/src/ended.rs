//! Describes how a session ended, as data.

use lastwords_folders::{Ended, Ending};
use serde::Serialize;

/// The way and time at which a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EndedReport {
    /// `closed`, `error`, `panic`, `signal`, `exit` or `killed`.
    pub how: &'static str,
    /// Nanoseconds since the epoch. For a killed session, it is the time when it was last seen alive.
    #[serde(serialize_with = "as_text")]
    pub at_ns: u64,
    /// The process that ended it, or 0 if that is unknown.
    pub pid: u32,
    /// The number of the signal, or the exit status.
    pub number: Option<u8>,
}

/// Writes a number as text, because JSON readers lose digits of large numbers.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn as_text<S: serde::Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

impl EndedReport {
    /// Returns how a session ended. A process that was killed was alive at its newest event, which may be later than what the session
    /// knows. `newest` reads all events, so it is called only then.
    pub(crate) fn with_newest(self, newest: impl FnOnce() -> Option<i64>) -> Self {
        let newest = Some(newest).filter(|_| self.how == "killed");
        let newest = newest.and_then(|newest| newest()).and_then(|newest| u64::try_from(newest).ok());
        Self { at_ns: self.at_ns.max(newest.unwrap_or(0)), ..self }
    }
}

impl From<Ended> for EndedReport {
    fn from(ended: Ended) -> Self {
        let (how, number) = match ended.how {
            Ending::Closed(status) => ("closed", status),
            Ending::Error => ("error", None),
            Ending::Panic => ("panic", None),
            Ending::Signal(number) => ("signal", Some(number)),
            Ending::Exit(status) => ("exit", status),
            Ending::Killed => ("killed", None),
        };
        Self { how, at_ns: ended.at, pid: ended.pid, number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_was_alive_at_its_newest_event() {
        let at = |how, newest| EndedReport { how, number: None, pid: 0, at_ns: 5 }.with_newest(|| newest).at_ns;
        assert_eq!(
            [at("killed", Some(9)), at("killed", Some(3)), at("killed", Some(-1)), at("killed", None)],
            [9, 5, 5, 5]
        );
        assert_eq!(at("exit", Some(9)), 5, "who ends it knows when");
    }
}
