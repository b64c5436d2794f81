//! Draws the spans of sessions as slices.
//!
//! Spans overlap as they like, and a track of Perfetto has only slices that contain each other. So
//! a span is drawn on a lane, a track of its own below its process, which the next span of this
//! name uses when the span has ended. Perfetto shows lanes of one name together. Each time that a
//! thread is in a span is a slice on the thread's track.

use std::collections::HashMap;

/// The type of a track event: `TrackEvent.Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
}

use lastwords_trace::class::LogLevel;

use super::proto::Message;
use crate::spans::{MAX_OPEN, OpenSpan, Opened, SpanKey, Step};

/// The first id of a lane. The ids of other tracks are smaller.
const FIRST_LANE: u64 = 1 << 40;

/// The process of a lane, by the id of its track, and the name of the lane's spans.
type LaneKey = (u64, String);

/// A span that is open.
struct Open {
    lane: u64,
    key: LaneKey,
    /// The fields, as annotations.
    fields: Vec<u8>,
}

/// A step of a span, as an event tells it.
pub(super) struct Stepped<'a> {
    pub(super) step: Step,
    pub(super) key: SpanKey,
    pub(super) label: &'a Label,
    /// The annotations of the event.
    pub(super) fields: &'a [u8],
    pub(super) time: Option<i64>,
    /// The ids of the tracks of thread and process.
    pub(super) thread: u64,
    pub(super) process: u64,
    /// Events are missing around this one.
    pub(super) is_unsure: bool,
}

/// The name and the categories of a slice.
#[derive(Debug, Clone, Default)]
pub(super) struct Label {
    pub(super) name: String,
    pub(super) channel: String,
    pub(super) level: Option<LogLevel>,
}

/// A slice's begin or end.
pub(super) struct Edge {
    pub(super) kind: Kind,
    pub(super) track: u64,
    pub(super) label: Label,
    pub(super) time: Option<i64>,
    /// The annotations of a begin.
    pub(super) fields: Vec<u8>,
    /// An annotation that says what the slice does not show.
    pub(super) remark: Option<&'static str>,
    /// The description of the track, if the track is new.
    pub(super) described: Option<Message>,
}

impl Edge {
    /// Returns an edge without annotations, on a track that is described.
    fn new(kind: Kind, track: u64, label: Label, time: Option<i64>) -> Self {
        Self { kind, track, label, time, fields: Vec::new(), remark: None, described: None }
    }
}

/// A span that a thread is in.
#[derive(Clone)]
struct Entered {
    key: SpanKey,
    label: Label,
    fields: Vec<u8>,
    time: Option<i64>,
    /// Events were missing when it was entered: its end may be among them.
    is_unsure: bool,
}

/// The slice ends where another one that contains it does, and goes on behind that end.
const GOES_ON: &str = "goes on in the next slice of this name";
/// The slice goes on from one before, which another one contained.
const WENT_ON: &str = "goes on from the slice of this name before";
/// The end of the slice is not recorded.
const LOST: &str = "not recorded: events are missing here";
/// The end of the slice may be that of another.
const UNSURE: &str = "may be that of another slice: events are missing here";

/// The spans of all traces.
#[derive(Default)]
pub(super) struct Spans {
    open: Opened<Open>,
    /// The lanes that no span uses.
    free: HashMap<LaneKey, Vec<u64>>,
    lanes: u64,
    /// The spans that the thread of each track is in, the innermost last.
    entered: HashMap<u64, Vec<Entered>>,
    /// Number of all that threads are in.
    inside: usize,
    /// Number of slices that are not drawn, because too many are open.
    pub(super) not_drawn: u64,
}

impl Spans {
    /// Returns the edges that a step of a span draws.
    pub(super) fn step(&mut self, at: &Stepped<'_>) -> Vec<Edge> {
        let &Stepped { step, key, label, fields, time, thread, process, is_unsure } = at;
        let edge =
            |kind, track, fields| Edge { fields, ..Edge::new(kind, track, label.clone(), time) };
        match step {
            Step::New if self.open.has(&key) => Vec::new(),
            Step::New if self.open.has_room() => {
                let lane_key = (process, label.name.clone());
                let free = self.free.get_mut(&lane_key).and_then(Vec::pop);
                let (lane, described) =
                    free.map_or_else(|| self.lane(&label.name, process), |lane| (lane, None));
                self.open.open(key, Open { lane, key: lane_key, fields: fields.to_vec() });
                vec![Edge { described, ..edge(Kind::Begin, lane, fields.to_vec()) }]
            }
            Step::Close => {
                let Some(Open { lane, key, .. }) = self.open.close(&key) else {
                    return Vec::new();
                };
                self.free.entry(key).or_default().push(lane);
                vec![edge(Kind::End, lane, Vec::new())]
            }
            Step::Enter if self.inside < MAX_OPEN => {
                let known = self.open.get(&key).map(|open| open.fields.clone());
                let fields = known.unwrap_or_else(|| fields.to_vec());
                self.inside = self.inside.saturating_add(1);
                let entered =
                    Entered { key, label: label.clone(), fields: fields.clone(), time, is_unsure };
                self.entered.entry(thread).or_default().push(entered);
                vec![edge(Kind::Begin, thread, fields)]
            }
            Step::Record => Vec::new(),
            Step::New | Step::Enter => {
                self.not_drawn = self.not_drawn.saturating_add(1);
                Vec::new()
            }
            Step::Exit => self.exit(at),
        }
    }

    /// A thread leaves a span. What it entered after that, and is still in, goes on in slices of
    /// their own: a track of Perfetto has only slices that contain each other. What it entered
    /// where events are missing has more likely ended there.
    fn exit(&mut self, at: &Stepped<'_>) -> Vec<Edge> {
        let &Stepped { key, time, thread, .. } = at;
        let Some(stack) = self.entered.get_mut(&thread) else { return Vec::new() };
        let Some(place) = stack.iter().rposition(|entered| entered.key == key) else {
            return Vec::new();
        };
        self.inside = self.inside.saturating_sub(1);
        let left = stack.remove(place);
        let inner = stack.split_off(place);
        let edge = |kind, of: &Entered, remark| Edge {
            remark,
            ..Edge::new(kind, thread, of.label.clone(), time)
        };
        let remark = |entered: &Entered| if entered.is_unsure { LOST } else { GOES_ON };
        let ends =
            inner.iter().rev().map(|entered| edge(Kind::End, entered, Some(remark(entered))));
        let own = edge(Kind::End, &left, left.is_unsure.then_some(UNSURE));
        let mut edges: Vec<Edge> = ends.chain([own]).collect();
        let before = stack.len();
        for entered in inner.iter().filter(|entered| !entered.is_unsure) {
            edges.push(Edge {
                fields: entered.fields.clone(),
                ..edge(Kind::Begin, entered, Some(WENT_ON))
            });
            stack.push(entered.clone());
        }
        let gone = inner.len().saturating_sub(stack.len().saturating_sub(before));
        self.inside = self.inside.saturating_sub(gone);
        edges
    }

    /// Events of a trace are missing from this time on: what its threads are in is not known any
    /// more. Returns the ends of the slices.
    pub(super) fn lost(&mut self, trace: usize, time: i64) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (track, stack) in &mut self.entered {
            // The spans of a thread's track are all of one trace.
            if stack.last().is_none_or(|entered| entered.key.0 != trace) {
                continue;
            }
            self.inside = self.inside.saturating_sub(stack.len());
            // A slice does not end before those in it began.
            let end =
                stack.iter().filter_map(|entered| entered.time).max().unwrap_or(time).max(time);
            let ended = |Entered { label, .. }| Edge {
                remark: Some(LOST),
                ..Edge::new(Kind::End, *track, label, Some(end))
            };
            edges.extend(stack.drain(..).rev().map(ended));
        }
        self.entered.retain(|_, stack| !stack.is_empty());
        // The order of a map is not that of another run.
        edges.sort_by_key(|edge| edge.track);
        edges
    }

    /// Returns the begin of a span that was open at the end, unless it is drawn: the event of its
    /// opening was overwritten, or is not selected. It has a lane of its own, because other spans
    /// have used the other lanes since it was opened.
    pub(super) fn begun_before(&mut self, span: &OpenSpan, process: u64) -> Option<Edge> {
        let keys = span.keys();
        if keys.iter().any(|key| self.open.has(key)) {
            return None;
        }
        if !self.open.has_room() {
            self.not_drawn = self.not_drawn.saturating_add(1);
            return None;
        }
        let (track, described) = self.lane(&span.name, process);
        self.open.open(
            keys[0],
            Open { lane: track, key: (process, span.name.clone()), fields: Vec::new() },
        );
        let label = Label { name: span.name.clone(), ..Label::default() };
        Some(Edge { described, ..Edge::new(Kind::Begin, track, label, Some(span.opened)) })
    }

    /// Returns a new lane and its description.
    fn lane(&mut self, name: &str, process: u64) -> (u64, Option<Message>) {
        self.lanes = self.lanes.saturating_add(1);
        let lane = FIRST_LANE.saturating_add(self.lanes);
        let mut track = Message::default();
        track.number(1, lane);
        track.text(2, name.as_bytes());
        track.number(5, process);
        (lane, Some(track))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_find_no_place_are_counted() {
        let (mut spans, label) = (Spans::default(), Label::default());
        let at = |step, id| Stepped {
            step,
            key: (0, None, id),
            label: &label,
            fields: &[],
            time: Some(1),
            thread: 1,
            process: 2,
            is_unsure: false,
        };
        let most = MAX_OPEN as u64;
        for id in 0..=most {
            assert_eq!(spans.step(&at(Step::New, id)).len(), usize::from(id < most), "{id}");
            assert_eq!(spans.step(&at(Step::Enter, id)).len(), usize::from(id < most), "{id}");
        }
        assert_eq!(spans.not_drawn, 2);
        assert_eq!(spans.step(&at(Step::Exit, most)).len(), 0);
        assert_eq!(spans.step(&at(Step::Exit, most - 2)).len(), 3);
        assert_eq!(spans.step(&at(Step::Enter, most)).len(), 1);
        assert_eq!(spans.step(&at(Step::Close, 0)).len(), 1);
        assert_eq!(spans.step(&at(Step::New, most)).len(), 1);
        assert_eq!(spans.lost(1, 5).len(), 0);
        assert_eq!(spans.lost(0, 5).len(), MAX_OPEN);
        assert_eq!((spans.inside, spans.not_drawn), (0, 2));
    }
}
