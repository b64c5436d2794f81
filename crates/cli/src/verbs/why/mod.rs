//! Implements `lastwords why`: prints on one page what died, when, why, and with which evidence.

mod journal;
mod page;

use crate::exit::{Facts, Outcome};
use crate::input::{Input, Search};
use crate::outside;
use crate::say;
use crate::select::expression;
use crate::table::quoted;
use crate::traces::Traces;
use lastwords_ctf::Version;
use lastwords_ctf::read::unwatched;
use lastwords_open::inspect::Activity;
use lastwords_open::why::{self, Cause, Outside, Verdict, Witness};
use lastwords_open::{
    Account, Event, Losses, Machine, Order, Origin, Selected, Selection, Trace,
    accounts_after_reading,
};
use lastwords_render::Totals;
use lastwords_render::evidence::SpanReport;
use lastwords_render::text::{self, Style, Zone};
use lastwords_trace::metrics::Metrics;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// Name of the format of `--json`.
const SCHEMA: &str = "lastwords.why.v1";
/// Number of last events that are shown.
const EVENTS: u64 = 5;
/// The provider of the events of crashes, which the verdict shows.
const CRASHES: &str = "crash";

/// The arguments of `why`.
#[derive(Debug, Default, clap::Args)]
#[command(
    override_usage = "lastwords why [OPTIONS] <INPUT>...\n       lastwords why [OPTIONS] --pid <PID>"
)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Look for the cause in this log of the kernel, too
    ///
    /// FILE has what `dmesg` or `journalctl -k -o short-monotonic` prints. A line of it is the
    /// cause only if it names the process of the session, at the time of its end. The log of the
    /// running kernel is read without this option, if the user may read it.
    #[arg(long, value_name = "FILE")]
    kernel_log: Option<PathBuf>,

    /// Show how many processes of this control group the OOM killer killed
    ///
    /// DIR is the folder of the group. Its counter (`memory.events`, or `memory.oom_control` of
    /// version 1) does not say which processes they were, so that it is a hint and no proof.
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,

    /// Write it to the system's journal, too
    ///
    /// An entry for each input, by journald's native protocol, as systemd-coredump writes them: the
    /// verdict and the last 50 events as the message, and in fields (`LASTWORDS_CAUSE`,
    /// `LASTWORDS_SESSION`, `LASTWORDS_LAST_EVENTS` and others).
    #[arg(long)]
    journal: bool,

    /// The socket of journald
    #[arg(long, hide = true, value_name = "PATH", default_value = journal::SOCKET)]
    journal_socket: PathBuf,

    /// Print data instead of text
    #[arg(long)]
    json: bool,
}

/// All that is printed.
#[derive(Serialize)]
struct Page {
    schema: &'static str,
    inputs: Vec<Why>,
}

/// The explanation of how one session or kernel ended.
#[derive(Serialize)]
struct Why {
    /// `session` or `kernel`, or `trace` if it is neither.
    what: &'static str,
    name: String,
    from: String,
    kind: String,
    /// The program and host of a session.
    program: Option<String>,
    hostname: Option<String>,
    /// The process and the user of a session, for the journal.
    #[serde(skip)]
    pid: Option<u32>,
    #[serde(skip)]
    uid: Option<u32>,
    verdict: Verdict,
    /// The last event of level error that is no crash.
    last_error: Option<Line>,
    last_events: Vec<Line>,
    /// None if it is not known which spans were open.
    open_spans: Option<Vec<SpanReport>>,
    /// Counters and histograms of a session.
    metrics: Option<Metrics>,
    #[serde(flatten)]
    losses: Losses,
    /// The losses in words.
    lost: String,
    /// Commands that show more.
    next: Vec<Next>,
}

/// An event for people.
#[derive(Serialize)]
struct Line {
    /// Nanoseconds since the epoch as text, or since the origin of the clock.
    time_ns: Option<String>,
    /// The time is since the epoch.
    since_epoch: bool,
    level: Option<&'static str>,
    pid: Option<i64>,
    tid: Option<i64>,
    event: String,
    /// The fields as `name=value`.
    fields: String,
    /// The line that `report` prints of an event of a session.
    #[serde(skip)]
    shown: Option<String>,
}

/// A command, and what it shows.
#[derive(Serialize)]
struct Next {
    command: String,
    shows: &'static str,
}

/// Runs `why`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let outside = outside::read(args.kernel_log.as_deref(), args.cgroup.as_deref())?;
    args.input.read(Search::Late, |traces| explain(args, &traces, &outside))
}

/// Prints the page of an input. The log of the running kernel is not looked at: the input is
/// another machine.
///
/// # Errors
/// The input cannot be read.
#[cfg(feature = "guests")]
pub(crate) fn print(input: Input) -> anyhow::Result<Outcome> {
    let args = Args { input, ..Args::default() };
    args.input.read(Search::Late, |traces| explain(&args, &traces, &Outside::default()))
}

fn explain(args: &Args, traces: &Traces, outside: &Outside) -> anyhow::Result<Outcome> {
    let events = if args.journal { journal::EVENTS } else { EVENTS };
    let mut inputs: Vec<Why> = Vec::new();
    for origin in &traces.origins {
        let own = |trace: &&Trace| Arc::ptr_eq(&trace.origin, origin);
        let (sessions, others): (Vec<&Trace>, Vec<&Trace>) =
            traces.all.iter().filter(own).partition(|trace| trace.session().is_some());
        for session in &sessions {
            inputs.extend(of_session(traces, session, outside, events));
        }
        if sessions.is_empty() || !others.is_empty() {
            inputs.push(of_others(origin, &others, outside, events));
        }
    }
    if args.journal {
        journal::write(&inputs, &args.journal_socket)?;
        let shown = |why: &mut Why| {
            why.last_events.drain(..why.last_events.len().saturating_sub(EVENTS as usize));
        };
        inputs.iter_mut().for_each(shown);
    }
    if args.json {
        say::json(&Page { schema: SCHEMA, inputs }, false)?;
    } else {
        page::print(&inputs);
    }
    Ok(Facts { worst_failure: traces.worst_failure, ..Facts::default() }.outcome())
}

/// Explains the end of a session.
fn of_session(traces: &Traces, trace: &Trace, outside: &Outside, events: u64) -> Option<Why> {
    let mut verdict = why::session(trace, outside)?;
    traces.name_frames(verdict.crashes_mut());
    let info = trace.session()?.session.info();
    let path = trace.origin.path.display().to_string();
    let pid = match (&verdict.crash, info.processes.as_slice()) {
        (Some(crash), _) => crash.pid(),
        (None, [only]) => Some(only.pid),
        (None, _) => None,
    };
    let mut next = next_of_session(&verdict, &path, pid);
    if !info.metrics.is_empty() {
        let command = format!("lastwords counters {}", quoted(&path));
        next.push(Next { command, shows: "its counters and histograms" });
    }
    let own = std::slice::from_ref(trace);
    let account = account(trace);
    Some(Why {
        what: "session",
        name: trace.name.clone(),
        from: path,
        kind: trace.origin.kind.to_string(),
        program: Some(info.program.clone()).filter(|program| !program.is_empty()),
        hostname: Some(info.hostname.clone()).filter(|host| !host.is_empty()),
        pid: pid.or(Some(info.creator_pid)).filter(|pid| *pid != 0),
        uid: Some(info.uid),
        last_error: last_error(own),
        last_events: last_events(own, events),
        losses: Losses::from_accounts([&account]),
        lost: account.words(),
        open_spans: account.spans,
        metrics: Some(info.metrics.clone()),
        verdict,
        next,
    })
}

/// Returns the account after all events were read, because reading finds losses.
fn account(trace: &Trace) -> Account<'_> {
    let traces = std::slice::from_ref(trace);
    let read: Vec<(usize, Totals)> =
        Activity::once(trace).map(|(_, totals)| (0, totals)).into_iter().collect();
    let account = accounts_after_reading(traces, &Totals::default(), &read).pop();
    account.unwrap_or_else(|| trace.account())
}

/// Explains the end of a kernel, or of what recorded a trace that is no session.
fn of_others(origin: &Arc<Origin>, traces: &[&Trace], outside: &Outside, events: u64) -> Why {
    let machine = origin.machine.as_ref();
    let offset = machine.and_then(Machine::log_real_time);
    let at = |time: u64| {
        let time = i64::try_from(time).ok()?.checked_add(offset?)?;
        u64::try_from(time).ok()
    };
    let of_kernel = machine.and_then(|machine| why::kernel(machine, at));
    let is_kernel = of_kernel.is_some();
    let verdict = of_kernel.unwrap_or_else(|| why::of_trace_alone(origin.kind, outside));
    let path = origin.path.display().to_string();
    let release = machine.map(|machine| machine.tracing.release.clone());
    let name = release.filter(|name| !name.is_empty());
    // The clocks of several arrays may not be related.
    let has_events = |trace: &&&Trace| match trace.ftrace() {
        Some(ftrace) => ftrace.ring.is_some() && ftrace.has_events(),
        None => true,
    };
    let first = traces.iter().find(has_events).map(|trace| std::slice::from_ref(*trace));
    let accounts: Vec<Account<'_>> = traces.iter().map(|trace| account(trace)).collect();
    let losses = Losses::from_accounts(&accounts);
    Why {
        what: if is_kernel { "kernel" } else { "trace" },
        name: name.or_else(|| Some(traces.first()?.name.clone())).unwrap_or_default(),
        kind: origin.kind.to_string(),
        program: None,
        hostname: None,
        pid: None,
        uid: None,
        last_error: first.filter(|_| machine.is_none()).and_then(last_error),
        last_events: first.map(|first| last_events(first, events)).unwrap_or_default(),
        open_spans: Some(Vec::new()),
        metrics: None,
        lost: losses.words(),
        losses,
        next: next_of_kernel(is_kernel, &path),
        from: path,
        verdict,
    }
}

/// Finds the last error that is no crash, in one pass: a selection of the last events reads the
/// trace twice.
fn last_error(traces: &[Trace]) -> Option<Line> {
    let filter = expression("level <= 3").ok()?;
    let errors = Selection { filter: Some(filter), deduplicate: true, ..Selection::default() };
    let selected = Selected::new(traces, errors.clone()).ok()?;
    let mut events = selected.events(Order::Time);
    let mut last = None;
    loop {
        while let Some(mut event) = events.advance() {
            if event.kind().provider.as_deref() != Some(CRASHES) {
                last = Some(event.to_event());
            }
        }
        if events.fault().is_none() {
            break;
        }
    }
    let last = last?;
    let is_dated = is_dated(traces);
    let mut line = line(&last, is_dated);
    if let ([trace], Some(time)) = (traces, last.time.filter(|_| is_dated)) {
        let then = Selection { since: Some(time), until: Some(time), ..errors };
        let mut shown = as_in_report(trace, &then);
        // Other errors of the same time are not known from this one.
        line.shown = shown.pop().filter(|_| shown.is_empty() && trace.session().is_some());
    }
    Some(line)
}

fn is_dated(traces: &[Trace]) -> bool {
    traces.iter().all(|trace| trace.unrelated_clock().is_none())
}

fn last_events(traces: &[Trace], events: u64) -> Vec<Line> {
    lines(traces, Selection { last: Some(events), ..Selection::default() })
}

/// Returns the selected events of traces. What cannot be read is left out; the account has it.
fn lines(traces: &[Trace], selection: Selection) -> Vec<Line> {
    let selection = Selection { deduplicate: true, ..selection };
    let is_dated = is_dated(traces);
    let Ok(selected) = Selected::new(traces, selection.clone()) else { return Vec::new() };
    let events = selected.events(Order::Time).filter_map(Result::ok);
    let mut lines: Vec<Line> = events.map(|event| line(&event, is_dated)).collect();
    let shown = match traces {
        [trace] if trace.session().is_some() => as_in_report(trace, &selection),
        _ => Vec::new(),
    };
    if shown.len() == lines.len() {
        lines.iter_mut().zip(shown).for_each(|(line, shown)| line.shown = Some(shown));
    }
    lines
}

/// Returns the selected events of a session as `report` prints them, in UTC.
fn as_in_report(trace: &Trace, selection: &Selection) -> Vec<String> {
    let Some(Ok(packets)) = trace.packets(Version::V2) else { return Vec::new() };
    let mut text = Vec::new();
    let zone = Zone::utc();
    // A vector takes all that is written, and the account has what cannot be read.
    let _ = text::write(
        &[packets],
        Style::Fields,
        selection,
        &zone,
        &mut text,
        &unwatched,
        &mut |_| {},
    );
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

fn line(event: &Event, since_epoch: bool) -> Line {
    let fields: Vec<String> = event.fields.iter().map(ToString::to_string).collect();
    Line {
        time_ns: event.time.map(|time| time.to_string()),
        since_epoch,
        level: event.kind.level.map(lastwords_trace::class::LogLevel::word),
        pid: event.pid,
        tid: event.tid,
        event: event.kind.whole_name(),
        fields: fields.join(" "),
        shown: None,
    }
}

/// Returns the commands that show more of a session.
fn next_of_session(verdict: &Verdict, path: &str, pid: Option<u32>) -> Vec<Next> {
    let path = quoted(path);
    let mut next = Vec::new();
    let mut add = |command: String, shows| next.push(Next { command, shows });
    match verdict.cause {
        Cause::Alive => add(format!("lastwords top {path}"), "what it records now"),
        Cause::Signal(_) => {
            let pid = pid.map_or_else(String::new, |pid| format!(" {pid}"));
            add(format!("coredumpctl info{pid}"), "the core, if systemd-coredump kept one");
        }
        Cause::Unknown if !verdict.evidence.iter().any(|own| own.from == Witness::Core) => add(
            "journalctl -k -o short-monotonic".to_owned(),
            "the kernel's log at that time: OOM kills, faults, resets",
        ),
        _ => {}
    }
    add(format!("lastwords report {path} --last 50"), "the last events");
    add(format!("lastwords view {path}"), "the page, which shows what led to the end");
    next
}

/// Returns the commands that show more of a kernel or trace.
fn next_of_kernel(is_kernel: bool, path: &str) -> Vec<Next> {
    let path = quoted(path);
    let log = if is_kernel { " --with-log" } else { "" };
    let shows =
        if is_kernel { "the last events among the kernel's log" } else { "the last events" };
    vec![
        Next { command: format!("lastwords report {path}{log} --last 50"), shows },
        Next { command: format!("lastwords view {path}"), shows: "the page" },
    ]
}
