//! Recordings of the same work at the same time, by ours and by trace-cmd. Both have the same
//! events of its processes: the same names, CPUs, processes and fields, in the same order. Where
//! trace-cmd has no such option, it records an event that the guest's script has defined by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Found;
use crate::compare::Rows;
use crate::texts::without_task;
use rig::run_quietly;

/// A pair of recordings.
struct Pair {
    name: &'static str,
    /// Names of events that it has, and of some that it must not have: behind the name of an
    /// instance that is not the main one.
    has: &'static [&'static str],
    not: &'static [&'static str],
    /// The processes that it has.
    of: Of,
    /// The only CPU of the main instance.
    cpu: Option<u32>,
}

/// Whose events a recording has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    /// The target alone.
    Target,
    /// The target and all that it starts.
    Family,
}

impl Pair {
    const fn new(name: &'static str, has: &'static [&'static str]) -> Self {
        Self { name, has, not: &[], of: Of::All, cpu: None }
    }

    const fn with_processes(self, of: Of) -> Self {
        Self { of, ..self }
    }
}

const EXEC: &str = "sched_process_exec";
const EXIT: &str = "sched_process_exit";
const OPEN: &str = "sys_enter_openat";
const STACK: &str = "kernel_stack";
/// The pair with events that are defined.
const PROBED: &str = "probes";
/// The pair that needs function_graph in instances.
const LEVELS: &str = "levels";
/// The pair with the options of one instance each.
const OPTIONS: &str = "options";

const PAIRS: &[Pair] = &[
    Pair::new(PROBED, &["opened", "got", "step", "stepped", "done", "did"]),
    Pair {
        not: &["negated sys_enter_openat", "negated sys_exit_openat", "negated sys_exit_execve"],
        cpu: Some(1),
        ..Pair::new(OPTIONS, ALL_OPTIONS)
    },
    Pair::new("clocks", ALL_CLOCKS),
    Pair::new("functions", &["function", "but function"]),
    Pair::new("func-stacks", &["function", STACK]),
    Pair { not: &[EXEC], ..Pair::new("pid", &["function", OPEN]) }.with_processes(Of::Target),
    Pair::new("children", &["function", EXEC, EXIT, OPEN]).with_processes(Of::Family),
    Pair::new(LEVELS, &["funcgraph_entry"]),
];

/// The events of the pair `options`, behind the names of their instances.
const ALL_OPTIONS: &[&str] = &[
    EXEC,
    OPEN,
    "stacks sched_process_exec",
    "stacks sched_process_exit",
    "stacks kernel_stack",
    "filter sched_process_exec",
    "filter sys_enter_openat",
    "trigger sched_process_exec",
    "trigger sched_process_exit",
    "trigger kernel_stack",
    "option sys_enter_openat",
    "option user_stack",
    "negated sys_enter_execve",
];

/// The same of the pair `clocks`.
const ALL_CLOCKS: &[&str] =
    &[OPEN, "global sys_enter_openat", "counter sys_enter_openat", "tsc sys_enter_openat"];

/// Kinds of probes that a kernel may lack, with their letters in its README and their events.
const PROBES: [(&str, &str, &[&str]); 3] = [
    ("fprobe", " f[:[", &["entered", "left"]),
    ("tprobe", " t[:[", &["ran"]),
    ("eprobe", " e[:[", &["made"]),
];

/// The events of one CPU in one instance, in their order.
type Streams = BTreeMap<(String, u32), Vec<Event>>;

/// Compares all pairs.
pub(super) fn all(found: &Found<'_>, rows: &mut Rows) -> Result<()> {
    for pair in PAIRS {
        rows.part(pair.name, |rows| judge(found, pair, rows));
    }
    for (kind, text, _) in PROBES {
        if !found.text("README")?.contains(text) {
            let (said, release) = (found.text(&format!("no-{kind}.said"))?, found.text("release")?);
            let ok = said.contains(&format!("--{kind}: Linux {} has no ", release.trim()));
            rows.row(ok, &format!("{kind}: what the kernel has not is refused"), said.trim());
        }
    }
    if found.folder.join("second-tprobe.said").exists()
        && found.text("second-tprobe.status")?.trim() != "0"
    {
        let said = found.text("second-tprobe.said")?;
        let ok =
            said.contains("this kernel may take one probe of a tracepoint, and has `t:hand/x ");
        rows.row(ok, "tprobe: the other probe of the tracepoint is named", said.trim());
    }
    found.same_text("end: state", ["before.state", "end.state"], rows)
}

fn judge(found: &Found<'_>, pair: &Pair, rows: &mut Rows) -> Result<()> {
    let name = pair.name;
    let row = |what: &str| format!("{name}: {what}");
    let (status, said) =
        (found.text(&format!("{name}.status"))?, found.text(&format!("{name}.said"))?);
    // Events that are defined by hand belong to the state before.
    let before = [&*format!("{name}.before"), "before"].map(|name| format!("{name}.state"));
    let before = before.iter().find(|name| found.folder.join(name).exists()).context("a state")?;
    found.same_text(&row("state"), [before, &format!("{name}.state")], rows)?;
    if name == LEVELS && !found.has_graph()? {
        return found.refused(name, rows);
    }
    rows.row(status.trim() == "0", &row("status"), said.trim());
    let instances: BTreeSet<&str> = pair
        .has
        .iter()
        .map(|event| event.split_once(' ').map_or("own", |(name, _)| name))
        .collect();
    let pids = found.text(&format!("{name}.pids"))?;
    let pids: Vec<u32> = pids.lines().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(pids.len() == 5, "the work has five processes, not {pids:?}");
    for instance in instances {
        let settings = [".peer", ""].map(|peer| format!("{name}.{instance}{peer}.settings"));
        let what = row(&format!("settings of {instance}"));
        match pair.of {
            Of::All => found.same_text(&what, [&settings[0], &settings[1]], rows)?,
            _ => chosen_by_pid(found, &what, &settings, pids[0], rows)?,
        }
    }
    let compared = if pair.of == Of::Target { &pids[..1] } else { &pids };
    for fields in [&["-R"][..], &[]] {
        let ours = streams(found, name, fields)?;
        let theirs = streams(found, &format!("{name}.peer"), fields)?;
        let what = row(if fields.is_empty() { "events" } else { "fields" });
        let mut chosen = events_of(&ours, compared);
        if name == PROBED {
            tracepoints(&mut chosen, rows);
        }
        let (ok, detail) = compare(&chosen, &events_of(&theirs, compared));
        rows.row(ok, &what, &detail);
        if fields.is_empty() {
            let readme = found.text("README")?;
            let more = PROBES.iter().filter(|(_, text, _)| name == PROBED && readme.contains(text));
            let names = more.flat_map(|(_, _, events)| *events).chain(pair.has);
            contents(pair, &names.copied().collect::<Vec<_>>(), &ours, &pids, rows);
            if name != LEVELS {
                as_reported(found, name, &events_of(&ours, &pids), &pids, rows)?;
            }
        }
    }
    Ok(())
}

/// Ours has the settings of trace-cmd and the process. trace-cmd 3.1.6 gives its instances no
/// process: they have the events of all, of which those of the process are compared.
fn chosen_by_pid(
    found: &Found<'_>,
    what: &str,
    settings: &[String; 2],
    pid: u32,
    rows: &mut Rows,
) -> Result<()> {
    let pid = pid.to_string();
    let [theirs, ours] = [found.text(&settings[0])?, found.text(&settings[1])?];
    let rest = |text: &str| -> Vec<String> {
        let is_chosen = |line: &&str| *line == pid || *line == "no pid";
        text.lines().filter(|line| !is_chosen(line)).map(str::to_owned).collect()
    };
    let chosen = ours.lines().filter(|line| *line == pid).count();
    let ok = chosen == 2 && rest(&theirs) == rest(&ours);
    rows.row(ok, what, &format!("{} lines, {pid} in {chosen}", ours.lines().count()));
    Ok(())
}

/// Returns true if the event is of an interrupt. One that comes after a graph has begun in one
/// instance and before it has begun in the other is in the first alone.
fn is_interrupt(event: &Event) -> bool {
    [
        "irq_enter_rcu",
        "irq_exit_rcu",
        "irqentry_",
        "__sysvec_",
        "__common_interrupt",
        "hrtimer_rearm",
    ]
    .iter()
    .any(|function| event.text.contains(function))
}

/// Reads a file by trace-cmd.
fn streams(found: &Found<'_>, name: &str, more: &[&str]) -> Result<Streams> {
    let path = found.folder.join(format!("{name}.dat"));
    let mut trace_cmd = Command::new("trace-cmd");
    let text =
        run_quietly(trace_cmd.args(["report", "-t", "--raw-ts", "-i"]).arg(&path).args(more))
            .with_context(|| found.text(&format!("{name}.said")).unwrap_or_default())?;
    let release = found.text("release")?;
    let mut streams = Streams::new();
    let mut last = None;
    for line in text.lines() {
        let Some((mut stream, mut event)) = Event::parse(line) else {
            // A line of a stack belongs to the event before it.
            let event = last.as_ref().and_then(|last| streams.get_mut(last)?.last_mut());
            if let Some(event) = event {
                event.text.push_str(line.trim());
            }
            continue;
        };
        if name.starts_with(LEVELS) {
            if is_interrupt(&event) {
                continue;
            }
            // Linux 6 takes the times of a call once for all instances, Linux 7 once for each.
            if event.text.contains('|') || !release.starts_with("6.") {
                event.text = event.without_duration();
            }
        }
        // Several probes of one place work in the order in which they were enabled.
        if name.starts_with(PROBED) {
            stream.0 = event.name().to_owned();
            // Of two return probes of a function, one returns to the other's trampoline.
            if let Some((_, last)) = event.text.rsplit_once(' ').filter(|_| event.name() == "got") {
                event.text = format!("got: {last}");
            }
        }
        // Raw fields of stacks have more bytes than the stack, which nobody has written.
        if event.is_stack() {
            event.text.truncate(event.text.find("caller=").unwrap_or(event.text.len()));
        }
        let exit = event.unfold();
        streams
            .entry(stream.clone())
            .or_default()
            .extend([Some(event), exit].into_iter().flatten());
        last = Some(stream);
    }
    Ok(streams)
}

/// The events of some processes.
fn events_of(streams: &Streams, pids: &[u32]) -> Streams {
    let of = |events: &Vec<Event>| -> Vec<Event> {
        events.iter().filter(|event| pids.contains(&event.pid)).cloned().collect()
    };
    let all = streams.iter().map(|(stream, events)| (stream.clone(), of(events)));
    all.filter(|(_, events)| !events.is_empty()).collect()
}

/// Events are the same if their texts are, and if no time is earlier than that of the event before
/// in the other recording. Each recording takes a stack right after its event.
fn compare(ours: &Streams, theirs: &Streams) -> (bool, String) {
    let streams: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let none = Vec::new();
    let mut total = 0;
    for stream in streams {
        let (ours, theirs) =
            (ours.get(stream).unwrap_or(&none), theirs.get(stream).unwrap_or(&none));
        total += ours.len();
        for at in 0..ours.len().max(theirs.len()) {
            let pair = (ours.get(at), theirs.get(at));
            let is_same = |(a, b): (&Event, &Event)| {
                let is_later = |one: &Event, others: &[Event]| {
                    let times = others.iter().take(at).filter(|before| !before.is_stack());
                    let before = times.filter_map(|before| before.time).next_back();
                    one.is_stack() || one.time.is_none_or(|time| Some(time) >= before)
                };
                (a.pid, &a.text) == (b.pid, &b.text) && is_later(a, theirs) && is_later(b, ours)
            };
            if !pair.0.zip(pair.1).is_some_and(is_same) {
                return (
                    false,
                    format!("{stream:?}, event {at}: {:?}, trace-cmd {:?}", pair.0, pair.1),
                );
            }
        }
    }
    (total >= 2, format!("{total} events"))
}

/// Takes out the events of the tracepoint probe, and compares them with the events of its
/// tracepoint: both end with the thread's number before.
fn tracepoints(ours: &mut Streams, rows: &mut Rows) {
    let old = |stream: &[Event]| -> Vec<(u32, String)> {
        let number = |event: &Event| Some(event.text.rsplit_once('=')?.1.to_owned());
        stream.iter().map(|event| (event.pid, number(event).unwrap_or_default())).collect()
    };
    let of = |ours: &Streams, name: &str| -> Vec<_> {
        let of = ours.iter().filter(|((stream, _), _)| stream == name);
        of.map(|((_, cpu), events)| (*cpu, old(events))).collect()
    };
    let (probe, event) = (of(ours, "ran"), of(ours, EXEC));
    ours.retain(|(stream, _), _| stream != "ran");
    let ok = probe.is_empty() || probe == event;
    rows.row(ok, "probes: the probe of a tracepoint", &format!("{probe:?} {event:?}"));
}

/// All events of our recording are of those that were chosen, and all names are there.
fn contents(pair: &Pair, names: &[&str], ours: &Streams, pids: &[u32], rows: &mut Rows) {
    let named = |buffer: &str, event: &Event| match pair.name {
        PROBED => event.name().to_owned(),
        _ => format!("{buffer} {}", event.name()),
    };
    let there: BTreeSet<String> = ours
        .iter()
        .flat_map(|((buffer, _), events)| events.iter().map(move |event| named(buffer, event)))
        .map(|name| name.trim().to_owned())
        .collect();
    let missing: Vec<_> = names.iter().filter(|name| !there.contains(**name)).collect();
    let invented: Vec<_> = pair.not.iter().filter(|name| there.contains(**name)).collect();
    let is_of = |event: &Event| match pair.of {
        Of::All => true,
        Of::Target => pids.first() == Some(&event.pid),
        Of::Family => pids.contains(&event.pid),
    };
    let wrong = ours.values().flatten().find(|event| !is_of(event));
    let elsewhere = ours
        .keys()
        .find(|(buffer, cpu)| buffer.is_empty() && pair.cpu.is_some_and(|wanted| wanted != *cpu));
    let ok = missing.is_empty() && invented.is_empty() && wrong.is_none() && elsewhere.is_none();
    let detail = format!("without {missing:?}, with {invented:?}, {wrong:?}, {elsewhere:?}");
    rows.row(ok, &format!("{}: what was chosen", pair.name), &detail);
}

/// `lastwords report` prints as many events of each process and CPU.
fn as_reported(
    found: &Found<'_>,
    name: &str,
    ours: &Streams,
    pids: &[u32],
    rows: &mut Rows,
) -> Result<()> {
    let path = found.folder.join(format!("{name}.dat"));
    let instance = |stream: &str| if name == PROBED { "" } else { stream }.to_owned();
    let mut counts: BTreeMap<(String, u32, u32), [usize; 2]> = BTreeMap::new();
    for ((stream, cpu), events) in ours {
        for event in events {
            counts.entry((instance(stream), event.pid, *cpu)).or_default()[0] += 1;
        }
    }
    let instances: BTreeSet<String> =
        counts.keys().map(|(instance, ..)| instance.clone()).collect();
    for instance in &instances {
        let of = if instance.is_empty() { "top" } else { instance };
        let mut report = Command::new(found.lastwords);
        let text = run_quietly(report.args(["report", "--instance", of]).arg(&path))?;
        for line in text.lines().filter_map(without_task) {
            let place = line.split_once(" [").and_then(|(pid, rest)| {
                Some((pid.parse().ok()?, rest.split_once(']')?.0.parse().ok()?))
            });
            let (pid, cpu): (u32, u32) = place.with_context(|| line.clone())?;
            if pids.contains(&pid) {
                counts.entry((instance.clone(), pid, cpu)).or_default()[1] += 1;
            }
        }
    }
    let ok = counts.values().all(|[file, text]| file == text);
    rows.row(ok, &format!("{name}: as `lastwords report` has them"), &format!("{counts:?}"));
    Ok(())
}

/// An event in the text of trace-cmd.
#[derive(Debug, Clone)]
struct Event {
    pid: u32,
    /// None: trace-cmd does not print it.
    time: Option<u64>,
    /// Its name and fields, and the lines of its stack.
    text: String,
}

impl Event {
    /// Reads `INSTANCE: TASK-PID [CPU] TIME: NAME: FIELDS`, and which stream it is of.
    fn parse(line: &str) -> Option<((String, u32), Self)> {
        let at = line
            .match_indices(" [")
            .map(|(at, _)| at)
            .find(|at| line.get(at + 5..at + 6) == Some("]"))?;
        let (head, rest) = line.split_at(at);
        let cpu = rest.get(2..5)?.parse().ok()?;
        let (time, text) = rest.get(6..)?.split_once(": ")?;
        let time = Some(time.trim().replace('.', "").parse().ok()?);
        let (buffer, task) = head.split_once(": ").unwrap_or(("", head));
        let pid = task.trim().rsplit_once('-')?.1.parse().ok()?;
        let buffer = buffer.trim().trim_end_matches(".peer");
        let buffer = if buffer == "own" { "" } else { buffer };
        Some(((buffer.to_owned(), cpu), Self { pid, time, text: text.trim().to_owned() }))
    }

    /// The text of an entry or exit of a graph without its times.
    fn without_duration(&self) -> String {
        match self.text.split_once('|') {
            Some((_, call)) => format!("{}: {call}", self.name()),
            None => self.text.split(" calltime=").next().unwrap_or_default().to_owned(),
        }
    }

    /// Makes an entry and an exit of a call on one line. trace-cmd prints it so if no event of
    /// another CPU happens to be between them.
    fn unfold(&mut self) -> Option<Self> {
        let call = self.text.strip_prefix("funcgraph_entry: ")?.strip_suffix("();")?;
        let indent = &call[..call.len() - call.trim_start().len()];
        let exit = Self { pid: self.pid, time: None, text: format!("funcgraph_exit: {indent}}}") };
        self.text = format!("funcgraph_entry: {call}() {{");
        Some(exit)
    }

    fn is_stack(&self) -> bool {
        self.name().ends_with("_stack")
    }

    fn name(&self) -> &str {
        self.text.split(':').next().unwrap_or_default()
    }
}
