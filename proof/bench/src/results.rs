//! What the contenders of `bench record` needed.

use std::collections::BTreeMap;

use super::Clock;
use super::contenders::{Contender, Payload};
use super::floors::Row;
use super::stats::Spread;

/// The request and its results.
pub(super) struct Results {
    pub(super) rounds: usize,
    pub(super) events: u64,
    pub(super) clock: Clock,
    pub(super) samples: Vec<Samples>,
    /// Contenders that did not run, and why.
    pub(super) missing: BTreeMap<&'static str, String>,
}

/// A row of results.
pub(super) struct Samples {
    pub(super) contender: &'static Contender,
    pub(super) payload: Payload,
    pub(super) threads: usize,
    /// Nanoseconds an event.
    pub(super) nanoseconds: Vec<f64>,
    /// How often the runs together were preempted.
    pub(super) preempted: u64,
}

impl Results {
    /// The median of a row, in nanoseconds.
    pub(super) fn median(&self, (name, payload, threads): Row) -> Option<f64> {
        let row =
            |s: &&Samples| s.contender.name == name && s.payload == payload && s.threads == threads;
        Spread::from_samples(&self.samples.iter().find(row)?.nanoseconds)
            .map(|spread| spread.median)
    }

    /// The median of the floor with so many threads.
    pub(super) fn floor(&self, threads: usize) -> Option<f64> {
        self.median(("floor", Payload::A, threads))
    }
}
