//! The crashes in what was opened, and the tables that describe them.

use crate::events::TraceFacts;
use crate::identity::{hashed, of_session};
use crate::rows::{Cell, Rows};
use crate::schema::Table;
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use jiff::Timestamp;
use lastwords_ctf::uuid_text;
use lastwords_kernel::Kernel;
use lastwords_open::why::{self, Cause, Verdict};
use lastwords_open::{Account, Losses, Machine, Origin, Trace};
use std::fmt;
use std::sync::Arc;

/// Returns the verdict on the end of a session, with the names of the frames of its crash; none if
/// the trace is no session.
pub type Judge<'a> = &'a dyn Fn(&Trace) -> Option<Verdict>;

/// A crash: a session of lastwords, a dump of a kernel with all its traces, or another trace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Crash {
    /// The session's UUID, or else a hash of the boot, the time of the panic and the bytes.
    pub id: String,
    /// The positions of its traces among those that were opened.
    pub traces: Vec<usize>,
    /// The time of the end in nanoseconds since the epoch; none if it is not known.
    pub at: Option<i64>,
    /// The time is the last sign of life.
    pub is_last_seen: bool,
    /// The one-line signature; none if nothing died.
    pub signature: Option<String>,
    /// The word for the cause: see [`Cause::word`].
    pub cause: &'static str,
    name: String,
    kind: String,
    path: String,
    signal: Option<i64>,
    exit_status: Option<i64>,
    why: String,
    host: Option<String>,
    program: Option<String>,
    release: Option<String>,
    arch: Option<String>,
    hardware: Option<String>,
    boot_id: Option<String>,
    panic: Option<String>,
    stack: Option<String>,
    crash_cpu: Option<i64>,
    uptime: Option<i64>,
    how_ended: Option<&'static str>,
    kernel: Option<KernelInput>,
}

/// The input that a crash of a kernel is of.
#[derive(Clone)]
struct KernelInput(Arc<Origin>);

impl PartialEq for KernelInput {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for KernelInput {}

impl fmt::Debug for KernelInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.path.fmt(f)
    }
}

impl Crash {
    /// Returns the crashes in what was opened.
    #[must_use]
    pub fn all(origins: &[Arc<Origin>], traces: &[Trace], judge: Judge<'_>) -> Vec<Self> {
        let mut crashes = Vec::new();
        for origin in origins {
            let own = traces.iter().enumerate().filter(|(_, own)| Arc::ptr_eq(&own.origin, origin));
            let (sessions, others): (Vec<_>, Vec<_>) =
                own.partition(|(_, trace)| trace.session().is_some());
            crashes
                .extend(sessions.into_iter().map(|(at, trace)| session(at, trace, judge(trace))));
            match &origin.machine {
                Some(machine) => crashes.push(kernel(origin, machine, &others)),
                None => crashes.extend(others.iter().map(|(at, trace)| other(*at, trace))),
            }
        }
        crashes
    }

    /// Returns the kernel whose crash it is, if it is one of a kernel.
    pub(crate) fn machine(&self) -> Option<&Machine> {
        self.kernel.as_ref()?.0.machine.as_ref()
    }

    /// Returns the day of the end in UTC as `2026-11-29`, if it is known.
    #[must_use]
    pub fn day(&self) -> Option<String> {
        let at = Timestamp::from_nanosecond(self.at?.into()).ok()?;
        Some(at.strftime("%F").to_string())
    }

    /// Returns the signal or the exit status, and the cause.
    fn with_verdict(mut self, verdict: &Verdict) -> Self {
        (self.signal, self.exit_status) = match verdict.cause {
            Cause::Signal(number) => (number.map(i64::from), None),
            Cause::Exit(status) => (None, Some(i64::from(status))),
            _ => (None, None),
        };
        self.cause = verdict.cause.word();
        self.why.clone_from(&verdict.sentence);
        self.at = verdict.at.and_then(|at| i64::try_from(at).ok());
        self.is_last_seen = verdict.is_last_seen;
        self
    }

    /// Takes the time of the newest event if the time of the end is not known.
    fn with_newest(self, traces: &[(usize, &Trace)]) -> Self {
        if self.at.is_some() {
            return self;
        }
        let dated = traces.iter().filter(|(_, trace)| trace.unrelated_clock().is_none());
        let at = dated.filter_map(|(_, trace)| trace.newest()).max();
        Self { is_last_seen: at.is_some(), at, ..self }
    }

    /// Returns the row of `crashes`.
    ///
    /// # Errors
    /// The batch cannot be built.
    pub fn row(&self, losses: &Losses) -> Result<RecordBatch, ArrowError> {
        let hardware = self.hardware.as_deref();
        let (hardware, bios) = match hardware.and_then(|text| text.split_once(", BIOS ")) {
            Some((hardware, bios)) => (Some(hardware), Some(bios)),
            None => (hardware, None),
        };
        let mut rows = Rows::new(Table::Crashes.schema());
        rows.row(&[
            Cell::Text(Some(&self.id)),
            Cell::Number(self.at),
            Cell::Time(self.at),
            Cell::Bool(self.at.map(|_| self.is_last_seen)),
            Cell::Text(self.host.as_deref()),
            Cell::Text(Some(&self.kind)),
            Cell::Text(Some(&self.name)),
            Cell::Text(self.program.as_deref()),
            Cell::Text(self.release.as_deref()),
            Cell::Text(self.arch.as_deref()),
            Cell::Text(hardware),
            Cell::Text(bios),
            Cell::Text(self.boot_id.as_deref()),
            Cell::Text(Some(self.cause)),
            Cell::Number(self.signal),
            Cell::Number(self.exit_status),
            Cell::Text(Some(&self.why)),
            Cell::Text(self.panic.as_deref()),
            Cell::Text(self.signature.as_deref()),
            Cell::Text(self.stack.as_deref()),
            Cell::Number(self.crash_cpu),
            Cell::Number(self.uptime),
            Cell::Text(self.how_ended),
            Cell::Bool(Some(losses.any)),
            Cell::Number(lost(losses)),
            Cell::Text(Some(&self.path)),
            Cell::Text(Some(env!("CARGO_PKG_VERSION"))),
        ]);
        rows.finish()
    }
}

/// Returns the number of lost events, or none if some are lost and nobody knows how many.
fn lost(losses: &Losses) -> Option<i64> {
    let is_exact = !losses.any || losses.events > 0 && !losses.more;
    i64::try_from(losses.events).ok().filter(|_| is_exact)
}

fn known(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn session(at: usize, trace: &Trace, verdict: Option<Verdict>) -> Crash {
    let mut crash = new(trace, of_session(trace));
    crash.traces = vec![at];
    let Some(info) = trace.session().map(|found| found.session.info()) else { return crash };
    crash.host = known(&info.hostname);
    crash.program = known(&info.program);
    crash.boot_id = (info.boot_id != [0; 16]).then(|| uuid_text(&info.boot_id));
    crash.how_ended = trace.ended().map(|ended| ended.how.name());
    if let Some(verdict) = verdict {
        crash.signature = why::session_signature(&verdict, &info.program);
        let stack = verdict.crash.as_ref().map(lastwords_open::Crash::backtrace_lines);
        crash.stack = stack.filter(|lines| !lines.is_empty()).map(|lines| lines.join("\n"));
        let message = |own: &lastwords_open::Crash| {
            Some(own.fields.iter().find(|(name, _)| name == "message")?.1.clone())
        };
        crash.panic = verdict.crash.as_ref().and_then(message);
        crash = crash.with_verdict(&verdict);
    }
    crash = crash.with_newest(&[(at, trace)]);
    let boot = info.clock.monotonic_origin;
    crash.uptime = crash.at.zip(boot).and_then(|(at, boot)| at.checked_sub(boot));
    crash
}

/// Returns what all traces have.
fn new(trace: &Trace, id: Option<String>) -> Crash {
    let path = trace.ctf().map_or(&trace.origin.path, |ctf| &ctf.path);
    Crash {
        id: id.unwrap_or_else(|| hashed(&[trace.name.as_bytes()], path)),
        cause: Cause::Unknown.word(),
        name: trace.name.clone(),
        kind: trace.origin.kind.to_string(),
        path: path.display().to_string(),
        ..Crash::default()
    }
}

/// Returns the crash of a trace that does not show how what recorded it ended.
fn other(at: usize, trace: &Trace) -> Crash {
    let uuid = match (trace.ctf(), trace.lttng()) {
        (Some(ctf), _) => ctf.class().uuid.unwrap_or_default(),
        (_, Some(lttng)) => lttng.session.uuid,
        _ => [0; 16],
    };
    let path = trace.ctf().map_or(&trace.origin.path, |ctf| &ctf.path);
    // Snapshots of one session of LTTng have one UUID, and different events.
    let id = hashed(&[&uuid, trace.name.as_bytes()], path);
    let verdict = why::of_trace_alone(trace.origin.kind, &why::Outside::default());
    let mut crash = new(trace, Some(id)).with_verdict(&verdict).with_newest(&[(at, trace)]);
    crash.traces = vec![at];
    if let Some(ctf) = trace.ctf() {
        let text = |key: &str| ctf.class().text(key).and_then(known);
        crash.host = text("hostname");
        crash.release = text("kernel_release");
        crash.name = ctf.name().to_owned();
    }
    crash
}

/// Returns the crash of a kernel: of all traces in its memory, or in a trace.dat file.
fn kernel(origin: &Arc<Origin>, machine: &Machine, traces: &[(usize, &Trace)]) -> Crash {
    let offset = machine.log_real_time();
    let at = |time: u64| {
        let time = i64::try_from(time).ok()?.checked_add(offset?)?;
        u64::try_from(time).ok()
    };
    let verdict = why::kernel(machine, at)
        .unwrap_or_else(|| why::of_trace_alone(origin.kind, &why::Outside::default()));
    let mut crash = Crash {
        name: machine.tracing.release.clone(),
        kind: origin.kind.to_string(),
        path: origin.path.display().to_string(),
        release: known(&machine.tracing.release),
        traces: traces.iter().map(|(at, _)| *at).collect(),
        kernel: Some(KernelInput(Arc::clone(origin))),
        ..Crash::default()
    }
    .with_verdict(&verdict)
    .with_newest(traces);
    let mut boot = [0; 16];
    if let Some(kernel) = &machine.kernel {
        let log = kernel.log().rows;
        let found = kernel.crash(&log);
        let (panic, oops) = (found.panic.as_deref(), found.oops.as_deref());
        let frames = why::kernel_frames(log.iter().map(|row| row.text.as_str()), panic, oops);
        crash.signature = why::kernel_signature(&verdict, panic, oops, &frames);
        crash.stack = known(&frames.functions.join("\n"));
        crash.hardware = frames.hardware;
        crash.panic = found.panic.clone().or_else(|| found.oops.clone());
        crash.crash_cpu = found.cpu.map(i64::from);
        if let Ok(uname) = kernel.uname() {
            crash.host = known(&uname.node).filter(|node| node != "(none)");
            crash.arch = known(&uname.machine);
        }
        let uptime = kernel.time().ok().and_then(|time| i64::try_from(time.uptime).ok());
        crash.uptime = uptime;
        boot = boot_id(kernel);
        crash.boot_id = (boot != [0; 16]).then(|| uuid_text(&boot));
        let time = found.time.unwrap_or(0).to_le_bytes();
        crash.id = hashed(&[&boot, &time], &origin.path);
    } else {
        crash.id = hashed(&[&boot], &origin.path);
    }
    crash
}

/// Returns the id of the kernel's boot, or zeroes if nothing asked for it before the crash
/// (`sysctl_bootid` in `drivers/char/random.c`, Linux 6.12: it is made when it is first read).
fn boot_id(kernel: &Kernel) -> [u8; 16] {
    let part = |offset: u64| {
        let at = kernel.symbol("sysctl_bootid").ok()?.checked_add(offset)?;
        kernel.memory.number(at, 1).ok().and_then(|byte| u8::try_from(byte).ok())
    };
    let mut id = [0; 16];
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = part(at as u64).unwrap_or(0);
    }
    id
}

/// Returns the time of the newest event of a trace, by the clock of its events.
fn newest(trace: &Trace) -> Option<i64> {
    match trace.ftrace() {
        Some(ftrace) if !ftrace.has_events() => None,
        Some(ftrace) if ftrace.real_time().is_none() => Some(ftrace.newest()),
        _ => trace.newest(),
    }
}

/// Returns what the rows of each trace have besides its events, by position. The traces of one crash
/// have the same end, as far as their clocks are related to real time.
#[must_use]
pub fn trace_facts(crashes: &[Crash], traces: &[Trace]) -> Vec<TraceFacts> {
    let mut facts: Vec<TraceFacts> = traces
        .iter()
        .map(|trace| TraceFacts {
            crash_id: String::new(),
            name: trace.name.clone(),
            is_dated: trace.unrelated_clock().is_none(),
            end: newest(trace),
        })
        .collect();
    for crash in crashes {
        let own = crash.traces.iter().filter_map(|at| facts.get(*at));
        let end = own.filter(|facts| facts.is_dated).filter_map(|facts| facts.end).max();
        for at in &crash.traces {
            let Some(facts) = facts.get_mut(*at) else { continue };
            facts.crash_id.clone_from(&crash.id);
            if facts.is_dated {
                facts.end = end;
            }
        }
    }
    facts
}

/// Returns the rows of `losses` of a crash: gaps, sub-buffers that lack something, and parts that
/// cannot be decoded. `accounts` has the account of each trace after reading.
///
/// # Errors
/// The batch cannot be built.
pub fn loss_rows(
    crash: &Crash,
    traces: &[Trace],
    accounts: &[Account<'_>],
) -> Result<RecordBatch, ArrowError> {
    let mut rows = Rows::new(Table::Losses.schema());
    for at in &crash.traces {
        let (Some(trace), Some(account)) = (traces.get(*at), accounts.get(*at)) else { continue };
        let number = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
        let mut add = |stream: Option<usize>, cause: &str, place: &str, is_loss, events, bytes| {
            let stream = stream.and_then(|stream| account.streams.get(stream));
            rows.row(&[
                Cell::Text(Some(&crash.id)),
                Cell::Text(Some(&trace.name)),
                Cell::Text(stream.map(|stream| stream.channel.as_str())),
                Cell::Number(stream.and_then(|stream| stream.cpu).map(i64::from)),
                Cell::Text(Some(cause)),
                Cell::Text(Some(place)),
                Cell::Bool(Some(is_loss)),
                Cell::Number(number(events)),
                Cell::Number(number(bytes)),
            ]);
        };
        for gap in &account.evidence.gaps {
            let is_loss = gap.cause.is_loss();
            add(gap.stream, gap.cause.word(), &gap.place, is_loss, gap.events, gap.bytes);
        }
        for row in account.evidence.sub_buffers.iter().filter(|row| row.verdict.is_loss()) {
            let place = format!("sub-buffer {}: {}", row.sequence, row.why);
            add(Some(row.stream), row.verdict.word(), &place, true, None, None);
        }
        if account.faults > 0 {
            let place = format!("{} packets that cannot be decoded to their end", account.faults);
            add(None, "undecoded", &place, true, None, None);
        }
    }
    rows.finish()
}

/// Returns the rows of `traces` of a crash.
///
/// # Errors
/// The batch cannot be built.
pub fn trace_rows(
    crash: &Crash,
    traces: &[Trace],
    accounts: &[Account<'_>],
) -> Result<RecordBatch, ArrowError> {
    let mut rows = Rows::new(Table::Traces.schema());
    for at in &crash.traces {
        let (Some(trace), Some(account)) = (traces.get(*at), accounts.get(*at)) else { continue };
        let clock = trace.unrelated_clock();
        let losses = Losses::from_accounts([account]);
        let path = trace.ctf().map_or(&trace.origin.path, |ctf| &ctf.path).display().to_string();
        rows.row(&[
            Cell::Text(Some(&crash.id)),
            Cell::Text(Some(&trace.name)),
            Cell::Text(Some(trace.origin.kind.words())),
            Cell::Text(clock.as_ref().map(|clock| clock.name.as_str())),
            Cell::Bool(Some(clock.is_none())),
            Cell::Number(newest(trace)),
            Cell::Number(i64::try_from(account.streams.len()).ok()),
            Cell::Bool(Some(losses.any)),
            Cell::Number(lost(&losses)),
            Cell::Text(Some(&path)),
        ]);
    }
    rows.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_786, "2026-11-29"),
        ] {
            let at = Some(days * 86_400_000_000_000 + 1);
            assert_eq!(Crash { at, ..Crash::default() }.day().as_deref(), Some(date));
        }
    }
}
