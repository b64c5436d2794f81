//! Events as JSON lines: docs/JSON.md.

mod fields;

use crate::events::{self, Chosen, Facts, Line, Note, channel, facts};
use crate::select::Selection;
use crate::text::format_of;
use crate::text::number::unsigned;
use crate::text::time::rfc3339;
use crate::{Error, Result, Totals};
use fields::{Fields, Plan};
use lastwords_ctf::read::{Due, Next, Reader, Trace, Watch, readers};
use lastwords_ctf::uuid_text;
use lastwords_trace::class::{EventClass, LogLevel, Scope};
use lastwords_trace::clock::Rounding;
use lastwords_trace::parallel;
use lastwords_trace::schema::EnvValue;
use serde_json::{Map, json};
use std::io::Write;

/// Names the layout of the lines; changes when a reader of the old one would misread.
pub const SCHEMA: &str = "lastwords.events.v1";

/// Writes the selected events of `traces`, merged by time, to `out`: a line that describes them, then a line an event. What cannot
/// be read goes to `notes`, and how many bytes were read to `watch`: of traces without an account all streams once, for losses,
/// then those that are wanted.
///
/// # Errors
/// `out` cannot be written.
pub fn write(
    traces: &[Trace],
    selection: &Selection,
    out: &mut dyn Write,
    watch: Watch<'_>,
    notes: &mut dyn FnMut(Note),
) -> Result<Totals> {
    let head = head(traces, watch);
    out.write_all(head.as_bytes()).map_err(Error::Output)?;
    let chosen = Chosen::last(traces, selection, Rounding::Floor, watch);
    let mut lines = Lines::new(&chosen);
    let mut totals = events::write(chosen, &mut lines, out, notes)?;
    totals.bytes += head.len() as u64;
    Ok(totals)
}

fn head(traces: &[Trace], watch: Watch<'_>) -> String {
    let readers = readers(traces);
    let facts = facts(traces, &readers);
    let heads: Vec<_> =
        traces.iter().enumerate().map(|(number, trace)| head_of(number, trace, &readers, &facts, watch)).collect();
    safe(&format!("{}\n", json!({ "schema": SCHEMA, "traces": heads })))
}

fn head_of(
    number: usize,
    trace: &Trace,
    readers: &[(usize, Reader<'_>)],
    facts: &[Facts],
    watch: Watch<'_>,
) -> serde_json::Value {
    let class = trace.class();
    let value = |value: &EnvValue| match value {
        EnvValue::Text(text) => json!(text),
        EnvValue::Integer(number) => json!(number),
    };
    let env: Map<String, serde_json::Value> = class.env.iter().map(|(k, v)| (k.clone(), value(v))).collect();
    let own = readers.iter().zip(facts).filter(|(_, facts)| facts.trace == number);
    let streams: Vec<_> = own
        .map(|((_, reader), facts)| {
            let channel = class.streams.get(facts.class).map(channel);
            json!({ "channel": channel, "instance": reader.stream().id, "cpu": facts.cpu })
        })
        .collect();
    let clock = class.clocks.first().map(|clock| {
        let of = clock.to_clock();
        json!({
            "name": of.name,
            "frequency": of.frequency,
            "offset_seconds": of.offset_seconds,
            "offset_ticks": of.offset_ticks,
            "absolute": of.absolute,
        })
    });
    let name = class.text("trace_name").or(class.identity.name.as_deref()).unwrap_or_else(|| trace.name());
    let uuid = class.uuid.map(|uuid| uuid_text(&uuid));
    let losses = match &trace.account {
        Some(account) => account.has_losses(),
        None => has_losses(trace, watch) || trace.unread > 0,
    };
    json!({ "name": name, "uuid": uuid, "env": env, "clock": clock, "streams": streams, "losses": losses })
}

/// Its packets tell of losses, or something of it cannot be read: all of it is passed over once, a stream on each CPU.
fn has_losses(trace: &Trace, watch: Watch<'_>) -> bool {
    let lost = parallel::map(&trace.streams, parallel::cpus(), |_, stream| {
        let mut is_lost = false;
        let pass = |reader: &mut Reader<'_>| _ = reader.pass();
        Reader::new(trace, stream).watched(watch).each(pass, |_, next| {
            is_lost = matches!(next, Next::Loss(_) | Next::Fault(_));
            is_lost
        });
        is_lost
    });
    lost.into_iter().any(|lost| lost)
}

/// A severity as one word.
fn level(level: LogLevel) -> &'static str {
    match level.number() {
        0..=3 => "error",
        4 => "warn",
        5 | 6 => "info",
        13 => "trace",
        _ => "debug",
    }
}

struct Lines<'t> {
    traces: &'t [Trace],
    streams: Vec<Stream<'t>>,
}

/// A stream that is written.
struct Stream<'t> {
    facts: Facts,
    /// Its events have times.
    is_timed: bool,
    context: Option<Plan<'t>>,
    events: Vec<Class<'t>>,
}

struct Class<'t> {
    /// From the channel's name to the level and the format.
    head: String,
    specific: Option<Plan<'t>>,
    payload: Option<Plan<'t>>,
}

impl<'t> Lines<'t> {
    fn new(chosen: &Chosen<'t>) -> Self {
        let streams = chosen.facts.iter().filter_map(|facts| stream(chosen.traces, facts)).collect();
        Self { traces: chosen.traces, streams }
    }
}

fn stream<'t>(traces: &'t [Trace], facts: &Facts) -> Option<Stream<'t>> {
    let trace = traces.get(facts.trace)?;
    let class = trace.class().streams.get(facts.class)?;
    let plan = |scope, event| {
        trace.class().scope(scope, facts.class, event)?;
        trace.program.code(scope, facts.class, event).map(Plan::new)
    };
    let event = |(at, event): (usize, &EventClass)| {
        let name = event.name.as_deref().unwrap_or("<unknown>");
        let mut head = format!(",\"channel\":{},\"event\":{}", json!(channel(class)), json!(name));
        if let Some(severity) = event.log_level {
            head.push_str(&format!(",\"level\":\"{}\"", level(severity)));
        }
        let format = format_of(event);
        if !format.is_empty() {
            head.push_str(&format!(",\"format\":{}", json!(format)));
        }
        Class { head: safe(&head), specific: plan(Scope::SpecificContext, at), payload: plan(Scope::Payload, at) }
    };
    Some(Stream {
        facts: facts.clone(),
        is_timed: class.clock.is_some(),
        context: plan(Scope::CommonContext, 0),
        events: class.events.iter().enumerate().map(event).collect(),
    })
}

impl Line for Lines<'_> {
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get(stream) else { return };
        let Some(class) = stream.events.get(event.class) else { return };
        let Some(trace) = self.traces.get(stream.facts.trace) else { return };
        out.push(b'{');
        if let Some(nanoseconds) = event.nanoseconds.filter(|_| stream.is_timed) {
            out.extend_from_slice(b"\"time\":\"");
            rfc3339(nanoseconds, out);
            out.extend_from_slice(b"\",");
        }
        out.extend_from_slice(b"\"ticks\":");
        unsigned(out, event.clock);
        out.extend_from_slice(b",\"trace\":");
        unsigned(out, stream.facts.trace as u64);
        out.extend_from_slice(b",\"stream\":");
        unsigned(out, stream.facts.number);
        if let Some(cpu) = stream.facts.cpu {
            out.extend_from_slice(b",\"cpu\":");
            unsigned(out, u64::from(cpu));
        }
        out.extend_from_slice(class.head.as_bytes());
        let (_, decoder, part) = reader.parts();
        let mut at = Some(event.body);
        let mut scope = |out: &mut Vec<u8>, plan: &Plan<'_>| {
            let mut fields = Fields::new(out, plan);
            at = at.and_then(|at| trace.program.visit(decoder, plan.code, &part, at, &mut fields).ok());
        };
        let contexts = [&stream.context, &class.specific];
        for (number, plan) in contexts.into_iter().flatten().enumerate() {
            if number == 0 {
                out.extend_from_slice(b",\"context\":{");
            }
            scope(out, plan);
        }
        if contexts.iter().any(|plan| plan.is_some()) {
            out.push(b'}');
        }
        out.extend_from_slice(b",\"fields\":{");
        class.payload.iter().for_each(|plan| scope(out, plan));
        out.extend_from_slice(b"}}\n");
    }
}

/// The shortest digits that read back the same; what is not a number, as a string: `"NaN"`, `"inf"`, `"-inf"`.
fn float(out: &mut Vec<u8>, finite: bool, value: impl std::fmt::Debug) {
    let quote = if finite { "" } else { "\"" };
    let _ = write!(out, "{quote}{value:?}{quote}");
}

pub(crate) fn octets(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        out.extend_from_slice(&hexadecimal(*byte));
    }
    out.push(b'"');
}

/// A JSON string; bytes that are not UTF-8 become U+FFFD. Beyond what JSON asks, everything that could steer a terminal
/// is escaped.
pub(crate) fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    // Most text needs nothing.
    let plain = text.iter().position(|byte| !matches!(byte, b' '..=b'~') || matches!(byte, b'"' | b'\\'));
    let (plain, rest) = text.split_at(plain.unwrap_or(text.len()));
    out.extend_from_slice(plain);
    for chunk in rest.utf8_chunks() {
        for c in chunk.valid().chars() {
            character(out, c);
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

/// Serialized JSON in which what could steer a terminal, and JSON lets pass, is escaped. Line feeds stay.
#[must_use]
pub fn safe(json: &str) -> String {
    let mut out = Vec::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' | '"' | '\\' => out.push(c as u8),
            c => character(&mut out, c),
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

fn character(out: &mut Vec<u8>, c: char) {
    let short = match c {
        '"' | '\\' => c as u8,
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        _ => 0,
    };
    if short != 0 {
        out.extend_from_slice(&[b'\\', short]);
    } else if lastwords_ctf::names::is_unsafe(c) {
        let [high, low] = (c as u16).to_be_bytes();
        out.extend_from_slice(b"\\u");
        out.extend_from_slice(&hexadecimal(high));
        out.extend_from_slice(&hexadecimal(low));
    } else {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

fn hexadecimal(byte: u8) -> [u8; 2] {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    [digit(byte >> 4), digit(byte)]
}
