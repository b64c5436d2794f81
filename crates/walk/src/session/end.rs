//! Where reading ends in a stream of a living session.

/// Where reading of a stream ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct End {
    /// The half that is read.
    pub half: usize,
    /// Position before which nothing is still being written, bytes since the half was begun.
    pub position: u64,
    /// Lost events by cause, as in [`super::info::StreamInfo::lost`].
    pub lost: [u64; 7],
    /// How many of these were told of before.
    pub told: [u64; 7],
    /// Clock of the last event that is wanted: those of before it in other streams would be delivered behind later ones.
    pub clock: Option<u64>,
    /// Nobody records any more: what was being written there will not come about.
    pub is_over: bool,
}

impl End {
    /// What was lost since it was told of last.
    pub(crate) fn lost_since(&self) -> [u64; 7] {
        std::array::from_fn(|cause| match (self.lost.get(cause), self.told.get(cause)) {
            (Some(lost), Some(told)) => lost.saturating_sub(*told),
            _ => 0,
        })
    }
}
