//! A kernel's trace, written in any format.

use super::{Format, Line, to_file};
use crate::ftrace::{self, Machine};
use crate::say;
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords_ctf::Version;
use lastwords_formats::Totals;
use lastwords_formats::ftrace::beside::{Beside, Task};
use lastwords_formats::ftrace::log::LogLine;
use lastwords_formats::ftrace::{Choice, ctf, dat, json, text};
use lastwords_formats::perfetto;
use std::path::Path;

/// What of a machine to write.
pub(crate) struct Part<'a> {
    /// The machine.
    pub(crate) machine: &'a Machine,
    /// Positions of the trace arrays.
    pub(crate) arrays: &'a [usize],
    /// Which events.
    pub(crate) choice: &'a Choice,
    /// The kernel's log, to be merged in.
    pub(crate) log: &'a [LogLine],
}

impl Format {
    /// One file holds all arrays of a machine.
    pub(crate) fn holds_all(self) -> bool {
        matches!(self, Self::TraceDat | Self::Json)
    }

    /// The kernel's log can stand among the events.
    pub(crate) fn has_log(self) -> bool {
        matches!(self, Self::Text | Self::Json | Self::Perfetto)
    }
}

/// Writes it as one file or folder; `name` is what the line calls it. A trace.dat file has all events of its arrays, a text
/// those of one array.
pub(crate) fn write(part: &Part<'_>, format: Format, name: &str, path: &Path) -> anyhow::Result<Line> {
    let tracing = &part.machine.tracing;
    if !part.log.is_empty() && !format.has_log() {
        bail!("--with-log is for text, json and perfetto");
    }
    let &[first, ..] = part.arrays else { bail!("no trace array is chosen") };
    if part.arrays.len() > 1 && !format.holds_all() {
        bail!("{}: one instance fits in it; name one by --instance", path.display());
    }
    let shown = part.arrays.iter().filter_map(|array| tracing.arrays.get(*array));
    let bar = part.machine.meter.show(&path.display().to_string(), shown, part.choice.snapshot);
    let totals = match format {
        Format::TraceDat => {
            let arrays = part.arrays.to_vec();
            let options = dat::WriteOptions { snapshot: part.choice.snapshot, arrays, ..dat::WriteOptions::default() };
            dat::write(path, tracing, &options).with_context(|| path.display().to_string())?
        }
        Format::Text => {
            let options = text_options(part.choice)?;
            let log = ftrace::timeline(part.machine, first, part.log);
            told(to_file(path, |out| text::write_with_log(out, tracing, first, &options, log))?)
        }
        Format::Json => {
            let log = ftrace::timeline(part.machine, first, part.log);
            told(to_file(path, |out| json::write(out, tracing, part.arrays, part.choice, log))?)
        }
        Format::Perfetto => {
            let log = ftrace::timeline(part.machine, first, part.log);
            let beside = beside(part.machine);
            told(to_file(path, |out| perfetto::ftrace::write(out, tracing, first, part.choice, &beside, log))?)
        }
        Format::Ctf | Format::Ctf2 => {
            let version = if format == Format::Ctf { Version::V1_8 } else { Version::V2 };
            told(ctf::write(path, tracing, first, part.choice, &beside(part.machine), version)?)
        }
    };
    drop(bar);
    let mut losses = false;
    for array in part.arrays {
        losses |= ftrace::evidence(part.machine, *array, part.choice.snapshot);
    }
    Ok(Line {
        path: path.to_owned(),
        session: name.to_owned(),
        from: part.machine.from.clone(),
        events: Some(totals.events),
        streams: streams(part),
        packets: totals.packets,
        bytes: totals.bytes,
        lost_events: 0,
        losses,
        unreadable: false,
        merged: Vec::new(),
    })
}

fn text_options(choice: &Choice) -> anyhow::Result<text::Options> {
    let cpu = match choice.cpus.as_slice() {
        [] => None,
        [cpu] => Some(*cpu),
        _ => bail!("a text has all CPUs or one; give one by --cpu, or use --to json"),
    };
    Ok(text::Options {
        snapshot: choice.snapshot,
        cpu,
        events: choice.events.clone(),
        since: choice.since,
        until: choice.until,
        last: choice.last,
        ..text::Options::default()
    })
}

/// Tasks and clocks of a kernel's memory.
fn beside(machine: &Machine) -> Beside {
    let Some(kernel) = &machine.kernel else { return Beside::default() };
    let tasks = kernel.tasks().rows.into_iter();
    Beside {
        tasks: tasks.map(|t| Task { pid: t.pid, tgid: t.tgid, comm: t.comm }).collect(),
        moment: kernel.time().ok().map(|time| (time.uptime, time.wall)),
    }
}

/// CPUs whose events are in it.
fn streams(part: &Part<'_>) -> u64 {
    let arrays = part.machine.tracing.arrays.iter().enumerate();
    let wanted = arrays.filter(|(at, _)| part.arrays.contains(at));
    let ring = |array: &lastwords_trace::ftrace::Array| {
        if part.choice.snapshot { array.snapshot.clone() } else { Some(array.live.clone()) }
    };
    let wants = |cpu: u32| part.choice.cpus.is_empty() || part.choice.cpus.contains(&cpu);
    let used = wanted
        .filter_map(|(_, array)| ring(array))
        .map(|ring| ring.cpus().iter().filter(|cpu| cpu.sub_buffers > 0 && wants(cpu.cpu)).count() as u64);
    used.sum()
}

/// Says what a writer remarks; its totals.
fn told(summary: text::Summary) -> Totals {
    summary.notes.iter().for_each(|note| say::note(plain(note)));
    Totals { events: summary.events, bytes: summary.bytes, faults: summary.faults, ..Totals::default() }
}
