//! Draws where events of a stream are missing, as slices on a track of their own: spans may be on the stream's track, and the end of a slice
//! ends the innermost one of its track.

use std::collections::{BTreeMap, HashSet};

use crate::missing::{Around, count};

/// Most losses that have slices of their own. Each stream has one slice for all further ones.
const MOST: u64 = 1 << 14;
/// The first id of a track of losses. The ids of other tracks are smaller.
const FIRST_TRACK: u64 = 1 << 41;

/// A slice, or an instant if it has no end. Times are nanoseconds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) track: u64,
    /// The description of the track is not written.
    pub(super) is_new: bool,
    pub(super) what: String,
    pub(super) begin: Option<i64>,
    pub(super) end: Option<i64>,
}

/// The further losses of a stream.
#[derive(Debug, Default)]
struct Rest {
    begin: Option<i64>,
    end: Option<i64>,
    number: u64,
    events: u64,
    packets: u64,
}

/// The losses of all streams.
#[derive(Default)]
pub(super) struct Losses {
    drawn: u64,
    described: HashSet<usize>,
    /// The end of the last slice of each stream.
    ends: BTreeMap<usize, i64>,
    rest: BTreeMap<usize, Rest>,
}

impl Losses {
    /// Returns the slice of the events and packets that are missing around a packet of a stream until a time.
    pub(super) fn add(
        &mut self,
        stream: usize,
        around: &Around,
        until: Option<i64>,
        what: impl FnOnce() -> String,
    ) -> Option<Drawn> {
        if (around.events, around.packets) == (0, 0) {
            return None;
        }
        // Damaged packets may overlap, but slices of a track do not.
        let begin = around.before.or(around.begin).max(self.ends.get(&stream).copied());
        let end = until.max(begin);
        self.ends.extend(end.map(|end| (stream, end)));
        if self.drawn >= MOST {
            let rest = self.rest.entry(stream).or_default();
            rest.begin = rest.begin.or(begin);
            rest.end = end;
            rest.number = rest.number.saturating_add(1);
            rest.events = rest.events.saturating_add(around.events);
            rest.packets = rest.packets.saturating_add(around.packets);
            return None;
        }
        self.drawn = self.drawn.saturating_add(1);
        Some(self.slice(stream, what(), begin, end))
    }

    /// Returns the mark of events that are older than a stream's first packet.
    pub(super) fn older(&mut self, stream: usize, around: &Around, what: String) -> Drawn {
        self.slice(stream, what, around.begin, None)
    }

    fn slice(&mut self, stream: usize, what: String, begin: Option<i64>, end: Option<i64>) -> Drawn {
        let track = FIRST_TRACK.saturating_add(stream as u64);
        Drawn { track, is_new: self.described.insert(stream), what, begin, end }
    }

    /// Returns the streams that have further losses, with the slice of these.
    pub(super) fn finish(&mut self) -> Vec<(usize, Drawn)> {
        let rests = std::mem::take(&mut self.rest);
        let slice = |(stream, rest): (usize, Rest)| {
            let Rest { begin, end, number, events, packets } = rest;
            let (events, packets) = (count(events, "event"), count(packets, "packet"));
            let what = format!("{} between these times: {events} and {packets} missing", count(number, "gap"));
            (stream, self.slice(stream, what, begin, end.or(begin)))
        };
        rests.into_iter().map(slice).collect()
    }

    /// Returns the number of losses without a slice of their own.
    pub(super) fn merged(&self) -> u64 {
        self.rest.values().map(|rest| rest.number).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_losses_of_a_stream_are_one_slice() {
        let mut losses = Losses::default();
        let around = |begin: i64, events: u64| Around {
            begin: Some(begin),
            end: Some(begin + 10),
            before: Some(begin - 5),
            between: None,
            events,
            packets: 0,
            is_damaged: false,
            is_first: false,
            has_older: false,
            place: 0,
        };
        assert_eq!(losses.add(1, &around(0, 0), Some(0), String::new), None);
        let most = MOST as i64;
        for at in 0..most + 3 {
            let drawn = losses.add(1, &around(at * 10, 2), Some(at * 10 + 10), || "x".into());
            assert_eq!(drawn.as_ref().map(|drawn| drawn.is_new), (at < most).then_some(at == 0));
            // The slices do not overlap.
            let begin = if at == 0 { -5 } else { at * 10 };
            assert!(drawn.is_none_or(|drawn| drawn.begin == Some(begin)), "{at}");
        }
        assert_eq!(losses.merged(), 3);
        let what = "3 gaps between these times: 6 events and 0 packets missing".to_owned();
        let (begin, end) = (Some(most * 10), Some(most * 10 + 30));
        let track = FIRST_TRACK + 1;
        assert_eq!(losses.finish(), [(1, Drawn { track, is_new: false, what, begin, end })]);
    }
}
