//! The names of the tree: which path is which file or folder.

use crate::catalog::MARKER;

/// A place in the tree below a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Folder(Folder),
    File(File, Subject),
}

/// A folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Folder {
    /// The session itself.
    Session,
    Events,
    Provider(String),
    Event(String, String),
    Options,
    PerCpu,
    Cpu(u32),
}

/// The subject of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    Session,
    Cpu(u32),
    Provider(String),
    Event(String, String),
}

/// A file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum File {
    AvailableEvents,
    AvailableTracers,
    BufferPercent,
    BufferSize,
    BufferSubBufSize,
    BufferTotalSize,
    CpuMask,
    CurrentTracer,
    Enable,
    ErrorLog,
    Filter,
    Format,
    FreeBuffer,
    HeaderEvent,
    HeaderPage,
    Id,
    OptionEventFork,
    OptionMarkers,
    OptionOverwrite,
    Readme,
    SavedCmdlines,
    SavedCmdlinesSize,
    SavedTgids,
    SetEvent,
    SetEventNotracePid,
    SetEventPid,
    Snapshot,
    SnapshotEnabled,
    SnapshotPipe,
    SnapshotRaw,
    Stats,
    Trace,
    TraceClock,
    TraceMarker,
    TraceMarkerRaw,
    TraceOptions,
    TracePipe,
    TracePipeRaw,
    TracingOn,
    Trigger,
    Unread,
}

/// The files of a session.
const SESSION: &[(&str, File)] = &[
    ("README", File::Readme),
    ("available_events", File::AvailableEvents),
    ("available_tracers", File::AvailableTracers),
    ("buffer_percent", File::BufferPercent),
    ("buffer_size_kb", File::BufferSize),
    ("buffer_subbuf_size_kb", File::BufferSubBufSize),
    ("buffer_total_size_kb", File::BufferTotalSize),
    ("current_tracer", File::CurrentTracer),
    ("error_log", File::ErrorLog),
    ("free_buffer", File::FreeBuffer),
    ("saved_cmdlines", File::SavedCmdlines),
    ("saved_cmdlines_size", File::SavedCmdlinesSize),
    ("saved_tgids", File::SavedTgids),
    ("set_event", File::SetEvent),
    ("set_event_notrace_pid", File::SetEventNotracePid),
    ("set_event_pid", File::SetEventPid),
    ("snapshot", File::Snapshot),
    ("snapshot_enabled", File::SnapshotEnabled),
    ("snapshot_pipe", File::SnapshotPipe),
    ("trace", File::Trace),
    ("trace_clock", File::TraceClock),
    ("trace_marker", File::TraceMarker),
    ("trace_marker_raw", File::TraceMarkerRaw),
    ("trace_options", File::TraceOptions),
    ("trace_pipe", File::TracePipe),
    ("tracing_cpumask", File::CpuMask),
    ("tracing_on", File::TracingOn),
];
const EVENTS: &[(&str, File)] = &[
    ("enable", File::Enable),
    ("header_event", File::HeaderEvent),
    ("header_page", File::HeaderPage),
];
const PROVIDER: &[(&str, File)] = &[("enable", File::Enable), ("filter", File::Filter)];
const EVENT: &[(&str, File)] = &[
    ("enable", File::Enable),
    ("filter", File::Filter),
    ("format", File::Format),
    ("id", File::Id),
    ("trigger", File::Trigger),
];
const OPTIONS: &[(&str, File)] = &[
    ("event-fork", File::OptionEventFork),
    ("markers", File::OptionMarkers),
    ("overwrite", File::OptionOverwrite),
];
const CPU: &[(&str, File)] = &[
    ("buffer_size_kb", File::BufferSize),
    ("snapshot", File::Snapshot),
    ("snapshot_raw", File::SnapshotRaw),
    ("stats", File::Stats),
    ("trace", File::Trace),
    ("trace_pipe", File::TracePipe),
    ("trace_pipe_raw", File::TracePipeRaw),
];

impl Folder {
    /// Returns the files that the folder always has.
    pub(crate) fn files(&self) -> &'static [(&'static str, File)] {
        match self {
            Self::Session => SESSION,
            Self::Events => EVENTS,
            Self::Provider(_) => PROVIDER,
            Self::Event(..) => EVENT,
            Self::Options => OPTIONS,
            Self::PerCpu => &[],
            Self::Cpu(_) => CPU,
        }
    }

    pub(crate) fn subject(&self) -> Subject {
        match self {
            Self::Provider(provider) => Subject::Provider(provider.clone()),
            Self::Event(provider, event) => Subject::Event(provider.clone(), event.clone()),
            Self::Cpu(cpu) => Subject::Cpu(*cpu),
            _ => Subject::Session,
        }
    }
}

impl File {
    /// Returns the permissions.
    pub(crate) fn mode(self) -> u16 {
        match self {
            Self::AvailableEvents
            | Self::AvailableTracers
            | Self::BufferTotalSize
            | Self::Format
            | Self::HeaderEvent
            | Self::HeaderPage
            | Self::Id
            | Self::Readme
            | Self::SavedCmdlines
            | Self::SavedTgids
            | Self::SnapshotPipe
            | Self::SnapshotRaw
            | Self::Stats
            | Self::TracePipe
            | Self::TracePipeRaw
            | Self::Unread => 0o400,
            Self::FreeBuffer | Self::TraceMarker | Self::TraceMarkerRaw => 0o200,
            _ => 0o600,
        }
    }
}

impl Place {
    /// Returns true for files that the events of `trace_marker` do not have, because nothing
    /// disables them.
    pub(crate) fn is_hidden(&self) -> bool {
        match self {
            Self::File(File::Enable | File::Filter, Subject::Provider(provider)) => {
                provider == MARKER
            }
            Self::File(File::Enable, Subject::Event(provider, _)) => provider == MARKER,
            _ => false,
        }
    }
}

/// Returns the place of a path below a session. Whether the provider, event or CPU exists is not
/// looked at.
pub(crate) fn place(parts: &[&str]) -> Option<Place> {
    let mut folder = Folder::Session;
    for (at, part) in parts.iter().enumerate() {
        if let Some((_, file)) = folder.files().iter().find(|(name, _)| name == part) {
            return (at + 1 == parts.len()).then(|| Place::File(*file, folder.subject()));
        }
        folder = match (folder, *part) {
            (Folder::Session, "events") => Folder::Events,
            (Folder::Session, "options") => Folder::Options,
            (Folder::Session, "per_cpu") => Folder::PerCpu,
            (Folder::Events, provider) => Folder::Provider(provider.to_owned()),
            (Folder::Provider(provider), event) => Folder::Event(provider, event.to_owned()),
            (Folder::PerCpu, name) => {
                let number = name.strip_prefix("cpu")?;
                Folder::Cpu(number.parse().ok().filter(|cpu: &u32| cpu.to_string() == number)?)
            }
            _ => return None,
        };
    }
    Some(Place::Folder(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let of = |path: &str| {
            place(&path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>())
        };
        let event = || Subject::Event("a".into(), "b".into());
        for (path, expected) in [
            ("", Some(Place::Folder(Folder::Session))),
            ("trace", Some(Place::File(File::Trace, Subject::Session))),
            ("trace/x", None),
            ("nothing", None),
            ("events/enable", Some(Place::File(File::Enable, Subject::Session))),
            ("events/a", Some(Place::Folder(Folder::Provider("a".into())))),
            ("events/a/b/format", Some(Place::File(File::Format, event()))),
            ("events/a/b/nothing", None),
            ("per_cpu/cpu12/stats", Some(Place::File(File::Stats, Subject::Cpu(12)))),
            ("per_cpu/cpu012", None),
            ("per_cpu/x", None),
            ("options/overwrite", Some(Place::File(File::OptionOverwrite, Subject::Session))),
            ("instances", None),
        ] {
            assert_eq!(of(path), expected, "{path}");
        }
    }

    #[test]
    fn nobody_else_may_look() {
        let folders = [
            Folder::Session,
            Folder::Event("a".into(), "b".into()),
            Folder::Options,
            Folder::Cpu(0),
        ];
        for (name, file) in folders.iter().flat_map(Folder::files) {
            assert_eq!(file.mode() & 0o177, 0, "{name}");
        }
    }
}
