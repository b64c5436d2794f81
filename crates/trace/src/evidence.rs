//! Evidence of what was found and lost, with place, size and cause.

/// The verdict on one sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The sub-buffer was closed, and its checksum (if the format has one) is right.
    Committed,
    /// The sub-buffer was being written at the end. Its committed part is proven only by its
    /// structure.
    Open,
    /// The sub-buffer has reservations that were never committed; the events around them are
    /// recovered.
    Torn,
    /// The place has a sub-buffer of an older lap.
    Stale,
    /// The sub-buffer is damaged; events up to the damage may be recovered with this verdict.
    Invalid,
    /// The image lacks the sub-buffer or a part of it.
    Missing,
}

impl Verdict {
    /// Name of the verdict in lower case, as in `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Open => "open",
            Self::Torn => "torn",
            Self::Stale => "stale",
            Self::Invalid => "invalid",
            Self::Missing => "missing",
        }
    }

    /// Returns true if the sub-buffer lacks what was written into it last, by the rules of
    /// `--strict`.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Invalid | Self::Missing | Self::Stale)
    }
}

/// One sub-buffer and its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubBuffer {
    /// Index of the stream in [`crate::source::Source::streams`].
    pub stream: usize,
    /// Number of the sub-buffer since the ring was begun.
    pub sequence: u64,
    /// Verdict on the sub-buffer.
    pub verdict: Verdict,
    /// Length of committed content with header, bytes.
    pub content: u64,
    /// Reason for a verdict other than committed and open; else empty.
    pub why: String,
}

/// The cause of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Overwrite mode: the writer overwrote the oldest sub-buffer.
    Overwritten,
    /// The writer overwrote a sub-buffer before a consuming read had read it.
    Unread,
    /// Discard mode: there was no room.
    Discarded,
    /// Reserved by a thread that died before it committed.
    InFlight,
    /// The event was larger than a sub-buffer.
    TooBig,
    /// The recorder could not reserve (no entry, busy, or locked out).
    Refused,
    /// The bytes are damaged.
    Damaged,
    /// The image does not have the bytes.
    Missing,
    /// A user cleared the events.
    Cleared,
    /// A consuming reader has read the events.
    Consumed,
    /// The events were in a snapshot that was replaced or freed before it was consumed.
    Dropped,
    /// The packets are there, but the description of their events is missing, so that nothing can
    /// read them.
    Undescribed,
    /// A fact about events that are there is not known: whose they are, or their clock.
    Unknown,
    /// This many values were cut or left out, because their events had no room for all. The events
    /// are there.
    Cut(u64),
    /// This many texts had NULs, which no text can hold: each was recorded as 0x1a. The events are
    /// there.
    Changed(u64),
}

impl Cause {
    /// Name of the cause in lower case with hyphens, as in `--json`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Overwritten => "overwritten",
            Self::Unread => "overwritten-unread",
            Self::Discarded => "discarded",
            Self::InFlight => "in-flight",
            Self::TooBig => "too-big",
            Self::Refused => "refused",
            Self::Damaged => "damaged",
            Self::Missing => "missing",
            Self::Cleared => "cleared",
            Self::Consumed => "consumed",
            Self::Dropped => "dropped",
            Self::Undescribed => "undescribed",
            Self::Unknown => "unknown",
            Self::Cut(_) => "cut",
            Self::Changed(_) => "changed",
        }
    }

    /// True if the cause counts as a loss for `--strict`. Events that the recorder overwrote or had
    /// in flight when it died do not count, nor events that were cleared, consumed, or dropped with
    /// a snapshot. Events overwritten before they could be consumed count.
    #[must_use]
    pub fn is_loss(self) -> bool {
        !matches!(
            self,
            Self::Overwritten | Self::Cleared | Self::Consumed | Self::Dropped | Self::InFlight
        )
    }
}

/// A gap: events or bytes that are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Index of the stream; none if the gap concerns the whole source.
    pub stream: Option<usize>,
    /// Description of the place: a position in the ring (bytes since it was begun) or an offset in
    /// the file.
    pub place: String,
    /// Cause of the gap.
    pub cause: Cause,
    /// Number of lost events, if known.
    pub events: Option<u64>,
    /// Number of lost bytes, if known.
    pub bytes: Option<u64>,
}

impl Gap {
    /// Returns a gap of unknown size.
    #[must_use]
    pub fn new(stream: Option<usize>, cause: Cause, place: impl Into<String>) -> Self {
        Self { stream, place: place.into(), cause, events: None, bytes: None }
    }

    /// Sets the number of lost events, if it is known.
    #[must_use]
    pub fn with_events(self, events: Option<u64>) -> Self {
        Self { events, ..self }
    }

    /// Sets the number of lost bytes, if it is known.
    #[must_use]
    pub fn with_bytes(self, bytes: Option<u64>) -> Self {
        Self { bytes, ..self }
    }

    /// Returns the account's line on a fact that is not known. It costs no event.
    #[must_use]
    pub fn not_known(stream: Option<usize>, fact: &str) -> Self {
        Self::new(stream, Cause::Unknown, fact).with_events(Some(0))
    }
}

/// A note about the whole source, such as a field that did not fit or a choice that was made. One
/// sentence, with file, offset and value.
pub type Note = String;

/// All evidence of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Sub-buffers, in order of stream and number.
    pub sub_buffers: Vec<SubBuffer>,
    /// Gaps.
    pub gaps: Vec<Gap>,
    /// Notes.
    pub notes: Vec<Note>,
}

impl Evidence {
    /// Appends other evidence.
    pub fn append(&mut self, other: Self) {
        self.sub_buffers.extend(other.sub_buffers);
        self.gaps.extend(other.gaps);
        self.notes.extend(other.notes);
    }

    /// Number of bytes of the committed content of the sub-buffers of each of so many streams, with
    /// their headers.
    #[must_use]
    pub fn contents(&self, streams: usize) -> Vec<u64> {
        let mut bytes = vec![0u64; streams];
        for row in &self.sub_buffers {
            if let Some(bytes) = bytes.get_mut(row.stream) {
                *bytes = bytes.saturating_add(row.content);
            }
        }
        bytes
    }

    /// Number of events known to be lost: those of all gaps that count as a loss for `--strict`.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        let losses = self.gaps.iter().filter(|gap| gap.cause.is_loss());
        losses.filter_map(|gap| gap.events).fold(0, u64::saturating_add)
    }

    /// True if anything counts as a loss for `--strict`.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        let is_bad = |sub_buffer: &SubBuffer| sub_buffer.verdict.is_loss();
        self.gaps.iter().any(|gap| gap.cause.is_loss()) || self.sub_buffers.iter().any(is_bad)
    }
}
