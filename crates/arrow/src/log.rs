//! The table `log`: the lines of the kernel's log, and the log records of sessions.

use crate::crash::Crash;
use crate::events::{Seen, TraceFacts};
use crate::rows::{Cell, Rows};
use crate::schema::Table;
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use lastwords_open::Machine;
use lastwords_trace::class::LogLevel;

/// Returns true if the message of an event is a log record: the event has a severity, as those of
/// `tracing` and `log` have.
pub(crate) fn is_record(seen: &Seen<'_>) -> bool {
    seen.message.is_some() && seen.kind.level.is_some()
}

/// The rows of `log`.
pub(crate) struct LogRows(Rows);

impl LogRows {
    pub(crate) fn new() -> Self {
        Self(Rows::new(Table::Log.schema()))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.count()
    }

    /// Returns the rows, and begins anew.
    ///
    /// # Errors
    /// The batch cannot be built.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        self.0.finish()
    }

    /// Adds the log record of an event.
    pub(crate) fn record(&mut self, seen: &Seen<'_>, facts: &TraceFacts) {
        let before = facts.end.zip(seen.time).and_then(|(end, at)| end.checked_sub(at));
        let level = seen.kind.level;
        self.0.row(&[
            Cell::Text(Some(&facts.crash_id)),
            Cell::Text(Some(&facts.name)),
            Cell::Number(seen.time),
            Cell::Time(seen.time.filter(|_| facts.is_dated)),
            Cell::Number(before),
            Cell::Number(level.map(|level| level.number().into())),
            Cell::Text(level.map(LogLevel::word)),
            Cell::Number(None),
            Cell::Number(seen.tid),
            Cell::Number(seen.pid),
            Cell::Text(seen.kind.provider.as_deref()),
            Cell::Text(seen.message),
        ]);
    }

    /// Adds the lines of the kernel's log. `end` is the time of the newest event of the crash, in
    /// nanoseconds since the epoch. `is_hidden` says that nobody shall see the text.
    pub(crate) fn kernel(
        &mut self,
        crash: &Crash,
        machine: &Machine,
        end: Option<i64>,
        is_hidden: bool,
    ) {
        let Some(kernel) = &machine.kernel else { return };
        let offset = machine.log_real_time();
        for record in kernel.log().rows {
            let since_boot = i64::try_from(record.time).ok();
            let dated = since_boot.zip(offset).and_then(|(time, offset)| time.checked_add(offset));
            let level = LogLevel::from_number(record.level.into());
            let text = if is_hidden { "<redacted>" } else { record.text.as_str() };
            self.0.row(&[
                Cell::Text(Some(&crash.id)),
                Cell::Text(None),
                Cell::Number(dated.or(since_boot)),
                Cell::Time(dated),
                Cell::Number(end.zip(dated).and_then(|(end, at)| end.checked_sub(at))),
                Cell::Number(Some(record.level.into())),
                Cell::Text(level.map(LogLevel::word)),
                Cell::Number(Some(record.facility.into())),
                Cell::Number(None),
                Cell::Number(None),
                Cell::Text(None),
                Cell::Text(Some(text)),
            ]);
        }
    }
}
