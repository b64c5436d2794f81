//! Histograms of `lastwords record`: what it saves and shows beside what the kernel prints, and
//! beside the known numbers of the work that was counted.
//!
//! The rows that `lastwords` reads are put together again by the forms of the kernel's
//! documentation, and must be the kernel's lines.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Setup;
use crate::compare::Rows;
use crate::record;
use crate::texts::read;
use rig::run_quietly;

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "hist";
pub(super) const WHAT: &str =
    "histograms of `lastwords record`, beside the kernel's text and the known numbers";

/// The cases whose numbers do not change while they are looked at, each with parts of lines that the
/// kernel must have, and how often each was counted.
const CASES: &[(&str, &[(&str, u64)])] = &[
    ("numbers", &[("{ sig: 0, pid: 1 }", 13), ("{ sig: 18, pid: 1 }", 7)]),
    (
        "texts",
        &[("{ filename: /t/n1 }", 1), ("{ filename: /t/n2 }", 2), ("{ filename: /t/n3 }", 3)],
    ),
    (
        "sizes",
        &[
            ("{ count: ~ 2^12 }", 10),
            ("{ count: ~ 2^7 }", 5),
            ("{ count: ~ 4000-4099 }", 10),
            ("{ count: ~ 100-199 }", 5),
        ],
    ),
    ("names", &[]),
    ("symbols", &[]),
    ("stacks", &[]),
    ("dropped", &[]),
    ("named", &[]),
    ("both", &[("{ sig: 0 }", 13), ("{ sig: 18 }", 7)]),
];

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    record::run_guest(setup, include_bytes!("../guest/hist.sh"), &record::More::default())?;
    let found = Found { folder: setup.folder.join("out") };
    for (name, counts) in CASES {
        rows.part(name, |rows| found.case(name, counts, rows));
    }
    for part in
        [Found::dropped, Found::names, Found::both, Found::onmatch, Found::wrong, Found::killed]
    {
        rows.part("a part", |rows| part(&found, rows));
    }
    Ok(())
}

struct Found {
    folder: PathBuf,
}

impl Found {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn text(&self, name: &str) -> Result<String> {
        read(&self.at(name))
    }

    /// Checks that a recording ended well and left nothing.
    fn ended(&self, name: &str, rows: &mut Rows) -> Result<String> {
        let said = self.text(&format!("{name}.said"))?;
        let status = self.text(&format!("{name}.status"))?;
        rows.row(status.trim() == "0", &format!("{name}: status"), said.trim());
        self.same_state(name, rows)?;
        Ok(said)
    }

    fn same_state(&self, name: &str, rows: &mut Rows) -> Result<()> {
        let (before, after) = (self.text("before.state")?, self.text(&format!("{name}.state"))?);
        rows.same_text(&format!("{name}: state"), before.as_bytes(), &Ok(after.into_bytes()));
        Ok(())
    }

    fn case(&self, name: &str, counts: &[(&str, u64)], rows: &mut Rows) -> Result<()> {
        self.ended(name, rows)?;
        let kernel = self.text(&format!("{name}.kernel"))?;
        self.same_texts(name, &kernel, rows)?;
        let json: Value = serde_json::from_str(&self.text(&format!("{name}.json"))?)?;
        let ours = lines_of(&json).context("the rows of --json")?;
        let theirs: Vec<String> = rows_of(&kernel).iter().map(|row| without_blanks(row)).collect();
        let detail = format!("{} rows", theirs.len());
        let wrong = (0..ours.len().max(theirs.len())).find(|at| ours.get(*at) != theirs.get(*at));
        let shown = wrong.map(|at| format!("; {:?} {:?}", ours.get(at), theirs.get(at)));
        let what = format!("{name}: rows of --json");
        rows.row(
            wrong.is_none() && !theirs.is_empty(),
            &what,
            &(detail + &shown.unwrap_or_default()),
        );
        for (key, count) in counts {
            let row = format!("{}hitcount:{count}", without_blanks(key));
            let ok = ours.iter().any(|line| {
                line.strip_prefix(&row)
                    .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
            });
            rows.row(ok, &format!("{name}: the known number"), &format!("{key}: {count}"));
        }
        Ok(())
    }

    /// The file that is saved and the text that is shown are the kernel's. The file has the paused
    /// histograms.
    fn same_texts(&self, name: &str, kernel: &str, rows: &mut Rows) -> Result<()> {
        let saved = self.text(&format!("{name}.dat.hist"))?;
        let is_paused = !saved.contains(" [active]\n");
        rows.row(is_paused, &format!("{name}: the saved histograms are paused"), "");
        let saved = saved.replace(" [paused]\n", " [active]\n");
        rows.same_text(&format!("{name}: saved"), kernel.as_bytes(), &Ok(saved.into_bytes()));
        let live = self.text(&format!("{name}.live"))?;
        rows.same_text(&format!("{name}: live"), kernel.as_bytes(), &Ok(live.into_bytes()));
        Ok(())
    }

    /// 400 keys in a histogram of 128.
    fn dropped(&self, rows: &mut Rows) -> Result<()> {
        let (kernel, said) = (self.text("dropped.kernel")?, self.text("dropped.said")?);
        let total = |word: &str| -> Result<u64> {
            let line = kernel.lines().find_map(|line| line.trim().strip_prefix(word));
            line.with_context(|| word.to_owned())?.trim().parse().context("a number")
        };
        let (hits, entries, dropped) = (total("Hits:")?, total("Entries:")?, total("Dropped:")?);
        let ok = hits + dropped == 400 && entries == hits && dropped > 0;
        rows.row(ok, "dropped: the kernel's totals", &format!("{hits} {entries} {dropped}"));
        let told = format!("{entries} rows, {hits} hits; {dropped} dropped");
        let ok = said.contains(&told) && said.contains("had no room in the histogram");
        rows.row(ok, "dropped: what is told", said.trim());
        Ok(())
    }

    /// Names of system calls, threads, functions and stacks are read as such.
    fn names(&self, rows: &mut Rows) -> Result<()> {
        let of = |name: &str| -> Result<Value> {
            Ok(serde_json::from_str(&self.text(&format!("{name}.json"))?)?)
        };
        let names = of("names")?;
        let row = all_rows(&names).find(|row| row["keys"]["id"]["label"] == "sys_write");
        let row = row.context("a row of sys_write")?;
        let ok = row["keys"]["id"]["value"] == 1 && row["keys"]["common_pid"]["label"] == "dd";
        rows.row(ok, "names: a system call and its thread", &row.to_string());
        let symbols = of("symbols")?;
        let is_symbol = |row: &Value| {
            let site = &row["keys"]["call_site"];
            site["value"].as_u64().is_some_and(|at| at > 1 << 63)
                && site["label"]
                    .as_str()
                    .is_some_and(|name| !name.is_empty() && !name.contains(' '))
        };
        let (all, good) =
            (all_rows(&symbols).count(), all_rows(&symbols).filter(|row| is_symbol(row)).count());
        rows.row(all == good && all > 1, "symbols: functions", &format!("{good} of {all} rows"));
        let stacks = of("stacks")?;
        let is_stack = |row: &Value| {
            let mut keys = row["keys"].as_object().into_iter().flat_map(|keys| keys.values());
            keys.all(|stack| stack.as_array().is_some_and(|stack| stack.len() > 2))
        };
        let (all, good) =
            (all_rows(&stacks).count(), all_rows(&stacks).filter(|row| is_stack(row)).count());
        rows.row(all == good && all > 0, "stacks: functions", &format!("{good} of {all} rows"));
        let named: Vec<Value> = of("named")?["histograms"].as_array().cloned().unwrap_or_default();
        let ok = named.len() == 2 && named[0]["rows"] == named[1]["rows"];
        rows.row(ok, "named: two events share it", &format!("{} histograms", named.len()));
        Ok(())
    }

    /// The events are recorded too where they are not left out.
    fn both(&self, rows: &mut Rows) -> Result<()> {
        for (name, expected) in [("numbers", 0), ("both", 20)] {
            let path = self.at(&format!("{name}.dat"));
            let text = run_quietly(Command::new("trace-cmd").args(["report", "-i"]).arg(&path))?;
            let count = text.lines().filter(|line| line.contains("sys_enter_kill")).count();
            rows.row(count == expected, &format!("{name}: events in the file"), &count.to_string());
        }
        Ok(())
    }

    /// Histograms whose variables an action uses are saved as they are.
    fn onmatch(&self, rows: &mut Rows) -> Result<()> {
        self.ended("onmatch", rows)?;
        let saved = self.text("onmatch.dat.hist")?;
        let ok = ["# event: sched:sched_waking\n", "# event: sched:sched_switch\n", "onmatch("]
            .iter()
            .all(|what| saved.contains(what));
        rows.row(ok, "onmatch: both are saved", &format!("{} lines", saved.lines().count()));
        Ok(())
    }

    /// The place of a mistake is shown as the kernel shows it.
    fn wrong(&self, rows: &mut Rows) -> Result<()> {
        for (name, command) in [
            ("wrong-key", "hist:syscalls:sys_enter_kill: error: Couldn't find field"),
            ("wrong-sort", "hist:syscalls:sys_enter_kill: error: "),
        ] {
            let (said, status) =
                (self.text(&format!("{name}.said"))?, self.text(&format!("{name}.status"))?);
            let mut lines = said.lines().skip_while(|line| !line.starts_with("  Command: "));
            let (shown, caret) = (lines.next().unwrap_or_default(), lines.next());
            let at = caret.and_then(|caret| caret.find('^')).context("a caret")?;
            let ok = status.trim() == "1"
                && said.contains(command)
                && shown.get(at..).is_some_and(|rest| rest.starts_with("nothing"));
            rows.row(ok, &format!("{name}: the place of the mistake"), said.trim());
            self.same_state(name, rows)?;
        }
        Ok(())
    }

    /// What a killed recorder has counted is saved by `restore`.
    fn killed(&self, rows: &mut Rows) -> Result<()> {
        let (status, said) = (self.text("restore.status")?, self.text("restore.said")?);
        rows.row(status.trim() == "0", "killed: restore", said.trim());
        self.same_state("killed", rows)?;
        let kernel = self.text("killed.kernel")?;
        ensure!(without_blanks(&kernel).contains("{sig:19}hitcount:1"), "{kernel}");
        self.same_texts("killed", &kernel, rows)
    }
}

fn all_rows(json: &Value) -> impl Iterator<Item = &Value> {
    let histograms = json["histograms"].as_array().into_iter().flatten();
    histograms.flat_map(|histogram| histogram["rows"].as_array().into_iter().flatten())
}

/// The rows of a text of the kernel, each with its lines.
fn rows_of(text: &str) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut is_in_rows = false;
    for line in text.lines() {
        if line.starts_with("{ ") {
            is_in_rows = true;
            rows.push(String::new());
        } else if line.is_empty() {
            is_in_rows = false;
        }
        if let Some(row) = rows.last_mut().filter(|_| is_in_rows) {
            row.push_str(line);
        }
    }
    rows
}

fn without_blanks(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The members of an object in the order of a trigger's list.
fn in_order<'a>(
    object: &'a Value,
    trigger: &str,
    list: &str,
) -> Option<Vec<(&'a String, &'a Value)>> {
    let list = trigger.split_once(list)?.1.split([':', ' ']).next()?;
    let names: Vec<&str> = list.split(',').filter_map(|word| word.split('.').next()).collect();
    let mut members: Vec<_> = object.as_object()?.iter().collect();
    members.sort_by_key(|(name, _)| names.iter().position(|known| known == name));
    Some(members)
}

/// Puts the rows together as the kernel prints them, without blanks.
fn lines_of(json: &Value) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    for histogram in json["histograms"].as_array()? {
        let trigger = histogram["trigger"].as_str()?;
        let has = |name: &str, modifier: &str| trigger.contains(&format!("{name}.{modifier}"));
        for row in histogram["rows"].as_array()? {
            let mut keys = Vec::new();
            for (name, value) in in_order(&row["keys"], trigger, "keys=")? {
                let shown = match value {
                    Value::Number(number) if has(name, "hex") => format!("{:x}", number.as_u64()?),
                    Value::Number(number) => number.to_string(),
                    Value::String(text) => text.clone(),
                    Value::Array(stack) => {
                        let frames: Option<Vec<_>> = stack.iter().map(Value::as_str).collect();
                        frames?.concat()
                    }
                    Value::Object(of) if of.contains_key("power") => format!("~2^{}", of["power"]),
                    Value::Object(of) if of.contains_key("first") => {
                        format!("~{}-{}", of["first"], of["last"])
                    }
                    Value::Object(of) if has(name, "sym") => {
                        let (at, label) = (of["value"].as_u64()?, of["label"].as_str()?);
                        format!("[{at:x}]{label}")
                    }
                    Value::Object(of) => format!("{}[{}]", of["label"].as_str()?, of["value"]),
                    _ => return None,
                };
                keys.push(format!("{name}:{shown}"));
            }
            let mut line = format!("{{{}}}", keys.join(","));
            for (name, value) in in_order(&row["values"], trigger, ":vals=")? {
                let value = value.as_u64()?;
                line += &match has(name, "hex") {
                    true => format!("{name}:{value:x}"),
                    false => format!("{name}:{value}"),
                };
            }
            lines.push(without_blanks(&line));
        }
    }
    Some(lines)
}
