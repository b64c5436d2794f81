//! Deduplicates events that a session recorded into several channels, such as errors that also go
//! to a small channel.
//!
//! A thread records an event into its channels one after the other, in the channels' order, each
//! time with another timestamp. Therefore the copy is the next event of the same thread, in a later
//! channel, with the same description and payload. If a signal handler records an event between the
//! two, both are shown. An event that has no copy is never omitted, unless two losses coincide.
//!
//! A panic's message is cut to the room of each channel, so its copies may differ in what was cut
//! off.

use crate::fields::IntegerField;
use crate::streams::StreamInfo;
use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_trace::class::{EventClass, Scope, StreamClass};
use lastwords_trace::visit::{Ignore, NodeId};
use std::collections::{HashMap, HashSet};

/// Maximum number of events whose copies are awaited.
const MAX_PENDING: usize = 64;

/// Finds copies among merged events.
pub(crate) struct Deduplicator<'t> {
    traces: &'t [Trace],
    streams: Vec<StreamInfo>,
    /// An entry for each trace, stream class and event class; none if only one channel has the
    /// class.
    shared: Vec<Vec<Vec<Option<SharedClass>>>>,
    pending: Vec<Pending>,
    /// The threads of the events so far, if there were earlier events that were not passed.
    late: Option<HashSet<Thread>>,
    /// The last event may be a copy of one that was not passed.
    is_doubtful: bool,
}

/// Positions of a stream class and of an event class in it.
type ClassPosition = (usize, usize);

/// An event class that several channels have.
#[derive(Clone, Copy)]
struct SharedClass {
    /// The first description of the class.
    first: ClassPosition,
    /// The last channel that has the class.
    last_channel: usize,
    is_panic: bool,
}

/// Position of a trace, and id of a thread in it.
type Thread = (usize, u64);

/// The last event of a thread, if a later channel may have a copy of the event.
struct Pending {
    thread: Thread,
    class: ClassPosition,
    channel: usize,
    payload: Vec<u8>,
}

impl<'t> Deduplicator<'t> {
    pub(crate) fn new(traces: &'t [Trace], streams: &[StreamInfo]) -> Self {
        let shared = traces.iter().map(|trace| shared_classes(&trace.class().streams)).collect();
        Self {
            traces,
            streams: streams.to_vec(),
            shared,
            pending: Vec::new(),
            late: None,
            is_doubtful: false,
        }
    }

    /// Returns true if no two channels have the same event class, so that there are no copies.
    pub(crate) fn is_idle(&self) -> bool {
        !self.shared.iter().flatten().flatten().any(Option::is_some)
    }

    /// Prepares for events that begin in the middle: the copy of an event follows it in its thread,
    /// so that the first event of each thread is in doubt.
    pub(crate) fn begin_late(&mut self) {
        self.late = Some(HashSet::new());
    }

    /// Returns true if the last event may be a copy of one that was not passed.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Returns true if the event is a copy of an earlier event from another channel. The caller
    /// must pass every event, in order.
    pub(crate) fn is_copy(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        let Some(StreamInfo { trace, class: channel, .. }) = self.streams.get(stream) else {
            return false;
        };
        let (trace, channel) = (*trace, *channel);
        let shared = self
            .shared
            .get(trace)
            .and_then(|of| of.get(channel)?.get(event.class).copied())
            .flatten();
        self.is_doubtful = false;
        if shared.is_none() && self.pending.is_empty() && self.late.is_none() {
            return false;
        }
        let Some((thread, payload)) = self.identity(trace, channel, reader, event) else {
            return false;
        };
        let thread = (trace, thread);
        let last = self.pending.iter().position(|pending| pending.thread == thread);
        let last = last.map(|last| self.pending.remove(last));
        let is_first = self.late.as_mut().is_some_and(|threads| threads.insert(thread));
        let Some(SharedClass { first, last_channel, is_panic }) = shared else { return false };
        self.is_doubtful = is_first && first.0 < channel;
        let is_copy = last.is_some_and(|last| {
            let is_same = last.payload == payload;
            last.class == first
                && last.channel < channel
                && (is_same || is_panic && is_cut_panic(&last.payload, &payload))
        });
        if channel < last_channel {
            self.pending.truncate(MAX_PENDING - 1);
            self.pending.insert(0, Pending { thread, class: first, channel, payload });
        }
        is_copy
    }

    /// Returns the id of the thread that recorded an event, and the event's payload. Returns none
    /// if the context has no thread id.
    fn identity(
        &self,
        trace: usize,
        class: usize,
        reader: &mut Reader<'_>,
        event: &Due,
    ) -> Option<(u64, Vec<u8>)> {
        let program = &self.traces.get(trace)?.program;
        let code = program.code(Scope::CommonContext, class, event.class)?;
        let node =
            code.nodes().iter().position(|node| matches!(node.name.as_str(), "vtid" | "tid"))?;
        let mut thread = IntegerField { node: Some(NodeId::try_from(node).ok()?), value: None };
        let (_, decoder, part) = reader.parts();
        let begin = program.visit(decoder, code, &part, event.body, &mut thread).ok()?;
        let payload = program.code(Scope::Payload, class, event.class)?;
        let end = program.visit(decoder, payload, &part, begin, &mut Ignore).ok()?;
        let at = |bits: u64| usize::try_from((bits / 8).checked_sub(part.base)?).ok();
        Some((thread.value?, part.bytes.get(at(begin)?..at(end)?)?.to_vec()))
    }
}

/// Returns an entry for each channel and event class; none if only one channel has the class.
fn shared_classes(channels: &[StreamClass]) -> Vec<Vec<Option<SharedClass>>> {
    let mut positions = HashMap::<_, Vec<ClassPosition>>::new();
    for (channel, own) in channels.iter().enumerate() {
        for (class, described) in own.events.iter().enumerate().filter(|_| channels.len() > 1) {
            positions.entry(without_id(described)).or_default().push((channel, class));
        }
    }
    let mut shared: Vec<Vec<Option<SharedClass>>> =
        channels.iter().map(|c| vec![None; c.events.len()]).collect();
    for positions in positions.values() {
        let (Some(first), Some((last_channel, _))) = (positions.first(), positions.last()) else {
            continue;
        };
        for (channel, class) in positions.iter().filter(|_| first.0 != *last_channel) {
            let described = channels.get(*channel).and_then(|of| of.events.get(*class));
            let is_panic = described.is_some_and(|of| of.name.as_deref() == Some("crash:panic"));
            let slot = shared.get_mut(*channel).and_then(|of| of.get_mut(*class));
            slot.into_iter().for_each(|slot| {
                let (first, last_channel) = (*first, *last_channel);
                *slot = Some(SharedClass { first, last_channel, is_panic });
            });
        }
    }
    shared
}

/// Returns true if the second payload of a `crash:panic` is the first one, of which less fitted: the
/// message ends with the recorder's note of what was cut off, and there may be fewer addresses.
fn is_cut_panic(whole: &[u8], cut: &[u8]) -> bool {
    const NUL_AND_NUMBER: usize = 1 + size_of::<u32>();
    const NOTE: (&[u8], &[u8]) = ("… (".as_bytes(), b" bytes were cut off)");
    fn message(payload: &[u8]) -> Option<(&[u8], &[u8])> {
        payload.split_at_checked(payload.iter().position(|byte| *byte == 0)?)
    }
    // Location and thread, which end with NULs, and the addresses after their number.
    fn rest(rest: &[u8]) -> Option<(&[u8], &[u8])> {
        let (end, _) = rest.iter().enumerate().filter(|(_, byte)| **byte == 0).nth(2)?;
        let (texts, backtrace) = rest.split_at_checked(end)?;
        Some((texts, backtrace.get(NUL_AND_NUMBER..)?))
    }
    let is_cut = || {
        let ((whole, whole_rest), (cut, cut_rest)) = (message(whole)?, message(cut)?);
        let before = cut.strip_suffix(NOTE.1)?;
        let at = before.windows(NOTE.0.len()).rposition(|part| part == NOTE.0)?;
        let (whole_rest, cut_rest) = (rest(whole_rest)?, rest(cut_rest)?);
        let is_begin = whole.starts_with(before.get(..at)?) && whole.len() > at;
        Some(is_begin && whole_rest.0 == cut_rest.0 && whole_rest.1.starts_with(cut_rest.1))
    };
    is_cut().unwrap_or(false)
}

/// Returns the part of a description that is the same in every channel. The event id differs: each
/// channel assigns its own ids.
fn without_id(class: &EventClass) -> (Option<&str>, Option<u8>, &str, String) {
    let level = class.log_level.map(|level| level.number());
    (class.name.as_deref(), level, &class.attributes, format!("{:?}", class.payload))
}

#[cfg(test)]
mod tests {
    use super::is_cut_panic;

    fn panic(message: &str, location: &str, addresses: &[u64]) -> Vec<u8> {
        let count = u32::try_from(addresses.len()).expect("few").to_le_bytes();
        let texts = [message, "\0", location, "\0main\0"].concat();
        let addresses: Vec<u8> = addresses.iter().flat_map(|at| at.to_le_bytes()).collect();
        [texts.as_bytes(), &count, &addresses].concat()
    }

    #[test]
    fn what_was_cut_off_makes_no_other_panic() {
        let whole = panic(&"é\n".repeat(100), "a.rs:1:1", &[1, 2, 3]);
        let cut = format!("{}… (291 bytes were cut off)", "é\n".repeat(3));
        assert!(is_cut_panic(&whole, &panic(&cut, "a.rs:1:1", &[1, 2, 3])));
        assert!(is_cut_panic(&whole, &panic(&cut, "a.rs:1:1", &[1])));
        // Both are cut.
        let less = format!("{}… (240 bytes were cut off)", "é\n".repeat(20));
        assert!(is_cut_panic(&panic(&less, "a.rs:1:1", &[1]), &panic(&cut, "a.rs:1:1", &[])));
        let others = [
            panic(&cut, "a.rs:1:2", &[1, 2, 3]),
            panic(&cut, "a.rs:1:1", &[1, 3]),
            panic(&cut.replacen('é', "e", 1), "a.rs:1:1", &[1, 2, 3]),
            panic("é\n", "a.rs:1:1", &[1, 2, 3]),
            panic("", "a.rs:1:1", &[]),
            Vec::new(),
            vec![0; 3],
        ];
        for other in others {
            assert!(!is_cut_panic(&whole, &other), "{other:?}");
        }
        assert!(!is_cut_panic(&panic(&cut, "a.rs:1:1", &[]), &whole));
    }
}
