//! The position where a consuming read of a living stream ends.

/// The end of a consuming read of a stream.
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
    /// Clock of the last event to deliver. Otherwise a later read would return events of other streams that are older
    /// than those already returned.
    pub clock: Option<u64>,
    /// No recorder is alive: events in flight at the position will not be committed.
    pub is_over: bool,
}

impl End {
    /// Losses since the last consuming read, by cause.
    pub(crate) fn lost_since(&self) -> [u64; 7] {
        std::array::from_fn(|cause| match (self.lost.get(cause), self.told.get(cause)) {
            (Some(lost), Some(told)) => lost.saturating_sub(*told),
            _ => 0,
        })
    }
}
