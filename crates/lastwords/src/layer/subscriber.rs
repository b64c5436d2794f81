//! The subscriber that records, and keeps the spans itself.

use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};

use super::current::Made;
use super::domain::Domain;
use super::wanted::Wanted;
use super::{current, interest, program, recording, site, slab};
use crate::record::spans;

/// Id of a span for which there is no memory.
const NOT_KEPT: u64 = u64::MAX;

/// Records the events and spans of `tracing` into the sessions of this process, as the only
/// consumer of them. It records the same as [`LastwordsLayer`](super::LastwordsLayer) on the
/// registry of `tracing-subscriber` with [`Wanted`], in less time: it keeps of a span only what it
/// needs.
///
/// Ids of spans are unique among all subscribers of this type in the process. Nothing that a
/// program does with ids makes it panic: what concerns a span that is not open is ignored.
#[derive(Debug, Clone, Default)]
pub struct LastwordsSubscriber {
    enter_and_exit: bool,
    domain: Domain,
}

impl LastwordsSubscriber {
    /// Records each entering and leaving of a span as an event. Default: no. The table of open
    /// spans shows in either case which spans are entered.
    #[must_use]
    pub fn with_enter_and_exit(mut self, on: bool) -> Self {
        self.enter_and_exit = on;
        self
    }

    /// Returns the description of a span if entering and leaving it is recorded.
    fn recorded(&self, id: u64) -> Option<&'static Metadata<'static>> {
        if self.enter_and_exit { slab::metadata(id) } else { None }
    }
}

/// Returns the subscriber, for programs that have no other layers:
/// `tracing::subscriber::set_global_default(lastwords::layer::subscriber())`. [`init`](super::init)
/// does that, and takes the records of the `log` crate too.
#[must_use]
pub fn subscriber() -> LastwordsSubscriber {
    program::is_used();
    LastwordsSubscriber::default()
}

impl Subscriber for LastwordsSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        program::settle();
        interest::in_callsite(metadata, site::is_wanted_now)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Wanted::takes(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        recording::event(&self.domain, event, slab::site);
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let parent = recording::parent(&self.domain, attributes.parent(), attributes.is_root());
        let site = recording::site_of_new(attributes.metadata());
        let Some(id) = slab::open(site, parent) else {
            spans::count_dropped();
            return Id::from_u64(NOT_KEPT);
        };
        let entry = recording::new_span(&self.domain, site, attributes, id, parent);
        current::note(self.domain.number, id, Made { site, entry });
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        recording::values(&self.domain, id.into_u64(), values, slab::metadata);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, id: &Id) {
        recording::enter(&self.domain, id.into_u64(), self.recorded(id.into_u64()));
    }

    fn exit(&self, id: &Id) {
        recording::exit(&self.domain, id.into_u64(), self.recorded(id.into_u64()));
    }

    fn clone_span(&self, id: &Id) -> Id {
        slab::share(id.into_u64());
        id.clone()
    }

    /// Takes a handle of the span away. With the last one the span is closed, and the handle that
    /// it has of its parent is taken away.
    fn try_close(&self, id: Id) -> bool {
        let mut id = id.into_u64();
        let mut is_closed = false;
        while let Some(closed) = slab::release(id) {
            recording::close(&self.domain, id, || Some(closed.site.metadata));
            is_closed = true;
            id = closed.parent;
        }
        is_closed
    }

    fn current_span(&self) -> Current {
        let id = current::top(self.domain.number);
        slab::metadata(id)
            .map_or_else(Current::none, |metadata| Current::new(Id::from_u64(id), metadata))
    }
}
