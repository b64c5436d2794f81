//! The common model of ftrace. Readers produce it (of kernel images and trace.dat files), and
//! writers take it (of the kernel's text, trace.dat and CTF).

use crate::{Format, HeaderPage, NoSymbols, Symbols};
use std::collections::BTreeMap;
use std::sync::Arc;

use lastwords_bytes::ByteOrder;
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use lastwords_trace::tracer::{Stats, UNKNOWN};

/// The complete ftrace data of one kernel.
#[derive(Clone)]
pub struct Tracing {
    /// `uname -r`; empty if it is not known.
    pub release: String,
    /// The words of `uname -a`, as trace-cmd keeps them; empty if they are not known.
    pub uname: String,
    /// Machine, as `uname -m` has it.
    pub machine: String,
    /// Byte order of the machine.
    pub byte_order: ByteOrder,
    /// Bytes of a `long`.
    pub word_size: u8,
    /// Bytes of a page.
    pub page_size: u32,
    /// Number of CPUs in the header of the text (`#P:`): those online.
    pub cpus: u32,
    /// Layout of a sub-buffer's header.
    pub header_page: HeaderPage,
    /// Event formats by id.
    pub formats: BTreeMap<u16, Format>,
    /// Names of tasks by pid, as `saved_cmdlines` has them.
    pub comms: BTreeMap<u32, String>,
    /// Text takes the names of tasks that `comms` lacks from events of the scheduler. This is for
    /// files: they contain the names that the kernel still had when recording ended, and not all
    /// tasks of the trace are among them.
    pub learns_comms: bool,
    /// Thread groups by pid, as `saved_tgids` has them.
    pub tgids: BTreeMap<u32, u32>,
    /// Format strings of `trace_printk` and `bputs` by address.
    pub printk_formats: BTreeMap<u64, String>,
    /// Names of the kernel's addresses.
    pub symbols: Arc<dyn Symbols>,
    /// Key with which the kernel hashes `%p` (SipHash-2-4 on 64-bit machines); none if it is not
    /// known or not set yet.
    pub pointer_key: Option<[u64; 2]>,
    /// The preemption mode that the kernel chose at its start (`preempt_dynamic_mode`: 0 none, 1
    /// voluntary, 2 full, 3 lazy); none if the mode was fixed when the kernel was built, or is not
    /// known.
    pub preempt_dynamic_mode: Option<u8>,
    /// The kernel was built to yield at points where it may sleep (`CONFIG_PREEMPT_VOLUNTARY`), as
    /// far as that is known.
    pub preempt_voluntary: bool,
    /// The columns of flags in the kernel's lines.
    pub flag_columns: FlagColumns,
    /// Clocks of the top level, as `trace_clock` has them: those offered, with the chosen one in
    /// brackets.
    pub clocks: String,
    /// Nanoseconds to add to readings of clocks in nanoseconds to get nanoseconds since the epoch,
    /// if a file has this number.
    pub real_time: Option<i64>,
    /// The number of the recording by whose clock the times are, if a file has it. The times of a
    /// guest that was recorded with its host are by the clock of the host.
    pub times_of: Option<u64>,
    /// Trace arrays: the top level first, then the instances by name.
    pub arrays: Vec<Array>,
    /// Evidence that concerns all arrays together.
    pub evidence: Evidence,
}

impl Tracing {
    /// Returns the tracer of a machine of which only the words of `uname -a` and the layout of
    /// sub-buffers are known. It has pages of 4096 bytes, no CPUs and no trace arrays.
    #[must_use]
    pub fn from_uname(uname: &str, header_page: HeaderPage, byte_order: ByteOrder) -> Self {
        let words: Vec<&str> = uname.split_whitespace().collect();
        let release = words.get(2).copied().unwrap_or_default();
        // `uname -a` ends with the name of the operating system; trace-cmd's form ends with the
        // machine.
        let machine = words.iter().rev().find(|word| **word != "GNU/Linux");
        Self {
            release: release.to_owned(),
            uname: uname.to_owned(),
            machine: machine.copied().unwrap_or_default().to_owned(),
            byte_order,
            word_size: header_page.commit_size,
            page_size: 4096,
            cpus: 0,
            header_page,
            formats: BTreeMap::new(),
            comms: BTreeMap::new(),
            learns_comms: false,
            tgids: BTreeMap::new(),
            printk_formats: BTreeMap::new(),
            symbols: Arc::new(NoSymbols),
            pointer_key: None,
            preempt_dynamic_mode: None,
            preempt_voluntary: false,
            flag_columns: FlagColumns::of_release(release),
            clocks: String::new(),
            real_time: None,
            times_of: None,
            arrays: Vec::new(),
            evidence: Evidence::default(),
        }
    }
}

/// The flags in a line of the kernel's text that not all kernels show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagColumns {
    /// The depth to which migration is disabled (Linux 5.15 and later). Without it, the depth of
    /// preemption has all eight bits.
    pub migration: bool,
    /// The bit for disabled bottom halves (Linux 5.18 and later).
    pub bottom_halves: bool,
}

impl FlagColumns {
    /// Those of a kernel of which only the version is known. An unknown version is taken for a new
    /// one.
    ///
    /// ```
    /// # use lastwords_ftrace::FlagColumns;
    /// assert!(!FlagColumns::of_release("5.10.0-46-amd64").migration);
    /// assert!(FlagColumns::of_release("").bottom_halves);
    /// ```
    #[must_use]
    pub fn of_release(release: &str) -> Self {
        let has = |version| release.is_empty() || is_since(release, version);
        Self { migration: has((5, 15)), bottom_halves: has((5, 18)) }
    }
}

/// Returns true if the kernel has this version or a later one.
#[must_use]
pub fn is_since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|found| found >= version)
}

/// One trace array: the top level or an instance.
#[derive(Clone)]
pub struct Array {
    /// Name of the instance; empty for the top level.
    pub name: String,
    /// Current tracer: `nop`, `function`, …; none if it is not known.
    pub tracer: Option<String>,
    /// The array's clock; none if it is not known.
    pub clock: Option<Clock>,
    /// Names of the trace options that are on, without `no`; none if they are not known.
    pub options: Option<Vec<String>>,
    /// Options of the tracer that are on: `funcgraph-cpu`, ….
    pub tracer_options: Vec<String>,
    /// The tracer keeps the longest latency in the spare, and the array's text shows the spare
    /// (`tracer.print_max`).
    pub shows_longest: bool,
    /// Its events are of a boot that is gone, in memory that outlived it. The kernel prints such
    /// events by their fields, and ftrace's own entries as ever.
    pub is_of_last_boot: bool,
    /// Recording was on; none if that is not known.
    pub is_on: Option<bool>,
    /// The ring that is being written.
    pub live: Arc<dyn Ring>,
    /// The spare, if a snapshot is allocated.
    pub snapshot: Option<Arc<dyn Ring>>,
}

/// The clock of a trace array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// Its name: `local`, `global`, ….
    pub name: String,
    /// It counts nanoseconds (`counter` and `uptime`… do not).
    pub is_in_ns: bool,
}

impl Array {
    /// Returns an array of which only the ring is known.
    #[must_use]
    pub fn unknown(name: impl Into<String>, live: Arc<dyn Ring>) -> Self {
        Self {
            name: name.into(),
            tracer: None,
            clock: None,
            options: None,
            tracer_options: Vec::new(),
            shows_longest: false,
            is_of_last_boot: false,
            is_on: None,
            live,
            snapshot: None,
        }
    }

    /// Returns the name of the tracer, or [`UNKNOWN`].
    #[must_use]
    pub fn tracer_name(&self) -> &str {
        self.tracer.as_deref().unwrap_or(UNKNOWN)
    }

    /// Returns the name of the clock, or [`UNKNOWN`].
    #[must_use]
    pub fn clock_name(&self) -> &str {
        self.clock.as_ref().map_or(UNKNOWN, |clock| &clock.name)
    }

    /// Returns true if the clock is known to count nanoseconds. Readings of other clocks are shown
    /// as they are.
    #[must_use]
    pub fn is_in_ns(&self) -> bool {
        self.clock.as_ref().is_some_and(|clock| clock.is_in_ns)
    }

    /// Returns true if the trace option is on. The options of an array of which they are not known
    /// are off.
    #[must_use]
    pub fn has_option(&self, name: &str) -> bool {
        self.options.iter().flatten().any(|option| option == name)
    }

    /// Returns the ring that the array's text shows: the live one, or the spare if a latency tracer
    /// keeps its result there. With `snapshot`, returns the spare, if there is one.
    #[must_use]
    pub fn shown(&self, snapshot: bool) -> Option<&Arc<dyn Ring>> {
        let spare = self.snapshot.as_ref().filter(|_| snapshot || self.shows_longest);
        if snapshot { spare } else { spare.or(Some(&self.live)) }
    }
}

/// A ring: sub-buffers for each CPU.
pub trait Ring: Send + Sync {
    /// Returns the CPUs by rising number.
    fn cpus(&self) -> &[CpuRing];

    /// Reads sub-buffer `index` (0 is the oldest) of the CPU at `cpu` in [`Ring::cpus`] into
    /// `bytes`, completely and with its header. Bytes that the source does not have are zero, and
    /// the verdict reports this.
    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo;

    /// Returns the evidence about the sub-buffers; `stream` is the index in [`Ring::cpus`]. If
    /// sub-buffers are read on demand, the evidence covers those that were read.
    fn evidence(&self) -> Evidence;

    /// Returns the evidence about all sub-buffers. Those that were not read yet are read for it.
    fn checked(&self) -> Evidence {
        self.evidence()
    }

    /// Returns the clock's reading when the ring was reset (`time_start` of the array's buffer).
    /// Events before it are not shown, and the latency format counts from it.
    fn time_start(&self) -> u64 {
        0
    }

    /// Returns the tracer's note of its longest latency; zeroes if it measures none.
    fn latency(&self) -> Latency {
        Latency::default()
    }
}

/// Returns the losses in the counters of a ring: a gap for each CPU and cause.
pub fn counters(ring: &dyn Ring) -> impl Iterator<Item = Gap> {
    counters_of(ring.cpus())
}

/// Returns the losses in the counters of the rings of CPUs: a gap for each CPU and cause.
pub fn counters_of(cpus: &[CpuRing]) -> impl Iterator<Item = Gap> {
    let gaps = |(stream, CpuRing { stats, .. }): (usize, &CpuRing)| {
        let counts = [
            (stats.overrun, Cause::Overwritten),
            (stats.commit_overrun, Cause::Refused),
            (stats.dropped, Cause::Discarded),
        ];
        let place = || "by the ring's counters".to_owned();
        counts.into_iter().filter(|(events, _)| *events > 0).map(move |(events, cause)| {
            Gap::new(Some(stream), cause, place()).with_events(Some(events))
        })
    };
    cpus.iter().enumerate().flat_map(gaps)
}

/// The longest latency of a ring, as the head of the latency format shows it (`struct
/// trace_array_cpu`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latency {
    /// The CPU on which the tracer was started, or which had the latency.
    pub cpu: u32,
    /// Duration in nanoseconds.
    pub time: u64,
    /// Name of the task that ran.
    pub comm: String,
    /// Process of the task.
    pub pid: i64,
    /// User of the task.
    pub uid: u32,
    /// Nice value of the task.
    pub nice: i64,
    /// Scheduling policy of the task.
    pub policy: u64,
    /// Real-time priority of the task.
    pub rt_priority: u64,
    /// Code addresses at which the latency began and ended; 0 if they are not noted.
    pub section: (u64, u64),
}

/// One CPU's ring.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuRing {
    /// Number of the CPU.
    pub cpu: u32,
    /// Number of sub-buffers that have events, including the reader's. They are in order, the
    /// oldest first.
    pub sub_buffers: usize,
    /// Bytes of a sub-buffer, header included.
    pub sub_buffer_size: u32,
    /// Counters as `stats` has them.
    pub stats: Stats,
}

impl SubBufferInfo {
    /// The state of a sub-buffer that the source does not have.
    pub const MISSING: Self = Self {
        committed: 0,
        consumed: 0,
        missed: None,
        verdict: lastwords_trace::evidence::Verdict::Missing,
    };
}

/// The state of one sub-buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubBufferInfo {
    /// Committed bytes of data. Events are in `data_offset .. data_offset + committed`.
    pub committed: usize,
    /// Bytes of data at the beginning that a consumer has read. Their events are not shown, but
    /// their times are needed for later events.
    pub consumed: usize,
    /// Events are missing before the sub-buffer: `Some(None)` if their number is not known.
    pub missed: Option<Option<u64>>,
    /// Verdict on the sub-buffer.
    pub verdict: lastwords_trace::evidence::Verdict,
}
