//! Recording for programs that use `tracing`: events and spans with their fields, typed, in binary.
//! A program that has nothing else for `tracing` installs the [`subscriber`]:
//!
//! ```
//! # #[cfg(feature = "tracing")] {
//! tracing::subscriber::set_global_default(lastwords::layer::subscriber())?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`init`] does that, and takes the records of the `log` crate too. A program that combines layers
//! of `tracing-subscriber` adds the [`layer`], which records the same; the registry under it takes
//! time of its own:
//!
//! ```
//! # #[cfg(feature = "tracing")] {
//! use tracing_subscriber::layer::SubscriberExt as _;
//! let subscriber = tracing_subscriber::registry().with(lastwords::layer::layer());
//! # drop(subscriber);
//! # }
//! ```
//!
//! An event of `tracing` is an event here. Its provider is the target. Its name is the one that it
//! was given. An event without a name is named by its message, if that is constant:
//! `info!("ready")` is `ready`, and the message is no field. If the message has values, the name is
//! the place in the source, such as `main.rs:71`, and the message is a field. The fields of the
//! event keep their types. Optional fields that an event lacks take a bit. Values that are only
//! `Debug` or `Display` are recorded as text. An event has room for more than 3 KiB of values. In a
//! larger one each text gets a fair share of the room, `…` marks the end of a text that was
//! cut, and the session counts the cut values. An event inside a span has two fields more: `span`,
//! such as `svc::handle{id=777}`, and `span_id`.
//!
//! Threads are shown by name: at its first event here a thread writes its name into the registry of
//! each session, once.
//!
//! A record of the `log` crate has its target as provider; its file and line are in the event's
//! description. A program may make up any number of targets: for places beyond the first thousand,
//! the provider is `log`, and target, module, file and line are fields.
//!
//! Spans record `span:new TARGET::NAME` (with their fields, their id and their parent's),
//! `span:record ...` and `span:close ...`, and are listed in the session's table of open spans
//! while they are open. `span:enter ...` and `span:exit ...` are recorded if `with_enter_and_exit`
//! asks for them: in a program of many small spans they are most of all events.
//!
//! Recording neither allocates nor locks nor formats numbers. An event that nobody records is not
//! formatted, and with the subscriber or [`Wanted`] its fields are not evaluated either. (The
//! subscriber needs up to a second after a rule has disabled an event. Where it is not the whole
//! program's, it still evaluates the fields of events that were enabled when they were first
//! reached.) Levels work as for all events: the channel for WARN and ERROR
//! ([`ChannelConfig::errors`](crate::ChannelConfig::errors)), which sessions have by default, gets
//! events of these levels in addition. The events of a span itself are recorded with level INFO, so
//! that they do not evict the errors from there.

mod class;
mod classify;
mod current;
mod domain;
mod hiding;
mod interest;
mod logger;
mod message;
mod payload;
mod program;
mod recording;
mod shares;
mod shown;
mod signature;
mod site;
mod slab;
mod span_text;
mod subscriber;
mod table;
mod threads;
mod values;
mod wanted;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use self::current::Made;
use self::domain::Domain;
pub(crate) use self::interest::renew;
pub use self::logger::{Logger, init_logger, logger};
pub(crate) use self::program::adopt;
pub use self::program::init;
pub(crate) use self::site::{refresh, watch};
pub use self::subscriber::{LastwordsSubscriber, subscriber};
pub use self::wanted::Wanted;
use crate::record::spans;

/// Records the events and spans of `tracing` into the sessions of this process.
///
/// Each value of this type belongs to one registry, whose spans it knows: a clone is a layer for
/// another registry.
#[derive(Debug, Clone, Default)]
pub struct LastwordsLayer {
    enter_and_exit: bool,
    domain: Domain,
    /// The registry is that of `tracing-subscriber`. There, each thread gives ids of its own, and
    /// does not give one again soon.
    are_ids_own: bool,
}

impl LastwordsLayer {
    /// Records each entering and leaving of a span as an event. Default: no. The table of open
    /// spans shows in either case which spans are entered.
    #[must_use]
    pub fn with_enter_and_exit(mut self, on: bool) -> Self {
        self.enter_and_exit = on;
        self
    }
}

/// Returns the layer, which also is `lastwords::layer()`. It works beside the layers of `fmt`,
/// `tracing-error`, OpenTelemetry and others, in any order, and before the first session starts:
///
/// ```
/// # #[cfg(feature = "tracing")] {
/// use tracing_subscriber::layer::SubscriberExt as _;
///
/// let subscriber = tracing_subscriber::registry()
///     // .with(tracing_subscriber::fmt::layer())
///     .with(lastwords::layer());
/// # drop(subscriber);
/// # }
/// ```
///
/// A filter that is a layer, such as `registry().with(EnvFilter::from_default_env())`, decides for
/// all layers, so that this one records what the filter lets through. A filter of another layer,
/// `fmt::layer().with_filter(EnvFilter::from_default_env())`, decides for that layer alone, and
/// this one records everything.
#[must_use]
pub fn layer() -> LastwordsLayer {
    LastwordsLayer::default()
}

/// A layer that `tracing_subscriber::reload` replaces is not told when its spans are closed.
impl Drop for LastwordsLayer {
    fn drop(&mut self) {
        if self.domain.leave() {
            spans::abandon(self.domain.number);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LastwordsLayer {
    fn on_layer(&mut self, subscriber: &mut S) {
        program::is_used();
        let subscriber: &dyn Subscriber = subscriber;
        self.are_ids_own = subscriber.is::<Registry>();
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        recording::event(&self.domain, event, |id| {
            context.metadata(&Id::from_u64(id)).map(recording::site_of_new)
        });
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = match attributes.parent() {
            // A filter hides the named parent from this layer. The nearest span around it that the
            // layer sees is the parent here.
            Some(named) if context.metadata(named).is_none() => context
                .span(id)
                .and_then(|span| span.parent())
                .map_or(0, |parent| parent.id().into_u64()),
            named => recording::parent(&self.domain, named, attributes.is_root()),
        };
        let site = recording::site_of_new(attributes.metadata());
        let entry = recording::new_span(&self.domain, site, attributes, id.into_u64(), parent);
        if self.are_ids_own {
            current::note(self.domain.number, id.into_u64(), Made { site, entry });
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        recording::values(&self.domain, id.into_u64(), values, |_| context.metadata(id));
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let metadata = if self.enter_and_exit { context.metadata(id) } else { None };
        recording::enter(&self.domain, id.into_u64(), metadata);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let metadata = if self.enter_and_exit { context.metadata(id) } else { None };
        recording::exit(&self.domain, id.into_u64(), metadata);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        recording::close(&self.domain, id.into_u64(), || context.metadata(&id));
    }
}
