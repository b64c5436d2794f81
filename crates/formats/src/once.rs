//! Events that several channels of a session have, such as errors that go to a small channel besides: each once.
//!
//! A thread records an event into the channels that take it one after the other, in their order, each with a time of its own.
//! So the copy is the next event of that thread, of the same description and payload, in a later channel. What a signal
//! handler recorded between the two makes both be shown; that an event is left out of which there is no other is not possible
//! unless two losses meet.

use lastwords_trace::merge::Event;
use lastwords_trace::schema::{Channel, EventClass, Field, FieldClass, Schema};
use lastwords_trace::source::Source;
use std::collections::HashMap;

/// Most events whose copy is waited for.
const MOST_WAITING: usize = 64;

/// Finds copies in merged events.
pub(crate) struct Once {
    /// By source, channel, class.
    twins: Vec<Vec<Vec<Option<Twin>>>>,
    /// By source, channel: where the thread's id lies in the contexts.
    threads: Vec<Vec<Option<usize>>>,
    /// No class is one of several channels.
    is_idle: bool,
    waiting: Vec<Waiting>,
}

/// Channel and class, by position.
type Place = (usize, usize);
/// A class that several channels have.
#[derive(Clone, Copy)]
struct Twin {
    /// Where it is described first.
    first: Place,
    /// The last channel that has it.
    last_channel: usize,
}
/// Source, and id of the thread there.
type Thread = (usize, [u8; 4]);

/// The last event of a thread, where a later channel may have its copy.
struct Waiting {
    thread: Thread,
    class: Place,
    channel: usize,
    payload: Vec<u8>,
}

impl Once {
    pub(crate) fn new(sources: &[&dyn Source]) -> Self {
        let twins: Vec<_> = sources.iter().map(|source| twins(source.schema())).collect();
        let threads = sources.iter().map(|source| source.schema().channels.iter().map(thread_at).collect()).collect();
        let is_idle = !twins.iter().flatten().flatten().any(Option::is_some);
        Self { twins, threads, is_idle, waiting: Vec::new() }
    }

    /// The event was in the merge already, from another channel. To be asked of every event, in order.
    #[inline]
    pub(crate) fn is_copy(&mut self, event: &Event<'_>) -> bool {
        if self.is_idle {
            return false;
        }
        let twin = self.twins[event.source][event.channel][event.raw.class];
        if twin.is_none() && self.waiting.is_empty() {
            return false;
        }
        self.judge(event, twin)
    }

    fn judge(&mut self, event: &Event<'_>, twin: Option<Twin>) -> bool {
        let at = self.threads[event.source][event.channel];
        let id = at.and_then(|at| event.context().get(at..)?.first_chunk());
        let Some(thread) = id.map(|id| (event.source, *id)) else { return false };
        let last = self.waiting.iter().position(|waiting| waiting.thread == thread);
        let last = last.map(|last| self.waiting.remove(last));
        let Some(Twin { first, last_channel }) = twin else { return false };
        let is_copy = last
            .is_some_and(|last| last.class == first && last.channel < event.channel && last.payload == event.payload());
        if event.channel < last_channel {
            self.waiting.truncate(MOST_WAITING - 1);
            let payload = event.payload().to_vec();
            self.waiting.insert(0, Waiting { thread, class: first, channel: event.channel, payload });
        }
        is_copy
    }
}

/// By channel and class, the classes that several channels have.
fn twins(schema: &Schema) -> Vec<Vec<Option<Twin>>> {
    let mut places = HashMap::<_, Vec<Place>>::new();
    for (channel, own) in schema.channels.iter().enumerate() {
        for (class, described) in own.events.iter().enumerate() {
            places.entry(but_id(described)).or_default().push((channel, class));
        }
    }
    let mut twins: Vec<Vec<Option<Twin>>> = schema.channels.iter().map(|c| vec![None; c.events.len()]).collect();
    for places in places.values() {
        let (first, last_channel) = (places[0], places[places.len() - 1].0);
        if first.0 != last_channel {
            places.iter().for_each(|(channel, class)| twins[*channel][*class] = Some(Twin { first, last_channel }));
        }
    }
    twins
}

/// What the descriptions of an event in several channels have in common: each channel gives an id.
fn but_id(class: &EventClass) -> (&str, u8, &str, &str, &[Field]) {
    (&class.name, class.level, &class.format, &class.location, &class.fields)
}

/// Where the id of the thread lies in the contexts, if every event has it there.
fn thread_at(channel: &Channel) -> Option<usize> {
    let mut at = 0;
    for field in &channel.contexts {
        if matches!(field.name.as_str(), "vtid" | "tid") && matches!(field.class, FieldClass::Integer { size: 4, .. }) {
            return Some(at);
        }
        at += field.class.fixed_size()?;
    }
    None
}
