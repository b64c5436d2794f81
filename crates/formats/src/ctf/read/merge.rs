//! The events of several streams and traces in order of time.
//!
//! Of events of one time, those of the stream come first that babeltrace2's muxer puts first: by the trace's identity, then
//! by the ids of stream class and stream.

use super::error::Error;
use super::folder::Trace;
use super::stream::{Loss, Next, Reader};
use super::tournament::Tournament;
use lastwords_trace::ctf::Event;

/// What takes the events.
pub trait Sink {
    /// An event, its time in nanoseconds from its clock's origin, where it has one. The reader stands behind it.
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Event, nanoseconds: Option<i64>) -> bool;
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
                unnamed += 1;
                unnamed - 1
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

struct Head {
    event: Option<Event>,
    nanoseconds: Option<i64>,
    /// Events come out in the order of what their stream has reached, even if its clock goes back.
    floor: i64,
}

impl Head {
    /// Takes the stream's next event; its place in the order.
    #[inline]
    fn put(&mut self, event: Event, reader: &mut Reader<'_>) -> i64 {
        self.nanoseconds = reader.nanoseconds(event.clock);
        self.event = Some(event);
        match self.nanoseconds {
            Some(nanoseconds) => {
                self.floor = self.floor.max(nanoseconds);
                self.floor
            }
            None => i64::MIN,
        }
    }
}

/// Gives all events to `sink`, until it says that it has enough.
pub fn run<S: Sink + ?Sized>(readers: &mut [(usize, Reader<'_>)], sink: &mut S) {
    let head = || Head { event: None, nanoseconds: None, floor: i64::MIN };
    let mut heads: Vec<Head> = readers.iter().map(|_| head()).collect();
    let streams = readers.iter_mut().zip(&mut heads).enumerate();
    let firsts: Vec<Option<i64>> =
        streams.map(|(stream, ((_, reader), head))| advance(stream, reader, head, sink)).collect();
    let mut tournament = Tournament::new(&firsts);
    while let Some(stream) = tournament.first() {
        let (Some((_, reader)), Some(head)) = (readers.get_mut(stream), heads.get_mut(stream)) else { break };
        if let Some(event) = &head.event
            && !sink.event(stream, reader, event, head.nanoseconds)
        {
            return;
        }
        tournament.replace(advance(stream, reader, head, sink));
    }
}

/// Goes to the stream's next event; its place in the order.
#[inline]
fn advance<S: Sink + ?Sized>(stream: usize, reader: &mut Reader<'_>, head: &mut Head, sink: &mut S) -> Option<i64> {
    if let Some(event) = reader.simple() {
        return Some(head.put(event, reader));
    }
    loop {
        match reader.advance() {
            Next::Event(event) => return Some(head.put(event, reader)),
            Next::Packet => {
                let begin = reader.packet().and_then(|packet| packet.begin);
                if let Some(begin) = begin.and_then(|begin| reader.nanoseconds(begin)) {
                    head.floor = head.floor.max(begin);
                }
                sink.packet(stream, reader);
            }
            Next::Loss(loss) => sink.loss(stream, reader, loss),
            Next::Fault(fault) => sink.fault(stream, fault),
            Next::End => {
                head.event = None;
                return None;
            }
        }
    }
}
