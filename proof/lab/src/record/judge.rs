//! Compares the recordings of a guest with what the kernel printed and with what trace-cmd
//! recorded.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::compare::Rows;
use crate::texts::{Events, read, without_task};

/// The expected contents of a recording.
struct Case {
    name: &'static str,
    /// Names of its events, as the kernel prints them before `:` or `(`; each must occur. Empty
    /// for a tracer without events.
    events: &'static [&'static str],
    /// trace-cmd recorded the same events beside it.
    has_peer: bool,
    /// The recorder reads while it records: what the kernel prints at the end may be the newest
    /// part.
    is_stream: bool,
}

impl Case {
    const fn new(name: &'static str, events: &'static [&'static str]) -> Self {
        Self { name, events, has_peer: false, is_stream: false }
    }

    const fn with_peer(name: &'static str, events: &'static [&'static str]) -> Self {
        Self { has_peer: true, ..Self::new(name, events) }
    }
}

const CASES: &[Case] = &[
    Case::with_peer("kprobe", &["opened", "returned"]),
    Case { is_stream: true, ..Case::new("kprobe-stream", &["opened"]) },
    Case::with_peer("uprobe", &["started"]),
    Case::with_peer("synthetic", &["lat", "sched_switch"]),
    Case::new("function", &[]),
    Case::new("graph", &[]),
    Case::new("graph-events", &[]),
    Case::new("stacktrace", &["sched_process_exec", "<stack trace>"]),
    Case::new("snapshot", &["sched_process_exec"]),
    Case::new("no-snapshot", &["sched_process_exec"]),
];
/// The tracer of the cases `graph` and `graph-events`.
const GRAPH: &str = "function_graph";

/// The event at which the guest's triggers fire.
const FIRES: &str = "sched_process_exec: filename=/bin/trace-cmd ";

/// Compares all of it.
pub(super) fn all(folder: &Path, lastwords: &Path, rows: &mut Rows) -> Result<()> {
    let found = Found { folder, lastwords };
    for case in CASES {
        rows.part(case.name, |rows| found.case(case, rows));
    }
    rows.part("snapshots", |rows| found.snapshots(rows));
    rows.part("traceoff", |rows| found.traceoff(rows));
    rows.part("follow", |rows| found.follow(rows));
    rows.part("killed", |rows| found.killed(rows));
    rows.part("vsock", |rows| found.vsock(rows));
    Ok(())
}

struct Found<'a> {
    folder: &'a Path,
    lastwords: &'a Path,
}

impl Found<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn text(&self, name: &str) -> Result<String> {
        read(&self.at(name))
    }

    /// Returns the output of a command of the guest, if it ended well.
    fn said(&self, name: &str) -> Result<String> {
        let said = self.text(&format!("{name}.said"))?;
        let status = self.text(&format!("{name}.status"))?;
        ensure!(status.trim() == "0", "status {}: {}", status.trim(), said.trim());
        Ok(said)
    }

    /// Returns the text that our program prints for a file.
    fn report(&self, file: &Path) -> Result<String> {
        self.report_with(file, &[])
    }

    fn report_with(&self, file: &Path, options: &[&str]) -> Result<String> {
        let output = Command::new(self.lastwords).arg("report").arg(file).args(options).output()?;
        ensure!(output.status.success(), "report: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn case(&self, case: &Case, rows: &mut Rows) -> Result<()> {
        let name = case.name;
        if name.starts_with("graph")
            && !self.text("tracers")?.split_whitespace().any(|tracer| tracer == GRAPH)
        {
            let said = self.text(&format!("{name}.said"))?;
            let ok = said.contains(&format!("in an instance, tracer {GRAPH}: this kernel has "));
            rows.row(ok, &format!("{name}: what the kernel has not is refused"), said.trim());
            return self.same_state(name, rows);
        }
        let said = self.said(name)?;
        let file = self.at(&format!("{name}.dat"));
        let (kernel, ours) = (self.text(&format!("{name}.kernel"))?, self.report(&file)?);
        match case.is_stream {
            true => streamed(name, &kernel, &ours, &said, rows),
            false => self.same_text(name, &kernel, &ours, rows),
        }
        let is_there = |event: &&str| kernel.contains(&format!(": {event}"));
        let missing: Vec<_> = case.events.iter().filter(|event| !is_there(event)).collect();
        rows.row(
            missing.is_empty(),
            &format!("{name}: the kernel has all events"),
            &format!("without {missing:?}"),
        );
        rows.row(
            said.contains("nothing lost") || said.contains("nothing else lost"),
            &format!("{name}: the account"),
            said.trim(),
        );
        self.same_state(name, rows)?;
        if case.has_peer {
            self.peer(case, &file, rows)?;
        }
        Ok(())
    }

    fn same_text(&self, name: &str, kernel: &str, ours: &str, rows: &mut Rows) {
        rows.same_text(&format!("{name}: text"), kernel.as_bytes(), &Ok(ours.as_bytes().to_vec()));
    }

    /// The state of the machine's tracing is the one before all recordings.
    fn same_state(&self, name: &str, rows: &mut Rows) -> Result<()> {
        // Up to Linux 6.6, making an instance marks the ring of the top level as one of full size,
        // which cannot be undone.
        let sizes = |text: String| {
            text.lines().map(|line| format!("{}\n", without_remark(line))).collect::<String>()
        };
        let (before, after) =
            (sizes(self.text("before.state")?), sizes(self.text(&format!("{name}.state"))?));
        rows.same_text(&format!("{name}: state"), before.as_bytes(), &Ok(after.into_bytes()));
        Ok(())
    }

    /// trace-cmd's own recording of an event has the same occurrences in the programs that both saw
    /// from begin to end, and trace-cmd reads the same of our file.
    fn peer(&self, case: &Case, ours: &Path, rows: &mut Rows) -> Result<()> {
        let event = case.events[0];
        let theirs = self.at(&format!("{}.peer.dat", case.name));
        let of = |file: &Path| -> Result<Vec<(String, String)>> {
            Ok(by_trace_cmd(file)?.lines().filter_map(|line| occurrence(line, event)).collect())
        };
        let said = || self.text(&format!("{}.peer", case.name)).unwrap_or_default();
        let (ours, theirs) = (of(ours)?, of(&theirs).with_context(said)?);
        // The processes of trace-cmd that record are its own: it has their events from some moment
        // on, or none.
        let known: Vec<String> = theirs.iter().map(|(task, _)| task.clone()).collect();
        let is_known =
            |(task, _): &&(String, String)| task.starts_with("cat-") || known.contains(task);
        let is_whole = |(task, _): &&(String, String)| !task.starts_with("trace-cmd-");
        let words = |(task, what): &(String, String)| format!("{task} {what}");
        let theirs: Events = theirs.iter().filter(is_known).map(words).collect();
        let whole: Events = ours.iter().filter(is_known).filter(is_whole).map(words).collect();
        let ours: Events = ours.iter().filter(is_known).map(words).collect();
        let (lost, invented) = (theirs.without(&ours), whole.without(&theirs));
        let detail =
            format!("{} and {} events {:?} {:?}", ours.total, theirs.total, lost.1, invented.1);
        let ok = lost.0 == 0 && invented.0 == 0 && theirs.total >= 4;
        rows.row(ok, &format!("{}: {event} as trace-cmd recorded it", case.name), &detail);
        Ok(())
    }

    /// A snapshot is saved where a trigger took one, and only there. It ends with the event of the
    /// trigger.
    fn snapshots(&self, rows: &mut Rows) -> Result<()> {
        let ours = self.report(&self.at("snapshot.dat.snapshot-1"))?;
        let (ends, detail) = ends_with_trigger(&ours);
        rows.row(ends, "snapshot: its last event", &detail);
        let (said, is_there) =
            (self.said("no-snapshot")?, self.at("no-snapshot.dat.snapshot-1").exists());
        let ok = !is_there && said.contains("no trigger took a snapshot");
        rows.row(ok, "no-snapshot: nothing is saved, and that is said", said.trim());
        self.many(rows)?;
        self.window(rows)?;
        let (said, second) = (self.said("limit")?, self.at("limit.dat.snapshot-2").exists());
        let ok = !second
            && self.at("limit.dat.snapshot-1").is_dir()
            && said.contains("the limit of snapshots is reached");
        rows.row(ok, "limit: the second is not taken, and that is said", said.trim());
        self.same_state("limit", rows)
    }

    /// Each numbered program is in the snapshot that was taken next, or behind the last one in the
    /// file.
    fn many(&self, rows: &mut Rows) -> Result<()> {
        let (said, ran) = (self.said("many")?, self.text("many.ran")?);
        let folders: Vec<PathBuf> =
            (1..=4).map(|number| self.at(&format!("many.dat.snapshot-{number}"))).collect();
        for (folder, number) in folders.iter().zip(1..) {
            let text = self.report(folder)?;
            let (expected, found) =
                ((number * 10..number * 10 + 10).collect::<Vec<u32>>(), numbers(&text));
            let (ends, behind) = ends_with_trigger(&text);
            let ok = found == expected && ends;
            rows.row(ok, &format!("many: snapshot {number}"), &format!("{found:?}; {behind}"));
        }
        let found = numbers(&self.report(&self.at("many.dat"))?);
        rows.row(
            found == (50..60).collect::<Vec<_>>(),
            "many: what was recorded behind them",
            &format!("{found:?}"),
        );
        let ok = (1..=4)
            .all(|n| ran.lines().any(|line| line == format!("own /t/out/many.dat.snapshot-{n}")));
        rows.row(ok, "many: the command ran for each", ran.trim());
        let watched = self.text("many.watched")?;
        let ok = (1..=4)
            .all(|n| watched.lines().any(|line| line == format!("/t/out/many.dat.snapshot-{n}")));
        rows.row(ok, "many: another process watched each", watched.trim());
        let ok = said.matches("nothing lost").count() == 5;
        rows.row(ok, "many: the account", said.trim());
        self.same_state("many", rows)
    }

    /// The events of the window are shown, and all that was saved with `--whole`.
    fn window(&self, rows: &mut Rows) -> Result<()> {
        let said = self.said("window")?;
        let folder = self.at("window.dat.snapshot-1");
        let (cut, whole) = (self.report(&folder)?, self.report_with(&folder, &["--whole"])?);
        let events = |text: &str| -> Vec<(f64, String)> {
            text.lines().filter_map(|line| Some((time(line)?, line.to_owned()))).collect()
        };
        let (cut, whole) = (events(&cut), events(&whole));
        let at = whole.iter().find(|(_, line)| line.contains(FIRES)).map(|(time, _)| *time);
        let at = at.context("the trigger is in the snapshot")?;
        // Times are printed in microseconds.
        let inside = |slack: f64| {
            whole
                .iter()
                .filter(move |(time, _)| *time >= at - 0.4 - slack && *time <= at + 0.6 + slack)
        };
        let (least, most) = (inside(-1e-5).count(), inside(1e-5).count());
        let is_part = cut.iter().all(|event| whole.contains(event));
        let ok = is_part
            && (least..=most).contains(&cut.len())
            && cut.len() > 4
            && cut.len() < whole.len();
        let detail = format!(
            "{} of {} events, {least} to {most} expected; {}",
            cut.len(),
            whole.len(),
            said.trim()
        );
        rows.row(ok, "window: the events around the trigger", &detail);
        let all = [
            numbers(&self.report_with(&folder, &["--whole"])?),
            numbers(&self.report(&self.at("window.dat"))?),
        ]
        .concat();
        rows.row(
            all == (100..190).collect::<Vec<_>>(),
            "window: no event is missing or twice",
            &format!("{all:?}"),
        );
        self.same_state("window", rows)
    }

    /// The recording ends by itself, with the event of the trigger.
    fn traceoff(&self, rows: &mut Rows) -> Result<()> {
        let said = self.said("traceoff")?;
        let ours = self.report(&self.at("traceoff.dat"))?;
        let (ends, detail) = ends_with_trigger(&ours);
        let ok = said.contains("a trigger has switched the tracing off") && ends;
        rows.row(ok, "traceoff: its last event", &detail);
        self.same_state("traceoff", rows)
    }

    /// Checks that following gave the events that another instance with the same events has, except
    /// for the times.
    fn follow(&self, rows: &mut Rows) -> Result<()> {
        let said = self.said("follow")?;
        // The kernel forgets the names of tasks, so that two readers at different times see
        // different ones. Two instances record an event one after the other, so that a request to
        // reschedule, the second of the flags, may come in between.
        let event = |line: &str| {
            let event = without_time(&without_task(line)?)?;
            let (task, flags) = event.split_once("] ")?;
            Some(format!("{task}] {}.{}", flags.get(..1)?, flags.get(2..)?))
        };
        let events = |text: &str| -> Events {
            text.lines().filter(|line| !line.starts_with('#')).filter_map(event).collect()
        };
        let (ours, kernel) =
            (events(&self.text("follow.out")?), events(&self.text("follow.kernel")?));
        let (lost, invented) = (kernel.without(&ours), ours.without(&kernel));
        let detail = format!(
            "{} and {} events {:?} {:?}; {}",
            ours.total,
            kernel.total,
            lost.1,
            invented.1,
            said.trim()
        );
        // The other instance records some moments longer.
        let ok = lost.0 <= 2 && invented.0 == 0 && ours.total > 5 && said.contains("nothing lost");
        rows.row(ok, "follow: the events of an instance", &detail);
        self.same_state("follow", rows)
    }

    fn killed(&self, rows: &mut Rows) -> Result<()> {
        let (status, said) = (self.text("restore.status")?, self.text("restore.said")?);
        rows.row(status.trim() == "0", "restore after kill -9", said.trim());
        let at_work = self.text("killed-before.state")?;
        let is_left = ["/opened", "lat", "\nown\n"].iter().all(|what| at_work.contains(what));
        rows.row(is_left, "killed: what the recorder left", "probe, synthetic event and instance");
        self.same_state("killed", rows)?;
        let ours = self.report(&self.at("killed.dat"))?;
        self.same_text("killed", &self.text("killed.kernel")?, &ours, rows);
        let snapshot = self.report(&self.at("killed.dat.snapshot-1"))?;
        rows.row(
            snapshot.contains(FIRES),
            "killed: the snapshot",
            &format!("{} lines", snapshot.lines().count()),
        );
        Ok(())
    }

    fn vsock(&self, rows: &mut Rows) -> Result<()> {
        let said = self.said("vsock")?;
        let received = std::fs::read_dir(self.at("received"))?.flatten().map(|entry| entry.path());
        let files: Vec<PathBuf> =
            received.filter(|path| path.extension().is_some_and(|e| e == "dat")).collect();
        let [file] = files.as_slice() else { anyhow::bail!("{files:?} were received; {said}") };
        streamed("vsock", &self.text("vsock.kernel")?, &self.report(file)?, &said, rows);
        self.same_state("vsock", rows)
    }
}

/// Drops what the kernel says of a ring that still has its small size of the boot: `7 (expanded:
/// 1408)`.
fn without_remark(line: &str) -> &str {
    line.split_once(" (expanded: ").map_or(line, |(size, _)| size)
}

/// A stream has the events that the kernel still has, as its newest ones, and as many as the
/// recorder said.
fn streamed(name: &str, kernel: &str, ours: &str, said: &str, rows: &mut Rows) {
    let events = |text: &str| {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    let (kernel, ours) = (events(kernel), events(ours));
    let is_count = said.contains(&format!(": {} events ", ours.len()));
    let detail = format!(
        "{} events, the newest {} are in the ring: {}",
        ours.len(),
        kernel.len(),
        said.trim()
    );
    let ok = is_count && !kernel.is_empty() && ours.ends_with(&kernel);
    rows.row(ok, &format!("{name}: the events of the stream"), &detail);
}

/// The line of an event without its time.
fn without_time(line: &str) -> Option<String> {
    let (head, rest) = line.split_once(": ")?;
    Some(format!(
        "{} {rest}",
        head.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim()
    ))
}

/// All that trace-cmd prints of a file.
fn by_trace_cmd(file: &Path) -> Result<String> {
    let output =
        Command::new("trace-cmd").args(["report", "-i"]).arg(file).output().context("trace-cmd")?;
    ensure!(
        output.status.success(),
        "trace-cmd report: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An occurrence of an event in a program that the work starts: its process, and what is printed of
/// it.
fn occurrence(line: &str, event: &str) -> Option<(String, String)> {
    let (head, rest) = line.split_once(&format!(": {event}: "))?;
    let task = head.split_once(" [")?.0.trim().rsplit(' ').next()?;
    let is_of_work = ["cat-", "trace-cmd-"].iter().any(|name| task.starts_with(name));
    is_of_work.then(|| (task.to_string(), rest.trim().to_string()))
}

/// Returns true if the text ends with the event of the trigger, and what is behind it. Behind it,
/// its CPU has nothing but what an interrupt did before the kernel swapped the buffers or switched
/// them off; other CPUs may record until then. The numbers of the numbered programs that were
/// started, in order.
fn numbers(text: &str) -> Vec<u32> {
    let number = |line: &str| line.split("filename=/t/n").nth(1)?.split(' ').next()?.parse().ok();
    text.lines().filter_map(number).collect()
}

/// The time of an event in seconds.
fn time(line: &str) -> Option<f64> {
    line.split(": ").next()?.rsplit(' ').next()?.parse().ok().filter(|_| !line.starts_with('#'))
}

fn ends_with_trigger(text: &str) -> (bool, String) {
    let cpu = |line: &str| {
        line.split('[').nth(1).and_then(|rest| rest.split(']').next()).map(str::to_owned)
    };
    let in_interrupt = |line: &str| {
        let flags = line.split("] ").nth(1).and_then(|rest| rest.split(' ').next());
        flags.is_some_and(|flags| flags.contains(['h', 'H', 's', 'z', 'Z']))
    };
    let behind: Vec<&str> = text.lines().rev().take_while(|line| !line.contains(FIRES)).collect();
    let trigger = text.lines().rev().find(|line| line.contains(FIRES));
    let late = |line: &&&str| cpu(line) == trigger.and_then(cpu) && !in_interrupt(line);
    let wrong = behind.iter().find(late);
    (
        trigger.is_some() && wrong.is_none(),
        format!("{} events are behind it; {wrong:?}", behind.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_compared_without_remarks() {
        assert_eq!(without_remark("7 (expanded: 1408)"), "7");
        assert_ne!(without_remark("7 (expanded: 1408)"), without_remark("1408"));
    }

    #[test]
    fn lines_are_compared_without_times() {
        let line = "             cat-17    [001] d..1.    12.345678: opened: (x+0x0/0x1) dfd=-100 name=\"a: b\"";
        let shown = without_time(line).unwrap();
        assert_eq!(shown, "cat-17    [001] d..1. opened: (x+0x0/0x1) dfd=-100 name=\"a: b\"");
        let expected = ("cat-17".to_string(), "(x+0x0/0x1) dfd=-100 name=\"a: b\"".to_string());
        assert_eq!(occurrence(line, "opened"), Some(expected));
        assert_eq!(
            (occurrence(line, "closed"), occurrence(&line.replace("cat-", "bat-"), "opened")),
            (None, None)
        );
    }
}
