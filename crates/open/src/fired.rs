//! The account of a snapshot that a trigger of the kernel took and that `lastwords record` saved: a
//! folder with the trace and this file.

use anyhow::Context as _;
use lastwords_ftrace::{Tracing, Windowed};
use lastwords_trace::evidence::{Cause, Gap};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The name of the file in the folder of a snapshot.
pub const SNAPSHOT_FILE: &str = "snapshot.json";

/// The name of the trace in the folder of a snapshot.
pub const SNAPSHOT_TRACE: &str = "trace.dat";

/// The version of the file.
const SCHEMA: &str = "lastwords.kernel-snapshot.v1";

/// A snapshot: why and when it was taken, and which of its events are around that moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    schema: String,
    /// The number of the snapshot in its recording, from 1.
    pub number: u32,
    /// The events that fired, as `SYSTEM:EVENT`: several if they fired before the first was saved.
    pub events: Vec<String>,
    /// The time of the last event before the swap, in readings of the instance's clock: the moment
    /// of the trigger.
    pub at: u64,
    /// The first reading of the window; none for all that the rings had.
    pub begin: Option<u64>,
    /// The last reading that the snapshot before has: what was recorded earlier is in that one;
    /// none for the first.
    #[serde(default)]
    pub since: Option<u64>,
    /// The last reading of the window; none if nothing is cut at its end.
    pub end: Option<u64>,
    /// The nanoseconds since the snapshot before, or the begin, during which no trigger was set:
    /// while that was saved, and while the limit held. A trigger that would have fired then is not
    /// known.
    pub unset: u64,
    /// The part of `unset` that is the limit's.
    pub limited: u64,
}

impl Fired {
    /// Makes an account with a moment, of all that the rings had.
    #[must_use]
    pub fn new(number: u32, events: Vec<String>, at: u64) -> Self {
        Self { schema: SCHEMA.to_owned(), number, events, at, ..Self::default() }
    }

    /// Reads the account in the folder of a snapshot; none if it is the folder of no snapshot.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version.
    pub fn of_snapshot(folder: &Path) -> anyhow::Result<Option<Self>> {
        Self::beside(&folder.join(SNAPSHOT_TRACE))
    }

    /// Reads the account beside a trace; none if the trace is not that of a snapshot.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version.
    pub(crate) fn beside(trace: &Path) -> anyhow::Result<Option<Self>> {
        if trace.file_name().is_none_or(|name| name != SNAPSHOT_TRACE) {
            return Ok(None);
        }
        let path = trace.with_file_name(SNAPSHOT_FILE);
        if !std::fs::symlink_metadata(&path)
            .is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 20)
        {
            return Ok(None);
        }
        let named = || path.display().to_string();
        let read: Self =
            serde_json::from_reader(File::open(&path).with_context(named)?).with_context(named)?;
        anyhow::ensure!(
            read.schema == SCHEMA,
            "{}: it has the form {}, not {SCHEMA}",
            named(),
            read.schema
        );
        anyhow::ensure!(
            read.begin.unwrap_or(0) <= read.end.unwrap_or(u64::MAX),
            "{}: its window ends before it begins",
            named()
        );
        Ok(Some(read))
    }

    /// Cuts the rings of a trace to the window. Returns remarks about the snapshot.
    pub(crate) fn apply(&self, tracing: &mut Tracing, whole: bool) -> Vec<String> {
        let mut notes =
            vec![format!("snapshot {}, which {} took", self.number, self.events.join(" and "))];
        let seconds = |ns: u64| format!("{}.{:03} s", ns / 1_000_000_000, ns / 1_000_000 % 1000);
        if self.unset > 0 {
            let limit = if self.limited > 0 {
                format!(", {} of it for the limit", seconds(self.limited))
            } else {
                String::new()
            };
            notes.push(format!(
                "no trigger was set for {} before it{limit}: what would have fired then is not known",
                seconds(self.unset)
            ));
        }
        if whole || (self.begin.is_none() && self.end.is_none()) {
            return notes;
        }
        notes.push(
            "only the window of the trigger is shown; --whole shows all that was saved".to_owned(),
        );
        if let Some(missing) =
            self.begin.zip(self.since).and_then(|(begin, since)| since.checked_sub(begin))
        {
            let place = format!(
                "the first {} of the window, up to the snapshot before, which has them",
                seconds(missing)
            );
            tracing.evidence.gaps.push(Gap::new(None, Cause::Consumed, place));
        }
        let window = self.begin.unwrap_or(0)..=self.end.unwrap_or(u64::MAX);
        let (header_page, order) = (tracing.header_page, tracing.byte_order);
        for array in &mut tracing.arrays {
            array.live = Arc::new(Windowed::new(
                Arc::clone(&array.live),
                header_page,
                order,
                window.clone(),
            ));
        }
        notes
    }
}
