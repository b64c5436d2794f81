//! What `inspect` shows of a session.

use lastwords_abi::session as abi;

/// Facts of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info {
    /// UUID, the trace's.
    pub uuid: [u8; 16],
    /// Its name; empty where the session region is lost.
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
    /// `RESERVATION_` number; [`Info::reservation_word`].
    pub reservation: u32,
    /// `BACKEND_` number; [`Info::backend_word`].
    pub backend: u32,
    /// `SCOPE_` number; [`Info::scope_word`].
    pub scope: u32,
    /// CPUs that have a stream of their own in each channel.
    pub cpus: u32,
    /// Boot id of the machine.
    pub boot_id: [u8; 16],
    /// Host name.
    pub hostname: String,
    /// The creator's program.
    pub program: String,
    /// The session records, as far as its control page says.
    pub recording: bool,
    /// It was ended in good order.
    pub finished: bool,
    /// How it ended, by its own word: [`abi::Control::ending`]; [`Info::survived`].
    pub ending: u32,
    /// State of the snapshot.
    pub snapshot: Snapshot,
    /// Its clock.
    pub clock: ClockInfo,
    /// Channels.
    pub channels: Vec<ChannelInfo>,
    /// Streams; the same order as [`lastwords_trace::source::Source::streams`].
    pub streams: Vec<StreamInfo>,
    /// Processes that joined and did not leave.
    pub processes: Vec<Process>,
    /// Modules that were mapped in its processes.
    pub modules: Vec<Module>,
    /// The regions it is made of, by rising address.
    pub regions: Vec<RegionInfo>,
    /// Minor version of the format.
    pub minor: u16,
    /// Bytes in a pointer of the writer.
    pub word_size: u32,
    /// Descriptions that found no room in the registry.
    pub registry_dropped: u64,
    /// Spans that found no room in the table of open spans.
    pub spans_dropped: u64,
}

/// State of a session's snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// `SNAPSHOT_` number; [`Snapshot::word`].
    pub state: u32,
    /// Snapshots taken.
    pub taken: u32,
    /// Clock when the last was taken.
    pub clock: u64,
    /// Process id of who reads it.
    pub reader: u64,
    /// Somebody held the lock under which snapshots are taken.
    pub locked: bool,
    /// Which streams were swapped, as [`lastwords_abi::session::Control::snapshot_stream`] has it; 0 = all.
    pub of: u32,
}

/// A session's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClockInfo {
    /// `CLOCK_` number; [`ClockInfo::word`].
    pub kind: u32,
    /// Ticks a second, refined by the samples.
    pub frequency: u64,
    /// Uncertainty of the newest sample, ns.
    pub width: u64,
    /// From the first sample to the newest, ns of CLOCK_MONOTONIC.
    pub span: u64,
    /// Ticks of the newest sample, or 0.
    pub last: u64,
}

/// A channel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelInfo {
    /// Id.
    pub id: u32,
    /// Name.
    pub name: String,
    /// It was not destroyed.
    pub alive: bool,
    /// It records.
    pub recording: bool,
    /// `MODE_` number.
    pub mode: u32,
    /// `CHANNEL_` flags.
    pub flags: u32,
    /// Bits of the contexts.
    pub contexts: u32,
    /// Bytes of a sub-buffer.
    pub sub_buffer_size: u64,
    /// Sub-buffers of a half.
    pub sub_buffers: u32,
    /// Index of its first stream.
    pub first_stream: u32,
    /// Streams of the channel.
    pub streams: u32,
}

/// A stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Index in the session.
    pub index: u32,
    /// Channel id.
    pub channel: u32,
    /// CPU; none where it is bound to none.
    pub cpu: Option<u32>,
    /// `RESERVATION_` number of this stream.
    pub reservation: u32,
    /// `MODE_` number.
    pub mode: u32,
    /// Bytes of a sub-buffer.
    pub sub_buffer_size: u64,
    /// Sub-buffers of a half.
    pub sub_buffers: u32,
    /// Produced position of the half that is shown, bytes.
    pub produced: u64,
    /// Where reading up to a clock ended before the produced position; see [`super::End::clock`].
    pub reached: Option<u64>,
    /// Clocks where the oldest sub-buffer that is delivered begins and where the newest ends; none where there is none.
    pub clocks: Option<(u64, u64)>,
    /// Bytes from the beginning of the oldest sub-buffer that is delivered to the produced position.
    pub held: u64,
    /// Lost events, by cause, and the counters of reclaimed and skipped sub-buffers.
    pub lost: [u64; 7],
}

/// A process that joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Process id in its own namespace.
    pub pid: u32,
    /// Start time, clock ticks since boot.
    pub start: u64,
    /// Inode of its pid namespace.
    pub pidns: u64,
}

/// A module mapped in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Process id.
    pub pid: u32,
    /// Load bias.
    pub base: u64,
    /// First address of the mapped text.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Build id.
    pub build_id: Vec<u8>,
    /// Path.
    pub path: String,
}

/// A region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionInfo {
    /// `KIND_` number.
    pub kind: u32,
    /// Which of its kind.
    pub index: u32,
    /// Address in the image.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes that the image has, up to the last.
    pub held: u64,
    /// File and offset.
    pub place: String,
}

/// One word for a `RESERVATION_` number.
#[must_use]
pub fn reservation_word(number: u32) -> &'static str {
    abi::word_of(&abi::RESERVATION_WORDS, number)
}

/// One word for a `MODE_` number.
#[must_use]
pub fn mode_word(number: u32) -> &'static str {
    match number {
        abi::MODE_OVERWRITE => "overwrite",
        abi::MODE_DISCARD => "discard",
        _ => "unknown",
    }
}

impl Info {
    /// One word: how the session reserves.
    #[must_use]
    pub fn reservation_word(&self) -> &'static str {
        reservation_word(self.reservation)
    }

    /// One word: where its memory is.
    #[must_use]
    pub fn backend_word(&self) -> &'static str {
        abi::word_of(&abi::BACKEND_WORDS, self.backend)
    }

    /// It was ended in good order, by none of a panic and a signal.
    #[must_use]
    pub fn survived(&self) -> bool {
        self.finished && !matches!(self.ending & 0xff, abi::ENDING_PANIC | abi::ENDING_SIGNAL)
    }

    /// One word: whose buffers they are.
    #[must_use]
    pub fn scope_word(&self) -> &'static str {
        match self.scope {
            abi::SCOPE_PROCESS => "process",
            abi::SCOPE_USER => "user",
            _ => "unknown",
        }
    }
}

impl Snapshot {
    /// One word for the state.
    #[must_use]
    pub fn word(self) -> &'static str {
        abi::word_of(&abi::SNAPSHOT_WORDS, self.state)
    }

    /// Live and spare were being swapped: both hold what belongs to the trace.
    #[must_use]
    pub fn is_swapping(self) -> bool {
        self.state == abi::SNAPSHOT_SWAPPING && self.locked
    }

    /// A snapshot of the stream of this index and CPU is there to be read.
    #[must_use]
    pub fn holds(self, stream: u32, cpu: u32) -> bool {
        matches!(self.state, abi::SNAPSHOT_TAKEN | abi::SNAPSHOT_READING) && abi::snapshot_has(self.of, stream, cpu)
    }
}

impl ClockInfo {
    /// One word for the kind.
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
    /// Events lost, all causes.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        super::layout::lost_events(&self.lost)
    }
}
