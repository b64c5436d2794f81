//! Shapes of `tracing` that programs have: an event under a global and under a scoped dispatcher, a
//! span with an event from its making to its end, and an event with optional fields; recorded by
//! our subscriber, by our layer, and by the registry of `tracing-subscriber` alone.

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata};
use tracing_subscriber::layer::{Identity, SubscriberExt};

use super::lastwords::session;
use crate::Result;
use crate::job::{Job, Sample, each_a};

/// The ways in which a dispatcher is set.
#[derive(Clone, Copy)]
enum Set {
    Global,
    Scoped,
}

/// An event, our subscriber for the whole program.
pub(super) fn event_global(job: &Job) -> Result<Sample> {
    record(job, lastwords::layer::subscriber(), Set::Global, event)
}

/// An event, our subscriber in a scope.
pub(super) fn event_scoped(job: &Job) -> Result<Sample> {
    record(job, lastwords::layer::subscriber(), Set::Scoped, event)
}

/// An event, the registry alone in a scope.
pub(super) fn event_registry(job: &Job) -> Result<Sample> {
    record(job, tracing_subscriber::registry(), Set::Scoped, event)
}

/// A span made, entered, with an event, and closed: our subscriber.
pub(super) fn span_subscriber(job: &Job) -> Result<Sample> {
    record(job, lastwords::layer::subscriber(), Set::Global, span)
}

/// The same: our layer on a registry.
pub(super) fn span_layer(job: &Job) -> Result<Sample> {
    record(job, tracing_subscriber::registry().with(lastwords::layer::layer()), Set::Global, span)
}

/// The same: the registry with a layer that does nothing. The registry alone keeps each span that
/// was closed.
pub(super) fn span_closing(job: &Job) -> Result<Sample> {
    record(job, tracing_subscriber::registry().with(Identity::new()), Set::Global, span)
}

/// The same: the registry alone.
pub(super) fn span_registry(job: &Job) -> Result<Sample> {
    record(job, tracing_subscriber::registry(), Set::Global, span)
}

/// An event, a subscriber that only reads its values: what `tracing` itself takes.
pub(super) fn event_read(job: &Job) -> Result<Sample> {
    record(job, Reads, Set::Global, event)
}

/// An event with optional fields, the same subscriber.
pub(super) fn optional_read(job: &Job) -> Result<Sample> {
    record(job, Reads, Set::Global, optional_fields)
}

/// An event with 12 optional fields in all combinations.
pub(super) fn optional(job: &Job) -> Result<Sample> {
    record(job, lastwords::layer::subscriber(), Set::Global, optional_fields)
}

fn event(events: u64) {
    each_a(events, |number, value| tracing::info!(number, value, "event"));
}

fn span(events: u64) {
    each_a(events, |number, value| {
        let _span = tracing::info_span!("request").entered();
        tracing::info!(number, value, "event");
    });
}

fn optional_fields(events: u64) {
    let mut random = 88_172_645_463_325_252u64;
    each_a(events, |number, value| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let of = |bit: u64| (random >> bit & 1 == 1).then_some(value);
        tracing::info!(
            number,
            a = of(0),
            b = of(1),
            c = of(2),
            d = of(3),
            e = of(4),
            f = of(5),
            g = of(6),
            h = of(7),
            i = of(8),
            j = of(9),
            k = of(10),
            l = of(11),
            "event"
        );
    });
}

fn record(
    job: &Job,
    subscriber: impl tracing::Subscriber + Send + Sync,
    set: Set,
    events: fn(u64),
) -> Result<Sample> {
    let _session = session(lastwords::Reservation::Rseq)?.start()?;
    let dispatch = Dispatch::new(subscriber);
    let run = |count: u64| match set {
        Set::Global => events(count),
        Set::Scoped => tracing::dispatcher::with_default(&dispatch, || events(count)),
    };
    if matches!(set, Set::Global) {
        tracing::dispatcher::set_global_default(dispatch.clone())?;
    }
    job.run(run, run)
}

/// A subscriber that reads the values of events, and does nothing else.
struct Reads;

/// Values that were read.
#[derive(Default)]
struct Values(u64);

impl Visit for Values {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0 = self.0.wrapping_add(value ^ field.index() as u64);
    }

    fn record_debug(&mut self, field: &Field, _: &dyn std::fmt::Debug) {
        self.0 ^= field.index() as u64;
    }
}

impl tracing::Subscriber for Reads {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut values = Values::default();
        event.record(&mut values);
        std::hint::black_box(values.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
