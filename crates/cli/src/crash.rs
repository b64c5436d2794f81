//! Causes of death that panic hooks and signal handlers recorded, with addresses named by the modules that were mapped.

use crate::table::plain;
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::merge::{Event, Merge};
use lastwords_trace::schema::Schema;
use lastwords_trace::source::Source;
use lastwords_trace::value::{Value, Values};
use lastwords_walk::own::Session;
use lastwords_walk::own::info::Module;
use serde::Serialize;
use std::io::{self, Write};

/// What the events' names begin with.
const PROVIDER: &str = "crash:";

/// One recorded cause.
#[derive(Debug, Serialize)]
pub(crate) struct Cause {
    /// `crash:signal` or `crash:panic`.
    pub(crate) event: String,
    /// Nanoseconds since the epoch, as text.
    pub(crate) time_ns: String,
    /// Process and thread, where the event says them.
    pub(crate) fields: Vec<(String, String)>,
    /// Addresses, innermost first.
    pub(crate) backtrace: Vec<Frame>,
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

/// All causes that were recorded, in order of time.
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
    causes
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
        backtrace: Vec::new(),
    };
    let mut pid = None;
    let contexts = Values::new(&channel.contexts, event.context(), schema.byte_order);
    for (field, value) in contexts.chain(Values::new(&class.fields, event.payload(), schema.byte_order)) {
        if field.name == "pid" || field.name == "vpid" {
            pid = number(&value).and_then(|n| u32::try_from(n).ok());
        }
        match value {
            Value::Elements(addresses) if field.name == "backtrace" => {
                let addresses = addresses.filter_map(|v| number(&v));
                cause.backtrace = addresses.map(|a| frame(a, pid, modules)).collect();
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

/// Prints causes for people.
pub(crate) fn write(causes: &[Cause], out: &mut dyn Write) -> io::Result<()> {
    for cause in causes {
        let fields: Vec<String> = cause.fields.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
        writeln!(out, "  cause of death: {} {}", cause.event, fields.join(" "))?;
        for frame in &cause.backtrace {
            match (&frame.module, &frame.offset) {
                (Some(module), Some(offset)) => writeln!(out, "    {} {}+{offset}", frame.address, plain(module))?,
                _ => writeln!(out, "    {}", frame.address)?,
            }
        }
    }
    Ok(())
}
