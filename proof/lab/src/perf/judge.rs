//! Compares what the host's perf prints of our files with what ftrace recorded of the same events.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::compare::Rows;

/// Fewest events of one CPU that are compared.
const LEAST: usize = 50;

/// The texts of `sched_switch` by CPU, in the order of a trace.
type Switches = BTreeMap<u32, Vec<String>>;

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
