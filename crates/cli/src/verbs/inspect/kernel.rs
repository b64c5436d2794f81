//! Prints the report of `inspect` on a kernel's trace for people.

use super::activity::{self, ROWS, write_more};
use super::losses;
use crate::paint::bold;
use crate::progress::human_bytes;
use crate::table::{Table, plain};
use lastwords_ftrace::UNKNOWN;
use lastwords_open::inspect::kernel::{Instance, Report};
use lastwords_render::missing::count;
use std::io::{self, Write};

/// Writes the report for people.
pub(super) fn write(report: &Report<'_>, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {}", bold(plain(&report.from.display().to_string())), report.kind)?;
    if !report.uname.is_empty() {
        writeln!(out, "  kernel     {}", plain(&report.uname))?;
    }
    if let Some(uptime) = report.uptime_ns {
        let seconds = uptime / 1_000_000_000;
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
        writeln!(out, "  uptime     {days} days, {hours:02}:{minutes:02}:{:02}", seconds % 60)?;
    }
    if let Some(oops) = &report.oops {
        writeln!(out, "  oops       {}", plain(oops))?;
    }
    if let Some(panic) = &report.panic {
        let cpu = report.crash_cpu.map_or_else(String::new, |cpu| format!(" (CPU {cpu})"));
        writeln!(out, "  panic      {}{cpu}", plain(panic))?;
    }
    let modules = Some(report.modules)
        .filter(|_| report.has_memory)
        .map(|modules| count(modules as u64, "module"));
    let [tasks, formats] = [(report.tasks, "task"), (report.event_formats, "event format")]
        .map(|(n, of)| count(n as u64, of));
    let there: Vec<String> = [count(report.cpus_online.into(), "CPU") + " online", tasks]
        .into_iter()
        .chain(modules)
        .chain([formats])
        .collect();
    writeln!(out, "  there are  {}", there.join(", "))?;
    #[cfg(feature = "bpf")]
    write_bpf(report, verbose, out)?;
    if let Some(number) = report.histograms.filter(|number| *number > 0) {
        let number = count(number as u64, "histogram");
        writeln!(out, "  triggers   {number}: report --histograms")?;
    }
    #[cfg(feature = "perf")]
    write_perf(report, verbose, out)?;
    for instance in &report.instances {
        write_instance(instance, verbose, out)?;
    }
    report.lttng.iter().try_for_each(|session| super::lttng::write(session, verbose, out))?;
    let notes = if verbose { report.notes.clone() } else { losses::remarks(&report.notes) };
    notes.iter().try_for_each(|note| writeln!(out, "  note: {}", plain(note)))
}

/// Writes how many BPF programs and maps there are, or all of them.
#[cfg(feature = "bpf")]
fn write_bpf(report: &Report<'_>, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let Some(bpf) = report.bpf.as_ref().filter(|bpf| !bpf.maps.is_empty()) else { return Ok(()) };
    let [programs, maps] = [(bpf.programs.len(), "program"), (bpf.maps.len(), "map")]
        .map(|(n, of)| count(n as u64, of));
    writeln!(out, "  BPF        {programs}, {maps}")?;
    if !verbose {
        return Ok(());
    }
    let programs = bpf.programs.iter().map(ToString::to_string);
    let mut lines = programs.chain(bpf.maps.iter().map(ToString::to_string));
    lines.try_for_each(|line| writeln!(out, "    {}", plain(&line)))
}

/// Writes how many buffers of perf there are, and those of each recording: of the same process and
/// events.
#[cfg(feature = "perf")]
fn write_perf(report: &Report<'_>, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let Some(buffers) = report.perf.as_ref().filter(|buffers| !buffers.is_empty()) else {
        return Ok(());
    };
    writeln!(out, "  perf       {}: report --perf", count(buffers.len() as u64, "buffer"))?;
    let mut groups = std::collections::BTreeMap::<_, Vec<Option<u32>>>::new();
    for buffer in buffers {
        let mut events: Vec<&str> = buffer.events.iter().map(|event| event.name.as_str()).collect();
        events.sort_unstable();
        events.dedup();
        let owner = (buffer.owner.pid, buffer.owner.comm.as_str());
        groups.entry((owner, events)).or_default().push(buffer.cpu);
    }
    let shown = if verbose { groups.len() } else { ROWS };
    for (((pid, comm), events), cpus) in groups.iter().take(shown) {
        let number = count(cpus.len() as u64, "buffer");
        let cpus: Vec<String> = cpus.iter().flatten().map(ToString::to_string).collect();
        let cpus = match cpus.as_slice() {
            [] => String::new(),
            [one] => format!(" of CPU {one}"),
            several => format!(" of CPUs {}", several.join(", ")),
        };
        let events = plain(&events.join(", "));
        writeln!(out, "    {number}{cpus} of {} ({pid}): {events}", plain(comm))?;
    }
    write_more(groups.len(), shown, "recording", "    ", out)
}

fn write_instance(instance: &Instance, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let name = if instance.name.is_empty() {
        "top level".to_owned()
    } else {
        format!("instance {}", plain(&instance.name))
    };
    let on = instance.tracing_on.map_or(UNKNOWN, |on| if on { "on" } else { "off" });
    let word = |word: &Option<String>| word.as_deref().map_or_else(|| UNKNOWN.to_owned(), plain);
    writeln!(
        out,
        "\n  {name}: tracer {}, clock {}, tracing {on}",
        word(&instance.tracer),
        word(&instance.clock)
    )?;
    if let Some(activity) = &instance.activity {
        activity::write_head(Some(activity), "    ", out)?;
    }
    for (account, ring) in instance.evidence.iter().zip(["live ring", "snapshot"]) {
        let ring = Some(ring).filter(|_| instance.evidence.len() > 1);
        losses::write(account, ring, verbose, "    ", out)?;
    }
    if let Some(activity) = &instance.activity {
        activity::write_events(activity, verbose, 4, out)?;
    }
    let rings = [("live", Some(&instance.live)), ("snapshot", instance.snapshot.as_ref())];
    let cpus: Vec<_> = rings
        .into_iter()
        .flat_map(|(name, cpus)| cpus.into_iter().flatten().map(move |cpu| (name, cpu)))
        .collect();
    let mut table =
        Table::new(["RING", "CPU", "SIZE", "EVENTS", "OVERWRITTEN", "DROPPED", "READ"]).indent(4);
    let shown = if verbose { cpus.len() } else { ROWS };
    for (ring, cpu) in cpus.iter().take(shown) {
        let size = (cpu.sub_buffers as u64).saturating_mul(cpu.sub_buffer_size.into());
        let counts =
            [cpu.entries, cpu.overrun, cpu.dropped_events, cpu.read_events].map(|n| n.to_string());
        let sub_buffers = if verbose { format!(" in {}", cpu.sub_buffers) } else { String::new() };
        let begin = [(*ring).to_owned(), cpu.cpu.to_string(), human_bytes(size) + &sub_buffers];
        table.row(begin.into_iter().chain(counts));
    }
    write!(out, "{}", table.render())?;
    write_more(cpus.len(), shown, "ring", "    ", out)
}
