//! The cost of `tracing` to an application: the same two events with several subscribers, and with
//! none.

use tracing_flight_recorder::{FlightRecorder, FlightRecorderLayer};
use tracing_subscriber::layer::SubscriberExt;

use crate::Result;
use crate::job::{Job, RING_BYTES, Sample, each_a, each_b};

/// Nobody listens: the cost of an event that is disabled.
pub(super) fn without_subscriber(job: &Job) -> Result<Sample> {
    record(job)
}

/// The crate `tracing-flight-recorder`, with room for about as many events as the other rings hold.
pub(super) fn flight_recorder(job: &Job) -> Result<Sample> {
    let recorder = FlightRecorder::new(RING_BYTES / 24);
    let subscriber =
        tracing_subscriber::registry().with(FlightRecorderLayer::new(recorder.clone()));
    tracing::subscriber::set_global_default(subscriber)?;
    let sample = record(job)?;
    if recorder.is_empty() {
        return Err("tracing-flight-recorder has recorded nothing".into());
    }
    Ok(sample)
}

/// Runs the job through `tracing`'s macros, into the subscriber that is set.
pub(super) fn record(job: &Job) -> Result<Sample> {
    job.run(
        |events| each_a(events, |number, value| tracing::info!(number, value)),
        |events| each_b(events, |number, value, text| tracing::info!(number, value, text)),
    )
}
