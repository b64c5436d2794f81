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
//! An event of `tracing` is an event here: its provider is the target, its name the event's own or, where it has none, `event`;
//! its first field `span` is the id of the span that it happened in (0 = none), the others are its own. Values keep their
//! types: a class of event is made for each callsite and sequence of types, once. Values that are only `Debug` or `Display`
//! are recorded as text. Text beyond 4 KiB an event is cut.
//!
//! Records of the `log` crate have their target as provider, too; `log` where a program makes up more than a thousand.
//!
//! Spans record `span:new` (with their fields), `span:enter`, `span:exit`, `span:record` and `span:close`, and are listed in the
//! session's table of open spans while they are open.
//!
//! Recording neither allocates nor locks nor formats numbers. What nobody records is not formatted: [`init`] and [`Wanted`] see
//! to it that the fields of such an event are not evaluated either. Levels select as everywhere: the channel
//! for WARN and ERROR ([`ChannelConfig::errors`](crate::ChannelConfig::errors)), which sessions have by default, gets those
//! besides. What spans of these levels do is recorded with level INFO, so that they do not evict the errors from there.

mod class;
mod current;
mod interest;
mod table;
mod values;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use self::class::Kind;
pub(crate) use self::interest::refresh;
use self::values::{Payload, SpanText};
use crate::record::spans::{self, Opening};

/// Records what `tracing` says into the sessions of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastwordsLayer {
    _private: (),
}

/// The layer.
#[must_use]
pub fn layer() -> LastwordsLayer {
    LastwordsLayer::default()
}

/// Lets through the events that a session of this process records now, and all spans. An event that is not let through costs a
/// look-up and a load, and its fields are not evaluated; without this they are evaluated, though not formatted.
///
/// It decides for all layers of a subscriber: meant for one where [`layer`] is the only other,
/// `registry().with(layer()).with(Wanted)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted;

impl<S: Subscriber> Layer<S> for Wanted {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if !metadata.is_event() {
            return Interest::always();
        }
        interest::prepare(metadata);
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        !metadata.is_event() || interest::is_wanted(metadata)
    }
}

/// Makes a subscriber with this layer and [`Wanted`] the program's, and sends the records of the `log` crate there too.
///
/// # Errors
/// The program has a subscriber, or a logger, already.
pub fn init() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let subscriber = tracing_subscriber::registry().with(layer()).with(Wanted);
    tracing_core::dispatcher::set_global_default(tracing_core::Dispatch::new(subscriber))?;
    tracing_log::LogTracer::init()?;
    Ok(())
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LastwordsLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(interest) = interest::of_event(event) else { return };
        let span = match event.parent() {
            Some(parent) => parent.into_u64(),
            None if event.is_root() => 0,
            None => current::top(),
        };
        let mut payload = Payload::new();
        payload.number(span);
        event.record(&mut payload);
        class::record(event.metadata(), interest, Kind::Event, &payload);
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let (id, metadata) = (id.into_u64(), attributes.metadata());
        let parent = match attributes.parent() {
            Some(parent) => parent.into_u64(),
            None if attributes.is_root() => 0,
            None => current::top(),
        };
        if spans::are_listed() {
            let mut text = SpanText::new(metadata);
            attributes.record(&mut text);
            spans::open(&Opening { id, parent, level: interest::level_of(metadata), text: text.as_bytes() });
        }
        let Some(interest) = interest::of_span(metadata, Kind::New) else { return };
        let mut payload = Payload::new();
        payload.number(id);
        payload.number(parent);
        payload.name(metadata);
        attributes.record(&mut payload);
        class::record(metadata, interest, Kind::New, &payload);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(metadata) = context.metadata(id) else { return };
        if spans::are_listed() {
            let mut text = SpanText::more();
            values.record(&mut text);
            spans::append(id.into_u64(), text.as_bytes());
        }
        let Some(interest) = interest::of_span(metadata, Kind::Record) else { return };
        let mut payload = Payload::new();
        payload.number(id.into_u64());
        payload.name(metadata);
        values.record(&mut payload);
        class::record(metadata, interest, Kind::Record, &payload);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if !current::contains(id.into_u64()) {
            spans::enter(id.into_u64());
        }
        current::push(id.into_u64());
        span_event(Kind::Enter, id, &context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        current::pop(id.into_u64());
        if !current::contains(id.into_u64()) {
            spans::leave(id.into_u64());
        }
        span_event(Kind::Exit, id, &context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        span_event(Kind::Close, &id, &context);
        spans::close(id.into_u64());
    }
}

fn span_event<S: Subscriber + for<'a> LookupSpan<'a>>(kind: Kind, id: &Id, context: &Context<'_, S>) {
    let Some(metadata) = context.metadata(id) else { return };
    let Some(interest) = interest::of_span(metadata, kind) else { return };
    let mut payload = Payload::new();
    payload.number(id.into_u64());
    payload.name(metadata);
    class::record(metadata, interest, kind, &payload);
}
