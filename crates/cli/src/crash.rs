//! Panics and signals that hooks and handlers recorded, with addresses named by the modules that were mapped. The last of a process
//! is its cause of death, unless the process went on afterwards.

use crate::table::plain;
use lastwords_formats::events::each;
use lastwords_formats::select::Selection;
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::merge::{Event, Merge};
use lastwords_trace::schema::{Field, Schema};
use lastwords_trace::source::Source;
use lastwords_trace::value::{Value, Values};
use lastwords_walk::own::Session;
use lastwords_walk::own::info::{Info, Module};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// What the events' names begin with.
const PROVIDER: &str = "crash:";

/// One recorded panic or signal.
#[derive(Debug, Serialize)]
pub(crate) struct Cause {
    /// `crash:signal` or `crash:panic`.
    pub(crate) event: String,
    /// Nanoseconds since the epoch, as text.
    pub(crate) time_ns: String,
    /// Process and thread, where the event says them.
    pub(crate) fields: Vec<(String, String)>,
    /// Events that the process recorded later.
    pub(crate) later_events: u64,
    /// Nothing shows that the process survived it.
    pub(crate) is_cause_of_death: bool,
    /// Addresses, innermost first.
    pub(crate) backtrace: Vec<Frame>,
    #[serde(skip)]
    nanoseconds: i64,
    #[serde(skip)]
    pid: Option<u32>,
}

/// An address.
#[derive(Debug, Serialize)]
pub(crate) struct Frame {
    /// The address.
    pub(crate) address: String,
    /// The module it lies in.
    pub(crate) module: Option<String>,
    /// The address less the module's load bias: what symbolizers take.
    pub(crate) offset: Option<String>,
    /// The module's build id.
    pub(crate) build_id: Option<String>,
}

/// All panics and signals that were recorded, in order of time.
pub(crate) fn causes(session: &Session) -> Vec<Cause> {
    let source: &dyn Source = session;
    let schema = source.schema();
    let has = |channel: usize| schema.channels.get(channel).is_some_and(|c| c.events.iter().any(|e| is_crash(&e.name)));
    let sources = [source];
    let mut merge =
        Merge::new(&sources, Rounding::Floor, |_, s| source.streams().get(s).is_some_and(|s| has(s.channel)));
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut causes = Vec::new();
    while let Some(event) = merge.next() {
        let class = &schema.channels[event.channel].events[event.raw.class];
        // A channel for errors has the same event once more.
        if is_crash(&class.name) && !seen.iter().any(|payload| payload == event.payload()) {
            seen.push(event.payload().to_vec());
            causes.push(cause(schema, &event, &session.info().modules));
        }
    }
    if !causes.is_empty() {
        judge(&mut causes, source, session.info());
    }
    causes
}

/// Counts what each process recorded after its panics and signals. In a session of several processes, events without a process
/// id in their contexts count for none.
fn judge(causes: &mut [Cause], source: &dyn Source, info: &Info) {
    let schema = source.schema();
    let is_shared = info.scope_word() != "process";
    let from = causes.first().map(|cause| cause.nanoseconds);
    let selection = Selection { since: from, once: true, ..Selection::default() };
    // By process, and how many panics and signals came before the event.
    let mut events: BTreeMap<(Option<u32>, usize), u64> = BTreeMap::new();
    each(&[source], &selection, Rounding::Floor, &mut |event| {
        let channel = &schema.channels[event.channel];
        if is_crash(&channel.events[event.raw.class].name) {
            return;
        }
        let pid = is_shared.then(|| {
            Values::new(&channel.contexts, event.context(), schema.byte_order)
                .find_map(|(field, value)| pid(field, &value))
        });
        let before = causes.partition_point(|cause| cause.nanoseconds < event.nanoseconds);
        *events.entry((pid.flatten(), before)).or_default() += 1;
    });
    for (index, cause) in causes.iter_mut().enumerate() {
        let pid = cause.pid.filter(|_| is_shared);
        let is_known = pid.is_some() || !is_shared;
        let later = events.iter().filter(|((of, before), _)| is_known && *of == pid && *before > index);
        cause.later_events = later.map(|(_, count)| count).sum();
        cause.is_cause_of_death = cause.later_events == 0 && (is_shared || !info.survived());
    }
}

/// The process id, if that is what the field has.
fn pid(field: &Field, value: &Value<'_>) -> Option<u32> {
    let is_pid = field.name == "pid" || field.name == "vpid";
    number(value).filter(|_| is_pid).and_then(|n| u32::try_from(n).ok())
}

fn is_crash(name: &str) -> bool {
    name.starts_with(PROVIDER)
}

fn cause(schema: &Schema, event: &Event<'_>, modules: &[Module]) -> Cause {
    let channel = &schema.channels[event.channel];
    let class = &channel.events[event.raw.class];
    let mut cause = Cause {
        event: class.name.clone(),
        time_ns: Converter::new(&schema.clock, Rounding::Floor).nanoseconds(event.raw.clock).to_string(),
        fields: Vec::new(),
        later_events: 0,
        is_cause_of_death: true,
        backtrace: Vec::new(),
        nanoseconds: event.nanoseconds,
        pid: None,
    };
    let contexts = Values::new(&channel.contexts, event.context(), schema.byte_order);
    for (field, value) in contexts.chain(Values::new(&class.fields, event.payload(), schema.byte_order)) {
        cause.pid = pid(field, &value).or(cause.pid);
        match value {
            Value::Elements(addresses) if field.name == "backtrace" => {
                let addresses = addresses.filter_map(|v| number(&v));
                cause.backtrace = addresses.map(|a| frame(a, cause.pid, modules)).collect();
            }
            value => cause.fields.push((field.name.clone(), text(&value))),
        }
    }
    cause
}

fn number(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Unsigned { value, .. } => Some(*value),
        Value::Signed { value, .. } => u64::try_from(*value).ok(),
        _ => None,
    }
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Unsigned { value, base: 16 } => format!("{value:#x}"),
        Value::Unsigned { value, .. } => value.to_string(),
        Value::Signed { value, .. } => value.to_string(),
        Value::Single(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Bool(value) => (*value != 0).to_string(),
        Value::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Bytes(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        Value::Enum(value) => value.matching().next().map_or_else(|| value.value.to_string(), ToOwned::to_owned),
        Value::Elements(elements) => elements.map(|v| text(&v)).collect::<Vec<_>>().join(" "),
    }
}

fn frame(address: u64, pid: Option<u32>, modules: &[Module]) -> Frame {
    let holds = |m: &&Module| pid.is_none_or(|pid| pid == m.pid) && (m.start..m.end).contains(&address);
    let module = modules.iter().find(holds);
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    Frame {
        address: format!("{address:#x}"),
        module: module.map(|m| m.path.clone()),
        offset: module.map(|m| format!("{:#x}", address.wrapping_sub(m.base))),
        build_id: module.filter(|m| !m.build_id.is_empty()).map(|m| hexadecimal(&m.build_id)),
    }
}

/// Frames of a backtrace that a person is shown.
const FRAMES: usize = 20;

/// Prints panics and signals for people: a line for each that the process survived; backtraces of the others, and what was the
/// cause of death last.
pub(crate) fn write(causes: &[Cause], out: &mut dyn Write) -> io::Result<()> {
    let (fatal, survived): (Vec<&Cause>, Vec<&Cause>) = causes.iter().partition(|cause| cause.is_cause_of_death);
    for cause in survived {
        let how = match cause.later_events {
            0 => "the session was ended in good order afterwards".to_owned(),
            1 => "the process went on for 1 event".to_owned(),
            events => format!("the process went on for {events} events"),
        };
        writeln!(out, "  {}; {how}", headline(cause))?;
    }
    for cause in &fatal {
        if !cause.backtrace.is_empty() {
            writeln!(out, "  backtrace of {}, innermost first:", cause.event)?;
        }
        for frame in cause.backtrace.iter().take(FRAMES) {
            match (&frame.module, &frame.offset) {
                (Some(module), Some(offset)) => writeln!(out, "    {} {}+{offset}", frame.address, plain(module))?,
                _ => writeln!(out, "    {}", frame.address)?,
            }
        }
        if let Some(more) = cause.backtrace.len().checked_sub(FRAMES).filter(|more| *more > 0) {
            writeln!(out, "    ... and {more} more; `inspect --json` lists all")?;
        }
    }
    fatal.iter().try_for_each(|cause| writeln!(out, "  cause of death: {}", headline(cause)))
}

fn headline(cause: &Cause) -> String {
    let fields: Vec<String> = cause.fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    format!("{} {}", cause.event, fields.join(" "))
}
