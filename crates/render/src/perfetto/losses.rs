//! Draws where events of a stream are missing, as slices on a track of their own: spans may be on
//! the stream's track, and the end of a slice ends the innermost one of its track.

use std::collections::{BTreeMap, HashSet};

use crate::missing::{Around, count};

/// Most losses that have slices of their own. Each stream has one slice for all further ones.
const MOST: u64 = 1 << 14;
/// The first id of a track of losses. The ids of other tracks are smaller.
const FIRST_TRACK: u64 = 1 << 41;

/// How long events are missing. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The loss is before this time: an instant.
    Before,
    /// The loss ends at a time.
    Time(i64),
    /// The loss has no known end: the slice does not end.
    End,
}

/// A slice or an instant.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) track: u64,
    /// The description of the track is not written.
    pub(super) is_new: bool,
    pub(super) what: String,
    pub(super) begin: i64,
    pub(super) until: Until,
}

/// The further losses of a stream.
#[derive(Debug, Default)]
struct Rest {
    begin: i64,
    end: i64,
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
    /// Returns the slice of the events and packets that are missing around a packet of a stream
    /// until a time.
    pub(super) fn add(
        &mut self,
        stream: usize,
        around: &Around,
        until: Option<i64>,
        what: impl FnOnce() -> String,
    ) -> Option<Drawn> {
        if !around.is_lossy() {
            return None;
        }
        // Damaged packets may overlap, but slices of a track do not.
        let begin =
            around.before.or(around.begin).or(around.end).max(self.ends.get(&stream).copied())?;
        let end = until.map_or(begin, |until| until.max(begin));
        self.ends.insert(stream, end);
        if self.drawn >= MOST {
            let rest = self.rest.entry(stream).or_default();
            rest.begin = if rest.number == 0 { begin } else { rest.begin };
            rest.end = end;
            rest.number = rest.number.saturating_add(1);
            rest.events = rest.events.saturating_add(around.events);
            rest.packets = rest.packets.saturating_add(around.packets);
            return None;
        }
        self.drawn = self.drawn.saturating_add(1);
        Some(self.slice(stream, what(), begin, Until::Time(end)))
    }

    /// Returns the mark of events that are older than a stream's first packet.
    pub(super) fn older(&mut self, stream: usize, around: &Around, what: String) -> Option<Drawn> {
        Some(self.slice(stream, what, around.begin.or(around.end)?, Until::Before))
    }

    /// Returns the slice of what may be missing behind a stream's last packet. To be called after
    /// [`Self::finish`].
    pub(super) fn tail(&mut self, stream: usize, begin: i64, what: String) -> Drawn {
        let begin = self.ends.get(&stream).map_or(begin, |end| begin.max(*end));
        self.slice(stream, what, begin, Until::End)
    }

    fn slice(&mut self, stream: usize, what: String, begin: i64, until: Until) -> Drawn {
        let track = FIRST_TRACK.saturating_add(stream as u64);
        Drawn { track, is_new: self.described.insert(stream), what, begin, until }
    }

    /// Returns the streams that have further losses, with the slice of these.
    pub(super) fn finish(&mut self) -> Vec<(usize, Drawn)> {
        let rests = std::mem::take(&mut self.rest);
        let slice = |(stream, rest): (usize, Rest)| {
            let Rest { begin, end, number, events, packets } = rest;
            let (events, packets) = (count(events, "event"), count(packets, "packet"));
            let what = format!(
                "{} between these times: {events} and {packets} missing",
                count(number, "gap")
            );
            (stream, self.slice(stream, what, begin, Until::Time(end)))
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
            assert!(drawn.is_none_or(|drawn| drawn.begin == begin), "{at}");
        }
        assert_eq!(losses.merged(), 3);
        let what = "3 gaps between these times: 6 events and 0 packets missing".to_owned();
        let (begin, end) = (most * 10, most * 10 + 30);
        let drawn = |begin, until, what| Drawn {
            track: FIRST_TRACK + 1,
            is_new: false,
            what,
            begin,
            until,
        };
        assert_eq!(losses.finish(), [(1, drawn(begin, Until::Time(end), what))]);
        assert_eq!(losses.tail(1, end - 5, "y".into()), drawn(end, Until::End, "y".into()));
    }
}
