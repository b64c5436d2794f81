//! Counters and histograms: ours, and those of the crate `prometheus`, which do not outlive the
//! process.

use lastwords::Reservation;
use prometheus::{Histogram, HistogramOpts, IntCounter};

use super::lastwords::session;
use crate::Result;
use crate::job::{Job, Sample, each_a};

pub(super) fn counter(job: &Job) -> Result<Sample> {
    let _session = session(Reservation::Rseq)?.counters(4).start()?;
    each(job, |number| lastwords::counter!("bench", u64::from(number)))
}

pub(super) fn histogram(job: &Job) -> Result<Sample> {
    let _session = session(Reservation::Rseq)?.histograms(4).start()?;
    each(job, |number| lastwords::histogram!("bench", u64::from(number)))
}

pub(super) fn prometheus_counter(job: &Job) -> Result<Sample> {
    let counter = IntCounter::new("bench", "of the bench")?;
    each(job, |number| counter.inc_by(u64::from(number)))
}

pub(super) fn prometheus_histogram(job: &Job) -> Result<Sample> {
    let histogram = Histogram::with_opts(HistogramOpts::new("bench", "of the bench"))?;
    each(job, |number| histogram.observe(f64::from(number)))
}

fn each(job: &Job, add: impl Fn(u32) + Sync) -> Result<Sample> {
    let add = |events| each_a(events, |number, _| add(number));
    job.run(add, add)
}
