//! `recover --carve`: what lies in memory, whether or not something leads to it.

use super::lttng::{Names, write};
use super::{Args, recover_one};
use crate::exit::{Outcome, chain};
use crate::ftrace::Machine;
use crate::inputs::Input;
use crate::meter::Meter;
use crate::names::Taken;
use crate::output::machine::{self, Part};
use crate::output::{self, Format, Line};
use crate::progress::spinning;
use crate::table::plain;
use crate::{evidence, lttng, say};
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_formats::ftrace::Choice;
use lastwords_image::{Image, Kind, core::CoreInfo, vmcore};
use lastwords_kernel::{Kernel, find};
use lastwords_walk::{Options, own};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image in which is looked for anything.
struct Source {
    path: PathBuf,
    kind: Kind,
    core: Option<CoreInfo>,
    image: Arc<dyn Image>,
    /// It is the memory of a machine.
    physical: Option<vmcore::Physical>,
    /// What may be done with it.
    budget: Arc<Budget>,
}

/// Writes what lies in the inputs' memory.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    output::folder(&args.output)?;
    let mut lines = Vec::new();
    for (number, word) in args.inputs.iter().enumerate() {
        let source = open(args, Path::new(word))?;
        let folder = if args.inputs.len() > 1 { args.output.join(number.to_string()) } else { args.output.clone() };
        output::folder(&folder)?;
        let found = one(args, &source, &folder)?;
        if found.is_empty() {
            bail!("{word}: no sub-buffer of a session, packet of LTTng or sub-buffer of ftrace is in it");
        }
        lines.extend(found);
    }
    if args.json {
        output::print_json(&lines)?;
    }
    Ok(output::outcome(args.strict, &lines))
}

fn open(args: &Args, path: &Path) -> anyhow::Result<Source> {
    let budget = Arc::new(Budget::default());
    let named = || path.display().to_string();
    let path = path.to_owned();
    if let Some(map) = args.memory.raw().filter(|map| !map.is_empty()) {
        return Ok(of_machine(path.clone(), vmcore::open_raw(&path, &map, &budget).with_context(named)?, budget));
    }
    if path.is_file()
        && let Some(physical) = spinning(|watch| vmcore::open_physical(&path, &budget, watch)).with_context(named)?
    {
        return Ok(of_machine(path, physical, budget));
    }
    let opened = spinning(|watch| lastwords_image::open(&path, &budget, watch)).with_context(named)?;
    opened.notes.iter().for_each(|note| say::note(plain(note)));
    Ok(Source { path, kind: opened.kind, core: opened.core, image: opened.image, physical: None, budget })
}

fn of_machine(path: PathBuf, physical: vmcore::Physical, budget: Arc<Budget>) -> Source {
    let image = Arc::clone(&physical.image);
    Source { path, kind: Kind::Plain, core: None, image, physical: Some(physical), budget }
}

fn one(args: &Args, source: &Source, folder: &Path) -> anyhow::Result<Vec<Line>> {
    let budget = &*source.budget;
    let named = || source.path.display().to_string();
    let options = Options { snapshot: args.which.snapshot, ..Options::default() };
    let own = spinning(|watch| own::carve(&source.image, &options, budget, watch)).with_context(named)?;
    own.notes.iter().for_each(|note| say::note(plain(note)));
    let ours: Vec<[u8; 16]> = own.sessions.iter().map(|session| session.info().uuid).collect();
    let (mut taken, mut lines) = (Taken::default(), Vec::new());
    for session in own.sessions.into_iter().filter(|session| args.which.wants(&session.info().name)) {
        let input = Input {
            from: source.path.clone(),
            kind: source.kind,
            core: source.core.clone(),
            ended: None,
            session: Arc::new(session),
        };
        let name = taken.name(&name_of(&input));
        lines.push(recover_one(args, &input, folder, &name)?);
        if !args.json {
            lines.last().into_iter().for_each(|line| say::line(output::text_of(line)));
            evidence::print(&input);
        }
    }
    let mut packets = lttng::carve(&source.image, args.metadata.as_deref(), budget).with_context(named)?;
    // Sub-buffers of sessions have the same form.
    packets.retain(|packets| !ours.contains(&packets.uuid));
    let more = write(
        &args.which,
        &source.path,
        &mut packets,
        folder,
        Names::beside(&lines),
        args.to.and_then(Format::ctf_version),
    )?;
    if !args.json {
        more.iter().for_each(|line| say::line(output::text_of(line)));
    }
    lines.extend(more);
    lines.extend(of_kernel(args, source, folder)?);
    Ok(lines)
}

/// Sub-buffers of the kernel's own tracer, in rings as they fit; nothing where the memory does not tell the formats of events.
fn of_kernel(args: &Args, source: &Source, folder: &Path) -> anyhow::Result<Vec<Line>> {
    let Some(physical) = &source.physical else { return Ok(Vec::new()) };
    let machine = match machine(args, source, physical) {
        Ok(machine) => machine,
        Err(error) => {
            say::note(format_args!("the kernel's own tracer is not looked for: {}", chain(&error)));
            return Ok(Vec::new());
        }
    };
    let arrays: Vec<usize> = (0..machine.tracing.arrays.len()).collect();
    let format = args.to.unwrap_or(Format::Text);
    let choice = Choice::default();
    let sets: Vec<&[usize]> = if format.holds_all() { vec![arrays.as_slice()] } else { arrays.chunks(1).collect() };
    let mut lines = Vec::new();
    for arrays in sets.into_iter().filter(|arrays| !arrays.is_empty()) {
        let named = arrays.first().and_then(|first| machine.tracing.arrays.get(*first));
        let name = named.map_or_else(String::new, |array| format!("trace-{}", array.name));
        let part = Part { machine: &machine, arrays, choice: &choice, log: &[] };
        lines.push(machine::write(&part, format, &name, &format.path(folder, &name))?);
        if !args.json {
            lines.last().into_iter().for_each(|line| say::line(output::text_of(line)));
        }
    }
    Ok(lines)
}

fn machine(args: &Args, source: &Source, physical: &vmcore::Physical) -> anyhow::Result<Machine> {
    let budget = Arc::clone(&source.budget);
    let found = spinning(|watch| find::kernel(physical, &budget, watch))?;
    let memory = Arc::new(found.memory);
    let kernel = Arc::new(Kernel::open(memory.clone(), &found.info, args.memory.sources(&found.info)?, budget)?);
    let mut tracing = lastwords_walk::ftrace::carve(&kernel, &memory)?;
    let meter = Meter::of(&mut tracing);
    let kind = physical.format.words();
    Ok(Machine {
        from: source.path.clone(),
        kind,
        notes: Vec::new(),
        kernel: Some(kernel),
        tracing,
        meter,
        lttng: Vec::new(),
        is_told: Cell::default(),
    })
}

/// A session whose name is lost is called by its UUID.
fn name_of(input: &Input) -> String {
    let info = input.session.info();
    let uuid = || info.uuid.iter().take(4).fold("carved-".to_owned(), |name, byte| format!("{name}{byte:02x}"));
    if info.name.is_empty() { uuid() } else { info.name.clone() }
}
