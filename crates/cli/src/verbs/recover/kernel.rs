//! `recover` of a kernel's trace.

use super::{Args, lttng};
use crate::ctf;
use crate::exit::Outcome;
use crate::ftrace::{self, Machine};
use crate::names::Taken;
use crate::output::machine::{Part, write};
use crate::output::{self, Format, Line};
use crate::say;
use crate::select::Which;
use crate::table::plain;
use anyhow::Context;
use lastwords_formats::ftrace::Choice;
use std::path::Path;

/// Writes each machine's trace.
pub(super) fn run(args: &Args, machines: &mut [Machine]) -> anyhow::Result<Outcome> {
    for machine in machines.iter().filter(|machine| !wants_ftrace(args, machine)) {
        args.to.map_or(Ok(()), ctf::check).with_context(|| {
            format!("{}: ftrace recorded nothing that is wanted, LTTng did", machine.from.display())
        })?;
    }
    output::folder(&args.output)?;
    let mut lines = Vec::new();
    let several = machines.len() > 1;
    for (number, machine) in machines.iter_mut().enumerate() {
        // Several dumps: a folder for each.
        let folder = if several { args.output.join(number.to_string()) } else { args.output.clone() };
        output::folder(&folder)?;
        let own = if wants_ftrace(args, machine) { one(args, machine, &folder)? } else { Vec::new() };
        if own.is_empty() {
            machine.notes.iter().for_each(|note| say::note(plain(note)));
        }
        if args.to.is_some_and(|format| ctf::check(format).is_err()) {
            left_out(machine, &args.which);
        } else {
            let names = lttng::Names::beside(&own);
            lines.extend(lttng::write_as(args, &machine.from, &mut machine.lttng, &folder, names)?);
        }
        lines.extend(own);
    }
    output::tell(&lines, args.json)?;
    Ok(output::outcome(args.strict, &lines))
}

/// Its own tracer is wanted: it recorded something, and what is named are not sessions of LTTng alone; or there is nothing else.
fn wants_ftrace(args: &Args, machine: &Machine) -> bool {
    let is_named = args.which.sessions.is_empty() || ftrace::arrays(machine, &args.which).is_ok();
    machine.lttng.is_empty() || has_events(machine) && is_named
}

/// A session of LTTng's is asked for, or nothing is and there is nothing else.
pub(crate) fn wants_lttng(which: &Which, machines: &[Machine]) -> bool {
    let mut sessions = machines.iter().flat_map(|machine| &machine.lttng).peekable();
    match which.sessions.is_empty() {
        true => sessions.peek().is_some() && !machines.iter().any(has_events),
        false => sessions.any(|session| which.wants(&session.name)),
    }
}

/// Says which sessions of LTTng are not in what is written or shown of the kernel's own tracer.
pub(crate) fn left_out(machine: &Machine, which: &Which) {
    for session in machine.lttng.iter().filter(|session| which.wants(&session.name)) {
        let name = plain(&session.name);
        say::note(format_args!(
            "session {name} of LTTng is not in it: `--session {name}` reads it; it can be text, json, ctf, ctf2"
        ));
    }
}

/// The kernel's own tracer recorded something.
fn has_events(machine: &Machine) -> bool {
    machine.tracing.arrays.iter().any(|array| ftrace::has_events(machine, array))
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
