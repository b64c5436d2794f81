//! Finds where events of streams are missing, as their packets are read.
//!
//! A kernel's tracer misses events before a packet begins. Others count the events that found no room until the end of the packet, so that
//! some are missing anywhere in it: what began there may end at the event of another.

use crate::events::StreamInfo;
use lastwords_ctf::read::{Loss, Reader, Trace};
use std::collections::{HashMap, HashSet};

/// A stream's trace and its number there.
type StreamKey = (usize, u64);

/// The last packet of a stream.
struct Last {
    sequence: Option<u64>,
    discarded: Option<u64>,
    end: Option<i64>,
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
    /// Number of events that are missing since the packet before.
    pub events: u64,
    /// Number of packets that are missing before this one.
    pub packets: u64,
}

impl Around {
    /// Returns the time from which on events are missing, if they are missing before or in the packet.
    #[must_use]
    pub fn from(&self) -> Option<i64> {
        self.before.filter(|_| self.events > 0 || self.packets > 0)
    }
}

/// The streams that are read.
#[derive(Default)]
pub struct Missing {
    last: HashMap<StreamKey, Last>,
    /// The streams for which the reader reported lost events in the packet that it reads next.
    reported: HashSet<StreamKey>,
    /// The time until which events of each trace are missing, where that was not passed.
    until: HashMap<usize, i64>,
}

impl Missing {
    /// Notes the begin of a packet, which is [`Reader::packet`].
    pub fn packet(&mut self, trace: &Trace, stream: &StreamInfo, reader: &mut Reader<'_>) -> Option<Around> {
        let packet = *reader.packet()?;
        let mut time = |clock: Option<u64>| clock.and_then(|clock| reader.nanoseconds(clock));
        let (begin, end) = (time(packet.begin), time(packet.end));
        let key = (stream.trace, stream.number);
        let is_reported = self.reported.remove(&key);
        let (sequence, discarded) = (packet.sequence, packet.discarded);
        let last = self.last.insert(key, Last { sequence, discarded, end });
        let increase = |last: Option<u64>, next: Option<u64>| next.zip(last).map_or(0, |(n, l)| n.saturating_sub(l));
        let packets = last.as_ref().map_or(0, |last| increase(last.sequence, sequence).saturating_sub(1));
        // Events that were discarded before the first packet that is there are counted by it as well.
        let counted = increase(last.as_ref().map_or(Some(0), |last| last.discarded), discarded);
        let is_in = is_reported || counted > 0 && !trace.class().is_ftrace();
        if is_in || packets > 0 || counted > 0 {
            let end = if is_in { end.unwrap_or(i64::MAX) } else { begin.unwrap_or(i64::MIN) };
            let until = self.until.entry(stream.trace).or_insert(i64::MIN);
            *until = end.max(*until);
        }
        let events = if last.is_some() { counted } else { 0 };
        let between = last.as_ref().and_then(|last| last.sequence.zip(sequence));
        Some(Around { begin, end, before: last.and_then(|last| last.end), between, events, packets })
    }

    /// Notes a loss that the packets of a trace without an account report.
    pub fn loss(&mut self, stream: &StreamInfo, loss: Loss) {
        if !loss.packets {
            self.reported.insert((stream.trace, stream.number));
        }
    }

    /// Returns true if events of the trace are missing around this time, as far as packets were begun.
    #[must_use]
    pub fn is_around(&self, trace: usize, time: i64) -> bool {
        self.until.get(&trace).is_some_and(|until| time <= *until)
    }

    /// Notes the time of an event. Returns the time until which events were missing, if this event is the first after that.
    pub fn event(&mut self, trace: usize, time: i64) -> Option<i64> {
        let until = *self.until.get(&trace)?;
        (time > until).then(|| self.until.remove(&trace)).flatten()
    }
}
