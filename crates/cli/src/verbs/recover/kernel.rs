//! `recover` of a kernel's trace.

use super::{Args, lttng};
use crate::exit::Outcome;
use crate::ftrace::{self, Machine};
use crate::names::Taken;
use crate::output::machine::{Part, write};
use crate::output::{self, Format, Line};
use crate::say;
use crate::table::plain;
use lastwords_formats::ftrace::Choice;
use std::path::Path;

/// Writes each machine's trace.
pub(super) fn run(args: &Args, machines: &mut [Machine]) -> anyhow::Result<Outcome> {
    output::folder(&args.output)?;
    let mut lines = Vec::new();
    let several = machines.len() > 1;
    for (number, machine) in machines.iter_mut().enumerate() {
        // Several dumps: a folder for each.
        let folder = if several { args.output.join(number.to_string()) } else { args.output.clone() };
        output::folder(&folder)?;
        // The version that is asked for; without one, the tracer's own.
        let version = args.to.and_then(Format::ctf_version);
        if args.to.is_some() && version.is_none() || machine.lttng.is_empty() {
            lines.extend(one(args, machine, &folder)?);
            continue;
        }
        let own = if wants_ftrace(args, machine) { one(args, machine, &folder)? } else { Vec::new() };
        if own.is_empty() {
            machine.notes.iter().for_each(|note| say::note(plain(note)));
        }
        let names = lttng::Names::beside(&own);
        lines.extend(lttng::write(&args.which, &machine.from, &mut machine.lttng, &folder, names, version)?);
        lines.extend(own);
    }
    output::tell(&lines, args.json)?;
    Ok(output::outcome(args.strict, &lines))
}

/// The kernel's own tracer recorded something, and it is wanted: what is named may be sessions of LTTng alone.
fn wants_ftrace(args: &Args, machine: &Machine) -> bool {
    has_events(machine) && (args.which.sessions.is_empty() || ftrace::arrays(machine, &args.which).is_ok())
}

/// The kernel's own tracer recorded something.
pub(crate) fn has_events(machine: &Machine) -> bool {
    let rings = machine.tracing.arrays.iter().flat_map(|array| std::iter::once(&array.live).chain(&array.snapshot));
    rings.flat_map(|ring| ring.cpus()).any(|cpu| cpu.stats.entries > 0)
}

/// One file for all instances that are wanted, or one for each; all instances where none is named.
fn one(args: &Args, machine: &Machine, folder: &Path) -> anyhow::Result<Vec<Line>> {
    let format = args.to.unwrap_or(Format::TraceDat);
    ftrace::check(machine)?;
    let arrays = match args.which.sessions.is_empty() {
        true => (0..machine.tracing.arrays.len()).collect(),
        false => ftrace::arrays(machine, &args.which)?,
    };
    let choice = Choice { snapshot: args.which.snapshot, ..Choice::default() };
    let log = if args.with_log { ftrace::log(machine)? } else { Vec::new() };
    if format.holds_all() {
        let part = Part { machine, arrays: &arrays, choice: &choice, log: &log };
        return Ok(vec![write(&part, format, "trace", &format.path(folder, "trace"))?]);
    }
    let mut taken = Taken::default();
    let mut lines = Vec::new();
    for array in arrays {
        let Some(named) = machine.tracing.arrays.get(array) else { continue };
        let name = if named.name.is_empty() { "trace".to_owned() } else { format!("trace-{}", named.name) };
        let path = format.path(folder, &taken.name(&name));
        let part = Part { machine, arrays: &[array], choice: &choice, log: &log };
        lines.push(write(&part, format, &name, &path)?);
    }
    Ok(lines)
}
