//! Operations on a session that its own processes and all other processes of its user share.

use std::sync::atomic::Ordering::Release;

use lastwords_abi::session::RESERVATION_RSEQ;
use lastwords_ring::ClockKind;

use crate::session::Error;
use crate::session::regions::{Regions, StreamRegion};
use crate::session::rule_changes;
use crate::session::rules::{self, Named, RuleSpec};
use crate::session::text::text;

/// The operations that both a process of the session and any other process of its user can use.
impl Regions {
    /// Returns the id of the channel of this name.
    #[must_use]
    pub fn channel(&self, name: &str) -> Option<u32> {
        self.view.channels().find(|(_, entry)| text(&entry.name) == name).map(|(id, _)| id)
    }

    /// Returns the number of rings that each channel has: one for each CPU, and one for threads
    /// without restartable sequences if the session's reservation uses these.
    #[must_use]
    pub fn rings_of_channel(&self) -> u64 {
        u64::from(self.view.info.cpus) + u64::from(self.view.info.reservation == RESERVATION_RSEQ)
    }

    /// Returns true if the rules let a channel record an event of this provider, name and level (1
    /// error to 5 trace), perhaps only with certain values.
    #[must_use]
    pub fn takes(&self, channel: u32, provider: &str, name: &str, level: u8) -> bool {
        rules::judge(self.view.rules(), channel, Named { provider, name, level }, |_| ())
            != rules::Verdict::Refused
    }

    /// Returns the bytes that were recorded into the live rings since their last swap, all streams
    /// together. An event that is recorded changes the sum.
    #[must_use]
    pub fn produced(&self) -> u64 {
        // A channel that cannot be mapped yet is in the sum later.
        drop(self.attach(None));
        let live = |stream: &StreamRegion| stream.stream.position(stream.spare(&self.view) ^ 1);
        self.streams.iter().map(live).fold(0, u64::wrapping_add)
    }

    /// Returns the clock that stamps the session's events, if this version knows it.
    #[must_use]
    pub fn clock(&self) -> Option<ClockKind> {
        self.view.clock_kind()
    }

    /// Adds a rule. The processes of the session follow it within milliseconds.
    ///
    /// # Errors
    /// The list of rules is full or held, or the filter is not valid.
    pub fn rule(&self, rule: &RuleSpec) -> Result<(), Error> {
        rule_changes::add(&self.view, rule)
    }

    /// Replaces the rules in one step by those that `edit` makes of them. The processes of the
    /// session follow them within milliseconds.
    ///
    /// # Errors
    /// The list of rules is full or held, or a rule is not valid. Nothing has changed then.
    pub fn change_rules(&self, edit: impl FnOnce(&mut Vec<RuleSpec>)) -> Result<(), Error> {
        rule_changes::change(&self.view, edit)
    }

    /// Switches recording on or off, for the session or for one channel.
    pub fn set_recording(&self, channel: Option<u32>, on: bool) {
        let word = match channel {
            None => Some(&self.view.control().recording),
            Some(id) => {
                self.view.channels().find(|(own, _)| *own == id).map(|(_, entry)| &entry.recording)
            }
        };
        if let Some(word) = word {
            word.store(u32::from(on), Release);
            self.view.announce();
        }
    }
}
