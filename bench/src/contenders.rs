//! The contenders written in Rust: a row each. `proof/bench/src/contenders.rs` has the table of all
//! of them and says how each is run; a name that stands there and not here is a slot that is still
//! empty.

use crate::Result;
use crate::job::{Job, Sample};

mod backbeat;
pub(crate) mod lastwords;
mod numbers;
mod through_tracing;
mod tracing;

/// A recorder, and how it is set up and run.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Job) -> Result<Sample>,
}

/// All of them.
pub(crate) const ALL: &[Contender] = &[
    Contender { name: "lastwords-rseq", run: lastwords::rseq },
    Contender { name: "lastwords-lockless", run: lastwords::lockless },
    Contender { name: "lastwords-locked", run: lastwords::locked },
    Contender { name: "lastwords-off", run: lastwords::disabled },
    Contender { name: "lastwords-tracing", run: lastwords::through_tracing },
    Contender { name: "lastwords-span", run: lastwords::span },
    Contender { name: "lastwords-tracing-event", run: through_tracing::event_global },
    Contender { name: "lastwords-tracing-scoped", run: through_tracing::event_scoped },
    Contender { name: "lastwords-tracing-span", run: through_tracing::span_subscriber },
    Contender { name: "lastwords-tracing-span-layer", run: through_tracing::span_layer },
    Contender { name: "lastwords-tracing-optional", run: through_tracing::optional },
    Contender { name: "tracing-reads", run: through_tracing::event_read },
    Contender { name: "tracing-reads-optional", run: through_tracing::optional_read },
    Contender { name: "tracing-registry-scoped", run: through_tracing::event_registry },
    Contender { name: "tracing-registry-span", run: through_tracing::span_registry },
    Contender { name: "tracing-registry-closing", run: through_tracing::span_closing },
    Contender { name: "backbeat", run: backbeat::plain },
    Contender { name: "backbeat-tsc", run: backbeat::with_tsc },
    Contender { name: "backbeat-off", run: backbeat::disabled },
    Contender { name: "tracing-none", run: tracing::without_subscriber },
    Contender { name: "tracing-flight-recorder", run: tracing::flight_recorder },
    Contender { name: "lastwords-counter", run: numbers::counter },
    Contender { name: "lastwords-histogram", run: numbers::histogram },
    Contender { name: "prometheus-counter", run: numbers::prometheus_counter },
    Contender { name: "prometheus-histogram", run: numbers::prometheus_histogram },
];
