//! What readers of ftrace produce (kernel images, trace.dat files) and its writers take (the kernel's text, trace.dat, CTF).
//!
//! ftrace's sub-buffers are kept as they are in memory: `u64` time stamp, `commit` word of the machine's size, data. The text
//! and the files are made of these bytes and of the event formats, as the kernel makes them itself.

mod format;
pub mod page;

pub use format::{Field, Format, HeaderPage};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::evidence::{Cause, Evidence, Gap};
use lastwords_bytes::ByteOrder;

/// A symbol that an address lies in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, without module.
    pub name: String,
    /// Bytes from its beginning to the address.
    pub offset: u64,
    /// Its size, as kallsyms has it: up to the next symbol.
    pub size: u64,
    /// Module that it is of; none for the kernel's own.
    pub module: Option<String>,
}

/// One row of a symbol table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolRow<'a> {
    /// Its address.
    pub address: u64,
    /// Its kind, as in `/proc/kallsyms`: `t`, `T`, `d`, ….
    pub kind: char,
    /// Its name.
    pub name: &'a str,
    /// Module that it is of; none for the kernel's own.
    pub module: Option<&'a str>,
}

/// A parameter of a function of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name; empty where it has none.
    pub name: String,
    /// What it holds.
    pub kind: ParameterKind,
}

/// What a parameter holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParameterKind {
    /// No type is known.
    Unknown,
    /// A pointer.
    Pointer,
    /// An integer.
    Number {
        /// It has a sign.
        signed: bool,
    },
    /// An enumerator of up to 32 bits.
    Enumeration {
        /// Value and name of each.
        names: Vec<(i64, String)>,
    },
    /// Something else.
    Other {
        /// BTF's name of its kind: `STRUCT`, `UNION`, `ENUM64`, ….
        kind: &'static str,
        /// Its bytes.
        size: u32,
    },
}

/// Names for addresses.
pub trait Symbols: Send + Sync {
    /// The symbol that holds `address`.
    fn at(&self, address: u64) -> Option<Symbol>;

    /// Calls `each` with every symbol, the kernel's own first, each part by rising address.
    fn each(&self, each: &mut dyn FnMut(SymbolRow<'_>));

    /// The text, without its NUL, that stands in the kernel's read-only memory at `address`; none where it is not known.
    fn text_at(&self, _address: u64) -> Option<Vec<u8>> {
        None
    }

    /// The parameters of the function of a name; none where they are not known.
    fn parameters(&self, _function: &str) -> Option<Vec<Parameter>> {
        None
    }

    /// The value of what a print format names: an enumerator, a variable of the kernel's of the size of a `long`
    /// (`vmemmap_base`), or a size (`sizeof(struct page)`); none where it is not known.
    fn constant(&self, _name: &str) -> Option<i64> {
        None
    }
}

/// No symbol is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn at(&self, _: u64) -> Option<Symbol> {
        None
    }

    fn each(&self, _: &mut dyn FnMut(SymbolRow<'_>)) {}
}

/// All that one kernel's ftrace has.
#[derive(Clone)]
pub struct Tracing {
    /// `uname -r`; empty where it is not known.
    pub release: String,
    /// `uname -a`'s words, as trace-cmd keeps them; empty where they are not known.
    pub uname: String,
    /// Machine, as `uname -m` has it.
    pub machine: String,
    /// Byte order of the machine.
    pub byte_order: ByteOrder,
    /// Bytes of a `long`.
    pub word_size: u8,
    /// Bytes of a page.
    pub page_size: u32,
    /// CPUs that the header of the text counts (`#P:`): those online.
    pub cpus: u32,
    /// How a sub-buffer begins.
    pub header_page: HeaderPage,
    /// Event formats by id.
    pub formats: BTreeMap<u16, Format>,
    /// Names of tasks by pid, as `saved_cmdlines` has them.
    pub comms: BTreeMap<u32, String>,
    /// Thread groups by pid, as `saved_tgids` has them.
    pub tgids: BTreeMap<u32, u32>,
    /// Format strings of `trace_printk` and `bputs` by address.
    pub printk_formats: BTreeMap<u64, String>,
    /// Names of the kernel's addresses.
    pub symbols: Arc<dyn Symbols>,
    /// Key with which the kernel hashes `%p` (SipHash-2-4 on 64-bit machines); none where it is not known or not set yet.
    pub pointer_key: Option<[u64; 2]>,
    /// What the kernel was told of preemption when it began (`preempt_dynamic_mode`: 0 none, 1 voluntary, 2 full, 3 lazy);
    /// none where that was settled when it was built, or is not known.
    pub preempt_dynamic_mode: Option<u8>,
    /// The kernel was built to yield where it may sleep (`CONFIG_PREEMPT_VOLUNTARY`), as far as that is known.
    pub preempt_voluntary: bool,
    /// Clocks offered and, in brackets, the chosen one, as `trace_clock` has them, of the top level.
    pub clocks: String,
    /// What the readings of clocks in nanoseconds lack to nanoseconds since the epoch, where a file tells it.
    pub real_time: Option<i64>,
    /// The top level first, then the instances by name.
    pub arrays: Vec<Array>,
    /// What concerns the whole.
    pub evidence: Evidence,
}

/// One trace array: the top level or an instance.
#[derive(Clone)]
pub struct Array {
    /// Name of the instance; empty for the top level.
    pub name: String,
    /// Current tracer: `nop`, `function`, ….
    pub tracer: String,
    /// Name of its clock: `local`, `global`, ….
    pub clock: String,
    /// The clock counts nanoseconds (`counter` and `uptime`… do not).
    pub clock_in_ns: bool,
    /// Names of the trace options that are on, without `no`.
    pub options: Vec<String>,
    /// Options of the tracer that are on: `funcgraph-cpu`, ….
    pub tracer_options: Vec<String>,
    /// The tracer keeps the longest latency in the spare, and the array's text is that of the spare (`tracer.print_max`).
    pub shows_longest: bool,
    /// Its events are of a boot that is gone, in memory that outlived it. The kernel prints such events by their fields, and ftrace's own
    /// entries as ever.
    pub is_of_last_boot: bool,
    /// Recording was on.
    pub is_on: bool,
    /// The ring that is being written.
    pub live: Arc<dyn Ring>,
    /// The spare, where a snapshot is allocated.
    pub snapshot: Option<Arc<dyn Ring>>,
}

impl Array {
    /// The ring that is the array's text: the live one, or the spare where a tracer of latencies has what it keeps; with
    /// `snapshot` the spare, if there is one.
    #[must_use]
    pub fn shown(&self, snapshot: bool) -> Option<&Arc<dyn Ring>> {
        let spare = self.snapshot.as_ref().filter(|_| snapshot || self.shows_longest);
        if snapshot { spare } else { spare.or(Some(&self.live)) }
    }
}

/// A ring: sub-buffers for each CPU.
pub trait Ring: Send + Sync {
    /// Its CPUs by rising number.
    fn cpus(&self) -> &[CpuRing];

    /// Reads sub-buffer `index` (0 is the oldest) of the CPU at `cpu` in [`Ring::cpus`] into `bytes`, whole, header first;
    /// what the source does not have is zero, and the verdict says so.
    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo;

    /// What is said of its sub-buffers; `stream` is the index in [`Ring::cpus`]. Where sub-buffers are read when they are asked
    /// for: of those that were.
    fn evidence(&self) -> Evidence;

    /// What is said of all of its sub-buffers, which are read for it where that was not done yet.
    fn checked(&self) -> Evidence {
        self.evidence()
    }

    /// Reading of the clock when the ring was reset (`time_start` of the array's buffer): events before it are not shown, and
    /// the latency format counts from it.
    fn time_start(&self) -> u64 {
        0
    }

    /// What the tracer noted of its longest latency; zeroes where it measures none.
    fn latency(&self) -> Latency {
        Latency::default()
    }
}

/// What the counters of a ring say was lost: a gap for each CPU and cause.
pub fn counters(ring: &dyn Ring) -> impl Iterator<Item = Gap> {
    let gaps = |(stream, CpuRing { stats, .. }): (usize, &CpuRing)| {
        let counts = [
            (stats.overrun, Cause::Overwritten),
            (stats.commit_overrun, Cause::Refused),
            (stats.dropped, Cause::Discarded),
        ];
        let place = || "by the ring's counters".to_owned();
        counts.into_iter().filter(|(events, _)| *events > 0).map(move |(events, cause)| Gap {
            stream: Some(stream),
            place: place(),
            cause,
            events: Some(events),
            bytes: None,
        })
    };
    ring.cpus().iter().enumerate().flat_map(gaps)
}

/// The longest latency of a ring, as the head of the latency format shows it (`struct trace_array_cpu`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latency {
    /// The CPU that the tracer was started on, or that had the latency.
    pub cpu: u32,
    /// Nanoseconds.
    pub time: u64,
    /// Name of the task that ran.
    pub comm: String,
    /// Its process.
    pub pid: i64,
    /// Its user.
    pub uid: u32,
    /// Its nice value.
    pub nice: i64,
    /// Its scheduling policy.
    pub policy: u64,
    /// Its real-time priority.
    pub rt_priority: u64,
    /// Where the latency began and ended: addresses of code; 0 where that is not noted.
    pub section: (u64, u64),
}

/// One CPU's ring.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuRing {
    /// Number of the CPU.
    pub cpu: u32,
    /// Sub-buffers that have events, oldest first, the reader's among them.
    pub sub_buffers: usize,
    /// Bytes of a sub-buffer, header included.
    pub sub_buffer_size: u32,
    /// Counters as `stats` has them.
    pub stats: Stats,
}

/// Counters of a CPU's ring, as `per_cpu/cpuN/stats` tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Events written and neither overwritten nor read.
    pub entries: u64,
    /// Events overwritten.
    pub overrun: u64,
    /// Events lost because the writer came round to a page that was being committed.
    pub commit_overrun: u64,
    /// Bytes written and neither overwritten nor read.
    pub bytes: u64,
    /// Events dropped because the ring was full and overwriting off.
    pub dropped: u64,
    /// Events read by a consumer.
    pub read: u64,
}

/// What is known of one sub-buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubBufferInfo {
    /// Bytes of data that are committed: events lie in `data_offset .. data_offset + committed`.
    pub committed: usize,
    /// Bytes of data at the beginning that a consumer has read: their times count, their events are not shown.
    pub consumed: usize,
    /// Events are missing before it: `Some(None)` where their number is not known.
    pub missed: Option<Option<u64>>,
    /// What is said of it.
    pub verdict: crate::evidence::Verdict,
}
