//! Mistakes of a recorder that the command must find. They are made where flushes and fences are
//! reported, so the code that ships has none of them.

use std::ops::Range;

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Fault {
    /// None.
    None,
    /// The bytes of events are not flushed.
    Data,
    /// The last cache line of an event is not flushed.
    LastLine,
    /// The positions, and the counters of committed bytes, are not flushed.
    Mark,
    /// No fence follows the flush of the bytes, so they are ordered after the position that commits
    /// them.
    Fence,
    /// The position that commits bytes is flushed before them.
    MarkFirst,
    /// Descriptions of events are not flushed.
    Registry,
    /// Announcements of reservations are not flushed.
    Announcement,
    /// Counters and histograms are not flushed.
    Counters,
}

/// All of them.
pub(super) const ALL: [Fault; 8] = [
    Fault::Data,
    Fault::LastLine,
    Fault::Mark,
    Fault::Fence,
    Fault::MarkFirst,
    Fault::Registry,
    Fault::Announcement,
    Fault::Counters,
];

/// A part of the session's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Session,
    Registry,
    /// Control words and slots of a ring.
    Positions,
    /// Sub-buffers of a ring.
    Data,
    /// The tables of counters and histograms.
    Counters,
}

/// Finds the parts of a memory by the headers of its regions, as docs/ABI.md describes them.
pub(super) fn parts(memory: &[u8]) -> Vec<(Range<usize>, Part)> {
    let word =
        |at: usize| u64::from_le_bytes(memory[at..at + 8].try_into().expect("8 bytes")) as usize;
    let mut parts = Vec::new();
    for at in
        (0..memory.len()).step_by(4096).filter(|at| memory[*at..].starts_with(b"\x89LASTWORDS"))
    {
        let (kind, end) = (memory[at + 20], at + word(at + 32));
        match kind {
            1 => parts.push((at..end, Part::Session)),
            2 => parts.push((at..end, Part::Registry)),
            3 => {
                let data = at + word(at + 128 + 48);
                parts.extend([(at..data, Part::Positions), (data..end, Part::Data)]);
            }
            5 => parts.push((at..end, Part::Counters)),
            _ => {}
        }
    }
    parts
}

/// The flushes and fences with a deliberate mistake.
#[derive(Debug)]
pub(super) struct Faulty {
    fault: Fault,
    parts: Vec<(Range<usize>, Part)>,
    /// The part that was flushed last.
    last: Option<Part>,
    /// Flushes that come too late.
    late: Vec<Range<usize>>,
}

impl Faulty {
    pub(super) fn new(fault: Fault, memory: &[u8]) -> Self {
        Self { fault, parts: parts(memory), last: None, late: Vec::new() }
    }

    /// True if bytes are copied there, in an order that is not known.
    pub(super) fn is_copied(&self, at: usize) -> bool {
        matches!(self.part(at), Some(Part::Data | Part::Registry))
    }

    fn part(&self, at: usize) -> Option<Part> {
        self.parts.iter().find(|(part, _)| part.contains(&at)).map(|(_, part)| *part)
    }

    /// The bytes that are flushed in place of these.
    pub(super) fn flush(&mut self, range: Range<usize>) -> Option<Range<usize>> {
        let part = self.part(range.start);
        self.last = part;
        let last_line = (range.end - 1) & !63;
        match (self.fault, part) {
            (Fault::Data, Some(Part::Data))
            | (Fault::Mark, Some(Part::Positions))
            | (Fault::Registry, Some(Part::Registry))
            | (Fault::Announcement, Some(Part::Session))
            | (Fault::Counters, Some(Part::Counters)) => None,
            (Fault::LastLine, Some(Part::Data)) => {
                (range.start < last_line).then_some(range.start..last_line)
            }
            (Fault::MarkFirst, Some(Part::Data)) => {
                self.late.push(range);
                None
            }
            _ => Some(range),
        }
    }

    /// True if the fence is one. Flushes that come behind it.
    pub(super) fn fence(&mut self) -> (bool, Vec<Range<usize>>) {
        let is_one = self.fault != Fault::Fence || self.last != Some(Part::Data);
        let late = if self.last == Some(Part::Positions) {
            std::mem::take(&mut self.late)
        } else {
            Vec::new()
        };
        (is_one, late)
    }
}
