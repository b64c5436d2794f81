//! What `recover` writes of a kernel's trace.

use super::{Args, Format, Line, Report, lttng};
use crate::exit::Outcome;
use crate::ftrace::{self, Machine};
use crate::names::Taken;
use crate::say;
use anyhow::{Context, bail};
use lastwords_formats::ftrace::{dat, text};
use lastwords_formats::{Totals, create_file, create_folder};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Writes each machine's trace.
pub(super) fn run(args: &Args, machines: &[Machine]) -> anyhow::Result<Outcome> {
    if !args.output.is_dir() {
        create_folder(&args.output)?;
    }
    let mut lines = Vec::new();
    for (number, machine) in machines.iter().enumerate() {
        // Several dumps: a folder for each.
        let folder = if machines.len() > 1 { args.output.join(number.to_string()) } else { args.output.clone() };
        if !folder.is_dir() {
            create_folder(&folder)?;
        }
        match args.to {
            Some(Format::TraceDat) => lines.push(trace_dat(args, machine, folder.join("trace.dat"))?),
            Some(Format::Text) => lines.extend(texts(args, machine, &folder)?),
            None | Some(Format::Ctf | Format::Ctf2) if !machine.lttng.is_empty() => {
                lines.extend(lttng::write(args, &machine.from, &machine.lttng, &folder)?);
                if args.to.is_none() && has_events(machine) {
                    lines.push(trace_dat(args, machine, folder.join("trace.dat"))?);
                }
            }
            None => lines.push(trace_dat(args, machine, folder.join("trace.dat"))?),
            Some(Format::Ctf | Format::Ctf2 | Format::Json) => {
                bail!("a kernel's trace is written as trace-dat or text; for CTF and JSON give a session")
            }
        }
    }
    if args.json {
        let report = Report { schema: "lastwords.recover.v1", sessions: &lines };
        say::line(serde_json::to_string_pretty(&report)?)?;
    } else {
        lines.iter().try_for_each(|line| say::line(super::text_of(line)))?;
    }
    let losses = lines.iter().any(|line| line.losses);
    Ok(if args.strict && losses { Outcome::Losses } else { Outcome::Done })
}

/// The kernel's own tracer recorded something.
fn has_events(machine: &Machine) -> bool {
    let rings = machine.tracing.arrays.iter().flat_map(|array| std::iter::once(&array.live).chain(&array.snapshot));
    rings.flat_map(|ring| ring.cpus()).any(|cpu| cpu.stats.entries > 0)
}

/// One file with all instances.
fn trace_dat(args: &Args, machine: &Machine, path: PathBuf) -> anyhow::Result<Line> {
    let options = dat::WriteOptions { snapshot: args.which.snapshot, ..dat::WriteOptions::default() };
    let totals = dat::write(&path, &machine.tracing, &options).with_context(|| path.display().to_string())?;
    let mut losses = false;
    for array in 0..machine.tracing.arrays.len() {
        losses |= ftrace::evidence(machine, array, args.which.snapshot);
    }
    Ok(line(machine, "trace", path, &totals, losses))
}

/// A file for each instance that is wanted; all of them where none is named.
fn texts(args: &Args, machine: &Machine, folder: &std::path::Path) -> anyhow::Result<Vec<Line>> {
    let arrays = match args.which.sessions.is_empty() {
        true => (0..machine.tracing.arrays.len()).collect(),
        false => ftrace::arrays(machine, &args.which)?,
    };
    let mut taken = Taken::default();
    let mut lines = Vec::new();
    for array in arrays {
        let Some(named) = machine.tracing.arrays.get(array) else { continue };
        let name = if named.name.is_empty() { "trace".to_owned() } else { format!("trace-{}", named.name) };
        let path = folder.join(format!("{}.txt", taken.name(&name)));
        let options = text::Options { snapshot: args.which.snapshot, ..text::Options::default() };
        let mut out = BufWriter::new(create_file(&path)?);
        let written = text::write_trace(&mut out, &machine.tracing, array, &options);
        let summary = written.with_context(|| path.display().to_string())?;
        out.flush().with_context(|| path.display().to_string())?;
        let losses = ftrace::evidence(machine, array, args.which.snapshot);
        let totals = Totals { events: summary.events, bytes: summary.bytes, ..Totals::default() };
        lines.push(line(machine, &name, path, &totals, losses));
    }
    Ok(lines)
}

fn line(machine: &Machine, name: &str, path: PathBuf, totals: &Totals, losses: bool) -> Line {
    Line {
        path,
        session: name.to_owned(),
        from: machine.from.clone(),
        events: Some(totals.events),
        streams: totals.streams,
        packets: totals.packets,
        bytes: totals.bytes,
        lost_events: 0,
        losses,
    }
}
