//! The events of several streams and traces in order of time.
//!
//! Of events of one time, those of the stream come first that babeltrace2's muxer puts first: by the trace's identity, then
//! by the ids of stream class and stream.

use super::error::Error;
use super::folder::Trace;
use super::stream::{Loss, Next, Reader, is_time};
use super::tournament::Tournament;
use crate::program::{Event, Expected, Fault};

/// An event that is due. Places are bits from the packet's beginning.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// Position of its class in the stream class.
    pub class: usize,
    /// Default clock.
    pub clock: u64,
    /// Where its header begins.
    pub at: u64,
    /// Where its contexts begin.
    pub body: u64,
    /// Its time in nanoseconds from its clock's origin, where the stream has a clock.
    pub nanoseconds: Option<i64>,
    /// Its place in the order.
    place: i64,
}

/// What takes the events.
pub trait Sink {
    /// An event, which is in the reader's window; the reader may stand behind others that follow it, all of simple forms.
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool;
    /// A packet has begun.
    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>);
    /// Something is missing before the stream's next event.
    fn loss(&mut self, stream: usize, reader: &mut Reader<'_>, loss: Loss);
    /// Something cannot be read.
    fn fault(&mut self, stream: usize, fault: Error);
}

/// Readers of all streams of some traces, in the order in which events of one time come; with the position of the trace.
#[must_use]
pub fn readers(traces: &[Trace]) -> Vec<(usize, Reader<'_>)> {
    let mut readers = Vec::new();
    for (position, trace) in traces.iter().enumerate() {
        let mut unnamed = 0;
        for stream in &trace.streams {
            let id = stream.id.unwrap_or_else(|| {
                let id = unnamed;
                unnamed = u64::saturating_add(unnamed, 1);
                id
            });
            let class = trace.class().streams.get(stream.class).map_or(0, |class| class.id);
            let identity = &trace.class().identity;
            // What is there comes before what is not.
            let first = |part: Option<&str>| (part.is_none(), part.map(str::to_owned));
            let namespace = first(identity.namespace.as_deref());
            let key = (namespace, trace.name().to_owned(), first(identity.uid.as_deref()), class, id);
            readers.push((key, position, Reader::new(trace, stream)));
        }
    }
    readers.sort_by(|a, b| a.0.cmp(&b.0));
    readers.into_iter().map(|(_, position, reader)| (position, reader)).collect()
}

/// Most events of a stream that are read before they are due, so that one stream is read for some time.
const AHEAD: usize = 32;

/// What a stream has reached.
struct Head {
    /// Events that were read, all in the reader's window.
    events: Vec<Due>,
    /// Position of the first that was not given.
    next: usize,
    /// Events come out in the order of what their stream has reached, even if its clock goes back.
    floor: i64,
    /// The order is that of the clock's ticks, which tells more events apart than nanoseconds.
    by_ticks: bool,
    /// The first event since the last look whose time 64 bits do not hold.
    untimed: Option<Event>,
    /// The packet in which such an event was told of.
    told: Option<(u32, u64)>,
}

impl Head {
    #[inline]
    fn push(&mut self, event: Event, nanoseconds: Option<i64>) {
        let place = match nanoseconds {
            Some(nanoseconds) if !is_time(&nanoseconds) => {
                self.untimed.get_or_insert(event);
                return;
            }
            Some(nanoseconds) => {
                let place = if self.by_ticks { ticks(event.clock) } else { nanoseconds };
                self.floor = self.floor.max(place);
                self.floor
            }
            None => i64::MIN,
        };
        let Event { class, clock, at, body, .. } = event;
        self.events.push(Due { class, clock, at, body, nanoseconds, place });
    }

    #[inline]
    fn due(&self) -> Option<&Due> {
        self.events.get(self.next)
    }

    /// Goes on to the stream's next event.
    #[inline]
    fn advance<S: Sink + ?Sized>(&mut self, stream: usize, reader: &mut Reader<'_>, sink: &mut S) {
        self.next = self.next.wrapping_add(1);
        if self.next >= self.events.len() {
            self.read(stream, reader, sink);
        }
    }

    /// Reads on, as far as the next event at least.
    #[inline(never)]
    fn read<S: Sink + ?Sized>(&mut self, stream: usize, reader: &mut Reader<'_>, sink: &mut S) {
        self.events.clear();
        self.next = 0;
        reader.ahead(AHEAD, |event, nanoseconds| self.push(event, nanoseconds));
        self.tell_untimed(stream, reader, sink);
        while self.events.is_empty() {
            match reader.advance() {
                Next::Event(event) => {
                    let nanoseconds = reader.time(event.clock);
                    self.push(event, nanoseconds);
                    self.tell_untimed(stream, reader, sink);
                }
                Next::Packet => {
                    let begin = reader.packet().and_then(|packet| packet.begin);
                    let begin = begin.and_then(|begin| match self.by_ticks {
                        true => Some(ticks(begin)),
                        false => reader.nanoseconds(begin),
                    });
                    self.floor = self.floor.max(begin.unwrap_or(i64::MIN));
                    sink.packet(stream, reader);
                }
                Next::Loss(loss) => sink.loss(stream, reader, loss),
                Next::Fault(fault) => sink.fault(stream, fault),
                Next::End => return,
            }
        }
    }

    /// Tells of an event that has no time and is left out, once a packet.
    #[inline]
    fn tell_untimed<S: Sink + ?Sized>(&mut self, stream: usize, reader: &Reader<'_>, sink: &mut S) {
        let Some(event) = self.untimed.take() else { return };
        let place = reader.place().map(|(number, entry)| (number, entry.offset));
        if place.is_none() || std::mem::replace(&mut self.told, place) != place {
            sink.fault(stream, reader.wrong(Fault { at: event.body, value: event.clock, expected: Expected::Time }));
        }
    }
}

/// A reading as a place in the order.
#[inline]
fn ticks(clock: u64) -> i64 {
    i64::try_from(clock).unwrap_or(i64::MAX)
}

/// All streams have one clock, whose times are exact.
fn have_one_clock(readers: &[(usize, Reader<'_>)]) -> bool {
    let mut clocks = readers.iter().map(|(_, reader)| {
        reader.exact_clock().map(|clock| (clock.frequency, clock.offset_seconds, clock.offset_cycles, &clock.origin))
    });
    clocks.next().flatten().is_some_and(|first| clocks.all(|clock| clock == Some(first)))
}

/// Gives all events to `sink`, until it says that it has enough.
pub fn run<S: Sink + ?Sized>(readers: &mut [(usize, Reader<'_>)], sink: &mut S) {
    let by_ticks = have_one_clock(readers);
    let head =
        || Head { events: Vec::with_capacity(AHEAD), next: 0, floor: i64::MIN, by_ticks, untimed: None, told: None };
    let mut heads: Vec<Head> = readers.iter().map(|_| head()).collect();
    for (stream, ((_, reader), head)) in readers.iter_mut().zip(&mut heads).enumerate() {
        head.read(stream, reader, sink);
    }
    let firsts: Vec<Option<i64>> = heads.iter().map(|head| head.due().map(|due| due.place)).collect();
    let mut tournament = Tournament::new(&firsts);
    while let Some(stream) = tournament.first() {
        let (Some((_, reader)), Some(head)) = (readers.get_mut(stream), heads.get_mut(stream)) else { break };
        if let Some(due) = head.due()
            && !sink.event(stream, reader, due)
        {
            return;
        }
        head.advance(stream, reader, sink);
        tournament.replace(head.due().map(|due| due.place));
    }
}
