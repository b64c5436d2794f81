//! How a session ended, as data.

use lastwords::{Ended, Ending};
use serde::Serialize;

/// How and when a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EndedReport {
    /// `closed`, `error`, `panic`, `signal`, `exit` or `killed`.
    pub how: &'static str,
    /// Nanoseconds since the epoch; of a killed session when it was last seen alive.
    #[serde(serialize_with = "as_text")]
    pub at_ns: u64,
    /// The process that ended it; 0 where nobody said so.
    pub pid: u32,
    /// Number of the signal, or exit status.
    pub number: Option<u8>,
}

/// JSON readers lose digits of such numbers.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn as_text<S: serde::Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
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
