//! The range of a live stream that a stepwise reader may read. Such a reader consumes events or
//! follows the session.

/// The end of a read of a stream, and where the read begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    /// Index of the half that is read, 0 or 1.
    pub half: usize,
    /// Settled position, bytes since the half was begun: no recorder is still writing before it.
    pub position: u64,
    /// Number of lost events by cause, as in [`super::info::StreamInfo::lost`].
    pub lost: [u64; 7],
    /// Number of these that earlier consuming reads reported.
    pub told: [u64; 7],
    /// Clock of the last event to deliver. Otherwise a later read would return events of other
    /// streams that are older than those already returned.
    pub clock: Option<u64>,
    /// No recorder is alive: events in flight at the position will not be committed.
    pub is_over: bool,
    /// Of the first stream of a channel that was created while the session recorded: events that
    /// processes lost since the last read because they had not mapped the channel yet.
    pub unattached: u64,
    /// The begin of a read that follows an earlier one and consumes nothing. A consuming read has
    /// none: it begins where readers begin, at the first position that was neither consumed nor
    /// cleared.
    pub begin: Option<Begin>,
}

/// The begin of a read that follows an earlier read of the same stream. The default is that of the
/// first read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Begin {
    /// Position of the first event to deliver, bytes.
    pub position: u64,
    /// Bytes between the end of the earlier read and `position`, which were cleared, consumed or
    /// replaced meanwhile.
    pub skipped: u64,
}

impl End {
    /// Position before which the reader wants nothing; 0 if it wants all that readers get.
    pub(crate) fn begin_position(&self) -> u64 {
        self.begin.map_or(0, |begin| begin.position)
    }

    /// True in the first read of a reader that follows the stream.
    pub(crate) fn is_first_followed(&self) -> bool {
        self.begin == Some(Begin::default())
    }

    /// Losses since the last read, by cause.
    pub(crate) fn lost_since(&self) -> [u64; 7] {
        std::array::from_fn(|cause| match (self.lost.get(cause), self.told.get(cause)) {
            (Some(lost), Some(told)) => lost.saturating_sub(*told),
            _ => 0,
        })
    }
}
