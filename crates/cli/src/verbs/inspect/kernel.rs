//! Prints the report of `inspect` on a kernel's trace for people.

use super::indented;
use crate::table::{Table, plain};
use lastwords_open::inspect::kernel::{Instance, Report};
use std::io::{self, Write};

/// Writes the report for people.
pub(super) fn write(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}: {}", report.from.display(), report.kind)?;
    writeln!(out, "  kernel     {}", plain(&report.uname))?;
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
    let Report { cpus_online, modules, tasks, event_formats, .. } = report;
    let modules = if report.has_memory { format!(", {modules} modules") } else { String::new() };
    writeln!(out, "  there are  {cpus_online} CPUs online, {tasks} tasks{modules}, {event_formats} event formats")?;
    for instance in &report.instances {
        write_instance(instance, out)?;
    }
    report.lttng.iter().try_for_each(|session| super::lttng::write(session, out))?;
    report.notes.iter().try_for_each(|note| writeln!(out, "  note: {}", plain(note)))
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
    instance.evidence.iter().try_for_each(|account| indented(account, out))
}
