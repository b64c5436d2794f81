//! Merges the events of several streams and traces in order of time.
//!
//! Events with the same time come in the order of babeltrace2's muxer: by the trace's identity,
//! then by the ids of stream class and stream.

use super::error::Error;
use super::place::{Place, is_time, ticks};
use super::stream::{Loss, Next, Reader};
use super::tournament::Tournament;
use super::trace::Trace;
use crate::program::{Event, Expected, Fault};

/// An event that is due. Positions are in bits from the packet's beginning.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    /// Position of the event record class in the stream class.
    pub class: usize,
    /// The default clock.
    pub clock: u64,
    /// Position at which the header begins.
    pub at: u64,
    /// Position at which the contexts begin.
    pub body: u64,
    /// Time in nanoseconds from the clock's origin, if the stream has a clock.
    pub nanoseconds: Option<i64>,
    /// Key of the event in the merged order.
    place: i64,
}

impl Due {
    /// Returns true if the event comes behind a place.
    #[must_use]
    pub fn is_behind(&self, place: Place) -> bool {
        self.place > place.0
    }
}

/// Receives the merged events.
pub trait Sink {
    /// Takes an event, which is in the reader's window, and returns false to stop. The reader may
    /// have advanced past later events, which are all of simple forms.
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool;
    /// Takes the begin of a packet.
    fn packet(&mut self, stream: usize, reader: &mut Reader<'_>);
    /// Takes a loss before the stream's next event.
    fn loss(&mut self, stream: usize, reader: &mut Reader<'_>, loss: Loss);
    /// Takes an error of reading.
    fn fault(&mut self, stream: usize, fault: Error);
}

/// Returns readers of all streams of some traces, each with the position of its trace, in the order
/// in which events of the same time are merged.
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
            // A value that is present sorts before one that is absent.
            let first = |part: Option<&str>| (part.is_none(), part.map(str::to_owned));
            let namespace = first(identity.namespace.as_deref());
            let key =
                (namespace, trace.name().to_owned(), first(identity.uid.as_deref()), class, id);
            readers.push((key, position, Reader::new(trace, stream)));
        }
    }
    readers.sort_by(|a, b| a.0.cmp(&b.0));
    readers.into_iter().map(|(_, position, reader)| (position, reader)).collect()
}

/// Largest number of events of a stream that are read before they are due, so that the merge does
/// not switch streams for each event.
const AHEAD: usize = 32;

/// The progress of one stream.
struct Head {
    /// Events that were read. All are in the reader's window.
    events: Vec<Due>,
    /// Position of the first event that was not given to the sink.
    next: usize,
    order: Order,
    /// The first event since the last report whose time does not fit 64 bits.
    untimed: Option<Event>,
    /// The packet for which such an event was last reported.
    reported_in: Option<(u32, u64)>,
}

/// The order of one stream's events among those of the others.
#[derive(Clone, Copy)]
struct Order {
    /// Largest key so far. An event whose clock goes back gets this key, so it does not come
    /// before earlier events of its stream.
    floor: i64,
    /// The order is that of the clock's ticks, which distinguish more events than nanoseconds do.
    by_ticks: bool,
}

impl Order {
    /// Adds an event with its key to `events`. An event whose time does not fit 64 bits goes to
    /// `untimed` instead, if none is there.
    #[inline(always)]
    fn push(
        &mut self,
        event: Event,
        nanoseconds: Option<i64>,
        events: &mut Vec<Due>,
        untimed: &mut Option<Event>,
    ) {
        let place = match nanoseconds {
            Some(nanoseconds) if !is_time(&nanoseconds) => {
                untimed.get_or_insert(event);
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
        events.push(Due { class, clock, at, body, nanoseconds, place });
    }
}

impl Head {
    #[inline]
    fn due(&self) -> Option<&Due> {
        self.events.get(self.next)
    }

    /// Advances to the stream's next event.
    #[inline]
    fn advance<S: Sink + ?Sized>(&mut self, stream: usize, reader: &mut Reader<'_>, sink: &mut S) {
        self.next = self.next.wrapping_add(1);
        if self.next >= self.events.len() {
            self.read(stream, reader, sink);
        }
    }

    /// Reads at least up to the next event.
    #[inline(never)]
    fn read<S: Sink + ?Sized>(&mut self, stream: usize, reader: &mut Reader<'_>, sink: &mut S) {
        self.events.clear();
        self.next = 0;
        let mut order = self.order;
        reader.ahead(AHEAD, |event, nanoseconds| {
            order.push(event, nanoseconds, &mut self.events, &mut self.untimed)
        });
        self.order = order;
        self.report_untimed(stream, reader, sink);
        while self.events.is_empty() {
            match reader.advance() {
                Next::Event(event) => {
                    let nanoseconds = reader.time(event.clock);
                    self.order.push(event, nanoseconds, &mut self.events, &mut self.untimed);
                    self.report_untimed(stream, reader, sink);
                }
                Next::Packet => {
                    let begin = reader.packet().and_then(|packet| packet.begin);
                    let begin =
                        begin.and_then(|begin| begin_of(reader, begin, self.order.by_ticks));
                    self.order.floor = self.order.floor.max(begin.unwrap_or(i64::MIN));
                    sink.packet(stream, reader);
                }
                Next::Loss(loss) => sink.loss(stream, reader, loss),
                Next::Fault(fault) => sink.fault(stream, fault),
                Next::End => return,
            }
        }
    }

    /// Reports an event that has no time and is left out, once for each packet.
    #[inline]
    fn report_untimed<S: Sink + ?Sized>(
        &mut self,
        stream: usize,
        reader: &Reader<'_>,
        sink: &mut S,
    ) {
        let Some(event) = self.untimed.take() else { return };
        let place = reader.place().map(|(number, entry)| (number, entry.offset));
        if place.is_none() || std::mem::replace(&mut self.reported_in, place) != place {
            sink.fault(
                stream,
                reader.wrong(Fault {
                    at: event.body,
                    value: event.clock,
                    expected: Expected::Time,
                }),
            );
        }
    }
}

/// Returns the key of a packet's begin: later events of the stream do not come before it.
pub(super) fn begin_of(reader: &mut Reader<'_>, begin: u64, by_ticks: bool) -> Option<i64> {
    if by_ticks { Some(ticks(begin)) } else { reader.nanoseconds(begin) }
}

/// Returns true if all streams have one clock, and its times are exact. The order is then that of
/// the clock's ticks.
pub(super) fn have_one_clock(readers: &[(usize, Reader<'_>)]) -> bool {
    let mut clocks = readers.iter().map(|(_, reader)| {
        reader.exact_clock().map(|clock| {
            (clock.frequency, clock.offset_seconds, clock.offset_cycles, &clock.origin)
        })
    });
    clocks.next().flatten().is_some_and(|first| clocks.all(|clock| clock == Some(first)))
}

/// The merged order of the events of some streams, while they are read.
pub struct Merge {
    heads: Vec<Head>,
    tournament: Tournament,
}

impl Merge {
    /// Reads up to the first event of each stream. What surrounds the events goes to `sink`.
    pub fn new<S: Sink + ?Sized>(readers: &mut [(usize, Reader<'_>)], sink: &mut S) -> Self {
        let by_ticks = have_one_clock(readers);
        let head = |floor: i64| Head {
            events: Vec::with_capacity(AHEAD),
            next: 0,
            order: Order { floor, by_ticks },
            untimed: None,
            reported_in: None,
        };
        let mut heads: Vec<Head> = readers.iter().map(|(_, reader)| head(reader.floor())).collect();
        for (stream, ((_, reader), head)) in readers.iter_mut().zip(&mut heads).enumerate() {
            head.read(stream, reader, sink);
        }
        let firsts: Vec<Option<i64>> =
            heads.iter().map(|head| head.due().map(|due| due.place)).collect();
        let tournament = Tournament::new(&firsts);
        Self { heads, tournament }
    }

    /// Returns the event that is due, with the position of its stream. It is in the reader's
    /// window. Returns none after the last event.
    #[inline]
    #[must_use]
    pub fn due(&self) -> Option<(usize, &Due)> {
        let stream = self.tournament.first()?;
        Some((stream, self.heads.get(stream)?.due()?))
    }

    /// Goes on behind the event that is due. `readers` are those of [`Merge::new`].
    #[inline]
    pub fn advance<S: Sink + ?Sized>(&mut self, readers: &mut [(usize, Reader<'_>)], sink: &mut S) {
        let Some(stream) = self.tournament.first() else { return };
        if let (Some((_, reader)), Some(head)) =
            (readers.get_mut(stream), self.heads.get_mut(stream))
        {
            head.advance(stream, reader, sink);
            self.tournament.replace(head.due().map(|due| due.place));
        }
    }
}

/// Gives all events to `sink` until it returns false.
pub fn run<S: Sink + ?Sized>(readers: &mut [(usize, Reader<'_>)], sink: &mut S) {
    let mut merge = Merge::new(readers, sink);
    while let Some((stream, due)) = merge.due() {
        let Some((_, reader)) = readers.get_mut(stream) else { return };
        if !sink.event(stream, reader, due) {
            return;
        }
        merge.advance(readers, sink);
    }
}
