//! Events that several channels of a session have, such as errors that go to a small channel besides: each once.
//!
//! A thread records an event into the channels that take it one after the other, in their order, each with a time of its own.
//! So the copy is the next event of that thread, of the same description and payload, in a later channel. What a signal
//! handler recorded between the two makes both be shown; that an event is left out of which there is no other is not possible
//! unless two losses meet.

use crate::events::Facts;
use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_trace::class::{EventClass, Scope, StreamClass};
use lastwords_trace::visit::{Ignore, NodeId, Visitor};
use std::collections::HashMap;

/// Most events whose copy is waited for.
const MOST_WAITING: usize = 64;

/// Finds copies in merged events.
pub(crate) struct Once<'t> {
    traces: &'t [Trace],
    streams: Vec<Facts>,
    /// By trace, stream class, event class.
    twins: Vec<Vec<Vec<Option<Twin>>>>,
    waiting: Vec<Waiting>,
}

/// Stream class and event class, by position.
type Place = (usize, usize);

/// A class that several channels have.
#[derive(Clone, Copy)]
struct Twin {
    /// Where it is described first.
    first: Place,
    /// The last channel that has it.
    last_channel: usize,
}

/// Trace, and id of the thread there.
type Thread = (usize, u64);

/// The last event of a thread, where a later channel may have its copy.
struct Waiting {
    thread: Thread,
    class: Place,
    channel: usize,
    payload: Vec<u8>,
}

impl<'t> Once<'t> {
    pub(crate) fn new(traces: &'t [Trace], streams: &[Facts]) -> Self {
        let twins = traces.iter().map(|trace| twins(&trace.class().streams)).collect();
        Self { traces, streams: streams.to_vec(), twins, waiting: Vec::new() }
    }

    /// No class is one of several channels.
    pub(crate) fn is_idle(&self) -> bool {
        !self.twins.iter().flatten().flatten().any(Option::is_some)
    }

    /// The event was in the merge already, from another channel. To be asked of every event, in order.
    pub(crate) fn is_copy(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let Some(Facts { trace, class: channel, .. }) = self.streams.get(stream) else { return false };
        let (trace, channel) = (*trace, *channel);
        let twin = self.twins.get(trace).and_then(|of| of.get(channel)?.get(event.class).copied()).flatten();
        if twin.is_none() && self.waiting.is_empty() {
            return false;
        }
        let Some((thread, payload)) = self.identity(trace, channel, reader, event) else { return false };
        let thread = (trace, thread);
        let last = self.waiting.iter().position(|waiting| waiting.thread == thread);
        let last = last.map(|last| self.waiting.remove(last));
        let Some(Twin { first, last_channel }) = twin else { return false };
        let is_copy = last.is_some_and(|last| last.class == first && last.channel < channel && last.payload == payload);
        if channel < last_channel {
            self.waiting.truncate(MOST_WAITING - 1);
            self.waiting.insert(0, Waiting { thread, class: first, channel, payload });
        }
        is_copy
    }

    /// The thread that recorded an event, and its payload; none where its context names no thread.
    fn identity(&self, trace: usize, class: usize, reader: &mut Reader<'_>, event: &Due) -> Option<(u64, Vec<u8>)> {
        let program = &self.traces.get(trace)?.program;
        let code = program.code(Scope::CommonContext, class, event.class)?;
        let node = code.nodes().iter().position(|node| matches!(node.name.as_str(), "vtid" | "tid"))?;
        let mut thread = Thread32 { node: NodeId::try_from(node).ok()?, id: None };
        let (_, decoder, part) = reader.parts();
        let begin = program.visit(decoder, code, &part, event.body, &mut thread).ok()?;
        let payload = program.code(Scope::Payload, class, event.class)?;
        let end = program.visit(decoder, payload, &part, begin, &mut Ignore).ok()?;
        let at = |bits: u64| usize::try_from((bits / 8).checked_sub(part.base)?).ok();
        Some((thread.id?, part.bytes.get(at(begin)?..at(end)?)?.to_vec()))
    }
}

/// Keeps the number of one field.
struct Thread32 {
    node: NodeId,
    id: Option<u64>,
}

impl Visitor for Thread32 {
    fn integer(&mut self, node: NodeId, value: u64) {
        if node == self.node {
            self.id = Some(value);
        }
    }
}

/// By channel and class, the classes that several channels have.
fn twins(channels: &[StreamClass]) -> Vec<Vec<Option<Twin>>> {
    let mut places = HashMap::<_, Vec<Place>>::new();
    for (channel, own) in channels.iter().enumerate() {
        for (class, described) in own.events.iter().enumerate().filter(|_| channels.len() > 1) {
            places.entry(but_id(described)).or_default().push((channel, class));
        }
    }
    let mut twins: Vec<Vec<Option<Twin>>> = channels.iter().map(|c| vec![None; c.events.len()]).collect();
    for places in places.values() {
        let (Some(first), Some((last_channel, _))) = (places.first(), places.last()) else { continue };
        if first.0 != *last_channel {
            let twin = Some(Twin { first: *first, last_channel: *last_channel });
            for (channel, class) in places {
                if let Some(place) = twins.get_mut(*channel).and_then(|of| of.get_mut(*class)) {
                    *place = twin;
                }
            }
        }
    }
    twins
}

/// The part of a description that is the same in every channel: each channel gives an id of its own.
fn but_id(class: &EventClass) -> (Option<&str>, Option<u8>, &str, String) {
    let level = class.log_level.map(|level| level.number());
    (class.name.as_deref(), level, &class.attributes, format!("{:?}", class.payload))
}
