//! The filter that lets through what a session records.

use tracing_core::subscriber::Interest;
use tracing_core::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};

use super::site;

/// Lets through the events that a session of this process records now, and all spans. An event that
/// is not let through costs a look-up and a load, and its fields are not evaluated. Without this
/// filter they are evaluated, though not formatted.
///
/// As a layer, it decides for all layers of a subscriber. Use it so if [`layer`](super::layer()) is
/// the only other layer: `registry().with(layer()).with(Wanted)`. Beside other layers, use it as
/// the filter of our layer: `layer().with_filter(Wanted)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted;

impl Wanted {
    fn interest_in(metadata: &Metadata<'_>) -> Interest {
        if metadata.is_event() { Interest::sometimes() } else { Interest::always() }
    }

    pub(super) fn takes(metadata: &Metadata<'_>) -> bool {
        !metadata.is_event() || site::is_wanted(metadata)
    }
}

impl<S: Subscriber> Layer<S> for Wanted {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Self::interest_in(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        Self::takes(metadata)
    }
}

impl<S> Filter<S> for Wanted {
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        Self::interest_in(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        Self::takes(metadata)
    }
}
