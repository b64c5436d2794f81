//! CTF traces of others as JSON lines, in the layout of sessions' (docs/JSON.md).

use super::{SCHEMA, float, octets, safe, text};
use crate::Totals;
use crate::last::LastLines;
use crate::select::Selection;
use crate::text::number::{signed, unsigned};
use crate::text::time::rfc3339;
use lastwords_ctf::program::Code;
use lastwords_ctf::read::{Due, Error, Loss, Next, Reader, Sink, Trace, Watch, cpu, readers, run};
use lastwords_trace::class::{EventClass, Scope};
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::parallel;
use lastwords_trace::schema::EnvValue;
use lastwords_trace::visit::{NodeId, Shape, Visitor};
use serde_json::{Map, json};
use std::io::Write;

/// Writes the selected events of `traces`, merged by time, to `out`: a line that describes them, then a line an event. What cannot
/// be read is told to `faults`, and what was read to `watch`: all streams once, for losses, then those that are wanted.
///
/// # Errors
/// `out` cannot be written.
pub fn write(
    traces: &[Trace],
    selection: &Selection,
    out: &mut dyn Write,
    watch: Watch<'_>,
    faults: &mut dyn FnMut(Error),
) -> crate::Result<Totals> {
    let mut readers: Vec<_> =
        readers(traces).into_iter().map(|(trace, reader)| (trace, reader.watched(watch))).collect();
    let cpus: Vec<Option<u32>> =
        readers.iter().map(|(trace, reader)| traces.get(*trace).and_then(|t| cpu(t, reader.stream()))).collect();
    let head = safe(&format!("{}\n", json!({ "schema": SCHEMA, "traces": heads(traces, &readers, &cpus, watch) })));
    out.write_all(head.as_bytes()).map_err(crate::Error::Output)?;
    // A stream's number is that of the first line, counted in its trace.
    let mut counts = vec![0u64; traces.len()];
    let mut numbers = Vec::new();
    for (trace, _) in &readers {
        let count = counts.get_mut(*trace);
        numbers.push(count.as_deref().copied().unwrap_or(0));
        count.into_iter().for_each(|count| *count += 1);
    }
    let wanted: Vec<bool> = cpus.iter().map(|cpu| selection.wants_cpu(*cpu)).collect();
    let all = readers.iter().zip(cpus).zip(numbers).zip(&wanted);
    let streams: Vec<State> = all
        .filter(|(_, wanted)| **wanted)
        .map(|(((reader, cpu), number), _)| State::new(traces, reader, selection, cpu, number))
        .collect();
    let mut wanted = wanted.into_iter();
    readers.retain(|_| wanted.next() == Some(true));
    let mut last = selection.last.map(LastLines::new);
    let sink: &mut dyn Write = match &mut last {
        Some(last) => last,
        None => out,
    };
    let totals = Totals { streams: streams.len() as u64, bytes: head.len() as u64, ..Totals::default() };
    let mut lines = Lines { traces, streams, selection, out: sink, line: Vec::new(), failed: None, faults, totals };
    run(&mut readers, &mut lines);
    let Lines { failed, mut totals, .. } = lines;
    if let Some(failed) = failed {
        return Err(crate::Error::Output(failed));
    }
    if let Some(last) = last {
        let lines = last.lines();
        (totals.events, totals.bytes) = (lines.len() as u64, head.len() as u64);
        for line in lines {
            totals.bytes += line.len() as u64;
            out.write_all(&line).map_err(crate::Error::Output)?;
        }
    }
    Ok(totals)
}

fn heads(
    traces: &[Trace],
    readers: &[(usize, Reader<'_>)],
    cpus: &[Option<u32>],
    watch: Watch<'_>,
) -> Vec<serde_json::Value> {
    let of = |(number, trace): (usize, &Trace)| {
        let class = trace.class();
        let value = |value: &EnvValue| match value {
            EnvValue::Text(text) => json!(text),
            EnvValue::Integer(number) => json!(number),
        };
        let env: Map<String, serde_json::Value> = class.env.iter().map(|(k, v)| (k.clone(), value(v))).collect();
        let own = readers.iter().zip(cpus).filter(|((trace, _), _)| *trace == number);
        let streams: Vec<_> = own
            .map(|((_, reader), cpu)| {
                let stream = reader.stream();
                json!({ "channel": channel(trace, stream.class), "instance": stream.id, "cpu": cpu })
            })
            .collect();
        let clock = class.clocks.first().map(|clock| {
            let of = clock.to_clock();
            json!({
                "name": clock.id,
                "frequency": of.frequency,
                "offset_seconds": of.offset_seconds,
                "offset_ticks": of.offset_ticks,
                "absolute": of.absolute,
            })
        });
        let name = class.text("trace_name").unwrap_or_else(|| trace.name());
        let uuid = class.uuid.map(|uuid| lastwords_ctf::uuid_text(&uuid));
        json!({ "name": name, "uuid": uuid, "env": env, "clock": clock, "streams": streams, "losses": has_losses(trace, watch) })
    };
    traces.iter().enumerate().map(of).collect()
}

/// A stream class's name, else its id.
fn channel(trace: &Trace, class: usize) -> String {
    let class = trace.class().streams.get(class);
    class
        .map_or_else(String::new, |class| if class.name.is_empty() { class.id.to_string() } else { class.name.clone() })
}

/// Its packets tell of losses, or something of it cannot be read: all of it is passed over once, a stream on each CPU.
fn has_losses(trace: &Trace, watch: Watch<'_>) -> bool {
    let lost = parallel::map(&trace.streams, parallel::cpus(), |_, stream| {
        let mut reader = Reader::new(trace, stream).watched(watch);
        loop {
            match reader.advance() {
                Next::Event(_) => {
                    reader.pass();
                }
                Next::Packet => {}
                Next::Loss(_) | Next::Fault(_) => {
                    reader.leave();
                    return true;
                }
                Next::End => return false,
            }
        }
    });
    lost.into_iter().any(|lost| lost)
}

struct State {
    trace: usize,
    number: u64,
    cpu: Option<u32>,
    channel: String,
    /// By event class: its name, and whether events of it are shown.
    events: Vec<(String, bool)>,
    /// Rounds as for sessions, which babeltrace2 does not.
    clock: Option<Converter>,
}

impl State {
    fn new(
        traces: &[Trace],
        (trace, reader): &(usize, Reader<'_>),
        selection: &Selection,
        cpu: Option<u32>,
        number: u64,
    ) -> Self {
        let class = reader.stream().class;
        let of = traces.get(*trace);
        let described = of.and_then(|of| of.class().streams.get(class));
        let clock = of.and_then(|of| of.class().clocks.get(described?.clock?));
        let clock = clock.map(|clock| Converter::new(&clock.to_clock(), Rounding::Floor));
        let event = |event: &EventClass| {
            let name = event.name.as_deref().unwrap_or("<unknown>");
            (name.to_owned(), selection.wants_name(name))
        };
        let events = described.map_or_else(Vec::new, |of| of.events.iter().map(event).collect());
        let channel = of.map_or_else(String::new, |of| channel(of, class));
        Self { trace: *trace, number, cpu, channel, events, clock }
    }
}

struct Lines<'a> {
    traces: &'a [Trace],
    streams: Vec<State>,
    selection: &'a Selection,
    out: &'a mut dyn Write,
    line: Vec<u8>,
    failed: Option<std::io::Error>,
    faults: &'a mut dyn FnMut(Error),
    totals: Totals,
}

impl Sink for Lines<'_> {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let Some(state) = self.streams.get_mut(stream) else { return true };
        let Some(trace) = self.traces.get(state.trace) else { return true };
        let Some((name, wanted)) = state.events.get(event.class) else { return true };
        if !wanted || event.nanoseconds.is_some_and(|moment| !self.selection.wants_time(moment)) {
            return true;
        }
        self.line.clear();
        let time = state.clock.as_mut().map(|clock| clock.nanoseconds(event.clock));
        head(&mut self.line, state, event, time, name);
        scopes(&mut self.line, trace, reader, event);
        self.line.extend_from_slice(b"}\n");
        self.totals.events += 1;
        self.totals.bytes += self.line.len() as u64;
        self.failed = self.out.write_all(&self.line).err();
        self.failed.is_none()
    }

    fn packet(&mut self, _: usize, _: &mut Reader<'_>) {
        self.totals.packets += 1;
    }

    fn loss(&mut self, _: usize, _: &mut Reader<'_>, loss: Loss) {
        self.totals.lose(loss);
    }

    fn fault(&mut self, _: usize, fault: Error) {
        self.totals.faults += 1;
        (self.faults)(fault);
    }
}

/// From the time to the event's name.
fn head(out: &mut Vec<u8>, state: &State, event: &Due, nanoseconds: Option<i64>, name: &str) {
    out.push(b'{');
    if let Some(nanoseconds) = nanoseconds {
        out.extend_from_slice(b"\"time\":\"");
        rfc3339(nanoseconds, out);
        out.extend_from_slice(b"\",");
    }
    out.extend_from_slice(b"\"ticks\":");
    unsigned(out, event.clock);
    out.extend_from_slice(b",\"trace\":");
    unsigned(out, state.trace as u64);
    out.extend_from_slice(b",\"stream\":");
    unsigned(out, state.number);
    if let Some(cpu) = state.cpu {
        out.extend_from_slice(b",\"cpu\":");
        unsigned(out, u64::from(cpu));
    }
    out.extend_from_slice(b",\"channel\":");
    text(out, state.channel.as_bytes());
    out.extend_from_slice(b",\"event\":");
    text(out, name.as_bytes());
}

/// The contexts as one object, and the event's own fields as another.
fn scopes(out: &mut Vec<u8>, trace: &Trace, reader: &mut Reader<'_>, event: &Due) {
    let class = reader.stream().class;
    let (program, decoder, part) = reader.parts();
    let mut at = event.body;
    let mut open = false;
    for scope in [Scope::CommonContext, Scope::SpecificContext, Scope::Payload] {
        if scope == Scope::Payload {
            out.extend_from_slice(if open { b"},\"fields\":{" } else { b",\"fields\":{" });
        }
        let described = trace.class().scope(scope, class, event.class).is_some();
        let Some(code) = program.code(scope, class, event.class).filter(|_| described) else { continue };
        if scope != Scope::Payload && !std::mem::replace(&mut open, true) {
            out.extend_from_slice(b",\"context\":{");
        }
        let mut fields = Fields { out, code, depth: 0 };
        match program.visit(decoder, code, &part, at, &mut fields) {
            Ok(end) => at = end,
            // The reader has accepted the same bytes.
            Err(_) => break,
        }
    }
    out.push(b'}');
}

/// Writes the fields of a scope; the braces around all of them are the caller's.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    code: &'a Code,
    depth: usize,
}

impl<'a> Fields<'a> {
    /// Puts the field's name; what it is.
    fn name(&mut self, node: NodeId) -> Option<&'a Shape> {
        let node = self.code.nodes().get(node as usize)?;
        if !node.name.is_empty() {
            if !self.out.ends_with(b"{") {
                self.out.push(b',');
            }
            text(self.out, node.name.as_bytes());
            self.out.push(b':');
        }
        Some(&node.shape)
    }
}

impl Visitor for Fields<'_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        match self.name(node) {
            Some(Shape::Integer { signed: is_signed, mappings, .. }) => {
                let number = |out: &mut Vec<u8>| match is_signed {
                    true => signed(out, value.cast_signed()),
                    false => unsigned(out, value),
                };
                if mappings.is_empty() {
                    return number(self.out);
                }
                self.out.extend_from_slice(b"{\"value\":");
                number(self.out);
                self.out.extend_from_slice(b",\"label\":");
                let value = if *is_signed { i128::from(value.cast_signed()) } else { i128::from(value) };
                match mappings.iter().find(|mapping| mapping.names(value)) {
                    Some(mapping) => text(self.out, mapping.label.as_bytes()),
                    None => self.out.extend_from_slice(b"null"),
                }
                self.out.push(b'}');
            }
            Some(Shape::Bool) => self.out.extend_from_slice(if value == 0 { b"false" } else { b"true" }),
            _ => unsigned(self.out, value),
        }
    }

    fn float(&mut self, node: NodeId, value: f64) {
        match self.name(node) {
            // The shortest digits that read back the same depend on the size.
            Some(Shape::Float(32)) => float(self.out, value.is_finite(), value as f32),
            _ => float(self.out, value.is_finite(), value),
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        self.name(node);
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        text(self.out, bytes.get(..end).unwrap_or_default());
    }

    fn blob(&mut self, node: NodeId, bytes: &[u8]) {
        self.name(node);
        octets(self.out, bytes);
    }

    fn begin(&mut self, node: NodeId) {
        self.name(node);
        if self.depth > 0 {
            self.out.push(b'{');
        }
        self.depth += 1;
    }

    fn end(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 {
            self.out.push(b'}');
        }
    }

    fn begin_array(&mut self, node: NodeId, _: u64) {
        self.name(node);
        self.out.push(b'[');
        self.depth += 1;
    }

    fn element(&mut self, index: u64) {
        if index > 0 {
            self.out.push(b',');
        }
    }

    fn end_array(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
        self.out.push(b']');
    }

    fn begin_case(&mut self, node: NodeId, case: Option<usize>) {
        self.name(node);
        match case {
            Some(_) => self.depth += 1,
            None => self.out.extend_from_slice(b"null"),
        }
    }

    fn end_case(&mut self, _: NodeId) {
        self.depth = self.depth.saturating_sub(1);
    }
}
