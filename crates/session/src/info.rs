//! Facts about a session, as `inspect` shows them.

use super::window::Window;
use lastwords_abi::session as abi;
use lastwords_folders::SnapshotState;
use lastwords_trace::metrics::Metrics;

/// Facts of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info {
    /// UUID of the session and of its trace.
    pub uuid: [u8; 16],
    /// Name of the session; empty if the session region is lost.
    pub name: String,
    /// CLOCK_REALTIME at creation, ns since the epoch.
    pub created_realtime: u64,
    /// CLOCK_MONOTONIC at creation, ns.
    pub created_monotonic: u64,
    /// Process id of the creator in its own namespace.
    pub creator_pid: u32,
    /// Start time of the creator, clock ticks since boot.
    pub creator_start: u64,
    /// Inode of the creator's pid namespace.
    pub creator_pidns: u64,
    /// User id of the creator.
    pub uid: u32,
    /// A `RESERVATION_` number; see [`Info::reservation_word`].
    pub reservation: u32,
    /// A `BACKEND_` number; see [`Info::backend_word`].
    pub backend: u32,
    /// Whose buffers they are.
    pub scope: SessionScope,
    /// Number of CPUs that have their own stream in each channel.
    pub cpus: u32,
    /// Boot id of the machine.
    pub boot_id: [u8; 16],
    /// Host name.
    pub hostname: String,
    /// Path of the program that created the session.
    pub program: String,
    /// True if the session's control page says that it is recording.
    pub recording: bool,
    /// True if the owner ended the session in good order.
    pub finished: bool,
    /// The way the session ended, as recorded in [`abi::Control::ending`].
    pub ending: u32,
    /// A process creates a channel, or died while it did.
    pub creates_channel: bool,
    /// State of the snapshot.
    pub snapshot: Snapshot,
    /// The window of the trigger of which this session is the saved snapshot; none if it is not
    /// cut to one.
    pub window: Option<Window>,
    /// Triggers that the limit left without a snapshot.
    pub limited_triggers: u32,
    /// The session's clock.
    pub clock: ClockInfo,
    /// Channels.
    pub channels: Vec<ChannelInfo>,
    /// Streams, in the same order as [`lastwords_trace::source::Source::streams`].
    pub streams: Vec<StreamInfo>,
    /// Processes that joined the session and did not leave.
    pub processes: Vec<Process>,
    /// Inode of the file of the session region, as the recorder saw it; 0 if it is in no file, or
    /// not known. In a copy of that file, a guard that is held says nothing.
    pub inode: u64,
    /// Modules that were mapped in the session's processes.
    pub modules: Vec<Module>,
    /// The session's regions, ordered by address.
    pub regions: Vec<RegionInfo>,
    /// Minor version of the format.
    pub minor: u16,
    /// Bytes in a pointer of the writer.
    pub word_size: u32,
    /// Number of descriptions that did not fit into the registry.
    pub registry_dropped: u64,
    /// Number of spans that did not fit into the table of open spans.
    pub spans_dropped: u64,
    /// Entries for counters and for histograms that the session was created with.
    pub metrics_room: [u32; 2],
    /// Counters and histograms.
    pub metrics: Metrics,
}

/// State of a session's snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Its state.
    pub state: SnapshotState,
    /// Number of snapshots taken.
    pub taken: u32,
    /// Clock when the last snapshot was taken.
    pub clock: u64,
    /// Process id of the process that reads the snapshot.
    pub reader: u64,
    /// True if a process held the lock that protects snapshots.
    pub locked: bool,
    /// The streams that were swapped, as in [`lastwords_abi::session::Control::snapshot_stream`];
    /// 0 = all.
    pub of: u32,
}

/// A session's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ClockInfo {
    /// A `CLOCK_` number; see [`ClockInfo::word`].
    #[cfg_attr(feature = "serde", serde(rename = "name", serialize_with = "words::clock"))]
    pub kind: u32,
    /// Ticks per second, refined by the samples.
    pub frequency: u64,
    /// Uncertainty of the newest sample, ns.
    #[cfg_attr(feature = "serde", serde(rename = "uncertainty_ns"))]
    pub width: u64,
    /// Time from the first sample to the newest, ns of CLOCK_MONOTONIC.
    #[cfg_attr(feature = "serde", serde(rename = "sampled_over_ns"))]
    pub span: u64,
    /// Ticks of the newest sample; 0 without a sample.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub last: u64,
    /// Nanoseconds from the epoch to time 0 of CLOCK_MONOTONIC, by the newest sample; none without
    /// a sample.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub monotonic_origin: Option<i64>,
}

/// A channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelInfo {
    /// Id.
    pub id: u32,
    /// Name.
    pub name: String,
    /// True if the channel was not destroyed.
    pub alive: bool,
    /// True if the channel is recording.
    pub recording: bool,
    /// `MODE_` number.
    pub mode: u32,
    /// `CHANNEL_` flags.
    pub flags: u32,
    /// Bits of the contexts that are recorded with each event.
    pub contexts: u32,
    /// Bytes of a sub-buffer.
    pub sub_buffer_size: u64,
    /// Number of sub-buffers in a half.
    pub sub_buffers: u32,
    /// Index of the channel's first stream.
    pub first_stream: u32,
    /// Number of streams of the channel.
    pub streams: u32,
    /// The channel was created while the session recorded.
    pub is_added: bool,
    /// Number of snapshots that were taken before the channel was created.
    pub snapshots: u32,
    /// Number of events that the rules sent to the channel in processes that had not mapped its
    /// rings. They are lost.
    pub unattached: u64,
}

/// A stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Index of the stream in the session.
    pub index: u32,
    /// Channel id.
    pub channel: u32,
    /// CPU; none if the stream is not bound to a CPU.
    pub cpu: Option<u32>,
    /// `RESERVATION_` number of this stream.
    pub reservation: u32,
    /// `MODE_` number.
    pub mode: u32,
    /// Bytes of a sub-buffer.
    pub sub_buffer_size: u64,
    /// Number of sub-buffers in a half.
    pub sub_buffers: u32,
    /// Produced position of the half that was read, bytes.
    pub produced: u64,
    /// Position where the read ended, if it ended before the produced position because of
    /// [`super::End::clock`].
    pub reached: Option<u64>,
    /// Clock at the begin of the oldest delivered sub-buffer with events and at the end of the
    /// newest; none if there is none.
    pub clocks: Option<(u64, u64)>,
    /// Bytes from the start of that oldest sub-buffer to the produced position.
    pub held: u64,
    /// Lost events by cause, then the numbers of reclaimed and of skipped sub-buffers.
    pub lost: [u64; 7],
}

/// A process that joined the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Process {
    /// Process id in the process's own namespace.
    pub pid: u32,
    /// Start time of the process, clock ticks since boot.
    pub start: u64,
    /// Inode of the process's pid namespace.
    #[cfg_attr(feature = "serde", serde(rename = "pid_namespace"))]
    pub pidns: u64,
    /// What the guard of the process says.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub guard: Guard,
}

/// What the guard of a process says: a robust futex, which the kernel marks when the process dies
/// ([`abi::Guard`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Guard {
    /// The process has none, or it cannot be read.
    #[default]
    None,
    /// The kernel has not marked it. If the session is not a copy, the process lives, or lived until
    /// its machine ended.
    Held,
    /// The kernel marked it: the process is dead.
    Died,
}

impl Guard {
    /// Returns what the [`word`](abi::Guard::word) of a guard says.
    pub(crate) fn from_word(word: u32) -> Self {
        match word {
            _ if word & abi::GUARD_DIED != 0 => Self::Died,
            _ if word & abi::GUARD_THREAD != 0 => Self::Held,
            _ => Self::None,
        }
    }
}

/// A module mapped in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Module {
    /// Process id.
    pub pid: u32,
    /// Path.
    pub path: String,
    /// Load bias.
    #[cfg_attr(feature = "serde", serde(serialize_with = "words::address"))]
    pub base: u64,
    /// First address of the mapped text.
    #[cfg_attr(feature = "serde", serde(serialize_with = "words::address"))]
    pub start: u64,
    /// First address after the mapped text.
    #[cfg_attr(feature = "serde", serde(serialize_with = "words::address"))]
    pub end: u64,
    /// Build id.
    #[cfg_attr(feature = "serde", serde(serialize_with = "words::digits"))]
    pub build_id: Vec<u8>,
}

/// A region.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RegionInfo {
    /// `KIND_` number.
    #[cfg_attr(feature = "serde", serde(serialize_with = "words::region"))]
    pub kind: u32,
    /// Index among the regions of this kind.
    pub index: u32,
    /// Address in the image.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub address: u64,
    /// Name of the file, and offset in it.
    pub place: String,
    /// Length of the region, bytes.
    #[cfg_attr(feature = "serde", serde(rename = "bytes"))]
    pub size: u64,
    /// Number of bytes from the start of the region to the last byte that the image has.
    pub held: u64,
}

/// The forms that docs/JSON.md gives to numbers and bytes.
#[cfg(feature = "serde")]
mod words {
    use super::ClockInfo;
    use lastwords_abi::region as abi;
    use serde::Serializer;

    pub(super) fn clock<S: Serializer>(kind: &u32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(ClockInfo { kind: *kind, ..ClockInfo::default() }.word())
    }

    pub(super) fn address<S: Serializer>(address: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{address:#x}"))
    }

    pub(super) fn digits<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub(super) fn region<S: Serializer>(kind: &u32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(match *kind {
            abi::KIND_SESSION => "session",
            abi::KIND_REGISTRY => "registry",
            abi::KIND_STREAM => "stream",
            abi::KIND_SPANS => "spans",
            abi::KIND_COUNTERS => "counters",
            _ => "unknown",
        })
    }
}

/// Name of a `RESERVATION_` number.
#[must_use]
pub fn reservation_word(number: u32) -> &'static str {
    abi::word_of(&abi::RESERVATION_WORDS, number)
}

/// Name of a `MODE_` number.
#[must_use]
pub fn mode_word(number: u32) -> &'static str {
    match number {
        abi::MODE_OVERWRITE => "overwrite",
        abi::MODE_DISCARD => "discard",
        _ => "unknown",
    }
}

impl Info {
    /// Name of the session's reservation algorithm.
    #[must_use]
    pub fn reservation_word(&self) -> &'static str {
        reservation_word(self.reservation)
    }

    /// Returns true if the session's memory outlives a reboot.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        matches!(self.backend, abi::BACKEND_DAX | abi::BACKEND_PHYSICAL)
    }

    /// Name of the kind of memory that holds the session.
    #[must_use]
    pub fn backend_word(&self) -> &'static str {
        abi::word_of(&abi::BACKEND_WORDS, self.backend)
    }

    /// True if a panic ended the session.
    #[must_use]
    pub fn panicked(&self) -> bool {
        self.ending & 0xff == abi::ENDING_PANIC
    }
}

/// Whose buffers a session has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SessionScope {
    /// Those of one process.
    Process,
    /// Those of all processes of a user.
    User,
    /// The session does not say it, or in the words of a later version.
    #[default]
    Unknown,
}

impl SessionScope {
    /// Reads a `SCOPE_` number.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        match number {
            abi::SCOPE_PROCESS => Self::Process,
            abi::SCOPE_USER => Self::User,
            _ => Self::Unknown,
        }
    }

    /// Returns the scope in one word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::User => "user",
            Self::Unknown => "unknown",
        }
    }
}

impl Snapshot {
    /// True if the swap of live and spare half was not finished: both halves contain events of the
    /// trace.
    #[must_use]
    pub fn is_swapping(self) -> bool {
        self.state == SnapshotState::Swapping && self.locked
    }

    /// True if there is a snapshot to read of the stream with this index and CPU.
    #[must_use]
    pub fn holds(self, stream: u32, cpu: u32) -> bool {
        self.state.is_there() && abi::snapshot_has(self.of, stream, cpu)
    }
}

impl ClockInfo {
    /// Name of the clock's kind.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self.kind {
            abi::CLOCK_TSC => "tsc",
            abi::CLOCK_MONOTONIC => "monotonic",
            abi::CLOCK_MONOTONIC_RAW => "monotonic_raw",
            abi::CLOCK_BOOTTIME => "boottime",
            abi::CLOCK_REALTIME => "realtime",
            abi::CLOCK_CNTVCT => "cntvct",
            _ => "unknown",
        }
    }
}

impl StreamInfo {
    /// Number of lost events, summed over all causes.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        super::layout::lost_events(&self.lost)
    }
}
