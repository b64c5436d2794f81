//! `inspect` of a kernel's trace.

use crate::account::{self, LIMIT};
use crate::input::{Array as Named, Lttng};
use crate::table::{Table, plain};
use lastwords_formats::evidence::{Account, Report as Evidence};
use lastwords_open::{Machine, Origin};
use lastwords_trace::ftrace::page::Events;
use lastwords_trace::ftrace::{CpuRing, Ring};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

#[derive(Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    pub(super) kernels: Vec<Summary>,
}

/// One kernel.
#[derive(Serialize)]
pub(super) struct Summary {
    from: PathBuf,
    kind: &'static str,
    #[serde(skip)]
    has_memory: bool,
    release: String,
    uname: String,
    machine: String,
    cpus_online: u32,
    /// Nanoseconds since the boot, by the timekeeper; null where the input has no memory.
    uptime_ns: Option<u64>,
    /// Nanoseconds since the epoch.
    wall_ns: Option<u64>,
    panic: Option<String>,
    oops: Option<String>,
    crash_cpu: Option<u32>,
    /// 0 where the input has no memory.
    modules: usize,
    /// Tasks whose names are known, where the input has no memory.
    tasks: usize,
    event_formats: usize,
    instances: Vec<Instance>,
    /// Sessions of LTTng.
    lttng: Vec<super::lttng::Summary>,
    notes: Vec<String>,
}

/// One trace array; the top level has no name.
#[derive(Serialize)]
struct Instance {
    name: String,
    tracer: String,
    clock: String,
    tracing_on: bool,
    live: Vec<Cpu>,
    snapshot: Option<Vec<Cpu>>,
    /// Of the live ring and of the snapshot.
    evidence: Vec<Evidence>,
    #[serde(skip)]
    accounts: Vec<Account<'static>>,
}

/// One CPU's ring.
#[derive(Serialize)]
struct Cpu {
    cpu: u32,
    sub_buffers: usize,
    sub_buffer_size: u32,
    entries: u64,
    overrun: u64,
    commit_overrun: u64,
    dropped_events: u64,
    read_events: u64,
    bytes: u64,
}

/// What is known of a machine.
pub(super) fn of(origin: &Origin, machine: &Machine, arrays: &[Named], lttng: &[&Lttng]) -> Summary {
    let tracing = &machine.tracing;
    let kernel = machine.kernel.as_deref();
    let log = kernel.map(|k| k.log().rows).unwrap_or_default();
    let crash = kernel.map(|k| k.crash(&log)).unwrap_or_default();
    let time = kernel.and_then(|k| k.time().ok());
    let mut notes = machine.notes.clone();
    notes.extend(tracing.evidence.notes.iter().cloned());
    notes.extend(kernel.iter().flat_map(|k| k.missing.iter().map(ToString::to_string)));
    Summary {
        from: origin.path.clone(),
        kind: origin.kind,
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
        instances: arrays.iter().filter_map(|array| instance(machine, array)).collect(),
        lttng: lttng.iter().map(|lttng| super::lttng::of(lttng.session())).collect(),
        notes,
    }
}

fn instance(machine: &Machine, named: &Named) -> Option<Instance> {
    let array = machine.array(named.index)?;
    let cpus = |ring: &dyn Ring| -> Vec<Cpu> {
        let cpu = |(at, c): (usize, &CpuRing)| Cpu {
            cpu: c.cpu,
            sub_buffers: c.sub_buffers,
            sub_buffer_size: c.sub_buffer_size,
            // A memory has the kernel's own count; a file's may be of what was still in the kernel's ring.
            entries: if machine.kernel.is_some() { c.stats.entries } else { count(machine, ring, at) },
            overrun: c.stats.overrun,
            commit_overrun: c.stats.commit_overrun,
            dropped_events: c.stats.dropped,
            read_events: c.stats.read,
            bytes: c.stats.bytes,
        };
        ring.cpus().iter().enumerate().map(cpu).collect()
    };
    let snapshot = array.snapshot.as_ref().map(|ring| (format!("{}, snapshot", named.name), ring));
    let rings = std::iter::once((named.name.clone(), &array.live)).chain(snapshot);
    let accounts: Vec<Account<'static>> =
        rings.map(|(name, ring)| account::of_ring(&name, &**ring, ring.checked())).collect();
    Some(Instance {
        name: array.name.clone(),
        tracer: array.tracer.clone(),
        clock: array.clock.clone(),
        tracing_on: array.is_on,
        live: cpus(&*array.live),
        snapshot: array.snapshot.as_ref().map(|ring| cpus(&**ring)),
        evidence: accounts.iter().map(Account::report).collect(),
        accounts,
    })
}

/// How many events a CPU's sub-buffers have.
fn count(machine: &Machine, ring: &dyn Ring, cpu: usize) -> u64 {
    let (layout, order) = (machine.tracing.header_page, machine.tracing.byte_order);
    let mut bytes = Vec::new();
    let of = |index| {
        let info = ring.sub_buffer(cpu, index, &mut bytes);
        Events::new(&bytes, layout, order, info.committed).count() as u64
    };
    ring.cpus().get(cpu).map_or(0, |cpu| (0..cpu.sub_buffers).map(of).sum())
}

/// Writes it for people: one screen.
pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {}", summary.from.display(), summary.kind)?;
    writeln!(out, "  kernel     {}", plain(&summary.uname))?;
    if let Some(uptime) = summary.uptime_ns {
        let seconds = uptime / 1_000_000_000;
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
        writeln!(out, "  uptime     {days} days, {hours:02}:{minutes:02}:{:02}", seconds % 60)?;
    }
    if let Some(oops) = &summary.oops {
        writeln!(out, "  oops       {}", plain(oops))?;
    }
    if let Some(panic) = &summary.panic {
        let cpu = summary.crash_cpu.map_or_else(String::new, |cpu| format!(" (CPU {cpu})"));
        writeln!(out, "  panic      {}{cpu}", plain(panic))?;
    }
    let Summary { cpus_online, modules, tasks, event_formats, .. } = summary;
    let modules = if summary.has_memory { format!(", {modules} modules") } else { String::new() };
    writeln!(out, "  there are  {cpus_online} CPUs online, {tasks} tasks{modules}, {event_formats} event formats")?;
    for instance in &summary.instances {
        write_instance(instance, out)?;
    }
    summary.lttng.iter().try_for_each(|session| super::lttng::write(session, out))?;
    summary.notes.iter().try_for_each(|note| writeln!(out, "  note: {}", plain(note)))
}

fn write_instance(instance: &Instance, out: &mut dyn Write) -> io::Result<()> {
    let name =
        if instance.name.is_empty() { "top level".to_owned() } else { format!("instance {}", plain(&instance.name)) };
    let on = if instance.tracing_on { "on" } else { "off" };
    writeln!(out, "\n  {name}: tracer {}, clock {}, tracing {on}", plain(&instance.tracer), plain(&instance.clock))?;
    let mut table =
        Table::new(["ring", "cpu", "sub-buffers", "size", "entries", "overrun", "dropped", "read"]).indent(4);
    let rings = [("live", Some(&instance.live)), ("snapshot", instance.snapshot.as_ref())];
    for (ring, cpu) in rings.into_iter().flat_map(|(name, cpus)| cpus.into_iter().flatten().map(move |cpu| (name, cpu)))
    {
        let numbers = [
            u64::from(cpu.cpu),
            cpu.sub_buffers as u64,
            cpu.sub_buffer_size.into(),
            cpu.entries,
            cpu.overrun,
            cpu.dropped_events,
            cpu.read_events,
        ];
        table.row(std::iter::once(ring.to_owned()).chain(numbers.map(|n| n.to_string())));
    }
    write!(out, "{}", table.render())?;
    instance.accounts.iter().try_for_each(|account| indented(account, out))
}

/// Writes an account four blanks to the right.
pub(super) fn indented(account: &Account<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::new();
    account.write(LIMIT, &mut text)?;
    String::from_utf8_lossy(&text).lines().try_for_each(|line| writeln!(out, "    {line}"))
}
