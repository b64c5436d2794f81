//! lastwords itself: one channel without contexts, in shared memory, with each reservation; through `tracing`; disabled.

use lastwords::{ChannelConfig, Reservation, Session};

use crate::Result;
use crate::job::{Job, RING_BYTES, Sample, each_a, each_b};

/// Restartable sequences.
pub(super) fn rseq(job: &Job) -> Result<Sample> {
    with(job, Reservation::Rseq)
}

/// Compare-and-swap.
pub(super) fn lockless(job: &Job) -> Result<Sample> {
    with(job, Reservation::Lockless)
}

/// Signals blocked and a lock.
pub(super) fn locked(job: &Job) -> Result<Sample> {
    with(job, Reservation::Locked)
}

/// A session runs, the events are not enabled.
pub(super) fn disabled(job: &Job) -> Result<Sample> {
    let _session = session(Reservation::Rseq)?.events("nothing:*").start()?;
    record(job)
}

fn session(reservation: Reservation) -> Result<lastwords::Builder> {
    let dir = std::env::temp_dir().join(format!("lastwords-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let size = u64::try_from(RING_BYTES / 4)?;
    let channel = ChannelConfig::new("bench").sub_buffers(4, size).contexts(0);
    Ok(Session::builder("bench").channel(channel).reservation(reservation).dir(dir))
}

fn with(job: &Job, reservation: Reservation) -> Result<Sample> {
    let _session = session(reservation)?.start()?;
    record(job)
}

fn record(job: &Job) -> Result<Sample> {
    job.run(
        |events| each_a(events, |number, value| lastwords::event!(bench, "a", number, value)),
        |events| each_b(events, |number, value, text| lastwords::event!(bench, "b", number, value, text)),
    )
}
