//! What was found and what was lost, with place, size and cause.

/// What is said of one sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Closed, and its checksum (where the format has one) holds.
    Committed,
    /// The sub-buffer being written at the end: its committed part, which nothing but its structure vouches for.
    Open,
    /// Reservations that were never committed are in it; the events around them are recovered.
    Torn,
    /// What is there belongs to an older lap.
    Stale,
    /// It is damaged; events up to the damage may be recovered, under this verdict.
    Invalid,
    /// The image does not have it, or not whole.
    Missing,
}

impl Verdict {
    /// One lower-case word, as in `--json`.
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
}

/// One sub-buffer and its verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubBuffer {
    /// Index of the stream in [`crate::source::Source::streams`].
    pub stream: usize,
    /// Number of the sub-buffer since the ring was begun.
    pub sequence: u64,
    /// What is said of it.
    pub verdict: Verdict,
    /// Bytes of committed content, header included.
    pub content: u64,
    /// Why, where the verdict is neither committed nor open; else empty.
    pub why: String,
}

/// Why something is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The ring came round: overwrite mode.
    Overwritten,
    /// The ring came round before a consuming read had it.
    Unread,
    /// No room: discard mode.
    Discarded,
    /// Reserved by a thread that died before it committed.
    InFlight,
    /// Larger than a sub-buffer.
    TooBig,
    /// The recorder could not reserve (no entry, busy, or locked out).
    Refused,
    /// The bytes are damaged.
    Damaged,
    /// The image does not have the bytes.
    Missing,
    /// Cleared by a user.
    Cleared,
    /// Given to a reader that consumed it.
    Consumed,
    /// In a snapshot that was replaced or freed before it was consumed.
    Dropped,
    /// The packets are there, but the description of their events is missing, so that nothing can read them.
    Undescribed,
}

impl Cause {
    /// Lower-case words with hyphens, as in `--json`.
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
        }
    }

    /// It counts as a loss for `--strict`. What a recorder overwrote or had in flight at its death, and what somebody cleared,
    /// consumed or dropped with a snapshot, does not; what was overwritten before it could be consumed does.
    #[must_use]
    pub fn is_loss(self) -> bool {
        !matches!(self, Self::Overwritten | Self::Cleared | Self::Consumed | Self::Dropped | Self::InFlight)
    }
}

/// A gap: something that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Index of the stream, or none where it concerns the whole source.
    pub stream: Option<usize>,
    /// Position in the ring (bytes since it was begun) or offset in the file: `place` says which in words.
    pub place: String,
    /// Why.
    pub cause: Cause,
    /// Events lost, where it is known.
    pub events: Option<u64>,
    /// Bytes lost, where it is known.
    pub bytes: Option<u64>,
}

/// A remark on the whole: a field that did not fit, a choice that was made. One sentence, with file, offset and value.
pub type Note = String;

/// All evidence of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Sub-buffers, in order of stream and number.
    pub sub_buffers: Vec<SubBuffer>,
    /// Gaps.
    pub gaps: Vec<Gap>,
    /// Remarks.
    pub notes: Vec<Note>,
}

impl Evidence {
    /// Takes what other evidence says besides.
    pub fn append(&mut self, other: Self) {
        self.sub_buffers.extend(other.sub_buffers);
        self.gaps.extend(other.gaps);
        self.notes.extend(other.notes);
    }

    /// Events known to be lost: those of all gaps that `--strict` calls a loss.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        let losses = self.gaps.iter().filter(|gap| gap.cause.is_loss());
        losses.filter_map(|gap| gap.events).fold(0, u64::saturating_add)
    }

    /// Anything that `--strict` calls a loss.
    #[must_use]
    pub fn has_losses(&self) -> bool {
        self.gaps.iter().any(|g| g.cause.is_loss())
            || self
                .sub_buffers
                .iter()
                .any(|s| matches!(s.verdict, Verdict::Invalid | Verdict::Missing | Verdict::Stale))
    }
}
