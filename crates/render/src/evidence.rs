//! Shows the evidence as text for people, and as data for `inspect --json`. docs/JSON.md describes
//! the data.

mod spans;

pub(crate) use spans::seconds;

use crate::missing::count;
use lastwords_ctf::Totals;
use lastwords_ctf::names::plain;
use lastwords_trace::evidence::{Cause, Evidence, Gap, SubBuffer, Verdict};
use lastwords_trace::source::{Source, Stream};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Name of the format of [`Report`].
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
    /// True if something is lost by the rules of `--strict`.
    pub losses: bool,
    /// Number of events known to be lost. Events that were overwritten or in flight are not
    /// included.
    pub lost_events: u64,
    /// Number of values that were cut or left out in events that are there.
    pub cut_values: u64,
    /// Number of texts in which NULs were replaced, in events that are there.
    pub changed_values: u64,
    /// Number of sub-buffers by verdict.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Streams.
    pub streams: Vec<StreamReport>,
    /// Gaps that do not belong to one stream.
    pub gaps: Vec<GapReport>,
    /// Remarks.
    pub notes: Vec<String>,
    /// Spans that were open; none if that is not known.
    pub open_spans: Option<Vec<SpanReport>>,
}

/// A stream's evidence.
#[derive(Debug, Clone, Serialize)]
pub struct StreamReport {
    /// Position of the stream in the trace.
    pub stream: usize,
    /// Name of the stream's channel.
    pub channel: String,
    /// Instance id of the stream.
    pub instance: u64,
    /// CPU, or null.
    pub cpu: Option<u32>,
    /// The stream's sub-buffers.
    pub sub_buffers: Vec<SubBufferReport>,
    /// The stream's gaps.
    pub gaps: Vec<GapReport>,
}

/// A sub-buffer's verdict.
#[derive(Debug, Clone, Serialize)]
pub struct SubBufferReport {
    /// Number of the sub-buffer.
    pub sequence: u64,
    /// Word for the verdict.
    pub verdict: &'static str,
    /// Bytes of committed content.
    pub content: u64,
    /// Reason for the verdict, or empty.
    pub why: String,
}

/// A gap.
#[derive(Debug, Clone, Serialize)]
pub struct GapReport {
    /// Place of the gap.
    pub place: String,
    /// Words for the cause.
    pub cause: &'static str,
    /// True if `--strict` counts the gap as a loss.
    pub loss: bool,
    /// Events lost, or null.
    pub events: Option<u64>,
    /// Bytes lost, or null.
    pub bytes: Option<u64>,
}

/// A span that was open.
#[derive(Debug, Clone, Serialize)]
pub struct SpanReport {
    /// Id of the span.
    pub id: u64,
    /// Id of the span's parent, or 0.
    pub parent: u64,
    /// Time at which the span was opened, in nanoseconds since the epoch. It is text because JSON
    /// readers lose digits of such numbers.
    pub opened_ns: String,
    /// Time from then to the last sign of life in the trace, in nanoseconds, as text.
    pub age_ns: String,
    /// Process that opened the span.
    pub pid: u32,
    /// Thread that opened the span.
    pub tid: u32,
    /// Thread that entered the span last, if it was still in the span, or null.
    pub entered_tid: Option<u32>,
    /// Number of threads that were in the span.
    pub threads: u32,
    /// Severity, from 1 to 5.
    pub level: u8,
    /// Module path of the span.
    pub target: String,
    /// Name of the span.
    pub name: String,
    /// The fields as `key=value`, separated by blanks.
    pub fields: String,
}

/// The evidence of a trace, with the names of the trace and its streams.
#[derive(Debug, Clone, Default)]
pub struct Account<'a> {
    /// Name of the trace, or empty if the name is lost.
    pub name: String,
    /// UUID of the trace, or zeroes if it has none.
    pub uuid: [u8; 16],
    /// The streams, in the order of their positions in the evidence.
    pub streams: Vec<StreamName>,
    /// The evidence.
    pub evidence: Cow<'a, Evidence>,
    /// Spans that were open; none if that is not known.
    pub spans: Option<Vec<SpanReport>>,
    /// Number of packets or sub-buffers that could not be decoded to their end. They count as
    /// losses.
    pub faults: u64,
}

/// The name of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamName {
    /// Name of the stream's channel, or a replacement for the name. May be empty.
    pub channel: String,
    /// Instance id of the stream.
    pub instance: u64,
    /// The CPU that the stream is bound to.
    pub cpu: Option<u32>,
}

/// An account is serialized as its [`Report`].
impl Serialize for Account<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.report().serialize(serializer)
    }
}

impl<'a> Account<'a> {
    /// Returns the account of a source.
    #[must_use]
    pub fn new(source: &'a dyn Source) -> Self {
        let schema = source.schema();
        let channel = |index: usize| match schema.channels.get(index) {
            Some(channel) if channel.name.is_empty() => channel.id.to_string(),
            Some(channel) => channel.name.clone(),
            None => String::new(),
        };
        let name = |stream: &Stream| StreamName {
            channel: channel(stream.channel),
            instance: stream.instance,
            cpu: stream.cpu,
        };
        Self {
            name: schema.name.clone(),
            uuid: schema.uuid,
            streams: source.streams().iter().map(name).collect(),
            evidence: Cow::Borrowed(source.evidence()),
            spans: spans::reports(source),
            faults: 0,
        }
    }

    /// Returns true if something is lost by the rules of `--strict`.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.faults > 0 || self.evidence.has_losses()
    }

    /// Returns the number of values that were cut or left out.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.values(|cause| if let Cause::Cut(values) = cause { values } else { 0 })
    }

    /// Returns the number of texts in which NULs were replaced.
    #[must_use]
    pub fn changed(&self) -> u64 {
        self.values(|cause| if let Cause::Changed(values) = cause { values } else { 0 })
    }

    /// Returns the sum of what `of` returns for each gap.
    fn values(&self, of: impl Fn(Cause) -> u64) -> u64 {
        self.evidence.gaps.iter().map(|gap| of(gap.cause)).fold(0, u64::saturating_add)
    }

    /// Returns true if it is unknown of some losses how many events they are.
    fn has_uncounted_losses(&self) -> bool {
        let Evidence { gaps, sub_buffers, .. } = &*self.evidence;
        self.faults > 0
            || gaps.iter().any(|gap| gap.cause.is_loss() && gap.events.is_none())
            || sub_buffers.iter().any(|sub_buffer| sub_buffer.verdict.is_loss())
    }

    /// Returns true if there are packets whose events have no description.
    #[must_use]
    pub fn is_undescribed(&self) -> bool {
        self.evidence.gaps.iter().any(|gap| gap.cause == Cause::Undescribed)
    }

    /// Adds the results of reading the packets of the trace: losses that the packets report, and
    /// packets that cannot be decoded.
    pub fn add_reading(&mut self, totals: &Totals) {
        let gap =
            |cause, events, place: String| Gap { stream: None, place, cause, events, bytes: None };
        if totals.lost_events > 0 {
            let gap =
                gap(Cause::Discarded, Some(totals.lost_events), "as the packets report".to_owned());
            self.evidence.to_mut().gaps.push(gap);
        }
        if totals.lost_packets > 0 {
            let gap = gap(
                Cause::Missing,
                None,
                format!("{} packets between others", totals.lost_packets),
            );
            self.evidence.to_mut().gaps.push(gap);
        }
        if totals.unread > 0 {
            let place = format!(
                "{} packets before the last events, which were not looked at",
                totals.unread
            );
            self.evidence.to_mut().gaps.push(gap(Cause::Missing, None, place));
        }
        self.faults = self.faults.saturating_add(totals.faults);
    }

    /// Returns the amount that was lost for a cause.
    fn amount(&self, cause: Cause) -> Amount {
        Amount::from_gaps(self.evidence.gaps.iter().filter(|gap| gap.cause == cause))
    }

    /// Describes the losses in a few words: `6144 bytes overwritten, nothing else lost`. The number
    /// of lost events is left to the lines of the account.
    #[must_use]
    pub fn words(&self) -> String {
        Losses { events: 0, ..Losses::from_accounts([self]) }.words()
    }

    /// Returns the evidence as data.
    #[must_use]
    pub fn report(&self) -> Report {
        let stream = |(stream, facts): (usize, &StreamName)| StreamReport {
            stream,
            channel: facts.channel.clone(),
            instance: facts.instance,
            cpu: facts.cpu,
            sub_buffers: Vec::new(),
            gaps: Vec::new(),
        };
        let mut streams: Vec<StreamReport> = self.streams.iter().enumerate().map(stream).collect();
        let mut verdicts = BTreeMap::new();
        for sub_buffer in &self.evidence.sub_buffers {
            let count = verdicts.entry(sub_buffer.verdict.word()).or_insert(0);
            *count = u64::saturating_add(*count, 1);
            if let Some(stream) = streams.get_mut(sub_buffer.stream) {
                stream.sub_buffers.push(sub_buffer_report(sub_buffer));
            }
        }
        let mut gaps = Vec::new();
        for gap in &self.evidence.gaps {
            match gap.stream.and_then(|stream| streams.get_mut(stream)) {
                Some(stream) => stream.gaps.push(gap_report(gap)),
                None => gaps.push(gap_report(gap)),
            }
        }
        Report {
            schema: SCHEMA,
            trace: self.name.clone(),
            uuid: lastwords_ctf::uuid_text(&self.uuid),
            losses: self.has_losses(),
            lost_events: self.evidence.lost_events(),
            cut_values: self.cut(),
            changed_values: self.changed(),
            verdicts,
            streams,
            gaps,
            notes: self.evidence.notes.clone(),
            open_spans: self.spans.clone(),
        }
    }

    /// Writes the evidence for people: first a line of counts; then a line for each sub-buffer that
    /// is neither committed nor open, for each gap, for each remark, and for each span that was
    /// open. Writes at most `limit` lines of each kind, and the number of omitted lines.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write(&self, limit: usize, out: &mut dyn Write) -> io::Result<()> {
        // The name is stored in the session region and is lost with it.
        let name = match self.name.as_str() {
            "" => format!("session {}", lastwords_ctf::uuid_text(&self.uuid)),
            name => plain(name),
        };
        let mut counts: BTreeMap<Verdict, u64> = BTreeMap::new();
        for sub_buffer in &self.evidence.sub_buffers {
            let count = counts.entry(sub_buffer.verdict).or_default();
            *count = count.saturating_add(1);
        }
        let counts: Vec<String> =
            counts.iter().map(|(verdict, count)| format!("{count} {}", verdict.word())).collect();
        // The sub-buffers of some sources are not judged.
        let counts = if counts.is_empty() {
            String::new()
        } else {
            format!("sub-buffers: {}; ", counts.join(", "))
        };
        writeln!(out, "{name}: {counts}{}", self.words())?;
        let damaged = self.evidence.sub_buffers.iter();
        let damaged: Vec<&SubBuffer> =
            damaged.filter(|s| !matches!(s.verdict, Verdict::Committed | Verdict::Open)).collect();
        lines(out, limit, "sub-buffers", &damaged, |s| {
            let SubBuffer { sequence, content, .. } = s;
            let why = if s.why.is_empty() { String::new() } else { format!(": {}", plain(&s.why)) };
            format!(
                "{}, sub-buffer {sequence}: {}, {content} bytes kept{why}",
                self.stream_name(s.stream),
                s.verdict.word()
            )
        })?;
        let gaps: Vec<&Gap> = self.evidence.gaps.iter().collect();
        lines(out, limit, "gaps", &gaps, |gap| self.gap_line(gap))?;
        let notes: Vec<&String> = self.evidence.notes.iter().collect();
        lines(out, limit, "notes", &notes, |note| plain(note))?;
        self.write_spans(limit, out)
    }

    fn gap_line(&self, gap: &Gap) -> String {
        let stream =
            gap.stream.map_or_else(|| "all streams".to_owned(), |stream| self.stream_name(stream));
        let sizes = [(gap.events, "event"), (gap.bytes, "byte")];
        let sizes: Vec<String> = sizes
            .into_iter()
            .filter_map(|(size, unit)| {
                size.map(|size| format!("{size} {unit}{}", if size == 1 { "" } else { "s" }))
            })
            .collect();
        let sizes = match (sizes.is_empty(), gap.events) {
            (true, _) => "of unknown size".to_owned(),
            (false, None) if gap.cause.is_loss() => {
                format!("{}, unknown number of events", sizes.join(", "))
            }
            (false, _) => sizes.join(", "),
        };
        let place = plain(&gap.place);
        let sizes = match gap.cause {
            Cause::Cut(values) => count(values, "value"),
            Cause::Changed(texts) => format!("{}: NUL became 0x1a", count(texts, "text")),
            Cause::Unknown => return format!("{stream}: {}: {place}", gap.cause.word()),
            _ => sizes,
        };
        format!("{stream}, {place}: {} ({sizes})", gap.cause.word())
    }

    /// Writes the spans that were open, at most `limit` lines.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_spans(&self, limit: usize, out: &mut dyn Write) -> io::Result<()> {
        spans::write(self.spans.as_deref().unwrap_or_default(), limit, out)
    }

    /// Returns a name such as `channel NAME, CPU 3`.
    #[must_use]
    pub fn stream_name(&self, stream: usize) -> String {
        let Some(facts) = self.streams.get(stream) else { return format!("stream {stream}") };
        let cpu = facts.cpu.map_or_else(|| "no CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        match facts.channel.as_str() {
            "" => cpu,
            channel => format!("channel {}, {cpu}", plain(channel)),
        }
    }
}

/// The sum of the losses of several accounts. The exit status and the words "nothing lost" depend
/// only on this sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Number of events known to be lost. Events that were overwritten, or in flight at death, are
    /// not included.
    #[serde(rename = "lost_events")]
    pub events: u64,
    /// True if something is lost by the rules of `--strict`, even if the number of lost events is
    /// unknown.
    #[serde(rename = "losses")]
    pub any: bool,
    /// True if there are packets whose events have no description.
    #[serde(rename = "unreadable", skip_serializing_if = "std::ops::Not::not")]
    pub undescribed: bool,
    /// True if more is lost than those events: of some losses it is unknown how many events they
    /// are.
    #[serde(skip)]
    pub more: bool,
    /// Number of values that were cut or left out in events that are there.
    #[serde(skip)]
    pub cut: u64,
    /// Number of texts in which a NUL became 0x1a, in events that are there.
    #[serde(skip)]
    pub changed: u64,
    /// The amount that rings overwrote with newer events, which counts as no loss.
    #[serde(skip)]
    pub overwritten: Amount,
    /// The amount of snapshots that was dropped before anybody read it, which counts as no loss.
    #[serde(skip)]
    pub dropped: Amount,
}

/// An amount of events that are gone. All fields are zero if nothing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// The size of the events where it is known, in bytes.
    pub bytes: u64,
    /// The number of the events whose size is unknown.
    pub events: u64,
    /// True if neither is known of some events.
    pub unknown: bool,
}

impl Amount {
    /// Returns the sum of the amounts of some gaps of a trace: bytes, or events if no gap has a
    /// number of bytes.
    #[must_use]
    pub fn from_gaps<'a>(gaps: impl IntoIterator<Item = &'a Gap>) -> Self {
        let mut sum = Self::default();
        for gap in gaps {
            let (bytes, events) = (gap.bytes.unwrap_or_default(), gap.events.unwrap_or_default());
            sum.add(&Self { bytes, events, unknown: bytes == 0 && events == 0 });
        }
        if sum.bytes > 0 { Self { events: 0, ..sum } } else { sum }
    }

    fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.events = self.events.saturating_add(other.events);
        self.unknown |= other.unknown;
    }

    /// Returns the amount in words: `6144 bytes`; none if nothing is gone.
    fn words(&self) -> Option<String> {
        let part = |number: u64, unit: &str| (number > 0).then(|| format!("{number} {unit}"));
        let known: Vec<String> =
            part(self.bytes, "bytes").into_iter().chain(part(self.events, "events")).collect();
        match (known.is_empty(), self.unknown) {
            (true, false) => None,
            (true, true) => Some("older events".to_owned()),
            (false, false) => Some(known.join(" and ")),
            (false, true) => Some(format!("at least {}", known.join(" and "))),
        }
    }
}

impl Losses {
    /// Returns the sum of the losses of some accounts.
    #[must_use]
    pub fn from_accounts<'a, 'b: 'a>(accounts: impl IntoIterator<Item = &'a Account<'b>>) -> Self {
        let mut sum = Self::default();
        for account in accounts {
            sum.add(&Self {
                any: account.has_losses(),
                events: account.evidence.lost_events(),
                undescribed: account.is_undescribed(),
                more: account.has_uncounted_losses(),
                cut: account.cut(),
                changed: account.changed(),
                overwritten: account.amount(Cause::Overwritten),
                dropped: account.amount(Cause::Dropped),
            });
        }
        sum
    }

    /// Adds the losses of other accounts.
    pub fn add(&mut self, other: &Self) {
        self.any |= other.any;
        self.events = self.events.saturating_add(other.events);
        self.undescribed |= other.undescribed;
        self.more |= other.more;
        self.cut = self.cut.saturating_add(other.cut);
        self.changed = self.changed.saturating_add(other.changed);
        self.overwritten.add(&other.overwritten);
        self.dropped.add(&other.dropped);
    }

    /// Describes the losses in a few words: `nothing lost`; `6144 bytes overwritten, nothing else
    /// lost`.
    #[must_use]
    pub fn words(&self) -> String {
        let overwritten = self.overwritten.words().map(|amount| format!("{amount} overwritten"));
        let dropped =
            self.dropped.words().map(|amount| format!("{amount} of snapshots dropped unread"));
        let known: Vec<String> = overwritten.into_iter().chain(dropped).collect();
        let values = [(self.cut, "value", "cut"), (self.changed, "text", "changed")];
        let flaws: String = values
            .into_iter()
            .filter(|(number, ..)| *number > 0)
            .map(|(number, what, how)| format!(", {} {how}", count(number, what)))
            .collect();
        if !flaws.is_empty() && self.events == 0 && !self.more {
            return format!("no event lost{flaws}");
        }
        match (self.any, self.events, known.is_empty()) {
            (true, 0, _) => "with losses".to_owned(),
            (true, events, _) if self.more => {
                format!("at least {} lost{flaws}", count(events, "event"))
            }
            (true, events, _) => format!("{} lost{flaws}", count(events, "event")),
            (false, _, true) => "nothing lost".to_owned(),
            (false, _, false) => format!("{}, nothing else lost", known.join(" and ")),
        }
    }
}

/// Writes spans that were open for people, at most `limit` lines: see [`Account::write_spans`].
///
/// # Errors
/// `out` cannot be written.
pub fn write_spans(spans: &[SpanReport], limit: usize, out: &mut dyn Write) -> io::Result<()> {
    spans::write(spans, limit, out)
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

/// Writes at most `limit` lines, and the number of omitted lines.
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
        Some(more) if more > 0 => {
            writeln!(out, "  ... and {more} more {kind}; `inspect --json` lists all")
        }
        _ => Ok(()),
    }
}
