//! Finds the panics and signals that hooks and handlers recorded, and names their addresses by the
//! modules that were mapped. Counts the events that the process recorded afterwards. The closings of
//! spans while a panic unwinds the thread do not count if the panic ended the session.
//!
//! None of this proves that a crash was the end: [`crate::why::session()`] decides that.

use crate::escape;
use crate::trace::hiding;
use lastwords_ctf::Version;
use lastwords_ctf::program;
use lastwords_ctf::read::{Next, Reader, Stream, Trace, unwatched};
use lastwords_render::iter::{EventKind, EventRef, Events, Field, Ids, Order, Value};
use lastwords_render::redact::Redaction;
use lastwords_render::select::Selection;
use lastwords_render::spans::Step;
use lastwords_session::Session;
use lastwords_session::info::{Info, Module, SessionScope};
use lastwords_trace::parallel;
use serde::Serialize;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The prefix of the events' names.
const PROVIDER: &str = "crash:";

/// The name of the event of a panic.
const PANIC: &str = "crash:panic";

/// The signals that say which address the program used.
const HAVE_ADDRESS: [&str; 4] = ["SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"];

/// One recorded panic or signal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// `crash:signal` or `crash:panic`.
    pub event: String,
    /// Nanoseconds since the epoch, as text.
    pub time_ns: String,
    /// The fields of the event, such as process and thread.
    pub fields: Vec<(String, String)>,
    /// The number of events that the process recorded later.
    pub later_events: u64,
    /// The crash is proven to be the cause of death. [`crate::why::session()`] decides it.
    pub is_cause_of_death: bool,
    /// The addresses of the call stack, innermost first.
    pub backtrace: Vec<Frame>,
    #[serde(skip)]
    nanoseconds: i64,
    #[serde(skip)]
    pid: Option<u32>,
    /// Other threads recorded events later, and nothing shows whether they are of this process.
    #[serde(skip)]
    others_went_on: bool,
}

/// A frame of a backtrace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// The address.
    pub address: String,
    /// The module that contains the address.
    pub module: Option<String>,
    /// The address minus the module's load bias, as symbolizers expect it.
    pub offset: Option<String>,
    /// The module's build ID.
    pub build_id: Option<String>,
    /// The functions that the address is in: the innermost of those that were inlined comes first.
    /// Empty until a [`Symbolizer`](crate::Symbolizer) has found them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
}

/// A function that a frame is in. A frame has several if the compiler inlined a function into
/// another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Function {
    /// Name of the function, demangled, without the hash of Rust's names.
    pub name: String,
    /// Source file, as the compiler recorded it.
    pub file: Option<String>,
    /// Line in the source file.
    pub line: Option<u32>,
}

impl Crash {
    /// Returns the time in nanoseconds since the epoch.
    #[must_use]
    pub fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// Makes a crash for tests.
    #[cfg(test)]
    pub(crate) fn made(event: &str, fields: &[(&str, &str)], at: i64, later_events: u64) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            event: event.to_owned(),
            time_ns: at.to_string(),
            fields: fields.iter().map(own).collect(),
            later_events,
            nanoseconds: at,
            ..Self::default()
        }
    }

    /// Returns true if other threads recorded events later, and nothing shows whether they are of
    /// the same process.
    pub(crate) fn others_went_on(&self) -> bool {
        self.others_went_on
    }

    /// Returns the process, if it is known.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let field = self.fields.iter().find(|(name, _)| name == "pid");
        field.and_then(|(_, value)| value.parse().ok()).or(self.pid)
    }

    /// Returns the thread, if it is known.
    fn tid(&self) -> Option<&str> {
        let is_tid = |name: &str| name == "tid" || name == "vtid";
        self.fields.iter().find(|(name, _)| is_tid(name)).map(|(_, value)| value.as_str())
    }

    /// Returns what happened, for people: `SIGSEGV in thread worker-3 (16035), address 0x0`, or
    /// `panic in thread main (16042): no such item: 7 (src/main.rs:14:20)`.
    #[must_use]
    pub fn summary(&self) -> String {
        let field = |name: &str| {
            let known = self.fields.iter().find(|(known, _)| known == name);
            known.map(|(_, value)| escape(value)).filter(|value| !value.is_empty())
        };
        let thread = match (field("thread"), field("tid").or_else(|| field("vtid"))) {
            (Some(name), Some(tid)) => format!(" in thread {name} ({tid})"),
            (Some(name), None) => format!(" in thread {name}"),
            (None, Some(tid)) => format!(" in thread {tid}"),
            (None, None) => String::new(),
        };
        match (field("signal"), field("message")) {
            (Some(signal), _) => {
                let has_address = HAVE_ADDRESS.contains(&signal.as_str());
                let address = field("address")
                    .filter(|_| has_address)
                    .map(|address| format!(", address {address}"));
                format!("{signal}{thread}{}", address.unwrap_or_default())
            }
            (None, Some(message)) => {
                let place =
                    field("location").map_or_else(String::new, |location| format!(" ({location})"));
                format!("panic{thread}: {message}{place}")
            }
            (None, None) => format!("{}{thread}", escape(&self.event)),
        }
    }
}

/// Returns all panics and signals that were recorded, in order of time.
pub(crate) fn find(session: &Arc<Session>, redaction: &Redaction) -> Vec<Crash> {
    // A session that cannot be read as a trace was reported when it was written.
    let trace = lastwords_ctf::session::trace(session, Path::new(""), Version::V2);
    let Ok(trace) = trace.and_then(|trace| hiding(trace, redaction)) else {
        return Vec::new();
    };
    let has_crash =
        parallel::map(&trace.streams, parallel::cpus(), |_, stream| has_crash(&trace, stream));
    let mut searched = trace.clone();
    let mut is_searched = has_crash.into_iter();
    searched.streams.retain(|_| is_searched.next() == Some(true));
    // A channel for errors has copies of the events. A thread may panic again in the same words.
    let events = vec![format!("{PROVIDER}*")];
    let selection = Selection { events, deduplicate: true, ..Selection::default() };
    let mut causes = Vec::new();
    let searched = [searched];
    let mut events = Events::new(&searched, &selection, Order::Time, &unwatched);
    each(&mut events, |event| {
        let fields = event.fields();
        causes.push(cause(event, fields, &session.info().modules));
    });
    if !causes.is_empty() {
        count_later(&mut causes, &[trace], session.info());
    }
    causes
}

/// Returns true if the stream has a panic or a signal. Most streams have none, and are not read
/// again in order of time.
fn has_crash(trace: &Trace, stream: &Stream) -> bool {
    let events = trace.class().streams.get(stream.class).map_or(&[][..], |class| &class.events);
    let is_wanted: Vec<bool> =
        events.iter().map(|event| event.name.as_deref().is_some_and(is_crash)).collect();
    if !is_wanted.contains(&true) {
        return false;
    }
    let wants = |class: usize| is_wanted.get(class).copied().unwrap_or(false);
    let found = Cell::new(false);
    let look = |event: &program::Event| found.set(found.get() || wants(event.class));
    let ahead = |reader: &mut Reader<'_>| reader.ahead(usize::MAX, |event, _| look(&event));
    Reader::new(trace, stream).each(ahead, |_, next| {
        if let Next::Event(event) = next {
            look(event);
        }
        found.get()
    });
    found.get()
}

/// Counts the events that each process recorded after its panics and signals. In a session of
/// several processes, events without a process ID in their contexts are not counted. If a program
/// has forked, its events do not say which process they are of, so those of the thread count.
fn count_later(causes: &mut [Crash], traces: &[Trace], info: &Info) {
    let is_shared = info.scope != SessionScope::Process;
    let is_forked = !is_shared && info.processes.iter().any(|own| own.pid != info.creator_pid);
    // The last panic ended the session: its thread closed its spans afterwards. A panic that was
    // caught did not.
    let unwound = causes
        .last()
        .filter(|last| !is_shared && info.panicked() && last.event == PANIC)
        .map(Crash::tid);
    let from = causes.first().map(|cause| cause.nanoseconds);
    let selection = Selection { since: from, deduplicate: true, ..Selection::default() };
    // The number of events by process or thread and by the number of panics and signals before
    // them.
    let mut counts: BTreeMap<(Option<u32>, usize), u64> = BTreeMap::new();
    each(&mut Events::new(traces, &selection, Order::Time, &unwatched), |event| {
        if is_crash(&event.kind().whole_name()) {
            return;
        }
        let time = event.time();
        let before = causes.partition_point(|cause| Some(cause.nanoseconds) < time);
        let may_unwind = before == causes.len() && is_closing(event.kind());
        let unwound = unwound.filter(|_| may_unwind);
        let needs_ids = is_shared || is_forked || unwound.is_some();
        let ids = if needs_ids { event.ids() } else { Ids::default() };
        if unwound.is_some_and(|thread| {
            ids.tid.is_none_or(|tid| thread.is_none_or(|thread| thread == tid.to_string()))
        }) {
            return;
        }
        let of = if is_forked { ids.tid } else { ids.pid.filter(|_| is_shared) };
        let of = of.and_then(|id| u32::try_from(id).ok());
        let count = counts.entry((of, before)).or_default();
        *count = count.saturating_add(1);
    });
    for (index, cause) in causes.iter_mut().enumerate() {
        let thread = || cause.tid().and_then(|tid| tid.parse().ok());
        let own = if is_forked { thread() } else { cause.pid.filter(|_| is_shared) };
        let is_known = own.is_some() || !(is_shared || is_forked);
        let later =
            counts.iter().filter(|((of, before), _)| is_known && *of == own && *before > index);
        cause.later_events = later.map(|(_, count)| *count).fold(0, u64::saturating_add);
        cause.others_went_on = is_forked
            && cause.later_events == 0
            && counts.keys().any(|(_, before)| *before > index);
    }
}

/// Passes all events to `take`. What cannot be read was told when the session was read.
fn each(events: &mut Events<'_>, mut take: impl FnMut(&mut EventRef<'_, '_>)) {
    loop {
        while let Some(mut event) = events.advance() {
            take(&mut event);
        }
        if events.fault().is_none() {
            return;
        }
    }
}

fn is_crash(name: &str) -> bool {
    name.starts_with(PROVIDER)
}

/// Returns true for the events that a thread records when it leaves a span.
fn is_closing(kind: &EventKind) -> bool {
    let step = Step::parse(&kind.whole_name()).map(|(step, _)| step);
    matches!(step, Some(Step::Exit | Step::Close))
}

fn cause(event: &mut EventRef<'_, '_>, fields: Vec<Field>, modules: &[Module]) -> Crash {
    let nanoseconds = event.time().unwrap_or(0);
    let mut cause = Crash {
        event: event.kind().whole_name(),
        time_ns: nanoseconds.to_string(),
        nanoseconds,
        ..Crash::default()
    };
    for Field { name, is_hexadecimal, value } in event.all_contexts().into_iter().chain(fields) {
        if name == "pid" || name == "vpid" {
            cause.pid = value.number().and_then(|pid| u32::try_from(pid).ok()).or(cause.pid);
        }
        match value {
            Value::List(addresses) if name == "backtrace" => {
                let addresses = addresses.iter().filter_map(Value::number);
                cause.backtrace = addresses.map(|a| frame(a, cause.pid, modules)).collect();
            }
            Value::Unsigned(value) if is_hexadecimal => {
                cause.fields.push((name, format!("{value:#x}")))
            }
            value => cause.fields.push((name, value.to_string())),
        }
    }
    cause
}

fn frame(address: u64, pid: Option<u32>, modules: &[Module]) -> Frame {
    let holds =
        |m: &&Module| pid.is_none_or(|pid| pid == m.pid) && (m.start..m.end).contains(&address);
    let module = modules.iter().find(holds);
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    Frame {
        address: format!("{address:#x}"),
        module: module.map(|m| m.path.clone()),
        offset: module.map(|m| format!("{:#x}", address.wrapping_sub(m.base))),
        build_id: module.filter(|m| !m.build_id.is_empty()).map(|m| hexadecimal(&m.build_id)),
        functions: Vec::new(),
    }
}
