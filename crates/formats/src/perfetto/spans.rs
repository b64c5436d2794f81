//! Draws the spans of sessions as slices.
//!
//! Spans overlap as they like, and a track of Perfetto has only slices that contain each other. So a span is drawn on a
//! lane, a track of its own below its process, which the next span of this name uses when the span has ended. Perfetto
//! shows lanes of one name together. Each time that a thread is in a span is a slice on the thread's track.

use std::collections::HashMap;

use super::proto::Message;
use super::tracks::Kind;
use crate::spans::Step;

/// Maximum number of spans that are open at a time. Further ones are not drawn.
const MAX_OPEN: usize = 1 << 16;
/// The first id of a lane. The ids of other tracks are smaller.
const FIRST_LANE: u64 = 1 << 40;

/// A span's number in its trace.
type SpanKey = (usize, u64);
/// The process of a lane, by the id of its track, and the name of the lane's spans.
type LaneKey = (u64, String);

/// A span that is open.
struct Open {
    lane: u64,
    key: LaneKey,
    /// The fields, as annotations.
    fields: Vec<u8>,
}

/// A slice's begin or end.
pub(super) struct Edge {
    pub(super) kind: Kind,
    pub(super) track: u64,
    /// The annotations of a begin.
    pub(super) fields: Vec<u8>,
    /// The description of the track, if the track is new.
    pub(super) described: Option<Message>,
}

/// The spans of all traces.
#[derive(Default)]
pub(super) struct Spans {
    open: HashMap<SpanKey, Open>,
    /// The lanes that no span uses.
    free: HashMap<LaneKey, Vec<u64>>,
    lanes: u64,
}

impl Spans {
    /// Returns the edge that a step of a span draws, if there is one. `fields` are the annotations of the event, `thread`
    /// and `process` the ids of tracks.
    pub(super) fn step(
        &mut self,
        step: Step,
        key: SpanKey,
        name: &str,
        fields: &[u8],
        (thread, process): (u64, u64),
    ) -> Option<Edge> {
        let edge = |kind, track, fields| Edge { kind, track, fields, described: None };
        match step {
            Step::New if self.open.len() < MAX_OPEN && !self.open.contains_key(&key) => {
                let lane_key = (process, name.to_owned());
                let free = self.free.get_mut(&lane_key).and_then(Vec::pop);
                let (lane, described) = free.map_or_else(|| self.lane(name, process), |lane| (lane, None));
                self.open.insert(key, Open { lane, key: lane_key, fields: fields.to_vec() });
                Some(Edge { described, ..edge(Kind::Begin, lane, fields.to_vec()) })
            }
            Step::New => None,
            Step::Close => {
                let Open { lane, key, .. } = self.open.remove(&key)?;
                self.free.entry(key).or_default().push(lane);
                Some(edge(Kind::End, lane, Vec::new()))
            }
            Step::Enter => {
                let known = self.open.get(&key).map(|open| open.fields.clone());
                Some(edge(Kind::Begin, thread, known.unwrap_or_else(|| fields.to_vec())))
            }
            Step::Exit => Some(edge(Kind::End, thread, Vec::new())),
        }
    }
    /// Returns the begin of a span that was open at the end, unless it is drawn: the event of its opening was overwritten, or is not
    /// selected. It has a lane of its own, because other spans have used the other lanes since it was opened.
    pub(super) fn begun_before(&mut self, key: SpanKey, name: &str, process: u64) -> Option<Edge> {
        if self.open.len() >= MAX_OPEN || self.open.contains_key(&key) {
            return None;
        }
        let (track, described) = self.lane(name, process);
        self.open.insert(key, Open { lane: track, key: (process, name.to_owned()), fields: Vec::new() });
        Some(Edge { kind: Kind::Begin, track, fields: Vec::new(), described })
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
