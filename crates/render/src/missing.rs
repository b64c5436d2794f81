//! Finds where events of streams are missing, as their packets are read.
//!
//! A kernel's tracer misses events before a packet begins. Others count the events that found no
//! room until the end of the packet, so that some are missing anywhere in it: what began there may
//! end at the event of another. Before the first packet of a stream that has older ones, all events
//! of the stream are missing.
//!
//! The last packet of a stream with an account counts all later losses as well, and sub-buffers
//! behind it may be damaged. So a loss that no later packet ends goes on to the end of the trace.
//! What cannot be decoded is missing until the stream's next packet begins.
//!
//! A packet is read when the stream's packet before is used up, which may be long before the events
//! of other streams reach the loss. So each loss waits until an event comes that is not before it.

use crate::streams::StreamInfo;
use lastwords_ctf::read::{Loss, Memory, Reader, Trace};
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

/// A stream's trace and its number there.
pub type StreamKey = (usize, u64);

/// The last packet of a stream.
struct Last {
    sequence: Option<u64>,
    discarded: Option<u64>,
    end: Option<i64>,
    /// Events are missing at its end: until this time, if a later packet is there.
    open: Option<i64>,
    /// Number of events that are missing since the packet before.
    events: u64,
    /// Position of the stream in the evidence of its trace.
    place: usize,
}

/// The events that may be missing behind the last packet of a stream, up to the end of the trace.
#[derive(Debug, PartialEq, Eq)]
pub struct Tail {
    /// The stream.
    pub stream: StreamKey,
    /// Nanoseconds.
    pub begin: i64,
    /// The missing events and sub-buffers, in words.
    pub what: String,
}

/// The sub-buffers of a stream, as the account has them.
#[derive(Default)]
struct Rows {
    /// Numbers of those that are damaged or missing.
    bad: BTreeSet<u64>,
    /// Number of the last other one.
    last_good: Option<u64>,
}

impl Rows {
    /// Returns true if the sub-buffer after this number is bad, or all later ones are.
    fn is_cut_after(&self, number: u64) -> bool {
        let next = number.checked_add(1).and_then(|next| self.bad.range(next..).next());
        next.is_some_and(|bad| {
            number.checked_add(1) == Some(*bad) || self.last_good.is_none_or(|last| last <= number)
        })
    }
}

/// The events and packets that are missing around the begin of a packet. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Around {
    /// Begin of the packet.
    pub begin: Option<i64>,
    /// End of the packet.
    pub end: Option<i64>,
    /// End of the packet before.
    pub before: Option<i64>,
    /// Sequence numbers of the packet before and of this one.
    pub between: Option<(u64, u64)>,
    /// Number of events that are missing since the packet before; of a first packet, since the
    /// stream began.
    pub events: u64,
    /// Number of packets that are missing before this one.
    pub packets: u64,
    /// The sub-buffer is damaged, so that events of it are missing.
    pub is_damaged: bool,
    /// It is the first packet of its stream that is there.
    pub is_first: bool,
    /// Older packets of the stream are missing before its first one.
    pub has_older: bool,
    /// Position of the stream in the evidence of its trace.
    pub place: usize,
}

impl Around {
    /// Returns the number of missing events or packets in words, with the causes.
    #[must_use]
    pub fn what(&self, trace: &Trace) -> String {
        let causes = match &trace.account {
            Some(account) => causes(account.evidence(), self.place, self.between),
            None if self.events > 0 => vec![Cause::Discarded.word().to_owned()],
            None => Vec::new(),
        };
        // The kernel does not always know how many events it missed.
        let least = if trace.class().is_ftrace() { "at least " } else { "" };
        let what = match (self.events, self.packets) {
            (0, 0) => "events missing".to_owned(),
            (0, packets) => format!("{} missing", count(packets, "sub-buffer")),
            (events, _) => format!("{least}{} missing", count(events, "event")),
        };
        with_causes(what, &causes)
    }

    /// Returns true if events are missing before the packet or in it. What is older than the
    /// stream's first packet does not count.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.is_damaged || (self.events, self.packets) != (0, 0)
    }

    /// Returns the end of the loss. Only the kernel's tracer misses events before a sub-buffer
    /// begins. Others count those that found no room until the packet's end.
    #[must_use]
    pub fn until(&self, trace: &Trace) -> Option<i64> {
        let until = if self.is_damaged || self.events > 0 && !trace.class().is_ftrace() {
            self.end
        } else {
            self.begin
        };
        until.max(self.before)
    }
}

/// An edge of the time in which events of a stream are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Nanoseconds.
    pub time: i64,
    /// The events are missing until this time, not from it on.
    pub is_end: bool,
    /// The stream.
    pub stream: StreamKey,
    /// Events are missing in the packet, not only before it begins.
    is_in: bool,
}

/// The streams that are read.
pub struct Missing {
    last: HashMap<StreamKey, Last>,
    /// The streams for which the reader reported lost events in the packet that it reads next.
    reported: HashSet<StreamKey>,
    /// The streams a part of which could not be decoded since the last packet began, and the time
    /// of the event before.
    faulted: HashMap<StreamKey, i64>,
    /// The sub-buffers of each trace's streams, and the traces whose accounts were read.
    rows: HashMap<(usize, usize), Rows>,
    known: HashSet<usize>,
    /// Time of the last event that passed.
    now: i64,
    /// The edges that no event has passed.
    edges: BinaryHeap<Reverse<Edge>>,
    /// Number of losses of each stream that have begun and have not ended. A stream without any
    /// has no entry.
    open: BTreeMap<StreamKey, u64>,
}

impl Default for Missing {
    fn default() -> Self {
        Self {
            last: HashMap::new(),
            reported: HashSet::new(),
            faulted: HashMap::new(),
            rows: HashMap::new(),
            known: HashSet::new(),
            now: i64::MIN,
            edges: BinaryHeap::new(),
            open: BTreeMap::new(),
        }
    }
}

/// Returns how much a count has grown, as far as both are known.
fn increase(last: Option<u64>, next: Option<u64>) -> u64 {
    next.zip(last).map_or(0, |(next, last)| next.saturating_sub(last))
}

impl Missing {
    /// Notes the begin of a packet, which is [`Reader::packet`].
    pub fn packet(
        &mut self,
        trace: &Trace,
        stream: &StreamInfo,
        reader: &mut Reader<'_>,
    ) -> Option<Around> {
        let packet = *reader.packet()?;
        let mut time = |clock: Option<u64>| clock.and_then(|clock| reader.nanoseconds(clock));
        // A packet without the time of its begin has a begin of 0.
        let (begin, end) = (time(packet.begin.filter(|begin| *begin > 0)), time(packet.end));
        let place = reader.stream().memory.as_ref().map_or(usize::MAX, |memory| memory.stream);
        let key = (stream.trace, stream.number);
        self.rows_of(trace, stream.trace);
        let (sequence, discarded) = (packet.sequence, packet.discarded);
        let rows = self.rows.get(&(stream.trace, place)).zip(sequence);
        let is_cut = rows.is_some_and(|(rows, number)| rows.is_cut_after(number));
        let is_bad = rows.is_some_and(|(rows, number)| rows.bad.contains(&number));
        let faulted = self.faulted.remove(&key);
        let is_damaged = is_bad || faulted.is_some();
        let is_reported = self.reported.remove(&key);
        let last = self.last.remove(&key);
        let (opened, is_ended) =
            last.as_ref().map_or((None, true), |last| (last.open, last.end.is_some()));
        // Without times, nothing tells in which of two packets events are missing.
        let goes_on = opened.is_some() && !is_ended && begin.is_none();
        let packets =
            last.as_ref().map_or(0, |last| increase(last.sequence, sequence).saturating_sub(1));
        // Events that were discarded before the first packet that is there are counted by it as
        // well.
        let events = increase(last.as_ref().map_or(Some(0), |last| last.discarded), discarded);
        let is_in =
            is_reported || is_damaged || goes_on || events > 0 && !trace.class().is_ftrace();
        let is_first = last.is_none();
        let has_older =
            is_first && (sequence.is_some_and(|number| number > 0) || has_older(trace, place));
        let now = self.now;
        let opened = opened
            .map(|until| if is_ended { until } else { until.max(now).max(begin.unwrap_or(now)) });
        let ended = opened.into_iter().chain(faulted.map(|at| at.max(begin.unwrap_or(now))));
        ended.for_each(|until| {
            self.edges.push(Reverse(Edge { time: until, is_end: true, stream: key, is_in: true }))
        });
        let mut edge = |time: i64, is_end: bool| {
            self.edges.push(Reverse(Edge { time, is_end, stream: key, is_in }))
        };
        let mut open = None;
        if is_in || packets > 0 || events > 0 || has_older {
            let from = last.as_ref().map_or(i64::MIN, |last| last.end.unwrap_or(now));
            let until = if is_in { end } else { begin };
            let is_open = until.is_none() || is_in && trace.account.is_some();
            let until = until.or(end).unwrap_or(from).max(from);
            edge(from, false);
            match is_open {
                true => open = Some(until),
                false => edge(until, true),
            }
        }
        if is_cut && open.is_none() {
            let from = end.or(begin).unwrap_or(i64::MIN);
            edge(from, false);
            open = Some(from);
        }
        let between = last.as_ref().and_then(|last| last.sequence.zip(sequence));
        let before = last.and_then(|last| last.end);
        self.last.insert(key, Last { sequence, discarded, end, open, events, place });
        Some(Around {
            begin,
            end,
            before,
            between,
            events,
            packets,
            is_damaged,
            is_first,
            has_older,
            place,
        })
    }

    /// Reads the rows of a trace's account, unless it has none or they are read. A kernel's packets
    /// have other numbers than its sub-buffers.
    fn rows_of(&mut self, trace: &Trace, at: usize) {
        let Some(account) = trace.account.as_ref().filter(|_| !trace.class().is_ftrace()) else {
            return;
        };
        if !self.known.insert(at) {
            return;
        }
        for row in &account.evidence().sub_buffers {
            let rows = self.rows.entry((at, row.stream)).or_default();
            match row.verdict.is_loss() {
                true => _ = rows.bad.insert(row.sequence),
                false => rows.last_good = rows.last_good.max(Some(row.sequence)),
            }
        }
        // A stream without packets has nothing that ends the loss.
        let is_lost = |stream: &&Memory| {
            self.rows.get(&(at, stream.stream)).is_some_and(|rows| rows.last_good.is_none())
        };
        let lost = trace.streams.iter().filter_map(|stream| stream.memory.as_ref()).filter(is_lost);
        for stream in lost {
            let stream = (at, u64::MAX.saturating_sub(stream.stream as u64));
            self.edges.push(Reverse(Edge { time: i64::MIN, is_end: false, stream, is_in: true }));
        }
    }

    /// Notes that a part of the stream cannot be decoded. The stream's earlier events were taken
    /// before.
    pub fn fault(&mut self, stream: &StreamInfo) {
        let key = (stream.trace, stream.number);
        if let Entry::Vacant(place) = self.faulted.entry(key) {
            place.insert(self.now);
            self.edges.push(Reverse(Edge {
                time: self.now,
                is_end: false,
                stream: key,
                is_in: true,
            }));
        }
    }

    /// Notes a loss that the packets of a trace without an account report.
    pub fn loss(&mut self, stream: &StreamInfo, loss: Loss) {
        if !loss.packets {
            self.reported.insert((stream.trace, stream.number));
        }
    }

    /// Returns what may be missing behind the last packet of each stream, in order of the streams.
    /// To be called after all events.
    #[must_use]
    pub fn tails(&self, traces: &[Trace]) -> Vec<Tail> {
        let tail = |(stream, last): (&StreamKey, &Last)| {
            let account = traces.get(stream.0)?.account.as_ref();
            let known = account.zip(last.open);
            let begin = known.map(|(_, from)| from).or(self.faulted.get(stream).copied())?;
            let rows = self.rows.get(&(stream.0, last.place)).zip(last.sequence).zip(known);
            let behind = rows.and_then(|((rows, number), _)| {
                Some(rows.bad.range(number.checked_add(1)?..).count() as u64)
            });
            let packets =
                behind.filter(|number| *number > 0).map(|number| count(number, "sub-buffer"));
            let events = (known.is_some() && last.events > 0)
                .then(|| format!("up to {}", count(last.events, "event")));
            let parts: Vec<String> = packets.into_iter().chain(events).collect();
            let what = if parts.is_empty() { "events".to_owned() } else { parts.join(" and ") };
            let between = last.sequence.map(|number| (number, u64::MAX));
            let causes = account
                .map_or_else(Vec::new, |account| causes(account.evidence(), last.place, between));
            let what = with_causes(format!("{what} missing"), &causes);
            Some(Tail { stream: *stream, begin, what })
        };
        let mut tails: Vec<Tail> = self.last.iter().filter_map(tail).collect();
        tails.sort_unstable_by_key(|tail| tail.stream);
        tails
    }

    /// Returns the next edge that an event of a stream at a time has passed. To be called until
    /// there is none, before the event is judged.
    #[inline]
    pub fn pass(&mut self, stream: StreamKey, time: i64) -> Option<Edge> {
        self.now = time;
        let Reverse(edge) = *self.edges.peek()?;
        // A loss before a packet ends before the packet's first event, also if both have the same
        // time.
        let is_own_begin = edge.stream == stream && !edge.is_in;
        let is_passed = edge.time < time || edge.time == time && (!edge.is_end || is_own_begin);
        if !is_passed {
            return None;
        }
        self.edges.pop();
        let open = self.open.entry(edge.stream).or_insert(0);
        *open = if edge.is_end { open.saturating_sub(1) } else { open.saturating_add(1) };
        if *open == 0 {
            self.open.remove(&edge.stream);
        }
        Some(edge)
    }

    /// Returns true if events of the trace are missing around the last event that passed.
    #[must_use]
    pub fn is_around(&self, trace: usize) -> bool {
        self.open.range((trace, 0)..=(trace, u64::MAX)).next().is_some()
    }

    /// Returns true if events of the stream are missing around the last event that passed.
    #[must_use]
    pub fn is_in(&self, stream: StreamKey) -> bool {
        self.open.contains_key(&stream)
    }

    /// Returns true if the edge changes what is known of the threads of its trace: a loss begins,
    /// or the last one has ended.
    #[must_use]
    pub fn is_of_threads(&self, edge: &Edge) -> bool {
        !edge.is_end || !self.is_around(edge.stream.0)
    }
}

/// Returns true if the account has events of a stream that are missing before its first packet.
fn has_older(trace: &Trace, stream: usize) -> bool {
    let Some(account) = &trace.account else { return false };
    gaps_of(account.evidence(), stream)
        .any(|gap| is_before_all(gap.cause) || gap.cause == Cause::Unread)
}

/// Returns true if events that are missing for this cause are older than all that is there.
#[must_use]
pub fn is_before_all(cause: Cause) -> bool {
    matches!(cause, Cause::Overwritten | Cause::Cleared | Cause::Consumed | Cause::Dropped)
}

fn gaps_of(evidence: &Evidence, stream: usize) -> impl Iterator<Item = &Gap> {
    evidence.gaps.iter().filter(move |gap| gap.stream == Some(stream))
}

/// Returns the words for the causes of a stream's gaps, and for its damaged sub-buffers behind one
/// up to another.
fn causes(evidence: &Evidence, stream: usize, between: Option<(u64, u64)>) -> Vec<String> {
    let gaps = gaps_of(evidence, stream).filter(|gap| !is_before_all(gap.cause));
    let mut words: BTreeSet<String> = gaps.map(|gap| gap.cause.word().to_owned()).collect();
    let is_between =
        |sequence: u64| between.is_some_and(|(last, next)| last < sequence && sequence <= next);
    let rows =
        evidence.sub_buffers.iter().filter(|row| row.stream == stream && is_between(row.sequence));
    let bad = rows.filter(|row| row.verdict.is_loss());
    words.extend(bad.map(|row| row.verdict.word().to_owned()));
    words.into_iter().collect()
}

fn with_causes(what: String, causes: &[String]) -> String {
    if causes.is_empty() { what } else { format!("{what}: {}", causes.join(", ")) }
}

/// Returns each gap of a stream with a wanted cause, in words.
pub fn words(evidence: &Evidence, stream: usize, wanted: impl Fn(Cause) -> bool) -> Vec<String> {
    let gaps = gaps_of(evidence, stream).filter(|gap| wanted(gap.cause));
    let sentence = |gap: &Gap| {
        let sizes = [
            gap.events.map(|number| count(number, "event")),
            gap.bytes.map(|number| count(number, "byte")),
        ];
        let sizes: Vec<String> = sizes.into_iter().flatten().collect();
        let size = if sizes.is_empty() { "events".to_owned() } else { sizes.join(", ") };
        format!("{size}: {}", gap.cause.word())
    };
    gaps.map(sentence).collect()
}

/// Formats a number with its unit: `1 event`, `2 events`.
#[must_use]
pub fn count(number: u64, unit: &str) -> String {
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}
