//! Compares what the host's perf prints of our files with what ftrace recorded of the same events.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::compare::Rows;

/// Fewest events of one CPU that are compared.
const LEAST: usize = 50;

/// The texts of `sched_switch` by CPU, in the order of a trace.
pub(super) type Switches = BTreeMap<u32, Vec<String>>;

/// What perf prints of a file.
#[derive(Debug, Default)]
pub(super) struct Printed {
    switches: Switches,
    /// Lines of `cpu-clock`.
    clocks: usize,
    /// Names that perf gives to the task that goes to sleep, by its number.
    names: BTreeMap<String, String>,
}

impl Printed {
    /// Runs the host's perf.
    ///
    /// # Errors
    /// perf cannot read the file, or complains.
    pub(super) fn by_perf(file: &Path) -> Result<Self> {
        let mut perf = Command::new("perf");
        perf.args(["script", "-i"]).arg(file);
        let output = perf.output().context("cannot run the host's perf")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && errors.trim().is_empty(), "perf script: {errors}");
        Ok(Self::from_lines(&String::from_utf8_lossy(&output.stdout)))
    }

    fn from_lines(text: &str) -> Self {
        let mut printed = Self::default();
        for line in text.lines() {
            printed.clocks += usize::from(line.contains("cpu-clock:"));
            let Some((cpu, switch)) = switch(line, "sched:sched_switch: ") else { continue };
            let head = line.split('[').next().unwrap_or_default().trim();
            if let Some((name, number)) = head.rsplit_once(' ') {
                printed.names.insert(number.to_owned(), name.trim().to_owned());
            }
            printed.switches.entry(cpu).or_default().push(switch);
        }
        printed
    }
}

/// Returns the events of a trace in ftrace's own text.
pub(super) fn truth(text: &str) -> Switches {
    let mut switches = Switches::new();
    for (cpu, switch) in text.lines().filter_map(|line| switch(line, " sched_switch: ")) {
        switches.entry(cpu).or_default().push(switch);
    }
    switches
}

/// Returns the CPU of a line, and its text after `name`. A task that has ended is a zombie or dead:
/// the kernel looks for each recorder anew, and the parent may wait for the task in between.
fn switch(line: &str, name: &str) -> Option<(u32, String)> {
    let (before, text) = line.split_once(name)?;
    let cpu = before.rsplit_once('[')?.1.split_once(']')?.0.parse().ok()?;
    Some((cpu, text.trim().replace("prev_state=X ", "prev_state=Z ")))
}

/// Adds the rows of one recording. `pid` is that of its process.
pub(super) fn judge(rows: &mut Rows, what: &str, truth: &Switches, ours: &Printed, pid: u32) {
    let cpus = ours.switches.len();
    rows.row(cpus == super::CPUS as usize, &format!("{what} CPUs"), &cpus.to_string());
    for (cpu, ours) in &ours.switches {
        let none = Vec::new();
        let truly = truth.get(cpu).unwrap_or(&none);
        let differ = differs(truly, ours);
        let detail = differ.clone().unwrap_or_else(|| {
            format!("{} alike, the last of {} that ftrace has", ours.len(), truly.len())
        });
        rows.row(differ.is_none(), &format!("{what} CPU {cpu} switches"), &detail);
    }
    let name = ours.names.get(&pid.to_string()).map(String::as_str);
    // The process may have slept since before the oldest record.
    rows.row(
        matches!(name, None | Some("perf")) && ours.names.values().any(|name| name == "init"),
        &format!("{what} names of tasks"),
        &format!("{} tasks, {pid} is {name:?}", ours.names.len()),
    );
}

/// Adds a row for each buffer of the whole dump: how much of it the other dump has, and what is told
/// of the rest.
pub(super) fn judge_buffers(
    rows: &mut Rows,
    format: &str,
    whole: &Value,
    cut: &Value,
    losses: &[String],
) -> Result<()> {
    let list = |kernel: &Value| kernel["buffers"].as_array().cloned().context("no buffers");
    let (all, there) = (list(whole)?, list(cut)?);
    let gaps = cut["evidence"]["gaps"].as_array().context("no gaps")?;
    let at = |buffer: &Value| format!(" at {:#x} of ", buffer["address"].as_u64().unwrap_or(0));
    let own = |buffer: &Value| there.iter().find(|own| own["address"] == buffer["address"]);
    let is_named = |buffer: &Value| losses.iter().any(|loss| loss.contains(&at(buffer)));
    let events = |buffer: &Value| buffer["events"].as_array().map_or(0, Vec::len);
    // Events without which a buffer is not found, or is there without their records.
    let missing = |pid: &Value| -> usize {
        let all = all.iter().filter(|buffer| buffer["owner"]["pid"] == *pid);
        all.map(|buffer| match own(buffer) {
            Some(own) => events(buffer).saturating_sub(events(own)),
            None if is_named(buffer) => 0,
            None => events(buffer),
        })
        .sum()
    };
    // Of a process whose structure is missing, nothing is known.
    let is_known = |pid: &Value| {
        there.iter().any(|buffer| buffer["owner"]["pid"] == *pid)
            || losses.iter().any(|loss| loss.contains(&format!(" ({pid})")))
    };
    for buffer in &all {
        let (pid, records) = (&buffer["owner"]["pid"], count(buffer));
        let (ok, detail) = match own(buffer) {
            Some(own) => {
                let of_buffer = |gap: &&Value| {
                    let place = gap["place"].as_str().unwrap_or_default();
                    gap["loss"] == true && place.contains(&at(buffer))
                };
                let told = gaps.iter().filter(of_buffer).filter_map(|gap| gap["events"].as_u64());
                let (found, told) = (count(own), told.sum::<u64>());
                (found + told == records, format!("{found} records and {told} lost of {records}"))
            }
            None if is_named(buffer) => (true, "missing, and named".to_owned()),
            None if !is_known(pid) => {
                let has_hole = losses.iter().any(|loss| loss.starts_with("the list of tasks: "));
                (
                    has_hole,
                    format!("its process is missing; the list of tasks has a hole: {has_hole}"),
                )
            }
            None => {
                let of_event = |loss: &&String| {
                    loss.starts_with("perf event") && loss.contains(&format!(" ({pid}): "))
                };
                let of_files = |loss: &String| {
                    loss.contains("open files of ") && loss.contains(&format!(" ({pid}): "))
                };
                let (told, missing) = (losses.iter().filter(of_event).count(), missing(pid));
                let lacks_files = losses.iter().any(of_files);
                let detail = format!(
                    "missing; {told} events of {missing} are named, and its files: {lacks_files}"
                );
                (told >= missing || lacks_files, detail)
            }
        };
        rows.row(ok, &format!("{format} buffer{}{pid}", at(buffer)), &detail);
    }
    Ok(())
}

/// Returns the number of records of a buffer.
fn count(buffer: &Value) -> u64 {
    let kinds = buffer["records"].as_object().into_iter().flatten();
    kinds.filter_map(|(_, count)| count.as_u64()).sum()
}

/// Adds the row of a recording of which some is missing: its events are some of the truth, in the
/// same order. A panic may have come between the two recorders of the last one.
pub(super) fn judge_some(rows: &mut Rows, what: &str, truth: &Switches, ours: &Printed) {
    let none = Vec::new();
    let wrong = ours.switches.iter().find_map(|(cpu, ours)| {
        let mut rest = truth.get(cpu).unwrap_or(&none).iter();
        ours.split_last()?.1.iter().find(|event| !rest.any(|truth| truth == *event))
    });
    let count: usize = ours.switches.values().map(Vec::len).sum();
    let detail =
        wrong.map_or_else(|| format!("{count} events"), |event| format!("not so: {event}"));
    rows.row(wrong.is_none(), &format!("{what} events"), &detail);
}

/// Adds the row on events that ftrace does not record.
pub(super) fn judge_clock(rows: &mut Rows, what: &str, ours: &Printed) {
    rows.row(
        ours.clocks > LEAST,
        &format!("{what} cpu-clock"),
        &format!("{} samples", ours.clocks),
    );
}

/// Returns what differs: the events must be the last ones of the truth. A panic may have come
/// between the two recorders of one event.
fn differs(truth: &[String], ours: &[String]) -> Option<String> {
    if ours.len() < LEAST {
        return Some(format!("{} events are too few", ours.len()));
    }
    let without_last = |list: &'_ [String]| list[..list.len().saturating_sub(1)].to_vec();
    if truth.ends_with(ours)
        || without_last(truth).ends_with(ours)
        || truth.ends_with(&without_last(ours))
    {
        return None;
    }
    let pairs = truth.iter().rev().zip(ours.iter().rev());
    let first = pairs.enumerate().find(|(_, (truth, ours))| truth != ours);
    let shown = first.map_or_else(
        || "ftrace has fewer".to_owned(),
        |(at, (truth, ours))| format!("event {at} before the end: {truth} is {ours}"),
    );
    Some(format!("{} events, the truth has {}; {shown}", ours.len(), truth.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_are_compared() {
        let perf = "    swapper     0 [001]    14.073827: sched:sched_switch: prev_comm=a ==> next_comm=b\n\
                    kworker/1:1    46 [001]    14.073828:     250000 cpu-clock:  ffffffffa10bc56f [unknown] ([unknown])\n";
        let ours = Printed::from_lines(perf);
        let ftrace =
            "# x\n  <idle>-0  [001] d..2. 14.07: sched_switch: prev_comm=a ==> next_comm=b\n";
        assert_eq!(ours.switches, truth(ftrace));
        assert_eq!((ours.clocks, ours.names["0"].as_str()), (1, "swapper"));
    }

    #[test]
    fn each_record_of_a_buffer_is_there_or_told() {
        let buffer = |address: u64, pid: u32, samples: u64, events: usize| {
            serde_json::json!({ "address": address, "owner": { "pid": pid },
                "records": { "sample": samples, "comm": 2 }, "events": vec!["e"; events] })
        };
        let whole = serde_json::json!({ "buffers": [buffer(16, 7, 50, 2), buffer(32, 7, 9, 1)] });
        let lost = "perf buffer of CPU 0 at 0x10 of perf (7), records of an event that is missing";
        let failed = |told: u64, losses: &[&str]| {
            let gap = serde_json::json!({ "place": lost, "loss": true, "events": told });
            let cut = serde_json::json!({
                "buffers": [buffer(16, 7, 40, 1)], "evidence": { "gaps": [gap] } });
            let losses: Vec<String> = losses.iter().map(|loss| (*loss).to_owned()).collect();
            let mut rows = Rows::new("test".into());
            judge_buffers(&mut rows, "d31", &whole, &cut, &losses).unwrap();
            rows.failed
        };
        let events = ["perf event at 0x40 of perf (7): id", "perf event at 0x50 of perf (7): id"];
        assert_eq!(failed(10, &["perf buffer at 0x20 of perf (7): nr_pages"]), 0);
        assert_eq!(failed(10, &events), 0);
        assert_eq!(failed(10, &["4 open files of perf (7): fdtable"]), 0);
        assert_eq!(failed(10, &["the list of tasks: list"]), 1, "the process is there");
        assert_eq!([failed(9, &events), failed(10, &events[..1]), failed(10, &[])], [1, 1, 1]);
    }

    #[test]
    fn some_events_are_in_the_order_of_the_truth() {
        let truth = Switches::from([(0, ["a", "b", "c"].map(str::to_owned).into())]);
        let failed = |ours: &[&str]| {
            let ours = ours.iter().map(|event| (*event).to_owned()).collect();
            let ours = Printed { switches: [(0, ours)].into(), ..Printed::default() };
            let mut rows = Rows::new("test".into());
            judge_some(&mut rows, "some", &truth, &ours);
            rows.failed
        };
        assert_eq!(failed(&["a", "c"]), 0);
        assert_eq!([failed(&["c", "a", "b"]), failed(&["d", "a"])], [1, 1]);
    }

    #[test]
    fn an_event_that_is_missing_differs() {
        let all: Vec<String> = (0..200).map(|n| format!("event {n}")).collect();
        assert_eq!(differs(&all, &all[100..]), None);
        assert_eq!(differs(&all, &all[100..199]), None);
        assert!(differs(&all, &all[100..198]).is_some());
        assert!(differs(&all, &all[180..]).is_some());
        let mut without = all[100..].to_vec();
        without.remove(50);
        assert!(differs(&all, &without).is_some_and(|why| why.contains("event 49 before the end")));
    }
}
