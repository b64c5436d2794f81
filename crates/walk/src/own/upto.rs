//! Reading up to where a consumer of a living session chose: what lies behind is left for its next read.

use super::plan::Planner;
use lastwords_abi::stream::POSITION_BITS;
use lastwords_trace::evidence::Cause;

/// How far the streams of one session are read; of others, all is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Upto {
    /// UUID of the session.
    pub session: [u8; 16],
    /// By index of the stream; of those that are none, nothing is read.
    pub streams: Vec<Option<End>>,
}

impl Upto {
    /// Where reading of a stream ends.
    pub(crate) fn of(&self, stream: u32) -> Option<End> {
        usize::try_from(stream).ok().and_then(|index| self.streams.get(index)).copied().flatten()
    }
}

/// Where reading of a stream ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    /// The half that is read.
    pub half: usize,
    /// Position before which nothing is still being written, bytes since the half was begun.
    pub position: u64,
    /// Lost events by cause, as in [`super::info::StreamInfo::lost`].
    pub lost: [u64; 7],
    /// How many of these were told of before.
    pub told: [u64; 7],
    /// Clock of the last event that is wanted: those of before it in other streams would be delivered behind later ones.
    pub clock: Option<u64>,
    /// Nobody records any more: what was being written there will not come about.
    pub is_over: bool,
}

impl End {
    /// What was lost since it was told of last.
    pub(crate) fn lost_since(&self) -> [u64; 7] {
        std::array::from_fn(|cause| match (self.lost.get(cause), self.told.get(cause)) {
            (Some(lost), Some(told)) => lost.saturating_sub(*told),
            _ => 0,
        })
    }
}

impl Planner<'_> {
    /// Takes the control words as they were when reading was to end there. False where nothing is to be read.
    pub(crate) fn stop_at(&mut self, end: &End) -> bool {
        self.control.lost = end.lost_since();
        let g = self.stream.geometry;
        let Some(words) = self.control.half.get_mut(end.half) else { return false };
        if words.position(&g) > end.position {
            let keep = if g.is_lockless() { u64::MAX.wrapping_shl(POSITION_BITS) } else { 0 };
            words.reserve = (words.reserve & keep) | end.position;
            words.attempt = end.position;
        }
        if !g.is_lockless() && !end.is_over {
            // What is being written lies behind the end: the next read has it.
            words.attempt = end.position;
        }
        // That of an event behind the end.
        words.last_clock = 0;
        let first = words.first;
        if first > end.position {
            self.gap(format!("positions up to {}, while they were read", end.position), Cause::Cleared, None);
        }
        first < end.position
    }
}
