//! The gaps of streams: where they lie in time, and what caused them.

use crate::names::NONE;
use lastwords_ctf::read::{Loss, Reader, Trace};
use lastwords_render::missing::{Around, Missing, StreamKey, Tail, count, is_before_all, words};
use lastwords_render::streams::StreamInfo;
use lastwords_trace::evidence::{Cause, Evidence};
use serde::Serialize;
use std::collections::HashMap;

/// A gap in time. Times are nanoseconds from the page's beginning; without a time, the gap reaches
/// beyond the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) key: StreamKey,
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
    /// Number of gaps that this one was merged of, and of events and packets that are known to be
    /// missing there.
    pub(crate) number: u64,
    pub(crate) events: u64,
    pub(crate) packets: u64,
}

impl Default for Gap {
    fn default() -> Self {
        let (stream, what) = (String::new(), String::new());
        Self {
            key: (usize::MAX, 0),
            cpu: NONE,
            stream,
            begin: None,
            end: None,
            what,
            loss: true,
            number: 1,
            events: 0,
            packets: 0,
        }
    }
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
    /// Older packets of the stream are missing before its first one.
    has_older: bool,
}

/// Finds gaps as packets are read.
#[derive(Default)]
pub(crate) struct Gaps {
    pub(crate) all: Vec<Gap>,
    streams: HashMap<StreamKey, Stream>,
    /// The gap of each stream whose first packet reports a loss. The gap is as long as that
    /// packet, which is read after the loss.
    first_losses: HashMap<StreamKey, usize>,
    pub(crate) missing: Missing,
    /// Number of gaps that are too many: neighbours of a stream are merged.
    limit: usize,
}

/// Gaps beyond this number are merged, as far as their streams have several.
const MOST: usize = 1 << 14;

impl Gaps {
    /// Notes the begin of a packet.
    pub(crate) fn packet(
        &mut self,
        trace: &Trace,
        stream: &StreamInfo,
        (cpu, name): (u32, String),
        reader: &mut Reader<'_>,
    ) {
        let Some(around) = self.missing.packet(trace, stream, reader) else { return };
        let Around { begin, end, events, packets, place, is_first, has_older, .. } = around;
        let key = (stream.trace, stream.number);
        if let Some(gap) = self.first_losses.remove(&key).and_then(|at| self.all.get_mut(at)) {
            (gap.begin, gap.end) = (begin, end);
        }
        if self.all.len() >= self.limit.max(MOST.saturating_mul(2)) {
            self.merge();
            self.limit = self.all.len().saturating_mul(2);
        }
        let first = || Stream {
            cpu,
            name: name.clone(),
            stream: place,
            first: begin,
            end,
            last: None,
            has_gap: false,
            has_older: is_first && has_older,
        };
        let own = self.streams.entry(key).or_insert_with(first);
        own.end = end;
        // Without an account, the reader reports the losses before this packet.
        if !around.is_lossy() || trace.account.is_none() && !around.is_damaged {
            return;
        }
        own.has_gap |= !is_first;
        let (begin, end, what) = (around.before, around.until(trace), around.what(trace));
        self.all.push(Gap {
            key,
            cpu,
            stream: name,
            begin,
            end,
            what,
            events,
            packets,
            ..Gap::default()
        });
    }

    /// Notes a loss that the packets of a trace without an account report.
    pub(crate) fn loss(
        &mut self,
        of: &StreamInfo,
        (cpu, stream): (u32, String),
        reader: &mut Reader<'_>,
        loss: Loss,
    ) {
        let Loss { packets: is_packets, count: number, between } = loss;
        let (what, events, packets) = match is_packets {
            true => (format!("{} missing", count(number, "packet")), 0, number),
            false => (format!("{}: discarded", count(number, "event")), number, 0),
        };
        let begin = between.and_then(|(begin, _)| reader.nanoseconds(begin));
        let end = between.and_then(|(_, end)| reader.nanoseconds(end));
        self.missing.loss(of, loss);
        let key = (of.trace, of.number);
        if between.is_none() {
            self.first_losses.insert(key, self.all.len());
        }
        self.all.push(Gap {
            key,
            cpu,
            stream,
            begin,
            end,
            what,
            events,
            packets,
            ..Gap::default()
        });
    }

    /// Merges each gap that has a neighbour in its stream with that one.
    fn merge(&mut self) {
        let mut merged: Vec<Gap> = Vec::with_capacity(self.all.len());
        // The gap of each stream that the stream's next one is merged with.
        let mut open: HashMap<StreamKey, usize> = HashMap::new();
        for gap in std::mem::take(&mut self.all) {
            match open.remove(&gap.key).and_then(|at| merged.get_mut(at)) {
                Some(before) => before.extend(&gap),
                None => {
                    open.insert(gap.key, merged.len());
                    merged.push(gap);
                }
            }
        }
        self.all = merged;
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
        let (mut edges, none) = (Vec::new(), Evidence::default());
        let tails = self.missing.tails(traces).into_iter();
        let mut tails: HashMap<StreamKey, Tail> = tails.map(|tail| (tail.stream, tail)).collect();
        for (key, before) in streams {
            let account = traces.get(key.0).and_then(|trace| trace.account.as_ref());
            let evidence = account.map_or(&none, |account| account.evidence());
            // Events that were overwritten before anybody read them are missing between packets, if
            // packets are missing there.
            let is_unread = |cause: Cause| cause == Cause::Unread && !before.has_gap;
            let older = [
                (words(evidence, before.stream, is_before_all), false),
                (words(evidence, before.stream, is_unread), true),
            ];
            let told = older.into_iter().filter(|(words, _)| !words.is_empty());
            let mut older: Vec<(String, bool)> =
                told.map(|(words, loss)| (words.join("; "), loss)).collect();
            if before.has_older && older.is_empty() {
                older.push(("older events missing".to_owned(), account.is_some()));
            }
            for (what, loss) in older {
                let stream = before.name.clone();
                edges.push(Gap {
                    cpu: before.cpu,
                    stream,
                    end: before.first,
                    what,
                    loss,
                    ..Gap::default()
                });
            }
            if let Some(Tail { begin, what, .. }) = tails.remove(&key) {
                let (stream, begin) = (before.name.clone(), Some(begin).max(before.last));
                edges.push(Gap { cpu: before.cpu, stream, begin, what, ..Gap::default() });
            }
            let open = words(evidence, before.stream, |cause| cause == Cause::InFlight);
            if !open.is_empty() {
                let (stream, what) = (before.name, open.join("; "));
                let begin = before.end.max(before.last);
                edges.push(Gap {
                    cpu: before.cpu,
                    stream,
                    begin,
                    what,
                    loss: false,
                    ..Gap::default()
                });
            }
        }
        while self.all.len() > MOST {
            let before = self.all.len();
            self.merge();
            if self.all.len() == before {
                break;
            }
        }
        self.all.append(&mut edges);
        self.all
    }
}

impl Gap {
    /// Appends a later gap of the stream.
    fn extend(&mut self, next: &Self) {
        self.begin = self.begin.min(next.begin);
        self.end = self.end.zip(next.end).map(|(own, next)| own.max(next));
        self.loss |= next.loss;
        self.number = self.number.saturating_add(next.number);
        self.events = self.events.saturating_add(next.events);
        self.packets = self.packets.saturating_add(next.packets);
        let (events, packets) = (count(self.events, "event"), count(self.packets, "packet"));
        self.what = format!(
            "{} between these times: {events} and {packets} missing",
            count(self.number, "gap")
        );
    }

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
