//! The gaps of streams: where they lie in time, and what caused them.

use crate::names::NONE;
use lastwords_ctf::read::{Loss, Reader, Trace};
use lastwords_formats::events::StreamInfo;
use lastwords_formats::missing::{Around, Missing};
use lastwords_trace::evidence::{Cause, Evidence, Gap as Lost, Verdict};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// A gap in time. Times are nanoseconds from the page's beginning; without a time, the gap reaches beyond the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Number of the CPU.
    pub(crate) cpu: u32,
    /// The stream: channel and CPU.
    pub(crate) stream: String,
    pub(crate) begin: Option<i64>,
    pub(crate) end: Option<i64>,
    /// The missing events or packets, in words, with the cause.
    pub(crate) what: String,
    /// The gap counts as a loss for `--strict`.
    pub(crate) loss: bool,
}

/// A gap as the page has it.
#[derive(Debug, Serialize)]
pub(crate) struct Row<'a> {
    pub(crate) cpu: Option<u32>,
    pub(crate) stream: &'a str,
    pub(crate) begin: Option<f64>,
    pub(crate) end: Option<f64>,
    pub(crate) what: &'a str,
    pub(crate) loss: bool,
}

/// A stream.
struct Stream {
    cpu: u32,
    name: String,
    /// Position in the evidence.
    stream: usize,
    /// Begin of the stream's first packet.
    first: Option<i64>,
    /// End of the last packet.
    end: Option<i64>,
    /// Time of the stream's last event that was read.
    last: Option<i64>,
    /// A gap between two packets was found.
    has_gap: bool,
}

/// Finds gaps as packets are read.
#[derive(Default)]
pub(crate) struct Gaps {
    pub(crate) all: Vec<Gap>,
    streams: HashMap<(usize, u64), Stream>,
    /// The gap of each stream whose first packet reports a loss. The gap is as long as that packet, which is read after the loss.
    first_losses: HashMap<(usize, u64), usize>,
    pub(crate) missing: Missing,
}

/// Most gaps that are drawn. The account has all of them.
const MOST: usize = 1 << 14;

/// Formats a number with its unit: `1 event`, `2 events`.
fn count(number: u64, unit: &str) -> String {
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

impl Gaps {
    /// Notes the begin of a packet. Returns the time at which the stream's events begin to be missing ([`Around::from`]).
    pub(crate) fn packet(
        &mut self,
        trace: &Trace,
        stream: &StreamInfo,
        (cpu, name): (u32, String),
        reader: &mut Reader<'_>,
    ) -> Option<i64> {
        let around = self.missing.packet(trace, stream, reader)?;
        let Around { begin, end, events, packets, .. } = around;
        let at = reader.stream().memory.as_ref().map_or(usize::MAX, |memory| memory.stream);
        let key = (stream.trace, stream.number);
        if let Some(gap) = self.first_losses.remove(&key).and_then(|at| self.all.get_mut(at)) {
            (gap.begin, gap.end) = (begin, end);
        }
        let first = || Stream { cpu, name: name.clone(), stream: at, first: begin, end, last: None, has_gap: false };
        let own = self.streams.entry(key).or_insert_with(first);
        own.end = end;
        // Without an account, the reader reports the losses before this packet.
        let evidence = trace.account.as_ref().filter(|_| (events, packets) != (0, 0));
        let Some(evidence) = evidence else { return around.from() };
        own.has_gap = true;
        let causes = causes(evidence.evidence(), at, around.between);
        let is_ftrace = trace.class().is_ftrace();
        // The kernel does not always know how many events it missed.
        let least = if is_ftrace { "at least " } else { "" };
        let what = match (events, packets) {
            (0, packets) => format!("{} missing", count(packets, "sub-buffer")),
            (events, _) => format!("{least}{} missing", count(events, "event")),
        };
        // Only the kernel's tracer misses events before a sub-buffer begins. Others count those that found no room until the packet's end.
        let until = if events > 0 && !is_ftrace { end } else { begin };
        let (from, what) = (around.before, with(what, &causes));
        self.add(Gap { cpu, stream: name, begin: from, end: until.max(from), what, loss: true });
        around.from()
    }

    /// Notes a loss that the packets of a trace without an account report.
    pub(crate) fn loss(
        &mut self,
        of: &StreamInfo,
        (cpu, stream): (u32, String),
        reader: &mut Reader<'_>,
        loss: Loss,
    ) -> Option<i64> {
        let Loss { packets, count: number, between } = loss;
        let what = match packets {
            true => format!("{} missing", count(number, "packet")),
            false => format!("{}: discarded", count(number, "event")),
        };
        let begin = between.and_then(|(begin, _)| reader.nanoseconds(begin));
        let end = between.and_then(|(_, end)| reader.nanoseconds(end));
        self.missing.loss(of, loss);
        if between.is_none() {
            self.first_losses.insert((of.trace, of.number), self.all.len());
        }
        self.add(Gap { cpu, stream, begin, end, what, loss: true });
        begin
    }

    fn add(&mut self, gap: Gap) {
        if self.all.len() < MOST {
            self.all.push(gap);
        }
    }

    /// Notes the time of an event.
    #[inline]
    pub(crate) fn event(&mut self, stream: &StreamInfo, time: i64) {
        if let Some(before) = self.streams.get_mut(&(stream.trace, stream.number)) {
            before.last = Some(time);
        }
    }

    /// Returns all gaps, with those before each stream's first packet and behind its last one.
    pub(crate) fn finish(mut self, traces: &[Trace]) -> Vec<Gap> {
        let mut streams: Vec<_> = std::mem::take(&mut self.streams).into_iter().collect();
        streams.sort_by_key(|(key, _)| *key);
        for ((trace, _), before) in streams {
            let Some(account) = traces.get(trace).and_then(|trace| trace.account.as_ref()) else { continue };
            let evidence = account.evidence();
            // Events that were overwritten before anybody read them are missing between packets, if packets are missing there.
            let is_unread = |cause: Cause| cause == Cause::Unread && !before.has_gap;
            for (older, loss) in [
                (words(evidence, before.stream, is_before_all), false),
                (words(evidence, before.stream, is_unread), true),
            ] {
                if !older.is_empty() {
                    let (stream, what) = (before.name.clone(), older.join("; "));
                    self.add(Gap { cpu: before.cpu, stream, begin: None, end: before.first, what, loss });
                }
            }
            let open = words(evidence, before.stream, |cause| cause == Cause::InFlight);
            if !open.is_empty() {
                let (stream, what) = (before.name, open.join("; "));
                let begin = before.end.max(before.last);
                self.add(Gap { cpu: before.cpu, stream, begin, end: None, what, loss: false });
            }
        }
        self.all
    }
}

/// Returns true if events that are missing for this cause are older than all that is there.
fn is_before_all(cause: Cause) -> bool {
    matches!(cause, Cause::Overwritten | Cause::Cleared | Cause::Consumed | Cause::Dropped)
}

fn of(evidence: &Evidence, stream: usize) -> impl Iterator<Item = &Lost> {
    evidence.gaps.iter().filter(move |gap| gap.stream == Some(stream))
}

/// Returns the words for the causes of a stream's gaps, and for its damaged sub-buffers between two others.
fn causes(evidence: &Evidence, stream: usize, between: Option<(u64, u64)>) -> Vec<String> {
    let gaps = of(evidence, stream).filter(|gap| !is_before_all(gap.cause));
    let mut words: BTreeSet<String> = gaps.map(|gap| gap.cause.word().to_owned()).collect();
    let is_between = |sequence: u64| between.is_some_and(|(last, next)| last < sequence && sequence < next);
    let rows = evidence.sub_buffers.iter().filter(|row| row.stream == stream && is_between(row.sequence));
    let bad = rows.filter(|row| matches!(row.verdict, Verdict::Invalid | Verdict::Missing | Verdict::Stale));
    words.extend(bad.map(|row| row.verdict.word().to_owned()));
    words.into_iter().collect()
}

/// Returns each gap of a stream in words.
fn words(evidence: &Evidence, stream: usize, wanted: impl Fn(Cause) -> bool) -> Vec<String> {
    let gaps = of(evidence, stream).filter(|gap| wanted(gap.cause));
    let sentence = |gap: &Lost| {
        let sizes = [gap.events.map(|number| count(number, "event")), gap.bytes.map(|number| count(number, "byte"))];
        let sizes: Vec<String> = sizes.into_iter().flatten().collect();
        let size = if sizes.is_empty() { "events".to_owned() } else { sizes.join(", ") };
        format!("{size}: {}", gap.cause.word())
    };
    gaps.map(sentence).collect()
}

fn with(what: String, causes: &[String]) -> String {
    if causes.is_empty() { what } else { format!("{what}: {}", causes.join(", ")) }
}

impl Gap {
    /// Returns the gap with times as offsets from the page's beginning.
    pub(crate) fn row(&self, offset: impl Fn(i64) -> f64) -> Row<'_> {
        Row {
            cpu: Some(self.cpu).filter(|cpu| *cpu != NONE),
            stream: &self.stream,
            begin: self.begin.map(&offset),
            end: self.end.map(&offset),
            what: &self.what,
            loss: self.loss,
        }
    }
}
