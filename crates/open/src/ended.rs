//! Describes how a session ended, as data.

use lastwords_folders::{Ended, Ending};
use serde::Serialize;
use serde::ser::SerializeStruct as _;

/// The way and time at which a session ended. As data it has `how` in one word, `at_ns` as text,
/// because JSON readers lose digits of large numbers, `pid`, and the `number` of the signal or the
/// exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedReport(pub Ended);

impl Serialize for EndedReport {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Ended { how, at, pid } = self.0;
        let mut report = serializer.serialize_struct("EndedReport", 4)?;
        report.serialize_field("how", how.name())?;
        report.serialize_field("at_ns", &at.to_string())?;
        report.serialize_field("pid", &pid)?;
        report.serialize_field("number", &how.number())?;
        report.end()
    }
}

/// Returns how a session ended. A process that was killed was alive at its newest event, which may
/// be later than what the session knows. `newest` reads all events, so it is called only then.
pub(crate) fn with_newest(ended: Ended, newest: impl FnOnce() -> Option<i64>) -> Ended {
    let newest = Some(newest).filter(|_| ended.how == Ending::Killed);
    let newest = newest.and_then(|newest| newest()).and_then(|newest| u64::try_from(newest).ok());
    Ended { at: ended.at.max(newest.unwrap_or(0)), ..ended }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_was_alive_at_its_newest_event() {
        let at = |how, newest| with_newest(Ended { how, pid: 0, at: 5 }, || newest).at;
        let killed = Ending::Killed;
        assert_eq!(
            [at(killed, Some(9)), at(killed, Some(3)), at(killed, Some(-1)), at(killed, None)],
            [9, 5, 5, 5]
        );
        assert_eq!(at(Ending::Exit(None), Some(9)), 5, "who ends it knows when");
    }

    #[test]
    fn an_end_as_data() {
        let ended = Ended { how: Ending::Signal(Some(11)), at: u64::MAX, pid: 7 };
        let expected = r#"{"how":"signal","at_ns":"18446744073709551615","pid":7,"number":11}"#;
        assert_eq!(serde_json::to_string(&EndedReport(ended)).unwrap(), expected);
    }
}
