//! Inputs that are the kernel's own tracer: kernel crash dumps and trace.dat files.

use crate::exit::Outcome;
use crate::memory::Memory;
use crate::meter::Meter;
use crate::moment::Moment;
use crate::pager::Pager;
use crate::progress::spinning;
use crate::say;
use crate::select::{Events, Which};
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_formats::ftrace::log::{Log, LogLine, Relation};
use lastwords_formats::ftrace::{Choice, dat, text};
use lastwords_image::vmcore;
use lastwords_kernel::{Kernel, find};
use lastwords_trace::evidence::Evidence;
use lastwords_trace::ftrace::page::Events as PageEvents;
use lastwords_trace::ftrace::{Array, Tracing};
use std::cell::Cell;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A kernel's tracer, and where it was found.
pub(crate) struct Machine {
    /// What was named.
    pub(crate) from: PathBuf,
    /// What that is, a few words.
    pub(crate) kind: &'static str,
    /// Remarks on the file.
    pub(crate) notes: Vec<String>,
    /// The kernel, where the input is an image of its memory.
    pub(crate) kernel: Option<Arc<Kernel>>,
    /// What its tracer has.
    pub(crate) tracing: Tracing,
    /// Told of what is read of it.
    pub(crate) meter: Arc<Meter>,
    /// Sessions of LTTng in it.
    pub(crate) lttng: Vec<lastwords_walk::lttng::Session>,
    /// What concerns it as a whole was said on stderr.
    pub(crate) is_told: Cell<bool>,
}

/// Opens what a word names, if it is a kernel's memory or a trace.dat file.
///
/// # Errors
/// It is one of these and cannot be read.
fn open(word: &str, memory: &Memory) -> anyhow::Result<Option<Machine>> {
    let path = Path::new(word);
    if !path.is_file() {
        return Ok(None);
    }
    if is_trace_dat(path) {
        let mut tracing = dat::open(path).with_context(|| path.display().to_string())?;
        let meter = Meter::of(&mut tracing);
        return Ok(Some(Machine {
            from: path.to_owned(),
            kind: "trace.dat",
            notes: Vec::new(),
            kernel: None,
            tracing,
            meter,
            lttng: Vec::new(),
            is_told: Cell::default(),
        }));
    }
    let budget = Arc::new(Budget::default());
    if let Some(map) = memory.raw() {
        let opened = spinning(|watch| find::raw(path, &map, &budget, watch));
        let (physical, found) = opened.with_context(|| path.display().to_string())?;
        return of_memory(path, &physical, found, memory, budget).map(Some);
    }
    let physical = spinning(|watch| vmcore::open_physical(path, &budget, watch));
    let Some(physical) = physical.with_context(|| path.display().to_string())? else { return Ok(None) };
    let found = spinning(|watch| find::kernel(&physical, &budget, watch));
    let found = found.with_context(|| path.display().to_string())?;
    of_memory(path, &physical, found, memory, budget).map(Some)
}

fn of_memory(
    path: &Path,
    physical: &vmcore::Physical,
    found: find::Found,
    memory: &Memory,
    budget: Arc<Budget>,
) -> anyhow::Result<Machine> {
    let mut notes = physical.notes.clone();
    notes.extend(found.notes);
    let options = memory;
    let sources = options.sources(&found.info)?;
    let memory = Arc::new(found.memory);
    let kernel =
        Kernel::open(memory.clone(), &found.info, sources, budget).with_context(|| path.display().to_string())?;
    let kernel = Arc::new(kernel);
    let tracing = lastwords_walk::ftrace::read(&kernel, Some(&memory));
    let lttng = crate::lttng::of_kernel(&kernel, &memory, &options.lttng(&kernel)?, &mut notes);
    // Where there are sessions of LTTng, its own tracer is not all.
    let mut tracing = match tracing {
        Err(error) if !lttng.is_empty() => {
            notes.push(format!("its ftrace is not known: {error}"));
            lastwords_walk::ftrace::without_arrays(&kernel)
        }
        tracing => tracing.with_context(|| path.display().to_string())?,
    };
    let meter = Meter::of(&mut tracing);
    let (from, kind) = (path.to_owned(), physical.format.words());
    Ok(Machine { from, kind, notes, kernel: Some(kernel), tracing, meter, lttng, is_told: Cell::default() })
}

/// Opens the parts of one split dump.
fn open_split(words: &[String], memory: &Memory) -> anyhow::Result<Machine> {
    let paths: Vec<&Path> = words.iter().map(Path::new).collect();
    let budget = Arc::new(Budget::default());
    let physical = vmcore::open_split(&paths, &budget)?;
    let found = spinning(|watch| find::kernel(&physical, &budget, watch))?;
    let first = paths.first().copied().unwrap_or(Path::new(""));
    of_memory(first, &physical, found, memory, budget)
}

fn is_trace_dat(path: &Path) -> bool {
    let mut head = [0u8; 10];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && &head == b"\x17\x08\x44tracing"
}

/// Opens all words as kernels' tracers; none where the first is something else.
///
/// # Errors
/// A word cannot be read; some words are kernels' and others are not.
pub(crate) fn open_all(words: &[String], memory: &Memory) -> anyhow::Result<Option<Vec<Machine>>> {
    if memory.split {
        return Ok(Some(vec![open_split(words, memory)?]));
    }
    let mut machines = Vec::new();
    for word in words {
        match open(word, memory)? {
            Some(machine) => machines.push(machine),
            None if machines.is_empty() => return Ok(None),
            None => bail!("{word}: no kernel's trace, but what stands before it is one; give them one by one"),
        }
    }
    Ok(Some(machines).filter(|m| !m.is_empty()))
}

/// There are trace arrays in it.
///
/// # Errors
/// There are none.
pub(crate) fn check(machine: &Machine) -> anyhow::Result<()> {
    if machine.tracing.arrays.is_empty() {
        machine.notes.iter().for_each(|note| say::note(plain(note)));
        bail!("{}: no trace array of ftrace can be read", machine.from.display());
    }
    Ok(())
}

/// Something was recorded in it.
pub(crate) fn has_events(machine: &Machine, array: &Array) -> bool {
    // A file does not tell of all its buffers how many events they have.
    let is_file = machine.kernel.is_none();
    let mut cpus = std::iter::once(&array.live).chain(&array.snapshot).flat_map(|ring| ring.cpus());
    cpus.any(|cpu| cpu.stats.entries > 0 || is_file && cpu.sub_buffers > 0)
}

/// Indices of the trace arrays that are wanted. Where no name is given, the top level, or, if nothing was recorded there, all in which
/// something was; of which others there are is said on stderr.
pub(crate) fn arrays(machine: &Machine, which: &Which) -> anyhow::Result<Vec<usize>> {
    check(machine)?;
    let arrays = &machine.tracing.arrays;
    if which.sessions.is_empty() {
        let recorded: Vec<usize> =
            (0..arrays.len()).filter(|at| arrays.get(*at).is_some_and(|a| has_events(machine, a))).collect();
        if !recorded.is_empty() && !recorded.contains(&0) {
            return Ok(recorded);
        }
        for array in recorded.into_iter().skip(1).filter_map(|at| arrays.get(at)) {
            let name = plain(&array.name);
            say::note(format_args!("instance {name} is not in this: `--instance {name}` reads it"));
        }
        return Ok(vec![0]);
    }
    let name = |array: &Array| if array.name.is_empty() { "top".to_owned() } else { array.name.clone() };
    let wanted: Vec<usize> = arrays.iter().enumerate().filter(|(_, a)| which.wants(&name(a))).map(|(n, _)| n).collect();
    if wanted.is_empty() {
        let names: Vec<String> = arrays.iter().map(|a| plain(&name(a))).collect();
        bail!("no instance is called {}; there are: {}", which.sessions.join(" or "), names.join(", "));
    }
    Ok(wanted)
}

/// The kernel's log, as far as it can be read; what is missing is said on stderr.
pub(crate) fn log(machine: &Machine) -> anyhow::Result<Vec<LogLine>> {
    let Some(kernel) = &machine.kernel else {
        bail!("{}: a trace.dat file has no kernel log; --with-log is for a kernel's memory", machine.from.display());
    };
    let found = kernel.log();
    found.missing.iter().for_each(|error| say::note(format_args!("the kernel's log: {error}")));
    let rows = found.rows.into_iter();
    Ok(rows.map(|r| LogLine { time: r.time, level: r.level, facility: r.facility, text: r.text }).collect())
}

/// The log on the timeline of a trace array; where the clocks differ that is said on stderr.
pub(crate) fn timeline<'l>(machine: &Machine, array: usize, lines: &'l [LogLine]) -> Log<'l> {
    let Some(array) = machine.tracing.arrays.get(array).filter(|_| !lines.is_empty()) else { return Log::none() };
    let offset = machine.kernel.as_ref().map(|kernel| kernel.number("__sched_clock_offset", 8).unwrap_or(0));
    let relation = Relation::of(array, offset.map(u64::cast_signed));
    if let Some(remark) = relation.remark(array) {
        say::note(plain(&remark));
    }
    Log::new(lines, relation)
}

/// Which events, moments resolved: those relative to the end count from the newest event of these arrays.
pub(crate) fn choice(machine: &Machine, arrays: &[usize], which: &Which, events: &Events) -> Choice {
    let (since, until) = events.moments();
    let relative = [since, until].iter().flatten().any(|m| m.needs_end());
    let named = arrays.iter().filter_map(|index| machine.tracing.arrays.get(*index));
    let end = if relative { named.map(|array| newest(machine, array)).max().unwrap_or(0) } else { 0 };
    let clock = |moment: Moment| u64::try_from(moment.resolve(end)).unwrap_or(0);
    Choice {
        snapshot: which.snapshot,
        cpus: events.cpus().into_iter().flatten().collect(),
        events: events.globs().to_vec(),
        since: since.map(clock),
        until: until.map(clock),
        last: events.last(),
    }
}

/// Prints the text of machines on stdout, evidence on stderr.
pub(crate) fn report(
    machines: &[Machine],
    which: &Which,
    events: &Events,
    style: text::Style,
    with_log: bool,
    strict: bool,
    mut out: Pager,
) -> anyhow::Result<Outcome> {
    events.refuse_channels()?;
    let (mut losses, mut shown, mut written) = (false, 0, Ok(()));
    for machine in machines {
        let lines = if with_log { log(machine)? } else { Vec::new() };
        for array in arrays(machine, which)? {
            for cpu in events.cpus() {
                let options = options(machine, array, which, events, style, cpu);
                let read = machine.tracing.arrays.get(array).into_iter().filter(|_| !out.is_program());
                let _bar = machine.meter.show("report", read, which.snapshot);
                let log = timeline(machine, array, &lines);
                match text::write_with_log(&mut out, &machine.tracing, array, &options, log) {
                    Ok(summary) => {
                        shown += summary.events;
                        summary.notes.iter().for_each(|note| say::note(plain(note)));
                    }
                    // How many were shown is not known.
                    Err(error) if error.is_closed_pipe() => shown += 1,
                    Err(error) => written = Err(error),
                }
            }
            losses |= evidence(machine, array, which.snapshot);
        }
    }
    out.finish()?;
    written?;
    events.tell_none(shown);
    Ok(if strict && losses { Outcome::Losses } else { Outcome::Done })
}

fn options(
    machine: &Machine,
    array: usize,
    which: &Which,
    events: &Events,
    style: text::Style,
    cpu: Option<u32>,
) -> text::Options {
    let Choice { snapshot, events, since, until, last, .. } = choice(machine, &[array], which, events);
    text::Options { snapshot, cpu, style, events, since, until, last, ..text::Options::default() }
}

/// Time of the newest event of an array.
fn newest(machine: &Machine, array: &Array) -> i64 {
    let tracing = &machine.tracing;
    let mut bytes = Vec::new();
    let mut newest = 0;
    for (n, cpu) in array.live.cpus().iter().enumerate() {
        let Some(last) = cpu.sub_buffers.checked_sub(1) else { continue };
        let info = array.live.sub_buffer(n, last, &mut bytes);
        let mut events = PageEvents::new(&bytes, tracing.header_page, tracing.byte_order, info.committed);
        events.by_ref().for_each(drop);
        newest = newest.max(events.time());
    }
    i64::try_from(newest).unwrap_or(i64::MAX)
}

/// Prints what is known of an array's losses on stderr, and once what concerns the whole machine; whether there are any.
pub(crate) fn evidence(machine: &Machine, array: usize, snapshot: bool) -> bool {
    let Some(array) = machine.tracing.arrays.get(array) else { return false };
    let ring = array.shown(snapshot);
    let whole = &machine.tracing.evidence;
    if !machine.is_told.replace(true) {
        machine.notes.iter().for_each(|note| say::note(plain(note)));
        tell(whole);
    }
    let of_ring = ring.map(|ring| ring.evidence());
    of_ring.iter().for_each(tell);
    whole.has_losses() || of_ring.is_some_and(|evidence| evidence.has_losses())
}

fn tell(evidence: &Evidence) {
    evidence.notes.iter().for_each(|note| say::note(plain(note)));
    for row in evidence.sub_buffers.iter().filter(|s| !s.why.is_empty()).take(crate::evidence::LIMIT) {
        say::note(format_args!(
            "stream {}: sub-buffer {} is {}: {}",
            row.stream,
            row.sequence,
            row.verdict.word(),
            plain(&row.why)
        ));
    }
    for gap in evidence.gaps.iter().take(crate::evidence::LIMIT) {
        let bytes = gap.bytes.map_or_else(String::new, |n| format!(", {n} bytes"));
        say::note(format_args!("{}: {}{bytes}", plain(&gap.place), gap.cause.word()));
    }
}
