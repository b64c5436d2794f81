//! Events of applications in a trace.dat file, as trace-cmd prints them: `name=value` for each field
//! and context.

use super::event::{Event, Value};
use super::kernel::{Printed, report};
use std::path::Path;

/// The contexts that a line of trace-cmd has at its beginning, or under another name.
const PIDS: [&str; 3] = ["vpid", "pid", "tgid"];
const TIDS: [&str; 2] = ["vtid", "tid"];
const COMMS: [&str; 3] = ["procname", "comm", "thread_name"];
/// What is not among the contexts of the truth, behind all of them.
const LEVELS: [&str; 15] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug:system",
    "debug:program",
    "debug:process",
    "debug:module",
    "debug:unit",
    "debug:function",
    "debug:line",
    "debug:debug",
];

/// A name as formats can have it.
fn clean(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Whether `found` is a name that was made of `name`: another event may have the same.
fn is_name(name: &str, found: &str) -> bool {
    let rest = found.strip_prefix(&clean(name));
    rest.is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix('_').is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

/// Takes `text` away from the beginning.
fn after<'a>(line: &'a str, text: &str) -> Option<&'a str> {
    line.strip_prefix(text)
}

/// Takes a value away from the beginning, in a form that has all of it.
fn after_value<'a>(line: &'a str, value: &Value) -> Option<&'a str> {
    match value {
        Value::Number(number) | Value::Label(None, number) => {
            let end = line.find(' ').unwrap_or(line.len());
            let word = &line[..end];
            let found = match word.strip_prefix("0x") {
                Some(digits) => i128::from_str_radix(digits, 16),
                None => word.parse(),
            };
            (found.ok()? == *number).then_some(&line[end..])
        }
        Value::Real(number) => {
            let end = line.find(' ').unwrap_or(line.len());
            let found: f64 = line[..end].parse().ok()?;
            Value::Real(*number).is(&Value::Real(found)).then_some(&line[end..])
        }
        Value::Bool(is) => after(line, &is.to_string()),
        Value::Text(text) | Value::Label(Some(text), _) => after(line, text),
        Value::Bytes(bytes) => {
            after(line, &bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        Value::List(all) => after_all(line, &mut all.iter()).or_else(|| {
            let byte = |value: &Value| match value {
                Value::Number(byte) => u8::try_from(*byte).ok(),
                _ => None,
            };
            after_value(line, &Value::Bytes(all.iter().map(byte).collect::<Option<_>>()?))
        }),
        Value::Record(members) => after_all(line, &mut members.iter().map(|(_, value)| value)),
        Value::Null => Some(line),
    }
}

fn after_all<'a>(line: &'a str, all: &mut dyn Iterator<Item = &Value>) -> Option<&'a str> {
    all.enumerate().try_fold(line, |line, (at, value)| {
        after_value(if at == 0 { line } else { after(line, " ")? }, value)
    })
}

/// Whether a line has all of an event, and nothing else.
fn is(event: &Event, found: &Printed) -> bool {
    let (_, name) = event.name.rsplit_once(':').unwrap_or(("", &event.name));
    let context = |names: &[&str]| {
        event.contexts.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, v)| v)
    };
    let is_tid = match context(&TIDS) {
        Some(Value::Number(tid)) => *tid == found.pid,
        _ => true,
    };
    // The file has one name for each thread. An event with another has it as its last field.
    let own = match context(&COMMS) {
        Some(Value::Text(comm)) if *comm != found.comm => Some(format!("procname={comm}")),
        _ => None,
    };
    let is_cpu = event.cpu.is_none_or(|cpu| cpu == found.cpu);
    if !(is_name(name, &found.name) && event.ns == found.ns && is_tid && is_cpu) {
        return false;
    }
    let known = |name: &str| [&PIDS[..], &TIDS, &COMMS].concat().contains(&name);
    let others = event.contexts.iter().filter(|(name, _)| !known(name));
    let mut rest = Some(found.rest.as_str());
    let mut is_first = true;
    let mut take = |name: &str, value: &Value| {
        if *value == Value::Null {
            return;
        }
        let between = if std::mem::take(&mut is_first) { "" } else { " " };
        rest = rest
            .and_then(|rest| after(rest, between))
            .and_then(|rest| {
                let (found, value) = rest.split_once('=')?;
                is_name(name, found).then_some(value)
            })
            .and_then(|rest| after_value(rest, value));
    };
    event.fields.iter().chain(others).for_each(|(name, value)| take(name, value));
    if let Some(pid) = context(&PIDS) {
        take("pid", pid);
    }
    if let Some(own) = own {
        rest = rest.and_then(|rest| rest.strip_suffix(&own));
    }
    // The process of a session's only process, and the severity, are no contexts of the event.
    let is_known = |word: &str| match word.split_once('=') {
        Some(("pid", pid)) => context(&PIDS).is_none() && pid.parse::<u32>().is_ok(),
        Some(("level", level)) => LEVELS.contains(&level),
        _ => false,
    };
    rest.is_some_and(|rest| rest.split_whitespace().all(is_known))
}

/// Compares the events that trace-cmd finds with the truth: none is missing, none is invented, all
/// values are right.
pub(super) fn compare(mut truth: Vec<Event>, file: &Path) -> Result<(), String> {
    for found in report(file, &["-t"])? {
        let at = truth.iter().position(|event| is(event, &found));
        let at = at.ok_or_else(|| {
            let near = truth.iter().find(|event| event.ns == found.ns);
            format!("trace-cmd found\n  {found:?}\nthe truth at that time is\n  {near:?}")
        })?;
        truth.remove(at);
    }
    match truth.first() {
        None => Ok(()),
        Some(event) => Err(format!("{} events are missing, the first is {event:?}", truth.len())),
    }
}
