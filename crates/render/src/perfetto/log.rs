//! Writes the kernel's log, which Perfetto shows in a table of its own.
//!
//! Lines of the log from before the first event, and from long after the last one, are left out
//! with a remark: they would stretch the view from the milliseconds of a trace to all the time
//! since the boot.

use lastwords_ctf::program::Code;
use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_trace::class::Scope;
use lastwords_trace::visit::{NodeId, Visitor};

use super::proto::Message;
use super::{Timeline, packet, put_packet};
use crate::streams::scope_code;

/// Track of the kernel's panic. The ids of other tracks are small.
const PANIC_TRACK: u64 = 1 << 62;
/// Lines that follow the last event within this time, in nanoseconds, are shown, however short the
/// trace is.
const SHORTEST: u64 = 10_000_000;
/// How the line of a panic begins.
const PANIC: &[u8] = b"Kernel panic";

/// Fields of `SystemdJournaldEvent`.
mod journal {
    pub(super) const PRIORITY: u32 = 5;
    pub(super) const TAG: u32 = 6;
    pub(super) const MESSAGE: u32 = 7;
}

/// Writes the records of the log.
pub(super) struct Log<'t> {
    traces: &'t [Trace],
    timeline: &'t Timeline,
    /// Times of the first and of the last event.
    events: Option<(u64, u64)>,
    /// Times and packets of the lines since the last event.
    held: Vec<(u64, Vec<u8>)>,
    /// Number of lines that were left out.
    left_out: usize,
    packet: Message,
}

/// The fields of a record of the log.
struct Line<'c> {
    code: &'c Code,
    level: u64,
    text: Vec<u8>,
}

impl Line<'_> {
    fn is(&self, node: NodeId, name: &str) -> bool {
        self.code.nodes().get(node as usize).is_some_and(|node| node.name == name)
    }
}

impl Visitor for Line<'_> {
    fn integer(&mut self, node: NodeId, value: u64) {
        if self.is(node, "level") {
            self.level = value;
        }
    }

    fn text(&mut self, node: NodeId, bytes: &[u8]) {
        if self.is(node, "text") {
            self.text = bytes.to_vec();
        }
    }
}

impl<'t> Log<'t> {
    pub(super) fn new(traces: &'t [Trace], timeline: &'t Timeline) -> Self {
        Self {
            traces,
            timeline,
            events: None,
            held: Vec::new(),
            left_out: 0,
            packet: Message::default(),
        }
    }

    /// Returns true if the trace at this position is the log of a kernel.
    pub(super) fn is_of(&self, trace: usize) -> bool {
        self.traces.get(trace).is_some_and(|trace| trace.is_beside)
    }

    /// Notes an event, and appends the lines since the event before.
    pub(super) fn event(&mut self, event: &Due, out: &mut Vec<u8>) {
        let time = self.timeline.time(event.nanoseconds);
        let first = self.events.map(|(first, _)| first);
        self.events = Some((first.unwrap_or(time), time));
        match first {
            Some(_) => self.held.drain(..).for_each(|(_, packets)| out.extend_from_slice(&packets)),
            None => self.left_out = std::mem::take(&mut self.held).len(),
        }
    }

    /// Notes a record of the log.
    pub(super) fn line(&mut self, reader: &mut Reader<'_>, event: &Due) {
        let Some(trace) = self.traces.iter().find(|trace| trace.is_beside) else { return };
        let Some(code) = scope_code(trace, Scope::Payload, 0, event.class) else { return };
        let (_, decoder, part) = reader.parts();
        let mut line = Line { code, level: 0, text: Vec::new() };
        // The reader has accepted the same bytes.
        if trace.program.visit(decoder, code, &part, event.body, &mut line).is_err() {
            return;
        }
        let (mut packets, time) = (Vec::new(), self.timeline.time(event.nanoseconds));
        let out = &mut packets;
        self.packet.number(packet::TIMESTAMP, time);
        self.packet.number(packet::CLOCK_ID, self.timeline.clock);
        self.packet.nested(packet::JOURNALD_EVENT, |entry| {
            entry.number(journal::PRIORITY, line.level);
            entry.text(journal::TAG, b"kernel");
            entry.text(journal::MESSAGE, &line.text);
        });
        put_packet(out, &mut self.packet);
        if line.text.starts_with(PANIC) {
            self.packet.nested(packet::TRACK_DESCRIPTOR, |track| {
                track.number(1, PANIC_TRACK);
                track.text(2, b"kernel panic");
            });
            put_packet(out, &mut self.packet);
            self.packet.number(packet::TIMESTAMP, time);
            self.packet.number(packet::CLOCK_ID, self.timeline.clock);
            self.packet.nested(packet::TRACK_EVENT, |event| {
                // `TYPE_INSTANT`.
                event.number(9, 3);
                event.number(11, PANIC_TRACK);
                event.text(22, b"kernel log");
                event.text(23, &line.text);
            });
            put_packet(out, &mut self.packet);
        }
        self.held.push((time, packets));
    }

    /// Appends the lines that follow the last event within as much time as all events take. Without
    /// events, the log is all that there is to see.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        let last = self.events.map_or(u64::MAX, |(first, last)| {
            last.saturating_add(last.saturating_sub(first).max(SHORTEST))
        });
        for (time, packets) in std::mem::take(&mut self.held) {
            match time <= last {
                true => out.extend_from_slice(&packets),
                false => self.left_out = self.left_out.saturating_add(1),
            }
        }
    }

    /// Returns a remark on the lines that were left out.
    pub(super) fn remark(&self) -> Option<String> {
        let lines = self.left_out;
        (lines > 0).then(|| {
            format!(
                "{lines} lines of the kernel's log are from before the first event or long after the last one and are left out, so that they \
                 do not stretch the view: `lastwords report --with-log` shows them"
            )
        })
    }
}
