//! The evidence, as text for people and as data for `inspect --json`: docs/JSON.md.

use lastwords_ctf::names::plain;
use lastwords_trace::evidence::{Cause, Evidence, Gap, SubBuffer, Verdict};
use lastwords_trace::source::{OpenSpan, Source};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Names the layout of [`Report`].
pub const SCHEMA: &str = "lastwords.evidence.v1";

/// The evidence of a source.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Name of the trace.
    pub trace: String,
    /// UUID of the trace.
    pub uuid: String,
    /// Something is lost by `--strict`'s measure.
    pub losses: bool,
    /// Events known to be lost, overwritten and in-flight ones not counted.
    pub lost_events: u64,
    /// How many sub-buffers have each verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Streams.
    pub streams: Vec<StreamReport>,
    /// Gaps that concern no single stream.
    pub gaps: Vec<GapReport>,
    /// Remarks.
    pub notes: Vec<String>,
    /// Spans that were open.
    pub open_spans: Vec<SpanReport>,
}

/// A stream's evidence.
#[derive(Debug, Clone, Serialize)]
pub struct StreamReport {
    /// Position of the stream in the trace.
    pub stream: usize,
    /// Name of its channel.
    pub channel: String,
    /// Its instance id.
    pub instance: u64,
    /// CPU, or null.
    pub cpu: Option<u32>,
    /// Its sub-buffers.
    pub sub_buffers: Vec<SubBufferReport>,
    /// Its gaps.
    pub gaps: Vec<GapReport>,
}

/// A sub-buffer's verdict.
#[derive(Debug, Clone, Serialize)]
pub struct SubBufferReport {
    /// Number of the sub-buffer.
    pub sequence: u64,
    /// The verdict's word.
    pub verdict: &'static str,
    /// Bytes of committed content.
    pub content: u64,
    /// Why, or empty.
    pub why: String,
}

/// A gap.
#[derive(Debug, Clone, Serialize)]
pub struct GapReport {
    /// Where.
    pub place: String,
    /// The cause's words.
    pub cause: &'static str,
    /// It counts as a loss for `--strict`.
    pub loss: bool,
    /// Events lost, or null.
    pub events: Option<u64>,
    /// Bytes lost, or null.
    pub bytes: Option<u64>,
}

/// A span that was open.
#[derive(Debug, Clone, Serialize)]
pub struct SpanReport {
    /// Id.
    pub id: u64,
    /// Id of its parent, or 0.
    pub parent: u64,
    /// Nanoseconds since the epoch when it was opened, as text: JSON readers lose digits of such numbers.
    pub opened_ns: String,
    /// Nanoseconds from then to the last sign of life in the trace, as text.
    pub age_ns: String,
    /// Process that opened it.
    pub pid: u32,
    /// Thread that opened it.
    pub tid: u32,
    /// Thread that entered it last, if it was in it, or null.
    pub entered_tid: Option<u32>,
    /// Threads that were in it.
    pub threads: u32,
    /// Severity 1 to 5.
    pub level: u8,
    /// Module path.
    pub target: String,
    /// Name.
    pub name: String,
    /// `key=value` joined by blanks.
    pub fields: String,
}

/// The evidence of a source as data.
#[must_use]
pub fn report(source: &dyn Source) -> Report {
    let schema = source.schema();
    let evidence = source.evidence();
    let mut streams: Vec<StreamReport> = source
        .streams()
        .iter()
        .enumerate()
        .map(|(stream, facts)| StreamReport {
            stream,
            channel: schema.channels.get(facts.channel).map_or_else(String::new, |c| c.name.clone()),
            instance: facts.instance,
            cpu: facts.cpu,
            sub_buffers: Vec::new(),
            gaps: Vec::new(),
        })
        .collect();
    let mut verdicts = BTreeMap::new();
    for sub_buffer in &evidence.sub_buffers {
        *verdicts.entry(sub_buffer.verdict.word()).or_insert(0) += 1;
        if let Some(stream) = streams.get_mut(sub_buffer.stream) {
            stream.sub_buffers.push(sub_buffer_report(sub_buffer));
        }
    }
    let mut gaps = Vec::new();
    for gap in &evidence.gaps {
        match gap.stream.and_then(|stream| streams.get_mut(stream)) {
            Some(stream) => stream.gaps.push(gap_report(gap)),
            None => gaps.push(gap_report(gap)),
        }
    }
    Report {
        schema: SCHEMA,
        trace: schema.name.clone(),
        uuid: lastwords_ctf::uuid_text(&schema.uuid),
        losses: evidence.has_losses(),
        lost_events: evidence.lost_events(),
        verdicts,
        streams,
        gaps,
        notes: evidence.notes.clone(),
        open_spans: source.open_spans().iter().map(|span| span_report(source, span)).collect(),
    }
}

fn sub_buffer_report(sub_buffer: &SubBuffer) -> SubBufferReport {
    SubBufferReport {
        sequence: sub_buffer.sequence,
        verdict: sub_buffer.verdict.word(),
        content: sub_buffer.content,
        why: sub_buffer.why.clone(),
    }
}

fn gap_report(gap: &Gap) -> GapReport {
    GapReport {
        place: gap.place.clone(),
        cause: gap.cause.word(),
        loss: gap.cause.is_loss(),
        events: gap.events,
        bytes: gap.bytes,
    }
}

fn span_report(source: &dyn Source, span: &OpenSpan) -> SpanReport {
    SpanReport {
        id: span.id,
        parent: span.parent,
        opened_ns: source.schema().clock.nanoseconds(span.opened).to_string(),
        age_ns: span.age.to_string(),
        pid: span.opener.0,
        tid: span.opener.1,
        entered_tid: span.entered.map(|(_, tid)| tid),
        threads: span.threads,
        level: span.level,
        target: span.target.clone(),
        name: span.name.clone(),
        fields: span.fields.clone(),
    }
}

/// Writes the evidence for people: a line of counts, then a line for each sub-buffer that is not committed or open, for
/// each gap and for each remark. At most `limit` lines of each kind; what is left out is counted.
///
/// # Errors
/// `out` cannot be written.
pub fn write_text(source: &dyn Source, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let evidence = source.evidence();
    let schema = source.schema();
    // Its name is lost with the session region.
    let name = if schema.name.is_empty() {
        format!("session {}", lastwords_ctf::uuid_text(&schema.uuid))
    } else {
        plain(&schema.name)
    };
    let mut counts: BTreeMap<Verdict, u64> = BTreeMap::new();
    for sub_buffer in &evidence.sub_buffers {
        *counts.entry(sub_buffer.verdict).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(verdict, count)| format!("{count} {}", verdict.word())).collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    writeln!(out, "{name}: sub-buffers: {counts}; {}", account(evidence))?;
    let damaged: Vec<&SubBuffer> =
        evidence.sub_buffers.iter().filter(|s| !matches!(s.verdict, Verdict::Committed | Verdict::Open)).collect();
    lines(out, limit, "sub-buffers", &damaged, |s| {
        let SubBuffer { sequence, content, .. } = s;
        let why = if s.why.is_empty() { String::new() } else { format!(": {}", plain(&s.why)) };
        format!(
            "{}, sub-buffer {sequence}: {}, {content} bytes kept{why}",
            stream_name(source, s.stream),
            s.verdict.word()
        )
    })?;
    let gaps: Vec<&Gap> = evidence.gaps.iter().collect();
    lines(out, limit, "gaps", &gaps, |gap| gap_line(source, gap))?;
    let notes: Vec<&String> = evidence.notes.iter().collect();
    lines(out, limit, "notes", &notes, |note| plain(note))
}

/// What the gaps come to, in a few words. It says "nothing lost" only where no gap says that events were recorded and are gone.
fn account(evidence: &Evidence) -> String {
    let overwritten = evidence.gaps.iter().filter(|gap| gap.cause == Cause::Overwritten);
    let overwritten = overwritten.filter_map(|gap| gap.bytes).fold(0, u64::saturating_add);
    match (evidence.has_losses(), overwritten) {
        (true, _) => "with losses".to_owned(),
        (false, 0) => "nothing lost".to_owned(),
        (false, bytes) => format!("{bytes} bytes overwritten, nothing else lost"),
    }
}

fn lines<T>(
    out: &mut dyn Write,
    limit: usize,
    kind: &str,
    items: &[&T],
    text: impl Fn(&T) -> String,
) -> io::Result<()> {
    for item in items.iter().take(limit) {
        writeln!(out, "  {}", text(item))?;
    }
    match items.len().checked_sub(limit) {
        Some(more) if more > 0 => writeln!(out, "  ... and {more} more {kind}; `inspect --json` lists all"),
        _ => Ok(()),
    }
}

fn gap_line(source: &dyn Source, gap: &Gap) -> String {
    let stream = gap.stream.map_or_else(|| "all streams".to_owned(), |stream| stream_name(source, stream));
    let sizes = [(gap.events, "event"), (gap.bytes, "byte")];
    let sizes: Vec<String> = sizes
        .into_iter()
        .filter_map(|(size, unit)| size.map(|size| format!("{size} {unit}{}", if size == 1 { "" } else { "s" })))
        .collect();
    let sizes = match (sizes.is_empty(), gap.events) {
        (true, _) => "of unknown size".to_owned(),
        (false, None) if gap.cause.is_loss() => format!("{}, how many events is not known", sizes.join(", ")),
        (false, _) => sizes.join(", "),
    };
    let place = plain(&gap.place);
    format!("{stream}, {place}: {} ({sizes})", gap.cause.word())
}

/// `channel NAME, CPU 3`.
fn stream_name(source: &dyn Source, stream: usize) -> String {
    let Some(facts) = source.streams().get(stream) else { return format!("stream {stream}") };
    let channel = source.schema().channels.get(facts.channel).map_or("", |c| c.name.as_str());
    let cpu = facts.cpu.map_or_else(|| "no CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    match (channel, source.schema().channels.get(facts.channel)) {
        ("", Some(of)) => format!("channel {}, {cpu}", of.id),
        (name, _) => format!("channel {}, {cpu}", plain(name)),
    }
}
