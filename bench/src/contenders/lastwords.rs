//! lastwords itself: one channel without contexts, in shared memory, with each reservation; through
//! `tracing`; disabled.

use std::path::Path;

use lastwords::{ChannelConfig, Reservation, Session};
use tracing_subscriber::layer::SubscriberExt;

use crate::Result;
use crate::job::{Job, RING_BYTES, Sample, cpus, each_a, each_b, pin};

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

/// Through `tracing`'s macros and our layer.
pub(super) fn through_tracing(job: &Job) -> Result<Sample> {
    with_layer(|| super::tracing::record(job))
}

/// A span that is entered and left, through our layer.
pub(super) fn span(job: &Job) -> Result<Sample> {
    let enter = |events| {
        let span = tracing::info_span!("bench", events);
        for _ in 0..events {
            let _inside = span.enter();
        }
    };
    with_layer(|| job.run(enter, enter))
}

fn with_layer(run: impl FnOnce() -> Result<Sample>) -> Result<Sample> {
    let _session = session(Reservation::Rseq)?.start()?;
    let subscriber = tracing_subscriber::registry().with(lastwords::layer::layer());
    tracing::subscriber::set_global_default(subscriber)?;
    run()
}

pub(crate) fn session(reservation: Reservation) -> Result<lastwords::Builder> {
    let size = u64::try_from(RING_BYTES / 4)?;
    let channel =
        ChannelConfig::new("bench").sub_buffers(4, size).contexts(lastwords::Context::NONE);
    Ok(Session::builder("bench").channel(channel).reservation(reservation))
}

fn with(job: &Job, reservation: Reservation) -> Result<Sample> {
    let _session = session(reservation)?.start()?;
    record(job)
}

fn record(job: &Job) -> Result<Sample> {
    job.run(
        |events| each_a(events, |number, value| lastwords::event!(bench, "a", number, value)),
        |events| {
            each_b(events, |number, value, text| lastwords::event!(bench, "b", number, value, text))
        },
    )
}

/// Records `events` events of both payloads, as many on each CPU, in a session that has room for
/// all of them, and keeps its folder in `dir`.
pub(crate) fn generate(dir: &Path, events: u64) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let cpus = cpus()?;
    // The two events take 24 bytes on average, and each CPU has its own ring.
    let bytes = events.div_ceil(cpus.len() as u64).saturating_mul(26);
    let sub_buffers = u32::try_from((bytes >> 17).max(2).next_power_of_two())?;
    let channel = ChannelConfig::new("bench")
        .sub_buffers(sub_buffers, 128 << 10)
        .contexts(lastwords::Context::NONE);
    let _recording =
        Session::builder("bench").channel(channel).dir(dir).size_limit(u64::MAX).start()?;
    let share = |begin: u64, end: u64| {
        each_a((end - begin) / 2, |number, value| lastwords::event!(bench, "a", number, value));
        let rest = end - begin - (end - begin) / 2;
        each_b(rest, |number, value, text| lastwords::event!(bench, "b", number, value, text));
    };
    let count = cpus.len() as u64;
    std::thread::scope(|scope| {
        let record = |(n, cpu)| {
            scope.spawn(move || {
                pin(cpu).map(|()| share(events * n / count, events * (n + 1) / count))
            })
        };
        let threads: Vec<_> = (0..).zip(cpus).map(record).collect();
        threads
            .into_iter()
            .try_for_each(|thread| Ok(thread.join().map_err(|_| "a thread panicked")??))
    })
}
