//! A kernel's trace: trace-cmd's report of the source is the truth.

use super::babeltrace::{self, nanoseconds};
use super::event::{Event, Value, named};
use super::perfetto::{self, Wire, field, fields};
use super::{BABELTRACE, JSON, PROTOBUF, TRACE_CMD, json};
use crate::support::tool;
use std::path::{Path, PathBuf};

/// `FtraceEvent.print`.
const PRINT: u64 = 3;
/// `FtraceEvent.generic`.
const GENERIC: u64 = 327;

/// An event as trace-cmd prints it.
#[derive(Debug, Clone, PartialEq)]
struct Printed {
    /// Empty for the top level.
    instance: String,
    comm: String,
    pid: i128,
    cpu: u32,
    ns: i128,
    name: String,
    /// What is behind the name: fields as they are, or what the kernel prints.
    rest: String,
}

/// What trace-cmd prints of a file; `-R` has it print the fields as they are.
fn report(file: &Path, args: &[&str]) -> Result<Vec<Printed>, String> {
    let file = file.to_string_lossy();
    let text = tool("trace-cmd", &[&["report", "-t", "-i", &file], args].concat()).out;
    let is_event = |line: &&str| line.contains(" [") && !line.contains("EVENTS DROPPED]");
    text.lines().filter(is_event).map(|line| printed(line).ok_or_else(|| format!("trace-cmd printed {line}"))).collect()
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
    let (comm, pid) = task.trim().rsplit_once('-')?;
    Some(Printed {
        instance: instance.trim().into(),
        comm: comm.into(),
        pid: pid.parse().ok()?,
        cpu: cpu.parse().ok()?,
        ns: nanoseconds(time.trim())?,
        name: name.into(),
        rest: rest.trim().into(),
    })
}

/// The events of the instances that are in the outputs.
fn chosen(file: &Path, args: &[&str], verb: &str, format: &str) -> Result<Vec<Printed>, String> {
    let mut all = report(file, args)?;
    // One file of most formats has one instance: `--instance` names another.
    let holds_all = verb == "recover" || matches!(format, "json" | "trace-dat");
    all.retain(|event| holds_all || event.instance.is_empty());
    Ok(all)
}

/// Judges what was written of a kernel's trace; the reader.
pub(super) fn judge(file: &Path, verb: &str, format: &str, outputs: &[PathBuf]) -> Result<&'static str, String> {
    let raw = chosen(file, &["-R"], verb, format)?;
    let text = chosen(file, &[], verb, format)?;
    let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(|e| e.to_string());
    match format {
        "ctf" | "ctf2" => {
            let mut found = Vec::new();
            for folder in outputs {
                found.extend(babeltrace::events(folder)?.into_iter().map(of_ctf));
            }
            same(raw.into_iter().map(without_instance).collect(), found)?;
            Ok(BABELTRACE)
        }
        "json" => {
            let lines = json::lines(&read(&outputs[0])?)?;
            let rows = |name: fn(&json::Line) -> Option<(String, String)>| {
                let rows = lines.iter().map(|line| of_json(line, name(line)?)).collect::<Option<Vec<_>>>();
                rows.ok_or("JSON lacks a member")
            };
            let fields = |line: &json::Line| Some((name_of(line.text("event")?), plain(&line.members("fields"))));
            same(raw, rows(fields)?)?;
            let kernel = |line: &json::Line| Some((String::new(), line.text("text")?.to_owned()));
            same(text.into_iter().map(as_kernel).collect(), rows(kernel)?)?;
            Ok(JSON)
        }
        "text" => {
            let found: Vec<String> = outputs.iter().map(read).collect::<Result<_, _>>()?;
            let lines = found.iter().flat_map(|text| text.lines());
            let lines = lines.filter(|line| !line.starts_with('#') && !line.contains(" [LOST "));
            let found = lines.map(|line| of_text(line).ok_or_else(|| line.to_owned())).collect::<Result<_, _>>()?;
            let shown = |event: Printed| without_instance(Printed { ns: event.ns / 1000 * 1000, ..as_kernel(event) });
            same(text.into_iter().map(shown).collect(), found)?;
            Ok(TRACE_CMD)
        }
        "trace-dat" => {
            same(raw, report(&outputs[0], &["-R"])?)?;
            same(text, report(&outputs[0], &[])?)?;
            Ok(TRACE_CMD)
        }
        _ => {
            let mut found = Vec::new();
            for output in outputs {
                found.extend(of_perfetto(&std::fs::read(output).map_err(|e| e.to_string())?));
            }
            let without = |event: Printed| without_instance(Printed { comm: String::new(), ..event });
            same(raw.into_iter().map(without).collect(), found)?;
            Ok(PROTOBUF)
        }
    }
}

fn same(mut expected: Vec<Printed>, mut found: Vec<Printed>) -> Result<(), String> {
    let key = |event: &Printed| (event.ns, event.cpu, event.name.clone(), event.rest.clone());
    expected.sort_by_key(key);
    found.sort_by_key(key);
    match expected.iter().zip(&found).find(|(expected, found)| expected != found) {
        Some((expected, found)) => Err(format!("trace-cmd has\n  {expected:?}\nfound was\n  {found:?}")),
        None if expected.len() != found.len() => {
            Err(format!("{} events were found, trace-cmd has {}", found.len(), expected.len()))
        }
        None => Ok(()),
    }
}

/// What the kernel prints behind the time: of `print` the message alone.
fn as_kernel(event: Printed) -> Printed {
    let rest = if event.name == "print" { event.rest } else { format!("{}: {}", event.name, event.rest) };
    Printed { name: String::new(), rest, ..event }
}

/// Of a format that does not say in an event which instance it is of.
fn without_instance(event: Printed) -> Printed {
    Printed { instance: String::new(), ..event }
}

/// Fields as `trace-cmd report -R` prints them; it shows the function that an `ip` is in, and of the sample that is `do_work`.
fn plain(fields: &[(String, Value)]) -> String {
    let field = |(name, value): &(String, Value)| match (name.as_str(), value) {
        ("ip", Value::Number(0xffff_ffff_8100_0104)) => "ip=do_work".to_owned(),
        // CTF has the message as the kernel prints it.
        ("msg" | "buf", Value::Text(text)) => format!("buf={}", text.trim_end()),
        (name, value) => format!("{name}={}", value.plain()),
    };
    fields.iter().map(field).collect::<Vec<_>>().join(" ")
}

/// `system:name` without the system, which trace-cmd does not print.
fn name_of(event: &str) -> String {
    event.rsplit(':').next().unwrap_or_default().to_owned()
}

fn of_ctf(event: Event) -> Printed {
    let context = |name: &str| event.contexts.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
    let (Some(Value::Text(comm)), Some(Value::Number(pid))) = (context("comm"), context("pid")) else {
        panic!("an event without its task: {event:?}");
    };
    let (name, rest) = (name_of(&event.name), plain(&event.fields));
    Printed { instance: String::new(), comm, pid, cpu: event.cpu.expect("a CPU"), ns: event.ns, name, rest }
}

fn of_json(line: &json::Line, (name, rest): (String, String)) -> Option<Printed> {
    Some(Printed {
        instance: line.text("array")?.to_owned(),
        comm: line.text("comm")?.to_owned(),
        pid: line.number("pid")?,
        cpu: line.number("cpu")?.try_into().ok()?,
        ns: nanoseconds(line.text("time")?).filter(|ns| line.number("ticks") == Some(*ns))?,
        name,
        rest,
    })
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
fn of_perfetto(file: &[u8]) -> Vec<Printed> {
    let mut events = Vec::new();
    for packet in perfetto::packets(file) {
        let Some(bundle) = field(&packet, 1) else { continue };
        let bundle = fields(bundle.bytes());
        let cpu = field(&bundle, 1).map_or(0, |cpu| u32::try_from(cpu.number()).unwrap());
        for (_, event) in bundle.iter().filter(|(number, _)| *number == 2) {
            let event = fields(event.bytes());
            let number = |number| field(&event, number).map_or(0, |wire| i128::from(wire.number()));
            let (name, rest) = match (field(&event, PRINT), field(&event, GENERIC)) {
                (Some(print), _) => ("print".to_owned(), print_fields(&fields(print.bytes()))),
                (None, Some(generic)) => generic_fields(&fields(generic.bytes())),
                (None, None) => panic!("an event of another kind: {event:?}"),
            };
            let (comm, instance) = (String::new(), String::new());
            events.push(Printed { instance, comm, pid: number(2), cpu, ns: number(1), name, rest });
        }
    }
    events
}

fn print_fields(print: &[(u64, Wire<'_>)]) -> String {
    let ip = field(print, 1).map_or(0, Wire::number);
    let text = field(print, 2).map_or(String::new(), Wire::text);
    plain(&[named("ip", Value::Number(ip.into())), named("buf", Value::Text(text))])
}

/// The name, and the fields.
fn generic_fields(generic: &[(u64, Wire<'_>)]) -> (String, String) {
    let one = |wire: Wire<'_>| {
        let members = fields(wire.bytes());
        let value = match (field(&members, 3), field(&members, 4), field(&members, 5)) {
            (Some(text), ..) => Value::Text(text.text()),
            (_, Some(signed), _) => Value::Number(signed.number().cast_signed().into()),
            (.., unsigned) => Value::Number(unsigned.map_or(0, Wire::number).into()),
        };
        (field(&members, 1).expect("a name").text(), value)
    };
    let all: Vec<_> = generic.iter().filter(|(number, _)| *number == 2).map(|(_, wire)| one(*wire)).collect();
    (field(generic, 1).expect("a name").text(), plain(&all))
}
