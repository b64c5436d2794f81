//! Writes the events of sessions and CTF traces. Each event is an instant on the track of its
//! thread. Spans are slices besides.

use std::collections::HashMap;

use lastwords_ctf::read::{Due, Loss, Reader, Trace};
use lastwords_trace::class::{LogLevel, Scope};
use lastwords_trace::evidence::Cause;

use super::annotations::{ANNOTATIONS, Annotations, Thread, annotation};
use super::losses::{Drawn, Losses, Until};
use super::proto::Message;
use super::spans::{Edge, Kind, Label, Spans, Stepped};
use super::{Timeline, packet, put_packet};
use crate::events::Line;
use crate::fields::{Nesting, Role, roles};
use crate::missing::{Missing, StreamKey, Tail, is_before_all, words};
use crate::select::Selection;
use crate::spans::{OpenSpan, Step};
use crate::streams::{StreamInfo, channel, scope_code};

/// Maximum number of tracks. Events of further threads are put on the track of their stream.
const MAX_TRACKS: usize = 1 << 16;

/// The first id of a process's track. The ids of threads and streams are smaller.
const FIRST_PROCESS: u64 = 1 << 32;

/// The thread or stream whose events are on a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Thread { trace: usize, pid: i64, tid: i64 },
    Stream { stream: usize },
}

/// Positions of a trace, a stream class and an event class, and a scope.
type ScopeKey = (usize, usize, usize, Scope);

/// Writes events as instants and slices.
pub(super) struct Tracks<'t> {
    traces: &'t [Trace],
    streams: Vec<StreamInfo>,
    /// The roles of the nodes of each scope.
    roles: HashMap<ScopeKey, Vec<Role>>,
    /// The thread names of each trace by thread id. They serve events whose contexts have no name.
    names: Vec<HashMap<i64, &'t str>>,
    timeline: &'t Timeline,
    /// The id of each track, and true if the track has its thread's name.
    tracks: HashMap<Owner, (u64, bool)>,
    /// The ids of the tracks of processes, by trace and process id.
    processes: HashMap<(usize, i64), u64>,
    selection: &'t Selection,
    spans: Spans,
    /// Number of events of threads that have no track, and of losses without a slice of their own.
    without_track: u64,
    merged: u64,
    missing: Missing,
    losses: Losses,
    packet: Message,
    event: Message,
}

/// Returns the name of a stream's track.
fn stream_name(channel: &str, cpu: Option<u32>) -> String {
    cpu.map_or_else(|| channel.to_owned(), |cpu| format!("{channel}, CPU {cpu}"))
}

/// Returns the events that are older than a stream's first packet, in words.
fn older(trace: &Trace, stream: usize) -> String {
    let account = trace.account.as_ref();
    let is_older = |cause: Cause| is_before_all(cause) || cause == Cause::Unread;
    let words =
        account.map_or_else(Vec::new, |account| words(account.evidence(), stream, is_older));
    let words = if words.is_empty() { "events".to_owned() } else { words.join("; ") };
    format!("missing before: {words}")
}

impl Line for Tracks<'_> {
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>) {
        let Some(facts) = self.streams.get(stream).cloned() else { return };
        let Some(trace) = self.traces.get(facts.trace) else { return };
        let Some(class) = trace.class().streams.get(facts.class) else { return };
        let Some(described) = class.events.get(event.class) else { return };
        let name = described.name.as_deref().unwrap_or("<unknown>");
        if let Some(time) = event.nanoseconds {
            self.pass((facts.trace, facts.number), time, out);
        }
        let mut thread = Thread::default();
        self.annotate(&facts, trace, reader, event, &mut thread);
        if thread.name.is_empty() {
            let listed = thread.tid.and_then(|id| self.names.get(facts.trace)?.get(&id).copied());
            thread.name = listed.unwrap_or_default().as_bytes().to_vec();
        }
        let channel = channel(class);
        let track = self.track(out, stream, &facts, &channel, &thread);
        let step = Step::parse(name).zip(thread.span);
        let fields = step.map_or_else(Vec::new, |_| self.event.bytes().to_vec());
        let (level, time) = (described.log_level, event.nanoseconds);
        self.put_event(out, (Kind::Instant, track), name, (&channel, level), time);
        let Some(((step, span_name), id)) = step else { return };
        let is_of_thread = matches!(step, Step::Enter | Step::Exit);
        if step == Step::Record || is_of_thread && !self.selection.has_both_ends(span_name) {
            return;
        }
        let process = self.process(out, facts.trace, thread.pid);
        let label = &Label { name: span_name.to_owned(), channel, level };
        let is_unsure = time.is_some() && self.missing.is_around(facts.trace);
        let (key, fields) =
            ((facts.trace, thread.pid.or(trace.class().number("vpid")), id), &fields);
        let at = Stepped { step, key, label, fields, time, thread: track, process, is_unsure };
        for edge in self.spans.step(&at) {
            self.event.clear();
            self.event.append(&edge.fields);
            self.put_edge(out, edge);
        }
    }

    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>, out: &mut Vec<u8>) {
        let Some(facts) = self.streams.get(stream) else { return };
        let Some(trace) = self.traces.get(facts.trace) else { return };
        let Some(around) = self.missing.packet(trace, facts, reader) else { return };
        let older = around.has_older.then(|| older(trace, around.place));
        let older = older.and_then(|what| self.losses.older(stream, &around, what));
        let lost = self.losses.add(stream, &around, around.until(trace), || around.what(trace));
        for drawn in older.into_iter().chain(lost) {
            self.put_loss(out, stream, drawn);
        }
    }

    fn loss(&mut self, stream: usize, loss: Loss) {
        self.streams.get(stream).into_iter().for_each(|facts| self.missing.loss(facts, loss));
    }

    fn fault(&mut self, stream: usize) {
        self.streams.get(stream).into_iter().for_each(|facts| self.missing.fault(facts));
    }
}

impl<'t> Tracks<'t> {
    pub(super) fn new(
        traces: &'t [Trace],
        streams: Vec<StreamInfo>,
        timeline: &'t Timeline,
        selection: &'t Selection,
    ) -> Self {
        Self {
            traces,
            streams,
            roles: HashMap::new(),
            names: traces.iter().map(|trace| trace.class().thread_names()).collect(),
            timeline,
            tracks: HashMap::new(),
            processes: HashMap::new(),
            selection,
            spans: Spans::default(),
            without_track: 0,
            merged: 0,
            missing: Missing::default(),
            losses: Losses::default(),
            packet: Message::default(),
            event: Message::default(),
        }
    }

    /// Returns what the file does not show, in words.
    pub(super) fn remarks(&self) -> Vec<String> {
        let (spans, events) = (self.spans.not_drawn, self.without_track);
        let spans = (spans > 0)
            .then(|| format!("{spans} slices of spans are not drawn: too many are open at a time"));
        let events = (events > 0).then(|| {
            format!("{events} events are on the tracks of their streams: more than {MAX_TRACKS} threads have events")
        });
        let merged = self.merged;
        let merged = (merged > 0).then(|| {
            format!("{merged} gaps of streams are drawn as one of each stream, behind the others: there are too many")
        });
        spans.into_iter().chain(events).chain(merged).collect()
    }

    /// Writes the losses that have no slices of their own, and those behind the last packets.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.merged = self.losses.merged();
        for (stream, drawn) in self.losses.finish() {
            self.put_loss(out, stream, drawn);
        }
        for Tail { stream, begin, what } in self.missing.tails(self.traces) {
            let Some(at) =
                self.streams.iter().position(|facts| (facts.trace, facts.number) == stream)
            else {
                continue;
            };
            let drawn = self.losses.tail(at, begin, what);
            self.put_loss(out, at, drawn);
        }
    }

    /// Writes what is missing in a stream, and before it the description of the track.
    fn put_loss(&mut self, out: &mut Vec<u8>, stream: usize, drawn: Drawn) {
        let Drawn { track, is_new, what, begin, until } = drawn;
        if is_new {
            let facts = self.streams.get(stream);
            let class = facts.and_then(|facts| facts.class(self.traces));
            let name = stream_name(
                &class.map(channel).unwrap_or_default(),
                facts.and_then(|facts| facts.cpu),
            );
            self.packet.nested(packet::TRACK_DESCRIPTOR, |described| {
                described.number(1, track);
                described.text(2, format!("{name}: missing events").as_bytes());
            });
            put_packet(out, &mut self.packet);
        }
        let edges = match until {
            Until::Before => vec![(Kind::Instant, begin)],
            Until::Time(end) => vec![(Kind::Begin, begin), (Kind::End, end)],
            Until::End => vec![(Kind::Begin, begin)],
        };
        for (kind, time) in edges {
            self.event.clear();
            self.put_event(out, (kind, track), &what, ("", None), Some(time));
        }
    }

    /// Ends what threads are in where events of their trace are missing, up to the time of an event
    /// of a stream.
    fn pass(&mut self, stream: StreamKey, time: i64, out: &mut Vec<u8>) {
        while let Some(passed) = self.missing.pass(stream, time) {
            if !self.missing.is_of_threads(&passed) {
                continue;
            }
            for edge in self.spans.lost(passed.stream.0, passed.time) {
                self.event.clear();
                self.put_edge(out, edge);
            }
        }
    }

    /// Starts a new track event with an annotation for each field that is shown.
    fn annotate(
        &mut self,
        facts: &StreamInfo,
        trace: &Trace,
        reader: &mut Reader<'_>,
        event: &Due,
        thread: &mut Thread,
    ) {
        self.event.clear();
        let (_, decoder, part) = reader.parts();
        let mut at = event.body;
        for scope in [Scope::CommonContext, Scope::SpecificContext, Scope::Payload] {
            let Some(code) = scope_code(trace, scope, facts.class, event.class) else { continue };
            let key = (facts.trace, facts.class, event.class, scope);
            let roles = self.roles.entry(key).or_insert_with(|| roles(code));
            let is_payload = scope == Scope::Payload;
            let (stack, nesting, event) = (Vec::new(), Nesting::default(), &mut self.event);
            let mut fields = Annotations {
                event,
                code,
                roles,
                thread,
                is_payload,
                stack,
                nesting,
                octets: None,
                optional: None,
            };
            match trace.program.visit(decoder, code, &part, at, &mut fields) {
                Ok(end) => at = end,
                // The reader has accepted the same bytes.
                Err(_) => break,
            }
        }
    }

    /// Writes a span that was open at the end, unless it is drawn.
    pub(super) fn open(&mut self, span: &OpenSpan, out: &mut Vec<u8>) {
        let process = self.process(out, span.trace, Some(i64::from(span.pid)));
        let Some(edge) = self.spans.begun_before(span, process) else { return };
        self.event.clear();
        for (name, value) in
            [("tid", u64::from(span.tid)), ("parent_id", span.parent), ("span_id", span.id)]
        {
            self.event.nested(ANNOTATIONS, |note| {
                note.text(annotation::NAME, name.as_bytes());
                note.number(annotation::UNSIGNED, value);
            });
        }
        self.event.nested(ANNOTATIONS, |note| {
            note.text(annotation::NAME, b"fields");
            note.text(annotation::TEXT, span.fields.as_bytes());
        });
        self.put_edge(out, edge);
    }

    /// Writes the begin or the end of a slice, whose annotations are in `self.event`, and before it
    /// the description of its track.
    fn put_edge(
        &mut self,
        out: &mut Vec<u8>,
        Edge { kind, track, label, time, remark, described, .. }: Edge,
    ) {
        if let Some(remark) = remark {
            let name: &[u8] = if kind == Kind::End { b"end" } else { b"begin" };
            self.event.nested(ANNOTATIONS, |note| {
                note.text(annotation::NAME, name);
                note.text(annotation::TEXT, remark.as_bytes());
            });
        }
        if let Some(described) = described {
            self.packet.message(packet::TRACK_DESCRIPTOR, &described);
            put_packet(out, &mut self.packet);
        }
        self.put_event(out, (kind, track), &label.name, (&label.channel, label.level), time);
    }

    /// Writes the track event whose annotations are in `self.event`. `labels` are its channel and
    /// its level.
    fn put_event(
        &mut self,
        out: &mut Vec<u8>,
        (kind, track): (Kind, u64),
        name: &str,
        (channel, severity): (&str, Option<LogLevel>),
        nanoseconds: Option<i64>,
    ) {
        self.event.number(9, kind as u64);
        self.event.number(11, track);
        if kind != Kind::End {
            if !channel.is_empty() {
                self.event.text(22, channel.as_bytes());
            }
            severity.iter().for_each(|severity| self.event.text(22, severity.word().as_bytes()));
            self.event.text(23, name.as_bytes());
        }
        self.packet.number(packet::TIMESTAMP, self.timeline.time(nanoseconds));
        self.packet.number(packet::CLOCK_ID, self.timeline.clock);
        self.packet.message(packet::TRACK_EVENT, &self.event);
        put_packet(out, &mut self.packet);
    }

    /// Returns the id of the track of a process, by default the one that created the session.
    /// Writes the description of the track if the track is new. A session knows the name of the
    /// program that created it.
    fn process(&mut self, out: &mut Vec<u8>, at: usize, pid: Option<i64>) -> u64 {
        let trace = self.traces.get(at);
        let creator = trace.and_then(|trace| trace.class().number("vpid"));
        let pid = pid.or(creator).unwrap_or(0);
        if let Some(id) = self.processes.get(&(at, pid)) {
            return *id;
        }
        let id = FIRST_PROCESS.saturating_add(self.processes.len() as u64);
        self.processes.insert((at, pid), id);
        let program =
            trace.and_then(|trace| trace.class().text("program")).filter(|_| creator == Some(pid));
        self.packet.nested(packet::TRACK_DESCRIPTOR, |track| {
            track.number(1, id);
            track.nested(3, |process| {
                process.signed(1, pid);
                if let Some(program) = program {
                    process.text(2, program.as_bytes());
                    process.text(6, program.rsplit('/').next().unwrap_or(program).as_bytes());
                }
            });
        });
        put_packet(out, &mut self.packet);
        id
    }

    /// Returns the id of the track of an event. Writes the description of the track if the track is
    /// new, and again when the name of its thread becomes known.
    fn track(
        &mut self,
        out: &mut Vec<u8>,
        stream: usize,
        facts: &StreamInfo,
        channel: &str,
        thread: &Thread,
    ) -> u64 {
        let by_stream = Owner::Stream { stream };
        let creator = || self.traces.get(facts.trace)?.class().number("vpid");
        let wanted = match (thread.pid.or_else(creator), thread.tid) {
            (Some(pid), Some(tid)) => Owner::Thread { trace: facts.trace, pid, tid },
            _ => by_stream,
        };
        let is_full = self.tracks.len() >= MAX_TRACKS;
        let has_none = is_full && wanted != by_stream && !self.tracks.contains_key(&wanted);
        self.without_track = self.without_track.saturating_add(u64::from(has_none));
        let owner = if has_none { by_stream } else { wanted };
        let known = self.tracks.get(&owner).copied();
        let named = !thread.name.is_empty();
        if let Some((id, had)) = known
            && (had || !named || owner == by_stream)
        {
            return id;
        }
        if let Owner::Thread { pid, .. } = owner {
            self.process(out, facts.trace, Some(pid));
        }
        let id = known.map_or_else(|| (self.tracks.len() as u64).saturating_add(1), |(id, _)| id);
        self.tracks.insert(owner, (id, named));
        self.packet.nested(packet::TRACK_DESCRIPTOR, |track| {
            track.number(1, id);
            match owner {
                Owner::Thread { pid, tid, .. } => track.nested(4, |of| {
                    of.signed(1, pid);
                    of.signed(2, tid);
                    if !thread.name.is_empty() {
                        of.text(5, &thread.name);
                    }
                }),
                Owner::Stream { .. } => {
                    track.text(2, stream_name(channel, facts.cpu).as_bytes());
                }
            }
        });
        put_packet(out, &mut self.packet);
        id
    }
}
