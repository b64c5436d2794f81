//! OTLP, decoded by OpenTelemetry's messages, as events.

use super::event::{Event, Value, compare, named};
use super::json;
use super::kernel::{Found, Printed, name_of, with_buf};
use crate::otlp::{Decoded, decode, number};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Attributes of every record besides its fields and contexts.
const AROUND: [&str; 4] =
    ["process.pid", "cpu.logical_number", "lastwords.channel", "lastwords.clock_ns"];

/// The attributes in their order.
fn attributes(one: &Decoded) -> Vec<(String, Value)> {
    let lines = json::lines(&format!("\n{}", one.line)).expect("JSON");
    members(lines[0].members("attributes"))
}

fn members(of: Vec<(String, Value)>) -> Vec<(String, Value)> {
    of.into_iter().map(|(name, value)| (name, typed(value))).collect()
}

/// OTLP's integers have a sign: larger ones are text.
fn typed(value: Value) -> Value {
    let large = |text: &String| text.parse::<u64>().ok().filter(|n| i64::try_from(*n).is_err());
    match value {
        Value::Text(text) => match large(&text) {
            Some(number) => Value::Number(number.into()),
            None => Value::Text(text),
        },
        Value::List(list) => Value::List(list.into_iter().map(typed).collect()),
        Value::Record(of) => Value::Record(members(of)),
        other => other,
    }
}

/// Returns the records of events in files, and the verdicts.
pub(super) fn read(files: &[PathBuf]) -> (Vec<Decoded>, Vec<Decoded>) {
    let all = decode(files).into_iter().flatten();
    let (verdicts, events): (Vec<Decoded>, Vec<Decoded>) = all.partition(Decoded::is_verdict);
    (events, verdicts)
}

/// A verdict says that something was lost; none if one lacks that. Each trace has one verdict.
pub(super) fn says_losses(files: &[PathBuf]) -> Result<bool, String> {
    let (events, verdicts) = read(files);
    let trace = |one: &Decoded| {
        format!("{:?}", ["lastwords.trace", "service.instance.id"].map(|name| one.resource(name)))
    };
    let traces: BTreeSet<String> = events.iter().map(trace).collect();
    let judged: Vec<String> = verdicts.iter().map(trace).collect();
    if judged.iter().collect::<BTreeSet<_>>().len() != judged.len()
        || !traces.iter().all(|trace| judged.contains(trace))
    {
        return Err(format!("verdicts on {judged:?}, events of {traces:?}"));
    }
    let mut losses = verdicts.iter().map(|one| one.attribute("lastwords.losses")?.as_bool());
    losses.try_fold(false, |any, is| Some(any | is?)).ok_or("a verdict without losses".into())
}

/// True if the record is of a kernel's trace.
fn is_kernel(one: &Decoded) -> bool {
    one.resource("lastwords.tracer").and_then(Json::as_str) == Some("ftrace")
}

/// The time: since the epoch, or from the clock's origin if nothing relates it to that.
fn time(one: &Decoded) -> i128 {
    let clock = one.attribute("lastwords.clock_ns").and_then(number);
    assert_eq!(clock.is_some(), one.number("time") == 0, "{one:?}");
    clock.unwrap_or_else(|| one.number("time"))
}

fn cpu(one: &Decoded) -> Option<u32> {
    let cpu = one.attribute("cpu.logical_number").and_then(number);
    cpu.map(|cpu| u32::try_from(cpu).expect("a CPU"))
}

/// Compares the records of sessions and CTF with the truth.
pub(super) fn compare_packets(mut truth: Vec<Event>, files: &[PathBuf]) -> Result<(), String> {
    let (found, _) = read(files);
    let found: Vec<Decoded> = found.into_iter().filter(|one| !is_kernel(one)).collect();
    let pid = |event: &Event| {
        event.contexts.iter().find(|(name, _)| matches!(name.as_str(), "vpid" | "pid")).cloned()
    };
    let key = |event: &Event| (event.ns, event.name.clone(), event.cpu);
    // The process is an attribute of its own, and known of other events, too.
    let with_pid: Vec<_> =
        truth.iter().filter_map(|event| Some((key(event), pid(event)?.1))).collect();
    for event in &mut truth {
        event.contexts.retain(|(name, _)| !matches!(name.as_str(), "vpid" | "pid"));
        // The thread comes before the other contexts, under names of its own.
        for (names, own) in [(["vtid", "tid"], "thread.id"), (["procname"; 2], "thread.name")] {
            let at = event.contexts.iter().position(|(name, _)| names.contains(&name.as_str()));
            if let Some((_, value)) = at.map(|at| event.contexts.remove(at)) {
                event.fields.push(named(own, value));
            }
        }
        event.fields.append(&mut event.contexts);
        number_equal_names(&mut event.fields);
    }
    let mut events = Vec::new();
    for one in &found {
        let (around, fields): (Vec<_>, Vec<_>) =
            attributes(one).into_iter().partition(|(name, _)| AROUND.contains(&name.as_str()));
        let event = Event {
            ns: time(one),
            cpu: cpu(one),
            name: one.text("name").to_owned(),
            contexts: Vec::new(),
            fields,
        };
        let expected = with_pid.iter().find(|(of, _)| *of == key(&event)).map(|(_, pid)| pid);
        let pid = around.iter().find(|(name, _)| name == "process.pid").map(|(_, pid)| pid);
        if expected.is_some() && pid != expected {
            return Err(format!("{one:?} is of process {expected:?}"));
        }
        events.push(event);
    }
    // A line has the records of one trace.
    events.sort_by_key(|event| event.ns);
    compare(truth, &events, true)
}

/// The keys of a record differ: a context of LTTng may have the name of a field.
fn number_equal_names(fields: &mut [(String, Value)]) {
    for at in 1..fields.len() {
        let before = fields[..at].iter().filter(|(name, _)| *name == fields[at].0).count();
        if before > 0 {
            write!(fields[at].0, "_{}", before + 1).expect("a string");
        }
    }
}

/// The events of a kernel in files, with the text that the kernel prints of each; and whether its
/// time is since the epoch.
pub(super) fn of_kernel(files: &[PathBuf]) -> Option<Vec<(Found, bool)>> {
    let (found, _) = read(files);
    let event = |one: &Decoded| {
        let instance = one.resource("lastwords.trace")?.as_str()?;
        let comm = one.attribute("thread.name").map_or(Some("<...>"), Json::as_str)?;
        // Fields come first.
        let fields = attributes(one).into_iter().take_while(|(name, _)| name != "thread.id");
        let event = Printed {
            instance: if instance == "ftrace" { String::new() } else { instance.to_owned() },
            comm: comm.to_owned(),
            pid: number(one.attribute("thread.id")?)?,
            cpu: cpu(one)?,
            ns: time(one),
            name: name_of(one.text("name")),
            rest: one.text("body").to_owned(),
        };
        Some((Found { event, fields: with_buf(fields.collect()) }, one.number("time") > 0))
    };
    found.iter().filter(|one| is_kernel(one)).map(event).collect()
}
