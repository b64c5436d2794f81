//! Babeltrace 2.1, and a parser of what it prints.

use super::event::{Event, Value};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program: what `cargo xtask setup` laid out, else the system's.
fn program() -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/babeltrace2.1");
    if ours.exists() { ours } else { "babeltrace2".into() }
}

fn print(folder: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program());
    command.env("TZ", "UTC").args(["--color", "never"]).args(args).arg(folder);
    let output = command.output().map_err(|e| format!("babeltrace2: {e}: cargo xtask setup"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Babeltrace warns of the events that the tracer discarded.
    let is_loss = |line: &str| line.starts_with("WARNING: Tracer ") || line.is_empty();
    if !output.status.success() || !said.lines().all(is_loss) {
        return Err(format!("babeltrace2 {}: {}\n{said}", folder.display(), output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| e.to_string())
}

/// Returns the text that it prints for a folder of CTF by default.
pub(super) fn text(folder: &Path) -> Result<String, String> {
    print(folder, &[])
}

/// The events of a folder of CTF.
pub(super) fn events(folder: &Path) -> Result<Vec<Event>, String> {
    read(folder, "--clock-seconds")
}

/// The events of a folder of CTF; their times are readings of its clock.
pub(super) fn events_by_clock(folder: &Path) -> Result<Vec<Event>, String> {
    read(folder, "--clock-cycles")
}

fn read(folder: &Path, time: &str) -> Result<Vec<Event>, String> {
    let text = print(folder, &[time, "--names", "context,header,payload,scope"])?;
    text.lines()
        .map(|line| event(line).ok_or_else(|| format!("babeltrace2 printed {line}")))
        .collect()
}

/// `timestamp = 1.5, delta = ..., name = a:b, stream.packet.context = { ... }, ...`
fn event(line: &str) -> Option<Event> {
    let mut event =
        Event { ns: 0, cpu: None, name: String::new(), contexts: Vec::new(), fields: Vec::new() };
    let mut rest = line;
    loop {
        let (name, behind) = rest.split_once(" = ")?;
        rest = behind;
        match name {
            "timestamp" => {
                let time = bare(&mut rest);
                event.ns =
                    if time.contains('.') { nanoseconds(time)? } else { time.parse().ok()? };
            }
            "name" => event.name = bare(&mut rest).to_owned(),
            "delta" | "trace:hostname" | "trace:vpid" => drop(bare(&mut rest)),
            "stream.packet.context" => {
                let Value::Record(members) = value(&mut rest)? else { return None };
                let cpu = members.into_iter().find(|(name, _)| name == "cpu_id");
                event.cpu = match cpu {
                    Some((_, Value::Number(cpu))) => {
                        u32::try_from(cpu).ok().filter(|cpu| *cpu != u32::MAX)
                    }
                    _ => None,
                };
            }
            "stream.event.context" | "event.context" => {
                let Value::Record(members) = value(&mut rest)? else { return None };
                event.contexts.extend(without_lengths(members));
            }
            "event.fields" => {
                let Value::Record(members) = value(&mut rest)? else { return None };
                event.fields = without_lengths(members);
            }
            _ => return None,
        }
        if rest.is_empty() {
            return Some(event);
        }
        rest = rest.strip_prefix(", ")?;
    }
}

/// `12.000000345` in nanoseconds.
pub(super) fn nanoseconds(seconds: &str) -> Option<i128> {
    let (whole, part) = seconds.split_once('.')?;
    Some(
        whole.parse::<i128>().ok()? * 1_000_000_000
            + part.parse::<i128>().ok().filter(|_| part.len() == 9)?,
    )
}

/// All before the next `, ` or ` `.
fn bare<'t>(rest: &mut &'t str) -> &'t str {
    let end = rest.find([',', ' ']).unwrap_or(rest.len());
    let (word, behind) = rest.split_at(end);
    *rest = behind;
    word
}

fn take(rest: &mut &str, prefix: &str) -> bool {
    let behind = rest.strip_prefix(prefix);
    *rest = behind.unwrap_or(rest);
    behind.is_some()
}

/// CTF 1.8 has a field for the length of a sequence before it.
fn without_lengths(members: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let names: Vec<String> = members.iter().map(|(name, _)| name.clone()).collect();
    let is_length = |at: usize| {
        let next = names.get(at + 1).map(|next| format!("{}_length", next.trim_start_matches('_')));
        next.is_some_and(|next| next == names[at].trim_start_matches('_'))
    };
    members
        .into_iter()
        .enumerate()
        .filter(|(at, _)| !is_length(*at))
        .map(|(_, member)| member)
        .collect()
}

fn value(rest: &mut &str) -> Option<Value> {
    if take(rest, "\"") {
        return quoted(rest).map(Value::Text);
    }
    if take(rest, "{ ") {
        let mut members = Vec::new();
        while !take(rest, "}") {
            take(rest, ", ");
            let (name, behind) = rest.split_once(" = ")?;
            *rest = behind;
            members.push((name.to_owned(), value(rest)?));
            take(rest, " ");
        }
        return Some(Value::Record(members));
    }
    if take(rest, "[ ") {
        let mut list = Vec::new();
        while !take(rest, "]") {
            take(rest, ", ");
            if !take(rest, &format!("[{}] = ", list.len())) {
                return None;
            }
            list.push(value(rest)?);
            take(rest, " ");
        }
        return Some(Value::List(list));
    }
    if take(rest, "( ") {
        let label = match take(rest, "<unknown>") {
            true => None,
            false => take(rest, "\"").then(|| quoted(rest))?.map(Some)?,
        };
        let Value::Number(number) = take(rest, " : container = ").then(|| value(rest))?? else {
            return None;
        };
        return take(rest, " )").then_some(Value::Label(label, number));
    }
    let word = bare(rest);
    if let Ok(is) = word.parse() {
        return Some(Value::Bool(is));
    }
    if let Some(digits) = word.strip_prefix("0x") {
        return i128::from_str_radix(digits, 16).ok().map(Value::Number);
    }
    let number = word.parse().map(Value::Number);
    number.or_else(|_| word.parse().map(Value::Real)).ok()
}

/// A text behind its first quote.
fn quoted(rest: &mut &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                *rest = &rest[at + 1..];
                return Some(text);
            }
            '\\' => match chars.next()?.1 {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                other => text.push(other),
            },
            _ => text.push(c),
        }
    }
    None
}
