//! The layer for `tracing-subscriber`: events and spans with their fields, typed, in binary.
//!
//! ```
//! # #[cfg(feature = "tracing")] {
//! use tracing_subscriber::layer::SubscriberExt as _;
//! let subscriber = tracing_subscriber::registry().with(lastwords::layer::layer());
//! # drop(subscriber);
//! # }
//! ```
//!
//! An event of `tracing` is an event here. Its provider is the target. Its name is the one that it was given. An event without
//! a name is named by its message: `served {} bytes` for `info!("served {n} bytes")`, where `{}` stands for a value. A message that is
//! constant is the name alone, and no field. If constant text and values of the message cannot be distinguished, the name is
//! the place in the source, such as `main.rs:71`. The fields of the event keep their types: a class of event is made for each
//! callsite and sequence of types, once. Values that are only `Debug` or `Display` are recorded as text. Text beyond 3 KiB an event
//! is cut. An event inside a span has two fields more: `span`, such as `svc::handle{id=777}`, and `span_id`.
//!
//! Threads are shown by name: at its first event here a thread writes its name into the registry of each session, once.
//!
//! A record of the `log` crate has its target as provider; its file and line are in the event's description. A program may make
//! up any number of targets: for places beyond the first thousand, the provider is `log`, and target, module, file and
//! line are fields.
//!
//! Spans record `span:new TARGET::NAME` (with their fields, their id and their parent's), `span:record ...` and `span:close ...`, and are
//! listed in the session's table of open spans while they are open. `span:enter ...` and `span:exit ...` are recorded if
//! [`LastwordsLayer::with_enter_and_exit`] asks for them: in a program of many small spans they are most of all events.
//!
//! Recording neither allocates nor locks nor formats numbers. An event that nobody records is not formatted, and with [`init`]
//! or [`Wanted`] its fields are not evaluated either. Levels work as for all events: the channel for WARN and ERROR
//! ([`ChannelConfig::errors`](crate::ChannelConfig::errors)), which sessions have by default, gets events of these levels in
//! addition. The events of a span itself are recorded with level INFO, so that they do not evict the errors from there.

mod class;
mod current;
mod name;
mod site;
mod table;
mod threads;
mod values;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use self::site::Kind;
pub(crate) use self::site::{refresh, watch};
use self::values::{Payload, SEPARATOR, SpanText};
use crate::record::spans;

/// Records the events and spans of `tracing` into the sessions of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastwordsLayer {
    enter_and_exit: bool,
}

impl LastwordsLayer {
    /// Records each entering and leaving of a span as an event. Default: no. The table of open spans shows in either
    /// case which spans are entered.
    #[must_use]
    pub fn with_enter_and_exit(mut self, on: bool) -> Self {
        self.enter_and_exit = on;
        self
    }
}

/// Returns the layer.
#[must_use]
pub fn layer() -> LastwordsLayer {
    LastwordsLayer::default()
}

/// Lets through the events that a session of this process records now, and all spans. An event that is not let through
/// costs a look-up and a load, and its fields are not evaluated. Without this filter they are evaluated, though not
/// formatted.
///
/// As a layer, it decides for all layers of a subscriber. Use it so if [`layer`] is the only other layer:
/// `registry().with(layer()).with(Wanted)`. Beside other layers, use it as the filter of our layer:
/// `layer().with_filter(Wanted)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted;

impl Wanted {
    fn interest_in(metadata: &Metadata<'_>) -> Interest {
        if metadata.is_event() { Interest::sometimes() } else { Interest::always() }
    }

    fn takes(metadata: &Metadata<'_>) -> bool {
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

/// Installs a subscriber with this layer and [`Wanted`] for the whole program, and sends the records of the `log` crate
/// there too.
///
/// # Errors
/// The program already has a subscriber or a logger.
pub fn init() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let subscriber = tracing_subscriber::registry().with(layer()).with(Wanted);
    tracing_core::dispatcher::set_global_default(tracing_core::Dispatch::new(subscriber))?;
    tracing_log::LogTracer::init()?;
    Ok(())
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LastwordsLayer {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let Some(site) = site::of_event(event) else { return };
        let mut payload = Payload::new(site);
        event.record(&mut payload);
        let span = parent(event.parent(), event.is_root());
        if span != 0 {
            put_span(&mut payload, span, &context);
        }
        class::record(event.metadata(), site, &payload);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let (id, metadata) = (id.into_u64(), attributes.metadata());
        let parent = parent(attributes.parent(), attributes.is_root());
        if spans::are_listed() {
            let mut text = SpanText::new(metadata);
            attributes.record(&mut text);
            spans::open(id, parent, site::level_of(metadata), text.text.as_bytes());
        }
        let Some(site) = site::of_span(metadata, Kind::New) else { return };
        let mut payload = Payload::new(site);
        attributes.record(&mut payload);
        payload.number(id);
        payload.number(parent);
        class::record(metadata, site, &payload);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if spans::are_listed() {
            let mut text = SpanText::more();
            values.record(&mut text);
            spans::append(id.into_u64(), text.text.as_bytes());
        }
        span_event(Kind::Record, id, &context, |payload| values.record(payload));
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if !current::contains(id.into_u64()) {
            spans::enter(id.into_u64());
        }
        current::push(id.into_u64());
        if self.enter_and_exit {
            span_event(Kind::Enter, id, &context, |_| ());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        current::pop(id.into_u64());
        if !current::contains(id.into_u64()) {
            spans::leave(id.into_u64());
        }
        if self.enter_and_exit {
            span_event(Kind::Exit, id, &context, |_| ());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        span_event(Kind::Close, &id, &context, |_| ());
        spans::close(id.into_u64());
    }
}

/// Returns the span that contains an event or a new span: the named one, otherwise the innermost of the thread; 0 if
/// there is none.
fn parent(named: Option<&Id>, is_root: bool) -> u64 {
    match named {
        Some(parent) => parent.into_u64(),
        None if is_root => 0,
        None => current::top(),
    }
}

/// Appends the span in which an event happened, as the table of open spans has it. Only the name is appended if no
/// session has a table, or if the span found no room there. Nothing is appended if a filter keeps the span from this
/// layer.
fn put_span<S: Subscriber + for<'a> LookupSpan<'a>>(payload: &mut Payload, id: u64, context: &Context<'_, S>) {
    let (listed, name);
    let text = if let Some((bytes, len)) = spans::text(id) {
        listed = bytes;
        &listed[..len]
    } else if let Some(metadata) = context.metadata(&Id::from_u64(id)) {
        name = SpanText::new(metadata);
        name.text.as_bytes()
    } else {
        return;
    };
    let mut parts = text.splitn(3, |byte| *byte == SEPARATOR);
    let [target, name, fields] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let (open, close): (&[u8], &[u8]) = if fields.is_empty() { (b"", b"") } else { (b"{", b"}") };
    payload.span(id, &[target, b"::", name, open, fields, close]);
}

fn span_event<S: Subscriber + for<'a> LookupSpan<'a>>(
    kind: Kind,
    id: &Id,
    context: &Context<'_, S>,
    values: impl FnOnce(&mut Payload),
) {
    let Some(metadata) = context.metadata(id) else { return };
    let Some(site) = site::of_span(metadata, kind) else { return };
    let mut payload = Payload::new(site);
    values(&mut payload);
    payload.number(id.into_u64());
    class::record(metadata, site, &payload);
}
