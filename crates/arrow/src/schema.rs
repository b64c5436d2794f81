//! The tables and their columns. `book/src/reference/tables.md` describes them.
//!
//! All engines read these types: integers are signed, times are nanoseconds in a BIGINT with a
//! second column in microseconds (Spark refuses timestamps of nanoseconds), and no column is a
//! dictionary (Daft refuses those).

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::collections::HashMap;
use std::sync::Arc;

/// Version of the tables. It changes when a reader of the old ones would misread the new ones.
pub const VERSION: u32 = 1;
/// The key of the version in the metadata of a schema.
pub const VERSION_KEY: &str = "lastwords.tables";

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// One row for each event.
    Events,
    /// One row for each span, system call, function of the kernel and interrupt.
    Slice,
    /// One row for each time that a thread runs on a CPU.
    Sched,
    /// One row for each thread.
    Thread,
    /// One row for each process.
    Process,
    /// One row for each line of a log.
    Log,
    /// One row for each gap and damaged sub-buffer.
    Losses,
    /// One row for each trace.
    Traces,
    /// One row for each crash.
    Crashes,
}

impl Table {
    /// All tables, in the order in which a crash is written: a crash in `crashes` has all its rows
    /// in the other tables.
    pub const ALL: [Self; 9] = [
        Self::Events,
        Self::Slice,
        Self::Sched,
        Self::Thread,
        Self::Process,
        Self::Log,
        Self::Losses,
        Self::Traces,
        Self::Crashes,
    ];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Slice => "slice",
            Self::Sched => "sched",
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Log => "log",
            Self::Losses => "losses",
            Self::Traces => "traces",
            Self::Crashes => "crashes",
        }
    }

    /// Returns the schema.
    #[must_use]
    pub fn schema(self) -> SchemaRef {
        let columns = match self {
            Self::Events => return events(),
            Self::Slice => SLICE,
            Self::Sched => SCHED,
            Self::Thread => THREAD,
            Self::Process => PROCESS,
            Self::Log => LOG,
            Self::Losses => LOSSES,
            Self::Traces => TRACES,
            Self::Crashes => CRASHES,
        };
        with_version(columns.iter().map(|(name, kind)| field(name, *kind)).collect())
    }
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// BIGINT.
    Long,
    /// INTEGER.
    Int,
    /// VARCHAR.
    Text,
    /// BOOLEAN.
    Bool,
    /// TIMESTAMP in microseconds, UTC.
    Time,
}

use Kind::{Bool, Int, Long, Text, Time};

/// The columns of `events` before the promoted fields.
pub(crate) const HEAD: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("trace", Text),
    ("channel", Text),
    ("ts", Long),
    ("time", Time),
    ("before_end_ns", Long),
    ("cpu", Int),
    ("tid", Long),
    ("pid", Long),
    ("comm", Text),
    ("provider", Text),
    ("name", Text),
    ("level", Text),
];

/// The fields that have columns of their own, `f_NAME`: those that questions about kernels and
/// programs filter by.
pub const PROMOTED: &[(&str, Kind)] = &[
    ("comm", Text),
    ("prev_comm", Text),
    ("next_comm", Text),
    ("message", Text),
    ("filename", Text),
    ("name", Text),
    ("pid", Long),
    ("tid", Long),
    ("prev_pid", Long),
    ("next_pid", Long),
    ("prev_tid", Long),
    ("next_tid", Long),
    ("prev_state", Long),
    ("prio", Long),
    ("target_cpu", Long),
    ("irq", Long),
    ("vec", Long),
    ("id", Long),
    ("ret", Long),
    ("fd", Long),
    ("count", Long),
    ("len", Long),
    ("size", Long),
    ("error", Long),
];

/// The columns of `events` after the promoted fields.
pub(crate) const TAIL: &[(&str, Kind)] = &[("fields", Text), ("context", Text)];

const CRASHES: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("ts", Long),
    ("time", Time),
    ("is_last_seen", Bool),
    ("host", Text),
    ("kind", Text),
    ("name", Text),
    ("program", Text),
    ("release", Text),
    ("arch", Text),
    ("hardware", Text),
    ("bios", Text),
    ("boot_id", Text),
    ("cause", Text),
    ("signal", Int),
    ("exit_status", Int),
    ("why", Text),
    ("panic", Text),
    ("signature", Text),
    ("stack", Text),
    ("crash_cpu", Int),
    ("uptime_ns", Long),
    ("how_ended", Text),
    ("has_losses", Bool),
    ("lost_events", Long),
    ("path", Text),
    ("reader_version", Text),
];

const SLICE: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("trace", Text),
    ("ts", Long),
    ("time", Time),
    ("end_ts", Long),
    ("dur", Long),
    ("is_open", Bool),
    ("category", Text),
    ("name", Text),
    ("cpu", Int),
    ("tid", Long),
    ("pid", Long),
    ("depth", Int),
    ("id", Long),
    ("parent_id", Long),
    ("ret", Long),
];

const SCHED: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("trace", Text),
    ("ts", Long),
    ("time", Time),
    ("end_ts", Long),
    ("dur", Long),
    ("is_open", Bool),
    ("cpu", Int),
    ("tid", Long),
    ("comm", Text),
    ("priority", Int),
    ("end_state", Long),
];

const THREAD: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("trace", Text),
    ("tid", Long),
    ("pid", Long),
    ("name", Text),
    ("is_main_thread", Bool),
    ("is_alive", Bool),
    ("events", Long),
    ("first_ts", Long),
    ("last_ts", Long),
];

const PROCESS: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("pid", Long),
    ("name", Text),
    ("parent_pid", Long),
    ("uid", Long),
    ("is_kernel_thread", Bool),
    ("is_alive", Bool),
    ("start_ts", Long),
    ("start_time", Time),
];

const LOG: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("trace", Text),
    ("ts", Long),
    ("time", Time),
    ("before_end_ns", Long),
    ("severity", Int),
    ("level", Text),
    ("facility", Int),
    ("tid", Long),
    ("pid", Long),
    ("target", Text),
    ("text", Text),
];

const LOSSES: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("trace", Text),
    ("channel", Text),
    ("cpu", Int),
    ("cause", Text),
    ("place", Text),
    ("is_loss", Bool),
    ("events", Long),
    ("bytes", Long),
];

const TRACES: &[(&str, Kind)] = &[
    ("crash_id", Text),
    ("trace", Text),
    ("kind", Text),
    ("clock", Text),
    ("is_dated", Bool),
    ("newest_ts", Long),
    ("streams", Int),
    ("has_losses", Bool),
    ("lost_events", Long),
    ("path", Text),
];

fn field(name: &str, kind: Kind) -> Field {
    let kind = match kind {
        Long => DataType::Int64,
        Int => DataType::Int32,
        Text => DataType::Utf8,
        Bool => DataType::Boolean,
        Time => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))),
    };
    Field::new(name, kind, name != "crash_id")
}

fn with_version(fields: Vec<Field>) -> SchemaRef {
    let version = (VERSION_KEY.to_owned(), VERSION.to_string());
    Arc::new(Schema::new_with_metadata(fields, HashMap::from([version])))
}

fn events() -> SchemaRef {
    let promoted = PROMOTED.iter().map(|(name, kind)| field(&format!("f_{name}"), *kind));
    let of = |columns: &[(&str, Kind)]| -> Vec<Field> {
        columns.iter().map(|(name, kind)| field(name, *kind)).collect()
    };
    with_version(of(HEAD).into_iter().chain(promoted).chain(of(TAIL)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_types_are_those_that_all_engines_read() {
        for table in Table::ALL {
            let schema = table.schema();
            let mut names: Vec<&str> =
                schema.fields().iter().map(|field| field.name().as_str()).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}", table.name());
            for field in schema.fields() {
                let is_plain = matches!(
                    field.data_type(),
                    DataType::Int64 | DataType::Int32 | DataType::Utf8 | DataType::Boolean
                ) || matches!(
                    field.data_type(),
                    DataType::Timestamp(TimeUnit::Microsecond, Some(_))
                );
                assert!(is_plain, "{}.{}: {}", table.name(), field.name(), field.data_type());
            }
        }
        assert_eq!(PROMOTED.len(), 24);
        assert_eq!(PROMOTED[crate::events::MESSAGE], ("message", Text));
    }
}
