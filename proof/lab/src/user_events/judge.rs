//! Compares user events with the values that the program `writer.c` wrote, by their numbers.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::compare::{Ours, Rows};
use crate::dump::Dump;
use crate::texts::{Events, read};
use rig::run_quietly;

/// The fields of an event by its name without the system, and by its number.
fn written(event: &str, n: u32) -> Option<Value> {
    let (wide, few) = (i64::from(n), i64::from(n % 9));
    let bytes: Vec<u8> = (0..16).map(|at| n.wrapping_mul(7).wrapping_add(at) as u8).collect();
    let mac: Vec<u8> = bytes[..6].iter().map(|byte| byte | 0x40).collect();
    let text = format!("text {n} of {}", if n.is_multiple_of(3) { "äll" } else { "some" });
    let list = [n, n + 1, u32::MAX, 7];
    let short = n as usize % 9;
    Some(match event {
        "lw_numbers" => json!({
            "id": n, "amount": -5_000_000_000 - wide, "port": 65_535 - few, "low": -1 - few,
            "kind": 200 + few, "sign": -100 - few, "letter": 97 + n % 26, "octet": 255 - few,
            "half": 40_000 + few, "small": -30_000 - few, "whole": 4_000_000_000 + wide,
            "negative": -2_000_000_000 - wide, "word": -wide, "all": u64::MAX - u64::from(n),
        }),
        "lw_text" => json!({ "text": text, "after": n }),
        "lw_late" => json!({ "text": text, "bytes": hex(&bytes[..short]) }),
        "lw_arrays" => json!({
            "name": format!("name {n}"), "mac": hex(&mac), "chars": hex(&bytes[..short]),
            "list": list[..n as usize % 5], "more": hex(&[n as u8 | 0x80, 0xf0, 0]),
        }),
        "lw_structs" => {
            json!({ "at": hex(&bytes[..12]), "two": hex(&bytes[4..12]), "id": n })
        }
        "lw_empty" => json!({}),
        "lw_longer" | "lw_kept" => json!({ "id": n }),
        multi if multi.starts_with("lw_multi.") => {
            if multi.ends_with('0') {
                json!({ "id": n })
            } else {
                json!({ "text": text })
            }
        }
        _ => return None,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The number of an event, by its fields.
fn number(fields: &Value) -> u32 {
    let text = ["text", "name"].iter().find_map(|name| fields[name].as_str()?.split(' ').nth(1));
    let number = ["id", "after"].iter().find_map(|name| fields[name].as_u64());
    number.or(text.and_then(|text| text.parse().ok())).unwrap_or_default() as u32
}

/// Each user event of JSON lines has the fields that were written. Returns how many there are.
fn typed(rows: &mut Rows, what: &str, lines: &str) -> Result<usize> {
    let (mut all, mut wrong) = (0, Vec::new());
    for line in lines.lines().skip(1) {
        let event: Value = serde_json::from_str(line)?;
        let name = event["event"].as_str().unwrap_or_default();
        let Some((_, name)) = name.split_once(':').filter(|(system, _)| is_system(system)) else {
            continue;
        };
        all += 1;
        let fields = &event["fields"];
        let truth = written(name, number(fields)).context("an event of the program")?;
        if fields != &truth {
            wrong.push(format!("{name}: {fields}, and not {truth}"));
        }
    }
    let detail = wrong.first().map_or(format!("{all} events"), String::clone);
    rows.row(wrong.is_empty() && all > 0, &format!("{what}: values of JSON"), &detail);
    Ok(all)
}

fn is_system(name: &str) -> bool {
    matches!(name, "user_events" | "user_events_multi")
}

/// A number as trace-cmd prints it: it does not extend the sign of one of less than four bytes.
fn as_trace_cmd(name: &str, value: &Value) -> Value {
    let number = value.as_i64().unwrap_or_default();
    match name {
        "sign" => json!(number as u8),
        "low" | "small" => json!(number as u16),
        _ => value.clone(),
    }
}

/// Each line of `lw_numbers` of another reader has the numbers that were written.
fn numbers(rows: &mut Rows, what: &str, lines: &[Vec<String>], wanted: usize) -> Result<()> {
    let mut wrong = Vec::new();
    for words in lines {
        let id = words.iter().find_map(|word| word.strip_prefix("id=")).context("an id")?;
        let truth = written("lw_numbers", id.parse()?).context("lw_numbers")?;
        for (name, value) in truth.as_object().context("fields")? {
            let value =
                if what.ends_with("trace-cmd") { as_trace_cmd(name, value) } else { value.clone() };
            let word = format!("{name}={value}");
            if !words.contains(&word) {
                wrong.push(format!("no {word} in {words:?}"));
            }
        }
    }
    let detail = wrong.first().map_or(format!("{} events", lines.len()), String::clone);
    rows.row(wrong.is_empty() && lines.len() == wanted && wanted > 0, what, &detail);
    Ok(())
}

/// What trace-cmd prints of a file.
fn by_trace_cmd(file: &Path) -> Result<String> {
    let output = Command::new("trace-cmd").args(["report", "-i"]).arg(file).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "trace-cmd report: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The words of each `lw_numbers` that trace-cmd prints.
fn words(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter_map(|line| line.split_once(": lw_numbers: "));
    lines.map(|(_, rest)| rest.split_whitespace().map(str::to_owned).collect()).collect()
}

/// The same of babeltrace2, of the top level.
fn words_of_ctf(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| line.contains("user_events:lw_numbers:"));
    let fields = lines.filter_map(|line| line.rsplit_once('{'));
    let words = fields.map(|(_, fields)| fields.trim_end_matches(['}', ' ']).split(", "));
    words.map(|words| words.map(|word| word.trim().replace(" = ", "=")).collect()).collect()
}

/// Judges the values of a dump.
pub(super) fn dump(rows: &mut Rows, ours: &Ours<'_>, dump: &Dump, truth: &Path) -> Result<()> {
    let format = dump.format;
    let lines = ours.run("convert", dump, &["--to", "json", "-o", "-"])?;
    let found = typed(rows, format, &String::from_utf8(lines)?)?;
    let of = |folder: &str, event: &str| -> Result<usize> {
        let text = read(&truth.join(folder).join("trace"))?;
        Ok(text.lines().filter(|line| line.contains(event)).count())
    };
    let wanted = of("top", ": lw_")? + of("texts", ": lw_")?;
    let detail = format!("{found} of {wanted}");
    rows.row(found == wanted, &format!("{format}: all events in JSON"), &detail);
    let wanted = of("top", ": lw_numbers: ")?;
    let out = truth.with_file_name("values");
    for (to, arguments) in [("trace-dat", &["--to", "trace-dat"][..]), ("ctf", &["--to", "ctf"])] {
        let place = out.join(to);
        let shown = place.display().to_string();
        ours.run("recover", dump, &[arguments, &["-o", &shown]].concat())?;
        let (reader, lines) = match to {
            "ctf" => {
                let text = run_quietly(Command::new("babeltrace2").arg(&place))?;
                ("babeltrace2", words_of_ctf(&text))
            }
            _ => ("trace-cmd", words(&by_trace_cmd(&place.join("trace.dat"))?)),
        };
        numbers(rows, &format!("{format}: numbers by {reader}"), &lines, wanted)?;
    }
    std::fs::remove_dir_all(&out).with_context(|| out.display().to_string())
}

/// Judges the recordings of a guest.
pub(super) fn recordings(out: &Path, lastwords: &Path, rows: &mut Rows) -> Result<()> {
    let said = read(&out.join("none.said"))?;
    let is_refused = read(&out.join("none.status"))?.trim() != "0" && said.contains("user_events");
    rows.row(is_refused, "none: no program has registered an event", said.trim());
    let bursts = read(&out.join("bursts"))?;
    let bursts = bursts.lines().filter_map(|line| line.strip_prefix("burst ")?.parse().ok());
    let bursts: Vec<usize> = bursts.collect();
    for (name, burst) in ["events", "stream", "chosen", "ended"].iter().zip(bursts.iter().copied())
    {
        rows.part(name, |rows| recording(out, lastwords, name, burst, rows));
    }
    rows.part("events", |rows| beside_trace_cmd(out, bursts.first().copied(), rows));
    let left = read(&out.join("left"))?;
    rows.row(!left.contains("lw_numbers"), "no event is left of the program", left.trim());
    Ok(())
}

fn recording(
    out: &Path,
    lastwords: &Path,
    name: &str,
    burst: usize,
    rows: &mut Rows,
) -> Result<()> {
    let (status, said) =
        (read(&out.join(format!("{name}.status")))?, read(&out.join(format!("{name}.said")))?);
    ensure!(status.trim() == "0", "status {}: {}", status.trim(), said.trim());
    let file = out.join(format!("{name}.dat"));
    let kernel = read(&out.join(format!("{name}.kernel")))?;
    if name != "stream" {
        let ours = run_quietly(Command::new(lastwords).arg("report").arg(&file))?;
        rows.same_text(&format!("{name}: text"), kernel.as_bytes(), &Ok(ours.into_bytes()));
    }
    let lines = Command::new(lastwords)
        .arg("convert")
        .arg(&file)
        .args(["--to", "json", "-o", "-"])
        .output()?;
    ensure!(lines.status.success(), "convert: {}", String::from_utf8_lossy(&lines.stderr));
    let found = typed(rows, name, &String::from_utf8(lines.stdout)?)?;
    // Of the chosen, every second has an odd number, or none, or all.
    let ok = if name == "chosen" { found <= burst } else { found == burst };
    rows.row(ok, &format!("{name}: all events"), &format!("{found} of {burst}; {}", said.trim()));
    Ok(())
}

/// trace-cmd's recording of the same events has the same, each on the same CPU. trace-cmd does not
/// know the events of several formats, whose names have a dot (`lw_multi.0`), in either file.
fn beside_trace_cmd(out: &Path, burst: Option<usize>, rows: &mut Rows) -> Result<()> {
    let of = |file: &str| -> Result<Events> {
        let text = by_trace_cmd(&out.join(file))?;
        let event = |line: &str| {
            if line.contains("[UNKNOWN EVENT]") {
                return Some("unknown".to_owned());
            }
            let (head, event) = line.split_once(": lw_")?;
            let cpu = head.split_once('[')?.1.split(']').next()?;
            Some(format!("{cpu} {event}"))
        };
        Ok(text.lines().filter_map(event).collect())
    };
    let (ours, theirs) = (of("events.dat")?, of("events.peer.dat")?);
    let (lost, invented) = (theirs.without(&ours), ours.without(&theirs));
    let ok = lost.0 == 0 && invented.0 == 0 && Some(theirs.total) == burst;
    let detail =
        format!("{} and {} events {:?} {:?}", ours.total, theirs.total, lost.1, invented.1);
    rows.row(ok, "events: as trace-cmd recorded them", &detail);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_number_that_they_were_written_with() {
        for event in ["lw_numbers", "lw_text", "lw_late", "lw_arrays", "lw_structs", "lw_multi.1"] {
            let fields = written(event, 41).unwrap();
            assert_eq!(number(&fields), 41, "{event}");
        }
        assert_eq!(written("lw_other", 1), None);
        assert_eq!(written("lw_structs", 1).unwrap()["two"], "0b0c0d0e0f101112");
    }

    #[test]
    fn words_of_other_readers() {
        let line = "  writer-9  [000] .....  5.1: lw_numbers:           id=1 amount=-2";
        assert_eq!(words(line), [["id=1", "amount=-2"]]);
        let line = "[00:00:05.1] (+0.1) user_events:lw_numbers: { cpu_id = 0 }, { pid = 9 }, { id = 1, amount = -2 }";
        assert_eq!(words_of_ctf(line), [["id=1", "amount=-2"]]);
    }
}
