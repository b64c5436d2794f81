//! Recordings of the same work at the same time, by ours and by trace-cmd. Both have the same
//! events of its processes: the same names, CPUs, processes and fields, in the same order. Where
//! trace-cmd has no such option, it records an event that the guest's script has defined by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Found, GRAPH};
use crate::compare::Rows;
use crate::texts::without_task;
use rig::run_quietly;

/// A pair of recordings.
struct Pair {
    name: &'static str,
    /// Names of events that it has, and of some that it must not have.
    has: &'static [&'static str],
    not: &'static [&'static str],
    /// The processes that it has.
    of: Of,
    /// What the kernel must have, and what is said if it has not.
    needs: Needs,
}

/// Whose events a recording has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    /// The target alone.
    Target,
    /// The target and all that it starts.
    Family,
    /// All on this CPU.
    Cpu(u32),
}

/// What a kernel may lack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// The tracer function_graph in instances.
    Graph,
    /// A kind of definitions, by its text in the kernel's README, and the option for it.
    Kind(&'static str, &'static str),
}

impl Pair {
    const fn new(name: &'static str, has: &'static [&'static str]) -> Self {
        Self { name, has, not: &[], of: Of::All, needs: Needs::Nothing }
    }

    const fn of(self, of: Of) -> Self {
        Self { of, ..self }
    }

    const fn without(self, not: &'static [&'static str]) -> Self {
        Self { not, ..self }
    }

    const fn needs(self, needs: Needs) -> Self {
        Self { needs, ..self }
    }
}

const EXEC: &str = "sched_process_exec";
const EXIT: &str = "sched_process_exit";
const OPEN: &str = "sys_enter_openat";
const STACK: &str = "kernel_stack";
const FPROBES: Needs = Needs::Kind("\tf[:[", "--fprobe");

const PAIRS: &[Pair] = &[
    Pair::new("only", &["function"]),
    Pair::new("but", &["function"]),
    Pair::new("func-stacks", &["function", STACK]),
    Pair::new("levels", &["funcgraph_entry"]).needs(Needs::Graph),
    Pair::new("pid", &["function", OPEN]).without(&[EXEC]).of(Of::Target),
    Pair::new("children", &["function", EXEC, EXIT, OPEN]).of(Of::Family),
    Pair::new("cpus", &["function", EXEC, OPEN]).of(Of::Cpu(1)),
    Pair::new("clock-boot", &[EXEC, OPEN]),
    Pair::new("clock-global", &[EXEC, OPEN]),
    Pair::new("clock-counter", &[EXEC, OPEN]),
    Pair::new("clock-x86-tsc", &[EXEC, OPEN]),
    Pair::new("buffers", &[EXEC, OPEN, EXIT, "function"]),
    Pair::new("stacks", &[EXEC, EXIT, STACK]),
    Pair::new("options", &[EXEC, OPEN]),
    Pair::new("filter", &[EXEC, OPEN]),
    Pair::new("negated", &["sys_enter_execve"]).without(&[
        OPEN,
        "sys_exit_openat",
        "sys_exit_mmap",
    ]),
    Pair::new("trigger", &[EXEC, EXIT, STACK]),
    Pair::new("kprobe", &["opened"]),
    Pair::new("kretprobe", &["opened"]),
    Pair::new("fprobe", &["entered"]).needs(FPROBES),
    Pair::new("fexit", &["left"]).needs(FPROBES),
    Pair::new("tprobe", &["ran"]).needs(Needs::Kind("\tt[:[", "--tprobe")),
    Pair::new("eprobe", &["ran"]).needs(Needs::Kind("\te[:[", "--eprobe")),
    Pair::new("uprobe", &["step"]),
    Pair::new("uretprobe", &["step"]),
    Pair::new("usdt", &["done"]),
    Pair::new("usdt-any", &["done"]),
];

/// The events of one CPU in one instance, in their order.
type Streams = BTreeMap<(String, u32), Vec<Event>>;

/// Compares all pairs.
pub(super) fn all(found: &Found<'_>, rows: &mut Rows) -> Result<()> {
    for pair in PAIRS {
        if let Err(error) = judge(found, pair, rows) {
            rows.row(false, pair.name, &format!("{error:#}"));
        }
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
    if let Some(why) = lacks(found, pair.needs)? {
        let ok = status.trim() == "1" && said.contains(&why);
        rows.row(ok, &row("what the kernel has not is refused"), said.trim());
        return Ok(());
    }
    rows.row(status.trim() == "0", &row("status"), said.trim());
    let settings = [format!("{name}.peer.settings"), format!("{name}.settings")];
    found.same_text(&row("settings"), [&settings[0], &settings[1]], rows)?;
    let pids = found.text(&format!("{name}.pids"))?;
    let pids: Vec<u32> = pids.lines().map(str::parse).collect::<Result<_, _>>()?;
    ensure!(pids.len() == 5, "the work has five processes, not {pids:?}");
    for fields in [&["-R"][..], &[]] {
        let ours = streams(found, name, fields)?;
        let theirs = streams(found, &format!("{name}.peer"), fields)?;
        let what = row(if fields.is_empty() { "events" } else { "fields" });
        let (ok, detail) = compare(&of(&ours, &pids), &of(&theirs, &pids));
        rows.row(ok, &what, &detail);
        if fields.is_empty() {
            contents(pair, &ours, &pids, rows);
            if pair.needs != Needs::Graph {
                as_reported(found, name, &of(&ours, &pids), &pids, rows)?;
            }
        }
    }
    Ok(())
}

/// What ours says if the kernel lacks something; none if it does not.
fn lacks(found: &Found<'_>, needs: Needs) -> Result<Option<String>> {
    Ok(match needs {
        Needs::Nothing => None,
        Needs::Graph => (!found.has_graph()?)
            .then(|| format!("in an instance, tracer {GRAPH}: this kernel has ")),
        Needs::Kind(text, option) => (!found.text("README")?.contains(text)).then(|| {
            format!("{option}: Linux {}", found.text("release").unwrap_or_default().trim())
        }),
    })
}

/// Reads a file by trace-cmd.
fn streams(found: &Found<'_>, name: &str, more: &[&str]) -> Result<Streams> {
    let path = found.folder.join(format!("{name}.dat"));
    let mut trace_cmd = Command::new("trace-cmd");
    let text =
        run_quietly(trace_cmd.args(["report", "-t", "--raw-ts", "-i"]).arg(&path).args(more))
            .with_context(|| found.text(&format!("{name}.said")).unwrap_or_default())?;
    let mut streams = Streams::new();
    let mut last = None;
    for line in text.lines() {
        let Some((stream, event)) = Event::parse(line) else {
            // A line of a stack belongs to the event before it.
            let event = last.as_ref().and_then(|last| streams.get_mut(last)?.last_mut());
            if let Some(event) = event {
                event.text.push_str(line.trim());
            }
            continue;
        };
        streams.entry(stream.clone()).or_default().push(event);
        last = Some(stream);
    }
    Ok(streams)
}

/// The events of some processes.
fn of(streams: &Streams, pids: &[u32]) -> Streams {
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
                    let before = others.iter().take(at).rfind(|before| !before.is_stack());
                    one.is_stack() || before.is_none_or(|before| one.time >= before.time)
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

/// All events of our recording are of those that were chosen.
fn contents(pair: &Pair, ours: &Streams, pids: &[u32], rows: &mut Rows) {
    let all = || ours.iter().flat_map(|((_, cpu), events)| events.iter().map(move |e| (*cpu, e)));
    let has = |name: &&&str| all().any(|(_, event)| event.name() == **name);
    let missing: Vec<_> = pair.has.iter().filter(|name| !has(name)).collect();
    let invented: Vec<_> = pair.not.iter().filter(has).collect();
    let is_of = |(cpu, event): &(u32, &Event)| match pair.of {
        Of::All => true,
        Of::Target => pids.first() == Some(&event.pid),
        Of::Family => pids.contains(&event.pid),
        Of::Cpu(wanted) => *cpu == wanted,
    };
    let wrong = all().find(|event| !is_of(event));
    let ok = missing.is_empty() && invented.is_empty() && wrong.is_none();
    let detail = format!("without {missing:?}, with {invented:?}, {wrong:?}");
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
    let text = run_quietly(Command::new(found.lastwords).arg("report").arg(path))?;
    let mut counts: BTreeMap<(u32, u32), [usize; 2]> = BTreeMap::new();
    for ((_, cpu), events) in ours {
        events.iter().for_each(|event| counts.entry((event.pid, *cpu)).or_default()[0] += 1);
    }
    for line in text.lines().filter_map(without_task) {
        let place = line.split_once(" [").and_then(|(pid, rest)| {
            Some((pid.parse().ok()?, rest.split_once(']')?.0.parse().ok()?))
        });
        let place: (u32, u32) = place.with_context(|| line.clone())?;
        if pids.contains(&place.0) {
            counts.entry(place).or_default()[1] += 1;
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
    time: u64,
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
        let time = time.trim().replace('.', "").parse().ok()?;
        let (buffer, task) = head.split_once(": ").unwrap_or(("", head));
        let pid = task.trim().rsplit_once('-')?.1.parse().ok()?;
        let buffer = buffer.trim().trim_end_matches(".peer");
        let buffer = if buffer == "own" { "" } else { buffer };
        Some(((buffer.to_owned(), cpu), Self { pid, time, text: text.trim().to_owned() }))
    }

    fn is_stack(&self) -> bool {
        self.name().ends_with("_stack")
    }

    fn name(&self) -> &str {
        self.text.split(':').next().unwrap_or_default()
    }
}
