//! A kernel's trace, written in any format.

use super::{Done, Family, Format, Job, Line, to_file};
use crate::account;
use crate::input::Array;
use crate::names::Taken;
use crate::progress::Progress;
use crate::say;
use crate::select::Chosen;
use crate::table::plain;
use crate::text::{log, timeline_of};
use anyhow::{Context, bail};
use lastwords_ctf::Version;
use lastwords_formats::Totals;
use lastwords_formats::ftrace::beside::{Beside, Task};
use lastwords_formats::ftrace::log::LogLine;
use lastwords_formats::ftrace::{Choice, ctf, dat, json, text};
use lastwords_formats::perfetto;
use lastwords_open::Machine;
use std::path::Path;

/// What of a machine to write.
pub(super) struct Part<'a> {
    arrays: &'a [Array],
    machine: &'a Machine,
    choice: Choice,
    /// The kernel's log, to be merged in.
    log: Vec<LogLine>,
}

impl<'a> Part<'a> {
    /// The chosen events of some arrays of one machine.
    ///
    /// # Errors
    /// The log is wanted, and there is none.
    pub(super) fn new(job: &Job<'_>, chosen: &Chosen, arrays: &'a [Array]) -> anyhow::Result<Self> {
        let first = arrays.first().context("no trace array is chosen")?;
        let machine = first.get().context("the trace array is gone")?.0;
        let log = if job.with_log { log(first)? } else { Vec::new() };
        Ok(Self { arrays, machine, choice: chosen.choice(arrays, job.traces.snapshot), log })
    }
}

/// Writes arrays of one machine into a folder: one file for all of them, or one for each.
pub(super) fn each(
    job: &Job<'_>,
    chosen: &Chosen,
    arrays: &[Array],
    into: &Path,
    taken: &mut Taken,
    done: &mut Done,
) -> anyhow::Result<()> {
    super::folder(into)?;
    let format = job.format(Family::Ftrace);
    let sets: Vec<&[Array]> = if format.holds_all() { vec![arrays] } else { arrays.chunks(1).collect() };
    for (number, set) in sets.into_iter().enumerate() {
        let name = match set {
            [Array { name, .. }] if !format.holds_all() && name != "top" => format!("trace-{name}"),
            _ => "trace".to_owned(),
        };
        let path = format.path(into, &taken.name(&name));
        job.room(&path)?;
        let line = write(&Part::new(job, chosen, set)?, format, &name, &path)?;
        job.tell(line, done);
        for (at, array) in set.iter().enumerate().filter(|_| !job.json) {
            let account = account::of_array(array, job.traces.snapshot, number + at == 0);
            done.losses |= account.is_some_and(|account| account::print(&account));
        }
    }
    Ok(())
}

/// Writes the arrays of a job as one file.
pub(super) fn one(job: &Job<'_>, chosen: &Chosen, format: Format) -> anyhow::Result<Line> {
    write(&Part::new(job, chosen, &job.traces.arrays)?, format, "trace", job.output)
}

/// Writes it as one file or folder; `name` is what the line calls it.
pub(super) fn write(part: &Part<'_>, format: Format, name: &str, path: &Path) -> anyhow::Result<Line> {
    let Part { machine, choice, .. } = part;
    let (tracing, snapshot) = (&machine.tracing, choice.snapshot);
    let Some(first) = part.arrays.first() else { bail!("no trace array is chosen") };
    let indices: Vec<usize> = part.arrays.iter().map(|array| array.index).collect();
    let shown = part.arrays.iter().filter_map(|array| Some(array.get()?.1));
    let bar = machine.meter.show(shown, snapshot, |total| {
        let mut bar = Progress::new(path.display().to_string(), total);
        Box::new(move |done| bar.set(done))
    });
    let log = timeline_of(first, &part.log);
    let totals = match format {
        Format::TraceDat => {
            let options = dat::WriteOptions { snapshot, arrays: indices, ..dat::WriteOptions::default() };
            dat::write(path, tracing, &options).with_context(|| path.display().to_string())?
        }
        Format::Text => {
            let options = text_options(choice)?;
            told(to_file(path, |out| Ok(text::write_with_log(out, tracing, first.index, &options, log)?))?)
        }
        Format::Json => told(to_file(path, |out| Ok(json::write(out, tracing, &indices, choice, log)?))?),
        Format::Perfetto => {
            let beside = beside(machine);
            told(to_file(path, |out| Ok(perfetto::ftrace::write(out, tracing, first.index, choice, &beside, log)?))?)
        }
        Format::Ctf | Format::Ctf2 => {
            let version = if format == Format::Ctf { Version::V1_8 } else { Version::V2 };
            told(ctf::write(path, tracing, first.index, choice, &beside(machine), version)?)
        }
    };
    drop(bar);
    let accounts: Vec<_> = part.arrays.iter().filter_map(|array| account::of_array(array, snapshot, true)).collect();
    let losses = accounts.iter().any(|account| account.has_losses());
    let lost_events = accounts.iter().map(|account| account.evidence.lost_events()).fold(0, u64::saturating_add);
    let line = Line::new(path, name.to_owned(), first.origin.path.clone(), &totals);
    Ok(Line { lost_events, losses, streams: streams(part), ..line })
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
    let choice = &part.choice;
    let wants = |cpu: u32| choice.cpus.is_empty() || choice.cpus.contains(&cpu);
    let rings = part.arrays.iter().filter_map(|array| array.get()?.1.shown(choice.snapshot));
    let used = rings.map(|ring| ring.cpus().iter().filter(|cpu| cpu.sub_buffers > 0 && wants(cpu.cpu)).count() as u64);
    used.sum()
}

/// Says what a writer remarks; its totals.
fn told(summary: text::Summary) -> Totals {
    summary.notes.iter().for_each(|note| say::note(plain(note)));
    Totals { events: summary.events, bytes: summary.bytes, faults: summary.faults, ..Totals::default() }
}
