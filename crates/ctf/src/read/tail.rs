//! Finds the packets that have the last events of some streams, so that the packets before them
//! need not be read in order of time, or not at all.
//!
//! Each packet has a bound: no event of the packet, or of an earlier one of its stream, has a later
//! place in the merged order. A cut passes over all packets whose bounds are at most a certain
//! place. The events behind that place are then the same as without the cut, and in the same order.
//! Some of the events before it are missing.

use super::merge::{begin_of, have_one_clock};
use super::place::{Place, Skip};
use super::stream::{Clocks, Next, Reader};
use super::trace::{Stream, Trace};
use lastwords_trace::clock::Rounding;
use lastwords_trace::parallel;
use lastwords_trace::source::Foretold;

/// Bytes of packets that are taken to have one event, where events were not counted.
const BYTES: u64 = 32;

/// A packet, as far as it is known.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// The bound; the greatest number if the packet cannot be passed over.
    bound: i64,
    /// Number of events, or an estimate.
    events: u64,
}

/// The packets of some streams, as far as they may be passed over: a stream has none, or all of its
/// packets.
pub struct Tail {
    streams: Vec<Vec<Extent>>,
}

/// The packets that are passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Those of each stream.
    pub skips: Vec<Skip>,
    /// The place behind which no event is missing.
    pub behind: Place,
}

impl Tail {
    /// Reads all streams, each CPU one at a time, and learns the bounds from the events. Only
    /// packets that have nothing to tell but events can be passed over: a loss or a fault, and all
    /// that comes after it in its stream, is left to be read in order. Returns none, without
    /// reading, if a source cannot pass over packets.
    #[must_use]
    pub fn read(
        traces: &[Trace],
        readers: &[(usize, Reader<'_>)],
        rounding: Rounding,
    ) -> Option<Self> {
        let by_ticks = have_one_clock(readers);
        if readers.iter().any(|(_, reader)| reader.foretell().is_none()) {
            return None;
        }
        let streams: Vec<(&Trace, &Stream)> = readers
            .iter()
            .filter_map(|(at, reader)| Some((traces.get(*at)?, reader.stream())))
            .collect();
        let surveys = parallel::map(&streams, parallel::cpus(), |_, (trace, stream)| {
            Survey::new(Reader::new(trace, stream).rounded(rounding), by_ticks).run()
        });
        // A fault of one stream may have changed the packets of another.
        let is_still = |(trace, stream): &(&Trace, &Stream), foretold| {
            Reader::new(trace, stream).foretell() == foretold
        };
        let kept =
            streams.iter().zip(surveys).map(|(stream, (foretold, extents))| {
                match is_still(stream, foretold) {
                    true => extents,
                    false => Vec::new(),
                }
            });
        Some(Self { streams: kept.collect() })
    }

    /// Learns the bounds from what is known of the packets before they are read. A stream whose
    /// packets are not in order of time is left to be read whole.
    #[must_use]
    pub fn foretell(readers: &mut [(usize, Reader<'_>)]) -> Self {
        let by_ticks = have_one_clock(readers);
        let streams =
            readers.iter_mut().map(|(_, reader)| foretold(reader, by_ticks).unwrap_or_default());
        Self { streams: streams.collect() }
    }

    /// Returns a cut that leaves about this number of events or more; none if that leaves all
    /// packets.
    #[must_use]
    pub fn cut(&self, events: u64) -> Option<Cut> {
        let mut all: Vec<Extent> = self.streams.iter().flatten().copied().collect();
        all.sort_unstable_by_key(|extent| std::cmp::Reverse(extent.bound));
        let mut left = 0u64;
        let mut least = i64::MAX;
        for Extent { bound, events: more } in all {
            if left >= events && bound < least {
                let skips = self.streams.iter().map(|stream| skip(stream, bound)).collect();
                return Some(Cut { skips, behind: Place(bound) });
            }
            left = left.saturating_add(more);
            least = bound;
        }
        None
    }
}

/// Passes over the packets of a stream whose bounds are not greater than this.
fn skip(stream: &[Extent], bound: i64) -> Skip {
    let packets = stream.partition_point(|extent| extent.bound <= bound);
    let last = packets.checked_sub(1).and_then(|last| stream.get(last));
    Skip { packets, bound: last.map_or(i64::MIN, |extent| extent.bound) }
}

/// Returns the bounds of a stream's packets as they are known before the packets are read; none if
/// they are not.
fn foretold(reader: &mut Reader<'_>, by_ticks: bool) -> Option<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut before = 0;
    for Foretold { begin, end, size, .. } in reader.foretell()? {
        if begin < before || end < begin || end == u64::MAX {
            return None;
        }
        before = end;
        extents.push(Extent { bound: reader.place_of(end, by_ticks)?, events: size / BYTES });
    }
    Some(extents)
}

/// Reads a stream to learn the bounds of its packets.
struct Survey<'t> {
    reader: Reader<'t>,
    by_ticks: bool,
    foretold: Option<Vec<Foretold>>,
    extents: Vec<Extent>,
    /// The bound so far.
    bound: i64,
}

impl<'t> Survey<'t> {
    fn new(reader: Reader<'t>, by_ticks: bool) -> Self {
        let foretold = reader.foretell();
        Self { reader, by_ticks, foretold, extents: Vec::new(), bound: i64::MIN }
    }

    /// Reads the stream to its end. Returns what is known of its packets, before and after that.
    fn run(mut self) -> (Option<Vec<Foretold>>, Vec<Extent>) {
        loop {
            let clocks = self.reader.clocks();
            self.events(clocks);
            match self.reader.advance() {
                Next::Event(event) => self.events(Clocks::one(event.clock)),
                Next::Packet => self.packet(),
                Next::Loss(_) | Next::Fault(_) => self.doubt(),
                Next::End => break,
            }
        }
        // A source may leave out a packet that it foretold.
        if self.foretold.as_ref().map(Vec::len) != Some(self.extents.len()) {
            self.extents.clear();
        }
        (self.foretold, self.extents)
    }

    fn packet(&mut self) {
        let begin = self.reader.packet().and_then(|packet| packet.begin);
        let place = begin.and_then(|begin| begin_of(&mut self.reader, begin, self.by_ticks));
        self.bound = self.bound.max(place.unwrap_or(i64::MIN));
        self.extents.push(Extent { bound: self.bound, events: 0 });
    }

    fn events(&mut self, clocks: Clocks) {
        if clocks.count == 0 {
            return;
        }
        // Times grow with readings of the clock.
        let ends =
            [clocks.least, clocks.greatest].map(|clock| self.reader.place_of(clock, self.by_ticks));
        match ends {
            [Some(_), Some(last)] => self.bound = self.bound.max(last),
            _ => self.doubt(),
        }
        if let Some(extent) = self.extents.last_mut() {
            *extent =
                Extent { bound: self.bound, events: extent.events.saturating_add(clocks.count) };
        }
    }

    /// Notes that this packet and all that follow must be read in order. That begins with an event
    /// before the place that is in doubt, so that what is there is told when its time has come.
    fn doubt(&mut self) {
        self.bound = i64::MAX;
        for extent in self.extents.iter_mut().rev() {
            extent.bound = i64::MAX;
            if extent.events > 0 {
                break;
            }
        }
    }
}
