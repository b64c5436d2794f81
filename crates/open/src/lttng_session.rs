//! A session of LTTng that was found.

use lastwords_lttng::Session;
use std::sync::Arc;

/// A session of LTTng. Each packet is proven by decoding its events.
pub struct Lttng {
    /// The session.
    pub session: Arc<Session>,
    /// The number of events, or none if the metadata cannot be read.
    pub events: Option<u64>,
}

impl Lttng {
    /// Returns true if the session has packets and nothing describes their events.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.events.is_none() && self.packets() > 0
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.session
            .streams
            .iter()
            .map(|stream| stream.packets.len() as u64)
            .fold(0, u64::saturating_add)
    }
}
