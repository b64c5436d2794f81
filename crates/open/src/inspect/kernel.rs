//! Reports what is in a kernel's tracer.

use super::activity::{Activity, Read};
use crate::{Ftrace, Machine, Origin, Trace, account};
use lastwords_ftrace::page::Events;
use lastwords_ftrace::{CpuRing, Ring, Tracing};
use lastwords_render::evidence::Account;
use serde::Serialize;
use std::path::PathBuf;

/// One kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Report<'a> {
    /// The path that was read.
    pub from: PathBuf,
    /// The kind of the input, in a few words.
    pub kind: &'static str,
    /// The input is the memory of the machine, not a file of its traces.
    #[serde(skip)]
    pub has_memory: bool,
    /// The release of the kernel.
    pub release: String,
    /// Its `uname -a`.
    pub uname: String,
    /// The machine, as `uname -m` prints it.
    pub machine: String,
    /// CPUs that are online.
    pub cpus_online: u32,
    /// Nanoseconds since the boot by the timekeeper, or null if the input is not a memory.
    pub uptime_ns: Option<u64>,
    /// Nanoseconds since the epoch.
    pub wall_ns: Option<u64>,
    /// The message of the panic.
    pub panic: Option<String>,
    /// The message of the first oops.
    pub oops: Option<String>,
    /// The CPU that crashed.
    pub crash_cpu: Option<u32>,
    /// The number of loaded modules, or 0 if the input is not a memory.
    pub modules: usize,
    /// The number of tasks. If the input is not a memory, only tasks with known names count.
    pub tasks: usize,
    /// The number of known event formats.
    pub event_formats: usize,
    /// Its trace arrays, the top level first.
    pub instances: Vec<Instance>,
    /// Sessions of LTTng.
    pub lttng: Vec<super::lttng::Report<'a>>,
    /// Its BPF programs and maps, if the input is a memory.
    #[cfg(feature = "bpf")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bpf: Option<Bpf>,
    /// The number of histograms that triggers made, if the input is a memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histograms: Option<usize>,
    /// The buffers of perf, if the input is a memory.
    #[cfg(feature = "perf")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perf: Option<Vec<lastwords_perf::Buffer>>,
    /// Remarks.
    pub notes: Vec<String>,
}

/// The BPF programs and maps of a kernel.
#[cfg(feature = "bpf")]
#[derive(Debug, Clone, Serialize)]
pub struct Bpf {
    /// The programs, by id.
    pub programs: Vec<lastwords_bpf::Program>,
    /// The maps, by id, without what is in them.
    pub maps: Vec<lastwords_bpf::Map>,
}

/// Returns the BPF programs and maps of a kernel, and adds remarks on those that are missing.
#[cfg(feature = "bpf")]
fn bpf(kernel: &lastwords_kernel::Kernel, notes: &mut Vec<String>) -> Bpf {
    let lastwords_bpf::Bpf { programs, maps, evidence, .. } = lastwords_bpf::Bpf::read(kernel);
    notes.extend(evidence.gaps.into_iter().map(remark));
    Bpf { programs, maps }
}

/// Counts the histograms of a kernel, and adds remarks on those that are missing.
fn histograms(kernel: &lastwords_kernel::Kernel, notes: &mut Vec<String>) -> usize {
    let (count, gaps) = lastwords_ftrace::memory::count_histograms(kernel);
    notes.extend(gaps.into_iter().map(remark));
    count
}

/// Returns the buffers of perf of a kernel, and adds remarks on those that are missing.
#[cfg(feature = "perf")]
fn perf(
    kernel: &lastwords_kernel::Kernel,
    tracing: &Tracing,
    notes: &mut Vec<String>,
) -> Vec<lastwords_perf::Buffer> {
    let (buffers, gaps) = lastwords_perf::Perf::list(kernel, tracing);
    notes.extend(gaps.into_iter().map(remark));
    buffers
}

fn remark(gap: lastwords_trace::evidence::Gap) -> String {
    format!("{}: {}", gap.cause.word(), gap.place)
}

/// One trace array. The top level has no name.
#[derive(Debug, Clone, Serialize)]
pub struct Instance {
    /// The name of the instance; empty for the top level.
    pub name: String,
    /// Its tracer, or null if it is not known.
    pub tracer: Option<String>,
    /// Its clock, or null if it is not known.
    pub clock: Option<String>,
    /// The array records events, or null if that is not known.
    pub tracing_on: Option<bool>,
    /// Its live ring, by CPU.
    pub live: Vec<Cpu>,
    /// Its snapshot, by CPU, or null if none is allocated.
    pub snapshot: Option<Vec<Cpu>>,
    /// The events of the ring that is read, the live one or the snapshot, by name and over time,
    /// or null if there is none.
    pub activity: Option<Activity>,
    /// The accounts of the live ring and of the snapshot.
    pub evidence: Vec<Account<'static>>,
}

/// One CPU's ring.
#[derive(Debug, Clone, Serialize)]
pub struct Cpu {
    /// The CPU.
    pub cpu: u32,
    /// The number of its sub-buffers.
    pub sub_buffers: usize,
    /// The size of a sub-buffer in bytes.
    pub sub_buffer_size: u32,
    /// Events that are in it.
    pub entries: u64,
    /// Events that were overwritten.
    pub overrun: u64,
    /// Events that could not be committed.
    pub commit_overrun: u64,
    /// Events that were dropped.
    pub dropped_events: u64,
    /// Events that were read.
    pub read_events: u64,
    /// Bytes that are in it.
    pub bytes: u64,
}

/// Returns the report on a machine.
pub(super) fn report<'a>(
    origin: &Origin,
    machine: &Machine,
    traces: &[(&Trace, Option<&Read<'_>>)],
    lttng: Vec<super::lttng::Report<'a>>,
) -> Report<'a> {
    let tracing = &machine.tracing;
    let kernel = machine.kernel.as_deref();
    let log = kernel.map(|k| k.log().rows).unwrap_or_default();
    let crash = kernel.map(|k| k.crash(&log)).unwrap_or_default();
    let time = kernel.and_then(|k| k.time().ok());
    let mut notes = machine.notes.clone();
    notes.extend(tracing.evidence.notes.iter().cloned());
    notes.extend(kernel.iter().flat_map(|k| k.missing.iter().map(ToString::to_string)));
    Report {
        #[cfg(feature = "bpf")]
        bpf: kernel.map(|kernel| bpf(kernel, &mut notes)),
        histograms: kernel.map(|kernel| histograms(kernel, &mut notes)),
        #[cfg(feature = "perf")]
        perf: kernel.map(|kernel| perf(kernel, tracing, &mut notes)),
        from: origin.path.clone(),
        kind: origin.kind.words(),
        has_memory: kernel.is_some(),
        release: tracing.release.clone(),
        uname: tracing.uname.clone(),
        machine: tracing.machine.clone(),
        cpus_online: tracing.cpus,
        uptime_ns: time.map(|t| t.uptime),
        wall_ns: time.map(|t| t.wall),
        panic: crash.panic,
        oops: crash.oops,
        crash_cpu: crash.cpu,
        modules: kernel.map_or(0, |k| k.modules.len()),
        tasks: kernel.map_or(tracing.comms.len(), |k| k.tasks().rows.len()),
        event_formats: tracing.formats.len(),
        instances: instances(tracing, traces),
        lttng,
        notes,
    }
}

/// Returns the reports on the arrays. What is lost of the machine as a whole is in the first one's
/// account.
fn instances(tracing: &Tracing, traces: &[(&Trace, Option<&Read<'_>>)]) -> Vec<Instance> {
    let mut all: Vec<Instance> =
        traces.iter().filter_map(|(trace, read)| instance(trace, *read)).collect();
    if let Some(account) = all.first_mut().and_then(|first| first.evidence.first_mut()) {
        account.evidence.to_mut().gaps.splice(0..0, tracing.evidence.gaps.iter().cloned());
    }
    all
}

fn instance(trace: &Trace, read: Option<&Read<'_>>) -> Option<Instance> {
    let (Ftrace { machine, array, .. }, name) = (trace.ftrace()?, &trace.name);
    let cpus = |ring: &dyn Ring| -> Vec<Cpu> {
        let cpu = |(at, c): (usize, &CpuRing)| Cpu {
            cpu: c.cpu,
            sub_buffers: c.sub_buffers,
            sub_buffer_size: c.sub_buffer_size,
            // A memory has the kernel's own count. The count in a file may be that of the events
            // still in the kernel's ring.
            entries: if machine.kernel.is_some() {
                c.stats.entries
            } else {
                count(machine, ring, at)
            },
            overrun: c.stats.overrun,
            commit_overrun: c.stats.commit_overrun,
            dropped_events: c.stats.dropped,
            read_events: c.stats.read,
            bytes: c.stats.bytes,
        };
        ring.cpus().iter().enumerate().map(cpu).collect()
    };
    let snapshot = array.snapshot.as_ref().map(|ring| (format!("{name}, snapshot"), ring));
    let rings = std::iter::once((name.clone(), &array.live)).chain(snapshot);
    Some(Instance {
        name: array.name.clone(),
        tracer: array.tracer.clone(),
        clock: array.clock.as_ref().map(|clock| clock.name.clone()),
        tracing_on: array.is_on,
        live: cpus(&*array.live),
        snapshot: array.snapshot.as_ref().map(|ring| cpus(&**ring)),
        activity: read.and_then(|read| read.activity.clone()),
        evidence: rings
            .map(|(name, ring)| account::of_ring(&name, &**ring, ring.checked()))
            .collect(),
    })
}

/// Returns the number of events in a CPU's sub-buffers.
fn count(machine: &Machine, ring: &dyn Ring, cpu: usize) -> u64 {
    let (layout, order) = (machine.tracing.header_page, machine.tracing.byte_order);
    let mut bytes = Vec::new();
    let of = |index| {
        let info = ring.sub_buffer(cpu, index, &mut bytes);
        Events::new(&bytes, layout, order, info.committed).count() as u64
    };
    ring.cpus().get(cpu).map_or(0, |cpu| (0..cpu.sub_buffers).map(of).fold(0, u64::saturating_add))
}
