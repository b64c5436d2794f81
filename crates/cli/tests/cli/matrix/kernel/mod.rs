//! A kernel's trace: trace-cmd's report of the source is the truth.

pub(super) mod processor;
mod raw;

use super::babeltrace::{self, nanoseconds};
use super::event::{Event, Value, named};
use super::perfetto::{self, Wire, field, fields};
use super::{
    BABELTRACE, JSON, KERNEL, OPENTELEMETRY, PROTOBUF, TRACE_CMD, TRACE_PROCESSOR, json, otlp,
};
use crate::support::tool;
use std::path::{Path, PathBuf};

/// `FtraceEvent.print`.
const PRINT: u64 = 3;
/// `FtraceEvent.generic`.
const GENERIC: u64 = 327;

/// An event as trace-cmd prints it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Printed {
    /// Empty for the top level.
    pub(super) instance: String,
    pub(super) comm: String,
    pub(super) pid: i128,
    pub(super) cpu: u32,
    pub(super) ns: i128,
    pub(super) name: String,
    /// The text after the name: fields as they are, or the kernel's text.
    pub(super) rest: String,
}

/// An event as another reader found it.
pub(super) struct Found {
    /// Without what is behind the name.
    pub(super) event: Printed,
    pub(super) fields: Vec<(String, Value)>,
}

/// A kernel's trace.
pub(super) struct Kernel {
    /// A trace.dat file with it, which trace-cmd reads.
    pub(super) file: PathBuf,
    /// Functions by address, in order.
    pub(super) symbols: Vec<(u64, String)>,
    /// The text that the kernel itself printed, by instance; without it, trace-cmd's text is
    /// compared.
    pub(super) texts: Vec<(&'static str, String)>,
    /// Its file has instances that the source has not.
    pub(super) is_top_alone: bool,
    /// Perfetto's trace processor; without one, the test reads protocol buffers.
    pub(super) trace_processor: Option<PathBuf>,
}

impl Kernel {
    /// The events in what the kernel itself printed, of all instances.
    fn printed(&self) -> Result<Vec<Printed>, String> {
        let mut all = Vec::new();
        for (instance, text) in &self.texts {
            let instance = if *instance == "top" { "" } else { instance };
            let with_instance = |event: Printed| Printed { instance: instance.to_owned(), ..event };
            all.extend(joined(text, of_text)?.into_iter().map(with_instance));
        }
        Ok(all)
    }
}

/// Events of a text; a line that is none goes on with the one before.
fn joined(text: &str, read: fn(&str) -> Option<Printed>) -> Result<Vec<Printed>, String> {
    let mut events: Vec<Printed> = Vec::new();
    let is_beside = |line: &str| {
        line.starts_with('#')
            || line.starts_with("cpus=")
            || line.contains("EVENTS DROPPED]")
            || line.contains(" [LOST ")
    };
    for line in text.lines().filter(|line| !is_beside(line)) {
        match (read(line), events.last_mut()) {
            (Some(event), _) => events.push(event),
            (None, Some(event)) => event.rest += &format!("\n{line}"),
            (None, None) => return Err(format!("the line {line}")),
        }
    }
    for event in &mut events {
        event.rest.truncate(event.rest.trim_end().len());
    }
    Ok(events)
}

/// Returns the events that trace-cmd prints; with `-R`, it prints the fields as they are.
pub(super) fn report(file: &Path, args: &[&str]) -> Result<Vec<Printed>, String> {
    let file = file.to_string_lossy();
    let text = tool("trace-cmd", &[&["report", "-t", "-i", &file], args].concat()).out;
    joined(&text, printed)
}

/// `extra:   comm-pid   [cpu]   12.000000345: name:   rest`
fn printed(line: &str) -> Option<Printed> {
    let (task, rest) = line.split_once(" [")?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (time, rest) = rest.split_once(": ")?;
    let (name, rest) = rest.split_once(':')?;
    let (instance, task) = match task.split_once(": ") {
        Some((instance, task)) => (instance, task),
        None => ("", task),
    };
    let task = task.trim();
    // The thread -1 is not known.
    let (comm, pid) = match task.strip_suffix("--1") {
        Some(comm) => (comm, "-1"),
        None => task.rsplit_once('-')?,
    };
    Some(Printed {
        instance: instance.trim().into(),
        comm: comm.into(),
        pid: pid.parse().ok()?,
        cpu: cpu.parse().ok()?,
        ns: nanoseconds(time.trim())?,
        name: name.into(),
        rest: rest.trim_start().into(),
    })
}

/// The events of the instances that are in the outputs.
fn chosen(
    kernel: &Kernel,
    args: &[&str],
    verb: &str,
    format: &str,
) -> Result<Vec<Printed>, String> {
    let mut all = report(&kernel.file, args)?;
    // One file of most formats has one instance: `--instance` names another.
    let holds_all = !kernel.is_top_alone
        && (verb == "recover" || matches!(format, "json" | "trace-dat" | "otlp"));
    all.retain(|event| holds_all || event.instance.is_empty());
    Ok(all)
}

/// Judges what was written of a kernel's trace; the reader.
pub(super) fn judge(
    kernel: &Kernel,
    verb: &str,
    format: &str,
    outputs: &[PathBuf],
) -> Result<&'static str, String> {
    let raw = chosen(kernel, &["-R"], verb, format)?;
    let text = chosen(kernel, &[], verb, format)?;
    match format {
        "ctf" | "ctf2" => {
            let mut found = Vec::new();
            for folder in outputs {
                found.extend(babeltrace::events_by_clock(folder)?.into_iter().map(of_ctf));
            }
            let raw = raw.into_iter().map(without_instance).collect();
            same_raw(kernel, raw, found)?;
            Ok(BABELTRACE)
        }
        "json" => judge_json(kernel, raw, text, &outputs[0]),
        "otlp" => judge_otlp(kernel, raw, text, outputs),
        "text" => judge_text(kernel, text, verb, outputs),
        "trace-dat" => {
            same(raw, report(&outputs[0], &["-R"])?)?;
            same(text, report(&outputs[0], &[])?)?;
            Ok(TRACE_CMD)
        }
        _ => {
            let raw = raw
                .into_iter()
                .map(|event| without_instance(Printed { comm: String::new(), ..event }))
                .collect();
            let mut found = Vec::new();
            if let Some(program) = &kernel.trace_processor {
                for output in outputs {
                    found.extend(processor::kernel(program, output)?);
                }
                same_fields(raw, found, |printed, fields| {
                    raw::have(printed, fields, &kernel.symbols)
                })?;
                return Ok(TRACE_PROCESSOR);
            }
            for output in outputs {
                found.extend(of_perfetto(&std::fs::read(output).map_err(|e| e.to_string())?));
            }
            same_raw(kernel, raw, found)?;
            Ok(PROTOBUF)
        }
    }
}

/// Judges the events of one instance; their times are readings of the clock.
pub(super) fn judge_events(
    kernel: &Kernel,
    instance: &str,
    events: Vec<Event>,
) -> Result<(), String> {
    let mut raw = report(&kernel.file, &["-R"])?;
    let instance = if instance == "top" || kernel.is_top_alone { "" } else { instance };
    raw.retain(|event| event.instance == instance);
    let raw = raw.into_iter().map(without_instance).collect();
    let found = events.into_iter().map(of_ctf).collect();
    same_raw(kernel, raw, found)
}

/// Judges the rows of all instances, or of the top level.
pub(super) fn judge_rows(kernel: &Kernel, mut rows: Vec<Found>) -> Result<(), String> {
    let raw = chosen(kernel, &["-R"], "convert", "json")?;
    let since = begun(rows.iter().map(|row| row.event.ns), &raw);
    for Found { event, .. } in &mut rows {
        if event.instance == "top" || kernel.is_top_alone {
            event.instance.clear();
        }
        event.ns -= since;
    }
    same_raw(kernel, raw, rows)
}

/// Returns by how much dates differ from readings of the clock: all by the same.
fn begun(dates: impl Iterator<Item = i128>, raw: &[Printed]) -> i128 {
    let first = raw.iter().map(|event| event.ns).min();
    dates.min().unwrap_or(0) - first.unwrap_or(0)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| e.to_string())
}

/// The kernel's text has microseconds, rounded.
fn micro(event: Printed) -> Printed {
    Printed { ns: (event.ns + 500) / 1000 * 1000, ..event }
}

fn judge_json(
    kernel: &Kernel,
    raw: Vec<Printed>,
    text: Vec<Printed>,
    file: &Path,
) -> Result<&'static str, String> {
    let (mut found, mut texts) = (Vec::new(), Vec::new());
    let lines = read(file)?;
    let traces = json::traces(&lines).ok_or("JSON without a head")?;
    for line in json::lines(&lines)? {
        let (event, text) = of_json(&line, &traces).ok_or("JSON lacks a member")?;
        texts.push(with_text(&event, &text));
        found.push(Found { event, fields: with_buf(line.members("fields")) });
    }
    judge_both(kernel, (raw, found), (text, texts))?;
    Ok(JSON)
}

/// Judges fields, and the kernel's text or else that of trace-cmd.
fn judge_both(
    kernel: &Kernel,
    (raw, found): (Vec<Printed>, Vec<Found>),
    (text, texts): (Vec<Printed>, Vec<Printed>),
) -> Result<(), String> {
    same_raw(kernel, raw, found)?;
    match kernel.texts.is_empty() {
        true => same(text.into_iter().map(as_kernel).collect(), texts),
        false => same(kernel.printed()?, texts.into_iter().map(micro).collect()),
    }
}

/// An event whose name is a part of its text.
fn with_text(event: &Printed, text: &str) -> Printed {
    Printed { name: String::new(), rest: text.trim_end().to_owned(), ..event.clone() }
}

fn judge_otlp(
    kernel: &Kernel,
    raw: Vec<Printed>,
    text: Vec<Printed>,
    outputs: &[PathBuf],
) -> Result<&'static str, String> {
    let all = otlp::of_kernel(outputs).ok_or("OTLP lacks an attribute")?;
    let is_dated = all.first().is_some_and(|(_, is_dated)| *is_dated);
    let since = if is_dated { begun(all.iter().map(|(one, _)| one.event.ns), &raw) } else { 0 };
    let (mut found, mut texts) = (Vec::new(), Vec::new());
    for (mut one, of) in all {
        if of != is_dated {
            return Err("some events of a kernel have dates, others have none".into());
        }
        one.event.ns -= since;
        let text = std::mem::take(&mut one.event.rest);
        texts.push(with_text(&one.event, &text));
        found.push(one);
    }
    judge_both(kernel, (raw, found), (text, texts))?;
    Ok(OPENTELEMETRY)
}

fn judge_text(
    kernel: &Kernel,
    text: Vec<Printed>,
    verb: &str,
    outputs: &[PathBuf],
) -> Result<&'static str, String> {
    if kernel.texts.is_empty() {
        let mut found = Vec::new();
        for output in outputs {
            found.extend(joined(&read(output)?, of_text)?);
        }
        same(
            text.into_iter().map(|event| micro(without_instance(as_kernel(event)))).collect(),
            found,
        )?;
        return Ok(TRACE_CMD);
    }
    let count = if verb == "recover" { kernel.texts.len() } else { 1 };
    let mut is_same = outputs.len() == count;
    for output in outputs {
        let (instance, found) = (instance_of(output), read(output)?);
        is_same &= kernel.texts.iter().any(|(of, text)| *of == instance && *text == found);
    }
    if is_same { Ok(KERNEL) } else { Err("the text is not the kernel's".into()) }
}

/// The instance that a file of `recover` is of: `trace-errors.txt`.
fn instance_of(output: &Path) -> String {
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    stem.strip_prefix("trace-").unwrap_or("top").to_owned()
}

/// Compares events with those that `trace-cmd report -R` prints.
fn same_raw(kernel: &Kernel, expected: Vec<Printed>, found: Vec<Found>) -> Result<(), String> {
    same_fields(expected, found, |printed, fields| raw::are(printed, fields, &kernel.symbols))
}

/// The same, where `are` compares the fields of one.
fn same_fields(
    mut expected: Vec<Printed>,
    mut found: Vec<Found>,
    are: impl Fn(&str, &[(String, Value)]) -> bool,
) -> Result<(), String> {
    let key = |event: &Printed| (event.ns, event.cpu, event.name.clone());
    expected.sort_by_key(key);
    found.sort_by_key(|found| key(&found.event));
    if expected.len() != found.len() {
        return Err(format!("{} events were found, trace-cmd has {}", found.len(), expected.len()));
    }
    for (expected, found) in expected.iter().zip(&found) {
        let is_same = found.event == Printed { rest: String::new(), ..expected.clone() };
        if !is_same || !are(&expected.rest, &found.fields) {
            return Err(format!(
                "trace-cmd has\n  {expected:?}\nfound was\n  {:?}\n  {:?}",
                found.event, found.fields
            ));
        }
    }
    Ok(())
}

fn same(mut expected: Vec<Printed>, mut found: Vec<Printed>) -> Result<(), String> {
    let key = |event: &Printed| (event.ns, event.cpu, event.name.clone(), event.rest.clone());
    expected.sort_by_key(key);
    found.sort_by_key(key);
    match expected.iter().zip(&found).find(|(expected, found)| expected != found) {
        Some((expected, found)) => {
            Err(format!("trace-cmd has\n  {expected:?}\nfound was\n  {found:?}"))
        }
        None if expected.len() != found.len() => {
            Err(format!("{} events were found, trace-cmd has {}", found.len(), expected.len()))
        }
        None => Ok(()),
    }
}

/// Returns an event as the kernel prints it after the time: of `print` the message alone.
fn as_kernel(event: Printed) -> Printed {
    let rest =
        if event.name == "print" { event.rest } else { format!("{}: {}", event.name, event.rest) };
    Printed { name: String::new(), rest, ..event }
}

/// Of a format that does not say in an event which instance it is of.
fn without_instance(event: Printed) -> Printed {
    Printed { instance: String::new(), ..event }
}

/// `system:name` without the system, which trace-cmd does not print.
pub(super) fn name_of(event: &str) -> String {
    event.rsplit(':').next().unwrap_or_default().to_owned()
}

/// CTF and JSON have the message of `print` as the kernel prints it, under a name of its own.
pub(super) fn with_buf(fields: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let renamed = |(name, value)| (if name == "msg" { "buf".to_owned() } else { name }, value);
    fields.into_iter().map(renamed).collect()
}

fn of_ctf(event: Event) -> Found {
    let context = |name: &str| {
        event.contexts.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    };
    let (Some(Value::Text(comm)), Some(Value::Number(pid))) = (context("comm"), context("pid"))
    else {
        panic!("an event without its task: {event:?}");
    };
    let (cpu, name) = (event.cpu.expect("a CPU"), name_of(&event.name));
    let own = Printed { comm, pid, cpu, ns: event.ns, name, ..Printed::default() };
    Found { event: own, fields: with_buf(event.fields) }
}

/// The event, and what the kernel prints behind its time. `traces`: what the first line says of the
/// trace arrays.
fn of_json(line: &json::Line, traces: &[json::Line]) -> Option<(Printed, String)> {
    let trace = traces.get(usize::try_from(line.number("trace")?).ok()?)?;
    let (clock, context, ns) =
        (trace.object("clock"), line.object("context"), line.number("ticks")?);
    let since = clock.number("offset_seconds")? * 1_000_000_000 + clock.number("offset_ticks")?;
    let time: jiff::Timestamp = line
        .text("time")?
        .parse()
        .ok()
        .filter(|_| clock.number("frequency") == Some(1_000_000_000))?;
    let event = Printed {
        instance: trace
            .text("name")
            .filter(|name| *name != "ftrace")
            .unwrap_or_default()
            .to_owned(),
        comm: context.text("comm")?.to_owned(),
        pid: context.number("pid")?,
        cpu: line.number("cpu")?.try_into().ok()?,
        ns: Some(ns).filter(|ns| time.as_nanosecond() == ns + since)?,
        name: name_of(line.text("event")?),
        rest: String::new(),
    };
    Some((event, context.text("text")?.to_owned()))
}

/// `comm-pid   [cpu] flags   12.000345: name: rest`
fn of_text(line: &str) -> Option<Printed> {
    let (task, rest) = line.split_once(" [")?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (flags_and_time, rest) = rest.split_once(": ")?;
    let (comm, pid) = task.trim().rsplit_once('-')?;
    Some(Printed {
        instance: String::new(),
        comm: comm.into(),
        pid: pid.parse().ok()?,
        cpu: cpu.parse().ok()?,
        ns: nanoseconds(&format!("{}000", flags_and_time.split_whitespace().last()?))?,
        name: String::new(),
        rest: rest.into(),
    })
}

/// The events of a kernel in a file of Perfetto, without the names of their tasks.
fn of_perfetto(file: &[u8]) -> Vec<Found> {
    let mut events = Vec::new();
    for packet in perfetto::packets(file) {
        let Some(bundle) = field(&packet, 1) else { continue };
        let bundle = fields(bundle.bytes());
        let cpu = field(&bundle, 1).map_or(0, |cpu| u32::try_from(cpu.number()).unwrap());
        for (_, event) in bundle.iter().filter(|(number, _)| *number == 2) {
            let event = fields(event.bytes());
            let number = |number| field(&event, number).map_or(0, |wire| i128::from(wire.number()));
            let (name, values) = match (field(&event, PRINT), field(&event, GENERIC)) {
                (Some(print), _) => ("print".to_owned(), print_fields(&fields(print.bytes()))),
                (None, Some(generic)) => generic_fields(&fields(generic.bytes())),
                (None, None) => panic!("an event of another kind: {event:?}"),
            };
            let event = Printed { pid: number(2), cpu, ns: number(1), name, ..Printed::default() };
            events.push(Found { event, fields: values });
        }
    }
    events
}

fn print_fields(print: &[(u64, Wire<'_>)]) -> Vec<(String, Value)> {
    let ip = field(print, 1).map_or(0, Wire::number);
    let text = field(print, 2).map_or(String::new(), Wire::text);
    vec![named("ip", Value::Number(ip.into())), named("buf", Value::Text(text))]
}

/// The name, and the fields.
fn generic_fields(generic: &[(u64, Wire<'_>)]) -> (String, Vec<(String, Value)>) {
    let one = |wire: Wire<'_>| {
        let members = fields(wire.bytes());
        let value = match (field(&members, 3), field(&members, 4), field(&members, 5)) {
            (Some(text), ..) => Value::Text(text.text()),
            (_, Some(signed), _) => Value::Number(signed.number().cast_signed().into()),
            (.., unsigned) => Value::Number(unsigned.map_or(0, Wire::number).into()),
        };
        (field(&members, 1).expect("a name").text(), value)
    };
    let all =
        generic.iter().filter(|(number, _)| *number == 2).map(|(_, wire)| one(*wire)).collect();
    (field(generic, 1).expect("a name").text(), all)
}
