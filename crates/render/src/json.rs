//! Writes events as JSON lines. docs/JSON.md describes the format.

mod fields;

use crate::choose::Chosen;
use crate::events::{self, Line, Note, Out};
use crate::select::Selection;
use crate::streams::{StreamInfo, channel, scope_code, stream_infos};
use crate::text::format_of;
use crate::text::time::Rfc3339;
use crate::{Error, Result, Totals};
pub use fields::{Fields, Plan};
use lastwords_ctf::read::{Due, Next, Reader, Trace, Watch, readers};
use lastwords_ctf::uuid_text;
use lastwords_trace::class::{EventClass, Scope};
use lastwords_trace::clock::Rounding;
use lastwords_trace::parallel;
use lastwords_trace::schema::EnvValue;
use lastwords_trace::text::number::{octet, unsigned};
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write;
use std::rc::Rc;

/// Name of the format of the lines. The name changes when the format changes so that readers of the
/// old one would misread it.
pub const SCHEMA: &str = "lastwords.events.v1";

/// Writes the selected events of `traces`, merged by time, to `out`: first one line that describes
/// the traces, then one line for each event. Errors of reading go to `notes`. `watch` receives the
/// number of bytes that were read. Traces without an account are read twice: first all of their
/// streams, to find losses, then the selected streams.
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
    let mut totals = events::write(chosen, &mut lines, Out::File(out), notes)?;
    totals.bytes = totals.bytes.saturating_add(head.len() as u64);
    Ok(totals)
}

fn head(traces: &[Trace], watch: Watch<'_>) -> String {
    let readers = readers(traces);
    let facts = stream_infos(traces, &readers);
    let heads: Vec<_> = traces
        .iter()
        .enumerate()
        .map(|(number, trace)| head_of(number, trace, &readers, &facts, watch))
        .collect();
    safe(&format!("{}\n", json!({ "schema": SCHEMA, "traces": heads })))
}

fn head_of(
    number: usize,
    trace: &Trace,
    readers: &[(usize, Reader<'_>)],
    facts: &[StreamInfo],
    watch: Watch<'_>,
) -> serde_json::Value {
    let class = trace.class();
    let value = |value: &EnvValue| match value {
        EnvValue::Text(text) => json!(text),
        EnvValue::Integer(number) => json!(number),
    };
    let env: Map<String, serde_json::Value> =
        class.env.iter().map(|(k, v)| (k.clone(), value(v))).collect();
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
    let name = trace.title();
    let uuid = class.uuid.map(|uuid| uuid_text(&uuid));
    let losses = match &trace.account {
        Some(account) => account.evidence().has_losses(),
        None => has_losses(trace, watch) || trace.unread > 0,
    };
    json!({ "name": name, "uuid": uuid, "env": env, "clock": clock, "streams": streams, "losses": losses })
}

/// Returns true if the packets of the trace report losses or a part of the trace cannot be read.
/// Reads the whole trace, one stream on each CPU.
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

struct Lines<'t> {
    traces: &'t [Trace],
    streams: Vec<Option<Stream<'t>>>,
    moment: Rfc3339,
}

/// A stream whose events are written.
struct Stream<'t> {
    /// Position of its trace.
    trace: usize,
    /// The members `trace`, `stream` and `cpu`, which are the same for all events of the stream.
    numbers: Vec<u8>,
    class: Rc<Prepared<'t>>,
}

/// A stream class.
struct Prepared<'t> {
    /// The events have times.
    is_timed: bool,
    context: Option<Plan<'t>>,
    events: Vec<Class<'t>>,
}

/// An event class.
struct Class<'t> {
    /// The members from `channel` to `level` and `format`.
    head: String,
    specific: Option<Plan<'t>>,
    payload: Option<Plan<'t>>,
}

impl<'t> Lines<'t> {
    fn new(chosen: &Chosen<'t>) -> Self {
        let mut classes = BTreeMap::new();
        // A stream whose class is missing has no events, and keeps its place.
        let streams = chosen.facts.iter().map(|facts| {
            let class = match classes.entry((facts.trace, facts.class)) {
                Entry::Occupied(known) => Rc::clone(known.get()),
                Entry::Vacant(place) => {
                    Rc::clone(place.insert(Rc::new(prepared(chosen.traces, facts)?)))
                }
            };
            Some(Stream { trace: facts.trace, numbers: stream_numbers(facts), class })
        });
        let streams = streams.collect();
        Self { traces: chosen.traces, streams, moment: Rfc3339::default() }
    }
}

/// Returns `,"trace":0,"stream":1,"cpu":1`.
fn stream_numbers(facts: &StreamInfo) -> Vec<u8> {
    let mut out = b",\"trace\":".to_vec();
    unsigned(&mut out, facts.trace as u64);
    out.extend_from_slice(b",\"stream\":");
    unsigned(&mut out, facts.number);
    if let Some(cpu) = facts.cpu {
        out.extend_from_slice(b",\"cpu\":");
        unsigned(&mut out, u64::from(cpu));
    }
    out
}

fn prepared<'t>(traces: &'t [Trace], facts: &StreamInfo) -> Option<Prepared<'t>> {
    let trace = traces.get(facts.trace)?;
    let class = trace.class().streams.get(facts.class)?;
    let plan = |scope, event| scope_code(trace, scope, facts.class, event).map(Plan::new);
    let event = |(at, event): (usize, &EventClass)| {
        let name = event.name.as_deref().unwrap_or("<unknown>");
        let mut head = format!(",\"channel\":{},\"event\":{}", json!(channel(class)), json!(name));
        if let Some(severity) = event.log_level {
            head.push_str(&format!(",\"level\":\"{}\"", severity.word()));
        }
        let format = format_of(event);
        if !format.is_empty() {
            head.push_str(&format!(",\"format\":{}", json!(format)));
        }
        Class {
            head: safe(&head),
            specific: plan(Scope::SpecificContext, at),
            payload: plan(Scope::Payload, at),
        }
    };
    Some(Prepared {
        is_timed: class.clock.is_some(),
        context: plan(Scope::CommonContext, 0),
        events: class.events.iter().enumerate().map(event).collect(),
    })
}

impl Line for Lines<'_> {
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>) {
        let Some(Some(stream)) = self.streams.get(stream) else { return };
        let prepared = &*stream.class;
        let Some(class) = prepared.events.get(event.class) else { return };
        let Some(trace) = self.traces.get(stream.trace) else { return };
        out.push(b'{');
        if let Some(nanoseconds) = event.nanoseconds.filter(|_| prepared.is_timed) {
            out.extend_from_slice(b"\"time\":\"");
            self.moment.put(nanoseconds, out);
            out.extend_from_slice(b"\",");
        }
        out.extend_from_slice(b"\"ticks\":");
        unsigned(out, event.clock);
        out.extend_from_slice(&stream.numbers);
        out.extend_from_slice(class.head.as_bytes());
        let (_, decoder, part) = reader.parts();
        let mut at = Some(event.body);
        let mut scope = |out: &mut Vec<u8>, plan: &Plan<'_>| {
            let mut fields = Fields::new(out, plan);
            at = at.and_then(|at| {
                trace.program.visit(decoder, plan.code, &part, at, &mut fields).ok()
            });
        };
        let contexts = [&prepared.context, &class.specific];
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

/// Appends the shortest digits from which the same number is read. Values that JSON cannot express
/// become the strings `"NaN"`, `"inf"` and `"-inf"`.
fn float(out: &mut Vec<u8>, finite: bool, value: impl std::fmt::Debug) {
    let quote = if finite { "" } else { "\"" };
    let _ = write!(out, "{quote}{value:?}{quote}");
}

/// Appends bytes as a string of hexadecimal digits.
fn octets(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        out.extend_from_slice(&octet(*byte));
    }
    out.push(b'"');
}

/// Appends a JSON string. Bytes that are not UTF-8 become U+FFFD. In addition to what JSON
/// requires, all characters that could control a terminal are escaped.
pub(crate) fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    // Most text needs no escapes.
    let (plain, rest) = text.split_at_checked(plain(text)).unwrap_or((&[], text));
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

/// Returns the number of bytes at the beginning of a text that need no escapes.
fn plain(text: &[u8]) -> usize {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') & !matches!(byte, b'"' | b'\\');
    // The compiler checks all bytes of a block with vector instructions.
    let (blocks, _) = text.as_chunks::<16>();
    let blocks =
        blocks.iter().take_while(|block| block.iter().fold(true, |all, byte| all & is_plain(byte)));
    let whole = blocks.count().saturating_mul(16);
    let rest = text.get(whole..).unwrap_or_default();
    whole.saturating_add(rest.iter().take_while(|byte| is_plain(byte)).count())
}

/// Escapes the characters of serialized JSON that JSON allows but that could control a terminal.
/// Line feeds are kept.
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
        out.extend_from_slice(&octet(high));
        out.extend_from_slice(&octet(low));
    } else {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text is checked in blocks. A character that needs an escape must be found at every position.
    #[test]
    fn characters_are_escaped_at_every_position() {
        for length in 0..70 {
            for at in 0..length {
                for (odd, escaped) in [
                    ("\"", "\\\""),
                    ("\\", "\\\\"),
                    ("\n", "\\n"),
                    ("\u{7f}", "\\u007f"),
                    ("\u{e9}", "\u{e9}"),
                ] {
                    let (before, behind) = ("x".repeat(at), "~ ".repeat(length - at));
                    let mut out = Vec::new();
                    text(&mut out, format!("{before}{odd}{behind}").as_bytes());
                    assert_eq!(
                        String::from_utf8(out).unwrap(),
                        format!("\"{before}{escaped}{behind}\"")
                    );
                }
            }
        }
    }

    /// The text that is kept for one second must not be used for another.
    #[test]
    fn times_from_the_cache_are_correct() {
        let mut cached = Rfc3339::default();
        for nanoseconds in [
            0,
            999_999_999,
            1_000_000_000,
            -1,
            -1_000_000_000,
            86_399_999_999_999,
            86_400_000_000_000,
            5,
            i64::MAX,
        ] {
            let (mut actual, mut expected) = (Vec::new(), Vec::new());
            cached.put(nanoseconds, &mut actual);
            Rfc3339::default().put(nanoseconds, &mut expected);
            assert_eq!(actual, expected);
        }
        let mut out = Vec::new();
        cached.put(1_795_505_501_419_089_001, &mut out);
        assert_eq!(out, b"2026-11-24T07:31:41.419089001Z");
    }
}
