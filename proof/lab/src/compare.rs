//! Rows: what our program says of a dump, beside what the kernel had printed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::dump::Dump;
use super::scenario::Scenario;

/// The rows of one run, printed as they come.
pub(super) struct Rows {
    /// Kernel and scenario.
    pub(super) name: String,
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// Events whose lines may differ, with the reasons.
    pub(super) unlike: &'static [(&'static str, &'static str)],
}

/// Fewest events that a truth must have.
const LEAST: usize = 10;

impl Rows {
    pub(super) fn new(name: String) -> Self {
        Self { name, passed: 0, failed: 0, unlike: &[] }
    }

    /// One comparison.
    pub(super) fn row(&mut self, ok: bool, what: &str, detail: &str) {
        println!("{} {} {what}: {detail}", if ok { "ok   " } else { "SHORT" }, self.name);
        *(if ok { &mut self.passed } else { &mut self.failed }) += 1;
    }

    /// Judges a part; a row says so if it could not be judged.
    pub(super) fn part(&mut self, what: &str, judge: impl FnOnce(&mut Self) -> Result<()>) {
        if let Err(error) = judge(self) {
            self.row(false, what, &format!("{error:#}"));
        }
    }

    /// Two texts that must be the same to the byte.
    pub(super) fn same_text(&mut self, what: &str, truth: &[u8], ours: &Result<Vec<u8>>) {
        let ours = match ours {
            Ok(ours) => ours,
            Err(error) => return self.row(false, what, &format!("{error:#}")),
        };
        if truth == ours {
            return self.row(true, what, &format!("{} lines", lines(truth).count()));
        }
        if what.ends_with("fields") && without_copies(truth) == without_copies(ours) {
            let detail = "lines, but for addresses of the kernel's copies of events";
            return self.row(true, what, &format!("{} {detail}", lines(truth).count()));
        }
        let (truth, ours): (Vec<&[u8]>, Vec<&[u8]>) =
            (lines(truth).collect(), lines(ours).collect());
        let differ = (0..truth.len().max(ours.len())).filter(|at| truth.get(*at) != ours.get(*at));
        let mut differ: Vec<usize> = differ.collect();
        let is_unlike = |at: usize| {
            let pair = truth.get(at).zip(ours.get(at)).filter(|_| !self.unlike.is_empty());
            pair.is_some_and(|(truth, ours)| {
                without_copies(truth) == without_copies(ours) || self.is_unlike(ours)
            })
        };
        let all = differ.len();
        differ.retain(|at| !is_unlike(*at));
        if differ.is_empty() {
            return self.row(
                true,
                what,
                &format!("{} lines; {all} differ, all of listed events", truth.len()),
            );
        }
        self.row(
            false,
            what,
            &format!(
                "{} lines, the truth has {}; {} differ",
                ours.len(),
                truth.len(),
                differ.len()
            ),
        );
        let shown = |line: Option<&&[u8]>| {
            line.map_or("(end)".into(), |l| String::from_utf8_lossy(l).into_owned())
        };
        for at in differ.into_iter().take(3) {
            println!(
                "      line {}\n      truth {}\n      ours  {}",
                at + 1,
                shown(truth.get(at)),
                shown(ours.get(at))
            );
        }
    }

    /// Returns true for a line of an event whose lines may differ.
    fn is_unlike(&self, line: &[u8]) -> bool {
        let line = String::from_utf8_lossy(line);
        self.unlike.iter().any(|(event, _)| line.contains(&format!(": {event}: ")))
    }

    /// Two texts whose events must be the same: the comments before them have counters, which a
    /// dump without all of the ring's structures may lack.
    fn same_events(&mut self, what: &str, truth: &[u8], ours: &Result<Vec<u8>>) {
        let events =
            |text: &[u8]| lines(text).filter(|l| !l.starts_with(b"#")).collect::<Vec<_>>().concat();
        let ours = match ours {
            Ok(ours) => Ok(events(ours)),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        self.same_text(what, &events(truth), &ours);
    }
}

/// A text without the addresses of texts. From 6.18 on the fields form gives for a text that the
/// event points to not where it is, but where the pointer lies in the reader's copy of the event,
/// which is gone.
fn without_copies(text: &[u8]) -> Vec<u8> {
    let mut rest = text;
    let mut kept = Vec::with_capacity(text.len());
    while let Some(at) = rest.windows(4).position(|w| w == b"=(0x") {
        let (before, address) = rest.split_at(at + 4);
        kept.extend_from_slice(before);
        let digits = address.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        rest = &address[digits..];
    }
    kept.extend_from_slice(rest);
    kept
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|b| *b == b'\n')
}

/// Lines that are events: neither comments, nor callers of a stack, nor what the function graph
/// prints besides: second lines of returns, and the block between two rules where a CPU goes on
/// with another task.
fn events(text: &[u8]) -> usize {
    let others: [&[u8]; 3] = [b"#", b" =>", b" (Overruns: "];
    let mut in_block = false;
    let mut is_event = |line: &&[u8]| {
        let is_rule = line.starts_with(b" ----------");
        in_block ^= is_rule;
        !is_rule
            && !in_block
            && line.len() > 1
            && !others.iter().any(|begin| line.starts_with(begin))
    };
    lines(text).filter(|line| is_event(line)).count()
}

/// Our program.
pub(super) struct Ours<'a> {
    pub(super) program: &'a Path,
}

impl Ours<'_> {
    /// Runs it; its status, and what it prints.
    pub(super) fn output(&self, verb: &str, dump: &Dump, more: &[&str]) -> Result<Output> {
        let mut command = Command::new(self.program);
        command.arg(verb).args(&dump.files).args(more);
        if dump.files.len() > 1 {
            command.arg("--split");
        }
        command.output().with_context(|| self.program.display().to_string())
    }

    /// Runs it; what it prints, or why it failed.
    pub(super) fn run(&self, verb: &str, dump: &Dump, more: &[&str]) -> Result<Vec<u8>> {
        let output = self.output(verb, dump, more)?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.success(),
            "{verb}: {}: {}",
            output.status,
            errors.lines().last().unwrap_or_default()
        );
        Ok(output.stdout)
    }
}

/// The truth has what the scenario makes; else nothing has been compared.
pub(super) fn check_truth(truth: &Path, scenario: &Scenario) -> Result<()> {
    let traces = scenario.arrays.iter().map(|array| (array, "trace"));
    let snapshots = scenario.snapshots.iter().map(|array| (array, "snapshot"));
    for (array, name) in traces.chain(snapshots) {
        let file = truth.join(array).join(name);
        let found = events(&std::fs::read(&file).with_context(|| file.display().to_string())?);
        ensure!(
            found >= LEAST,
            "{}: the truth has {found} events, at least {LEAST} are expected",
            file.display()
        );
    }
    Ok(())
}

/// Compares one dump with all the text that the guest sent.
pub(super) fn texts(rows: &mut Rows, ours: &Ours<'_>, dump: &Dump, truth: &Path) -> Result<()> {
    for (array, folder) in arrays(truth)? {
        let mut one = |file: &str, label: &str, more: &[&str]| -> Result<()> {
            let path = folder.join(file);
            let Ok(text) = std::fs::read(&path) else { return Ok(()) };
            // Without a snapshot the kernel prints how to take one.
            if text.is_empty() || text.windows(11).take(400).any(|w| w == b"Snapshot is") {
                return Ok(());
            }
            let mut arguments = vec!["--instance", array.as_str()];
            arguments.extend(more);
            let got = ours.run("report", dump, &arguments);
            let what = format!("{} {array} {label}", dump.format);
            if dump.is_cut {
                rows.same_events(&what, &text, &got);
            } else {
                rows.same_text(&what, &text, &got);
            }
            Ok(())
        };
        one("trace", "trace", &[])?;
        one("snapshot", "snapshot", &["--snapshot"])?;
        one("trace.raw", "raw", &["--style", "raw"])?;
        one("trace.fields", "fields", &["--style", "fields"])?;
        one("trace.latency-format", "latency", &["--style", "latency"])?;
        for cpu in ["0", "1", "2", "3", "4", "5", "6", "7"] {
            one(&format!("cpu{cpu}/trace"), &format!("cpu{cpu}"), &["--cpu", cpu])?;
            one(
                &format!("cpu{cpu}/snapshot"),
                &format!("cpu{cpu} snapshot"),
                &["--snapshot", "--cpu", cpu],
            )?;
        }
    }
    Ok(())
}

/// The arrays of a truth: name and folder.
fn arrays(truth: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(truth).with_context(|| truth.display().to_string())? {
        let path = entry?.path();
        if path.join("trace").is_file() {
            found.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

/// Compares the kernel's counters with `inspect --json`, and what that says of the kernel.
pub(super) fn counts(rows: &mut Rows, ours: &Ours<'_>, dump: &Dump, truth: &Path) -> Result<()> {
    let what = format!("{} inspect", dump.format);
    let said = match ours
        .run("inspect", dump, &["--json"])
        .and_then(|text| Ok(serde_json::from_slice::<Value>(&text)?))
    {
        Ok(said) => said,
        Err(error) => {
            rows.row(false, &what, &format!("{error:#}"));
            return Ok(());
        }
    };
    let kernel = &said["kernels"][0];
    let release = std::fs::read_to_string(truth.join("system/release"))?;
    let panic = kernel["panic"].as_str().unwrap_or_default();
    let ok = kernel["release"] == release.trim() && panic.contains("sysrq triggered crash");
    rows.row(ok, &what, &format!("kernel {}, panic {}", kernel["release"], kernel["panic"]));
    if dump.is_cut {
        return Ok(());
    }
    for (array, folder) in arrays(truth)? {
        let name = if array == "top" { "" } else { &array };
        let instances = kernel["instances"].as_array().map_or(&[][..], Vec::as_slice);
        let live =
            instances.iter().find(|i| i["name"] == name).map_or(&Value::Null, |i| &i["live"]);
        for cpu in 0..8 {
            let Ok(stats) = std::fs::read_to_string(folder.join(format!("cpu{cpu}/stats"))) else {
                continue;
            };
            let differ = stats_that_differ(&stats, &live[cpu]);
            let detail = if differ.is_empty() { "all counters".into() } else { differ.join(", ") };
            rows.row(
                differ.is_empty(),
                &format!("{} {array} cpu{cpu} stats", dump.format),
                &detail,
            );
        }
    }
    Ok(())
}

/// Counters of the kernel's `stats` file that `inspect` gives otherwise.
fn stats_that_differ(stats: &str, ours: &Value) -> Vec<String> {
    let mut differ = Vec::new();
    for line in stats.lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        let key = name.replace(' ', "_");
        if key.contains("_ts") {
            continue;
        }
        if ours[&key].as_u64().is_none_or(|n| n.to_string() != value) {
            differ.push(format!("{name}: truth {value}, ours {}", ours[&key]));
        }
    }
    differ
}

/// The markers of the top level run without a gap, to the last one where it is known.
pub(super) fn markers(rows: &mut Rows, ours: &Ours<'_>, dump: &Dump, last: Option<u64>) {
    let what = format!("{} markers", dump.format);
    let text = match ours.run("report", dump, &[]) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => return rows.row(false, &what, &format!("{error:#}")),
    };
    let numbers: Vec<u64> = text
        .lines()
        .filter_map(|l| l.split_once("marker ")?.1.split(' ').next()?.parse().ok())
        .collect();
    let ends = numbers.last().is_some_and(|found| last.is_none_or(|last| last == *found));
    let whole = ends && numbers.windows(2).all(|w| w[1] == w[0] + 1);
    let shown = |number: Option<&u64>| number.map_or("none".into(), ToString::to_string);
    let detail =
        format!("{}, {} to {}", numbers.len(), shown(numbers.first()), shown(numbers.last()));
    rows.row(whole, &what, &detail);
}

/// Has trace-cmd read the trace.dat that we make; compares the event formats in it with the
/// kernel's.
pub(super) fn trace_dat(rows: &mut Rows, ours: &Ours<'_>, dump: &Dump, truth: &Path) -> Result<()> {
    let out = truth.with_file_name("recovered");
    let what = format!("{} trace.dat", dump.format);
    let text_out = out.display().to_string();
    if let Err(error) = ours.run("recover", dump, &["-o", &text_out, "--to", "trace-dat"]) {
        rows.row(false, &what, &format!("{error:#}"));
        return Ok(());
    }
    let file = out.join("trace.dat");
    judge_trace_dat(rows, &what, &file, truth)?;
    std::fs::remove_dir_all(&out)?;
    Ok(())
}

/// The same for a file that is there.
pub(super) fn judge_trace_dat(
    rows: &mut Rows,
    what: &str,
    file: &Path,
    truth: &Path,
) -> Result<()> {
    let printed =
        Command::new("trace-cmd").args(["report", "-i"]).arg(file).output().context("trace-cmd")?;
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    let found = text.lines().filter(|l| is_event_of_trace_cmd(l)).count();
    let wanted = events(&std::fs::read(truth.join("top/trace"))?);
    let ok = printed.status.success() && found >= wanted;
    rows.row(
        ok,
        &format!("{what} by trace-cmd"),
        &format!("{found} events, the truth's top level has {wanted}"),
    );
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    let formats = std::fs::read_to_string(truth.join("system/formats"))?;
    let (mut missing, mut all) = (Vec::new(), 0);
    let places: Vec<usize> =
        (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"name: ")).collect();
    for format in formats_of(&formats) {
        all += 1;
        if !places.iter().any(|&at| bytes[at..].starts_with(format.as_bytes())) {
            missing.push(format.lines().next().unwrap_or_default().replace("name: ", ""));
        }
    }
    let few: HashSet<&str> = missing.iter().take(5).map(String::as_str).collect();
    let detail = format!("{all} of the kernel's, {} not in it {few:?}", missing.len());
    rows.row(all >= LEAST && missing.is_empty(), &format!("{what} formats"), &detail);
    Ok(())
}

/// The formats of a text that has one behind the other.
fn formats_of(text: &str) -> Vec<&str> {
    let starts = text.match_indices("name: ").map(|(at, _)| at);
    let mut starts: Vec<usize> =
        starts.filter(|&at| at == 0 || text.as_bytes()[at - 1] == b'\n').collect();
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// `  comm-123   [000]  …`.
fn is_event_of_trace_cmd(line: &str) -> bool {
    let Some((task, rest)) = line.split_once('[') else { return false };
    let pid = task.trim_end().rsplit('-').next().unwrap_or_default();
    let cpu = rest.split(']').next().unwrap_or_default();
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    number(pid) && number(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines_that_are_no_comment() {
        let text = b"# tracer: nop\n#\n a-1 [000] x\n\n b-2 [001] <stack trace>\n => f\n => g\n \
                     -----------\n 0) a-1 => b-2\n -----------\n\n 0) 1.0 us | f();\n";
        assert_eq!(events(text), 3);
    }

    #[test]
    fn addresses_of_copies_do_not_count() {
        let (truth, ours) = (
            b"s=(0xff2f:Start) x=0x1 (1)".as_slice(),
            b"s=(0xffffffffad00be52:Start) x=0x1 (1)".as_slice(),
        );
        assert_eq!(without_copies(truth), without_copies(ours));
        assert_ne!(without_copies(truth), without_copies(b"s=(0xff2f:Start) x=0x2 (1)"));
        assert_ne!(without_copies(truth), without_copies(b"s=(0xff2f:End) x=0x1 (1)"));
    }

    #[test]
    fn counters_are_compared_by_name() {
        let ours = serde_json::json!({ "entries": 3, "commit_overrun": 0 });
        assert!(
            stats_that_differ("entries: 3\ncommit overrun: 0\nnow ts:  1.2\n", &ours).is_empty()
        );
        assert_eq!(stats_that_differ("entries: 4\n", &ours), ["entries: truth 4, ours 3"]);
        assert_eq!(stats_that_differ("bytes: 4\n", &ours).len(), 1);
    }

    #[test]
    fn a_format_begins_with_its_name() {
        assert_eq!(
            formats_of("name: a\nfield: name: x\nname: b\n"),
            ["name: a\nfield: name: x\n", "name: b\n"]
        );
        assert!(formats_of("").is_empty());
    }

    #[test]
    fn lines_of_trace_cmd() {
        assert!(is_event_of_trace_cmd(
            "            init-329   [000]     5.190720: sched_switch: x"
        ));
        assert!(!is_event_of_trace_cmd("cpus=2"));
        assert!(!is_event_of_trace_cmd("CPU 0 [LOST 12 EVENTS]"));
    }
}
