//! ftrace's events as JSON lines: docs/JSON.md, `lastwords.ftrace.v1`.

use std::io::Write;

use lastwords_bytes::ByteOrder;
use lastwords_trace::ftrace::{Array, Ring, Tracing};
use serde_json::{Value, json};

use super::choice::{Choice, Chosen};
use super::log::{Log, LogLine};
use super::text::{At, Common, Options, Printer, Summary, irq_flags};
use super::values::{Column, Datum, columns};
use crate::json::{octets, safe, text};
use crate::text::number::{nine, signed, unsigned};
use lastwords_ctf::{Error, Result};

/// Names the layout of the lines; changes when a reader of the old one would misread.
pub const SCHEMA: &str = "lastwords.ftrace.v1";
/// Bytes gathered before they are written.
const CHUNK: usize = 128 << 10;
/// Faults that a summary keeps.
const MOST_NOTES: usize = 100;
const SECOND: u64 = 1_000_000_000;

/// Writes the chosen events of these trace arrays (positions in [`Tracing::arrays`]), merged by time, and the log's records
/// where they belong: a line that describes them, then a line for each.
///
/// # Errors
/// There is no such array, or `out` cannot be written.
pub fn write(
    out: &mut dyn Write,
    tracing: &Tracing,
    arrays: &[usize],
    choice: &Choice,
    mut log: Log<'_>,
) -> Result<Summary> {
    let options = Options { snapshot: choice.snapshot, ..Options::default() };
    let mut chosen = Chosen::new(tracing, arrays, choice)?;
    let mut lines = Lines::new(tracing, arrays, choice, &options)?;
    let mut summary = Summary::default();
    let mut buffer = Vec::with_capacity(2 * CHUNK);
    buffer.extend_from_slice(head(tracing, arrays, choice)?.as_bytes());
    log.skip_to(choice.since.unwrap_or(0));
    if choice.last.is_some() {
        let first = chosen.head().and_then(|part| part.merge.head());
        log.skip_to(first.unwrap_or(0));
    }
    while let Some(part) = chosen.head() {
        let Some(time) = part.merge.head() else { break };
        while let Some((_, line)) = log.before(Some(time)) {
            log_line(&mut buffer, line);
        }
        let common = Common::read(part.merge.payload(), tracing.byte_order);
        let at = At { time, cpu: part.merge.cpu(), lane: part.merge.lane(), common };
        let lost = part.merge.take_lost();
        lines.line(&mut buffer, part.array, at, part.merge.payload(), lost);
        part.merge.advance();
        summary.events += 1;
        if buffer.len() >= CHUNK {
            flush(&mut buffer, out, &mut summary)?;
        }
    }
    while let Some((_, line)) = log.before(choice.until) {
        log_line(&mut buffer, line);
    }
    flush(&mut buffer, out, &mut summary)?;
    out.flush().map_err(Error::Output)?;
    (summary.faults, summary.notes) = chosen.faults();
    summary.notes.extend(lines.printers.iter_mut().flatten().flat_map(|printer| printer.notes.drain(..)));
    summary.notes.truncate(MOST_NOTES);
    Ok(summary)
}

fn flush(buffer: &mut Vec<u8>, out: &mut dyn Write, summary: &mut Summary) -> Result<()> {
    out.write_all(buffer).map_err(Error::Output)?;
    summary.bytes += buffer.len() as u64;
    buffer.clear();
    Ok(())
}

/// The first line.
fn head(tracing: &Tracing, arrays: &[usize], choice: &Choice) -> Result<String> {
    let mut described = Vec::new();
    let mut losses = tracing.evidence.has_losses();
    for index in arrays {
        let ring = choice.ring(tracing, *index)?;
        losses |= ring.is_some_and(|ring| ring.checked().has_losses());
        described.extend(tracing.arrays.get(*index).map(|array| describe(array, ring)));
    }
    let head = json!({
        "schema": SCHEMA,
        "release": tracing.release,
        "uname": tracing.uname,
        "machine": tracing.machine,
        "cpus_online": tracing.cpus,
        "snapshot": choice.snapshot,
        "arrays": described,
        "losses": losses,
    });
    Ok(safe(&format!("{head}\n")))
}

fn describe(array: &Array, ring: Option<&dyn Ring>) -> Value {
    let cpus: Vec<Value> = ring
        .map_or(&[][..], Ring::cpus)
        .iter()
        .map(|cpu| {
            json!({
                "cpu": cpu.cpu,
                "sub_buffers": cpu.sub_buffers,
                "sub_buffer_size": cpu.sub_buffer_size,
                "entries": cpu.stats.entries,
                "overrun": cpu.stats.overrun,
                "dropped_events": cpu.stats.dropped,
            })
        })
        .collect();
    json!({
        "name": array.name,
        "tracer": array.tracer,
        "clock": array.clock,
        "clock_in_ns": array.clock_in_ns,
        "cpus": cpus,
    })
}

/// A kind of event: what its lines have alike.
struct Class<'a> {
    /// `,"event":"sched:sched_switch"`.
    event: Vec<u8>,
    /// What stands before each value (`,"prev_pid":`), and how the value is read.
    fields: Vec<(Vec<u8>, Column<'a>)>,
}

struct Lines<'a> {
    order: ByteOrder,
    /// By array; none for those that are not asked for.
    printers: Vec<Option<Printer<'a>>>,
    /// By array: its name as a JSON string.
    names: Vec<Vec<u8>>,
    in_ns: Vec<bool>,
    /// By id.
    classes: Vec<Option<Class<'a>>>,
    tracing: &'a Tracing,
    scratch: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn new(tracing: &'a Tracing, arrays: &[usize], choice: &Choice, options: &'a Options) -> Result<Self> {
        let mut printers: Vec<Option<Printer<'a>>> = tracing.arrays.iter().map(|_| None).collect();
        for index in arrays {
            let ring = choice.ring(tracing, *index)?;
            if let (Some(array), Some(ring), Some(place)) = (tracing.arrays.get(*index), ring, printers.get_mut(*index))
            {
                *place = Some(Printer::new(tracing, array, ring, options));
            }
        }
        let name = |array: &Array| {
            let mut out = Vec::new();
            text(&mut out, array.name.as_bytes());
            out
        };
        let last = tracing.formats.keys().next_back().map_or(0, |id| usize::from(*id) + 1);
        let mut classes: Vec<Option<Class<'a>>> = Vec::new();
        classes.resize_with(last, || None);
        for (id, format) in &tracing.formats {
            let mut event = b",\"event\":".to_vec();
            text(&mut event, format!("{}:{}", format.system, format.name).as_bytes());
            let named = columns(format, tracing.word_size).into_iter().enumerate().map(|(index, column)| {
                let mut prefix = if index > 0 { b",".to_vec() } else { Vec::new() };
                text(&mut prefix, column.field.name.as_bytes());
                prefix.push(b':');
                (prefix, column)
            });
            let class = Class { event, fields: named.collect() };
            if let Some(place) = classes.get_mut(usize::from(*id)) {
                *place = Some(class);
            }
        }
        Ok(Self {
            order: tracing.byte_order,
            printers,
            names: tracing.arrays.iter().map(name).collect(),
            in_ns: tracing.arrays.iter().map(|array| array.clock_in_ns).collect(),
            classes,
            tracing,
            scratch: Vec::new(),
        })
    }

    /// Appends the line of one event.
    fn line(&mut self, out: &mut Vec<u8>, array: usize, at: At, payload: &[u8], lost: Option<Option<u64>>) {
        let Some(Some(printer)) = self.printers.get_mut(array) else { return };
        moment(out, at.time, self.in_ns.get(array).copied().unwrap_or(false));
        out.extend_from_slice(b",\"cpu\":");
        unsigned(out, u64::from(at.cpu));
        out.extend_from_slice(b",\"array\":");
        out.extend_from_slice(self.names.get(array).map_or(b"\"\"", Vec::as_slice));
        out.extend_from_slice(b",\"pid\":");
        signed(out, i64::from(at.common.pid as i32));
        if let Some(tgid) = self.tracing.tgids.get(&at.common.pid) {
            out.extend_from_slice(b",\"tgid\":");
            unsigned(out, u64::from(*tgid));
        }
        out.extend_from_slice(b",\"comm\":");
        text(out, printer.comm(at.common.pid).as_bytes());
        out.extend_from_slice(b",\"flags\":\"");
        irq_flags(out, at.common);
        out.push(b'"');
        if let Some(lost) = lost {
            out.extend_from_slice(b",\"lost\":");
            match lost {
                Some(count) => unsigned(out, count),
                None => out.extend_from_slice(b"null"),
            }
        }
        match self.classes.get(usize::from(at.common.id)).and_then(Option::as_ref) {
            Some(class) => {
                out.extend_from_slice(&class.event);
                out.extend_from_slice(b",\"fields\":{");
                for (prefix, column) in &class.fields {
                    out.extend_from_slice(prefix);
                    put(out, column.read(payload, self.order));
                }
                out.push(b'}');
            }
            None => {
                out.extend_from_slice(b",\"event\":\"unknown:");
                unsigned(out, u64::from(at.common.id));
                out.extend_from_slice(b"\",\"fields\":{}");
            }
        }
        out.extend_from_slice(b",\"text\":");
        self.scratch.clear();
        printer.body(&mut self.scratch, payload, at);
        text(out, self.scratch.strip_suffix(b"\n").unwrap_or(&self.scratch));
        out.extend_from_slice(b"}\n");
    }
}

/// `{"time":"12.345678901","ticks":12345678901`.
fn moment(out: &mut Vec<u8>, time: u64, in_ns: bool) {
    out.push(b'{');
    if in_ns {
        out.extend_from_slice(b"\"time\":\"");
        unsigned(out, time / SECOND);
        out.push(b'.');
        out.extend_from_slice(&nine((time % SECOND) as u32));
        out.extend_from_slice(b"\",");
    }
    out.extend_from_slice(b"\"ticks\":");
    unsigned(out, time);
}

fn put(out: &mut Vec<u8>, value: Datum<'_>) {
    match value {
        Datum::Unsigned(value) => unsigned(out, value),
        Datum::Signed(value) => signed(out, value),
        Datum::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        Datum::Text(bytes) => text(out, bytes),
        Datum::Bytes(bytes) => octets(out, bytes),
        Datum::Outside => out.extend_from_slice(b"null"),
        Datum::Numbers(numbers) => {
            out.push(b'[');
            for (index, value) in numbers.each().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                put(out, value);
            }
            out.push(b']');
        }
    }
}

fn log_line(out: &mut Vec<u8>, line: &LogLine) {
    out.extend_from_slice(b"{\"log\":{\"time\":\"");
    unsigned(out, line.time / SECOND);
    out.push(b'.');
    out.extend_from_slice(&nine((line.time % SECOND) as u32));
    out.extend_from_slice(b"\",\"level\":");
    unsigned(out, u64::from(line.level));
    out.extend_from_slice(b",\"facility\":");
    unsigned(out, u64::from(line.facility));
    out.extend_from_slice(b",\"text\":");
    text(out, line.text.as_bytes());
    out.extend_from_slice(b"}}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftrace::log::Relation;
    use crate::ftrace::samples::{page, payload, ring, tracing, wake};
    use lastwords_trace::ftrace::Stats;

    fn sample() -> Tracing {
        let stats = Stats { entries: 3, ..Stats::default() };
        let first = page(&[(1_000_000_500, wake(7))], None);
        let second = page(&[(3_000_000_000, wake(0))], Some(4));
        let other = page(&[(2_000_000_000, payload(999, 0, 0, 9, b"abcd"))], None);
        tracing(ring(vec![vec![first, second]], stats), ring(vec![Vec::new(), vec![other]], stats))
    }

    fn lines(arrays: &[usize], choice: &Choice, log: &[LogLine]) -> Vec<Value> {
        let mut out = Vec::new();
        let log = Log::new(log, Relation::Ahead(0));
        let tracing = sample();
        let summary = write(&mut out, &tracing, arrays, choice, log).unwrap();
        assert_eq!(summary.bytes, out.len() as u64);
        let text = String::from_utf8(out).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn events_of_two_arrays_and_the_log_in_order() {
        let log = [LogLine { time: 2_500_000_000, level: 4, facility: 0, text: "a \"warning\"".into() }];
        let lines = lines(&[0, 1], &Choice::default(), &log);
        assert_eq!(lines[0]["schema"], SCHEMA);
        assert_eq!(lines[0]["arrays"][1]["name"], "extra");
        assert_eq!(
            lines[1],
            json!({"time": "1.000000500", "ticks": 1_000_000_500u64, "cpu": 0, "array": "", "pid": 7, "tgid": 5,
                "comm": "worker", "flags": "d..11", "event": "sched:wake", "fields": {"comm": "init", "pid": 9},
                "text": "wake: comm=init pid=9"})
        );
        assert_eq!(lines[2]["event"], "unknown:999");
        assert_eq!(lines[2]["array"], "extra");
        assert_eq!(lines[3]["log"], json!({"time": "2.500000000", "level": 4, "facility": 0, "text": "a \"warning\""}));
        assert_eq!((&lines[4]["lost"], &lines[4]["comm"]), (&json!(4), &json!("<idle>")));
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn a_choice_is_kept_to() {
        let only = Choice { events: vec!["sched:*".into()], last: Some(1), ..Choice::default() };
        let log = [LogLine { time: 1, level: 6, facility: 0, text: "before".into() }];
        let last = lines(&[0, 1], &only, &log);
        assert_eq!((last.len(), &last[1]["ticks"]), (2, &json!(3_000_000_000u64)));
        let early = lines(&[0], &Choice { until: Some(2_000_000_000), ..Choice::default() }, &[]);
        assert_eq!((early.len(), &early[1]["pid"]), (2, &json!(7)));
        assert_eq!(lines(&[0], &Choice { snapshot: true, ..Choice::default() }, &[]).len(), 1);
        assert_eq!(lines(&[1], &Choice { cpus: vec![0], ..Choice::default() }, &[]).len(), 1);
    }
}
