//! Records events and spans for the layer and for the subscriber. `metadata_of` gives the description of an open span; it
//! gives none if a filter keeps the span from the layer.

use lastwords_abi::spans::TEXT_LEN;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata};

use super::class;
use super::current;
use super::site::{self, Kind};
use super::values::{Payload, SpanText};
use crate::record::spans;

/// Returns the span that contains an event or a new span: the named one, otherwise the innermost of the thread; 0 if
/// there is none.
#[inline]
pub(super) fn parent(named: Option<&Id>, is_root: bool) -> u64 {
    match named {
        Some(parent) => parent.into_u64(),
        None if is_root => 0,
        None => current::top(),
    }
}

#[inline]
pub(super) fn event(event: &Event<'_>, metadata_of: impl FnOnce(u64) -> Option<&'static Metadata<'static>>) {
    let Some(site) = site::of_event(event) else { return };
    let mut payload = Payload::new(site);
    event.record(&mut payload);
    let span = parent(event.parent(), event.is_root());
    if span != 0 {
        put_span(&mut payload, span, metadata_of);
    }
    class::record(event.metadata(), site, &payload);
}

/// Appends the span in which an event happened, as the table of open spans has it. Only the name is appended if no
/// session has a table, or if the span found no room there. Nothing is appended if the span has no description.
fn put_span(payload: &mut Payload, id: u64, metadata_of: impl FnOnce(u64) -> Option<&'static Metadata<'static>>) {
    let name;
    let mut listed = [0; TEXT_LEN];
    let text = if let Some(len) = spans::text(id, &mut listed) {
        &listed[..len]
    } else if let Some(metadata) = metadata_of(id) {
        name = SpanText::new(metadata);
        name.text.as_bytes()
    } else {
        return;
    };
    payload.span(id, text);
}

pub(super) fn new_span(attributes: &Attributes<'_>, id: u64, parent: u64) {
    let metadata = attributes.metadata();
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

pub(super) fn values(
    id: u64,
    values: &Record<'_>,
    metadata_of: impl FnOnce(u64) -> Option<&'static Metadata<'static>>,
) {
    if spans::are_listed() {
        let mut text = SpanText::more();
        values.record(&mut text);
        spans::append(id, text.text.as_bytes());
    }
    if let Some(metadata) = metadata_of(id) {
        span_event(Kind::Record, id, metadata, |payload| values.record(payload));
    }
}

/// Enters the span. It is recorded as an event if the description is given.
pub(super) fn enter(id: u64, metadata: Option<&'static Metadata<'static>>) {
    if current::push(id) {
        spans::enter(id);
    }
    if let Some(metadata) = metadata {
        span_event(Kind::Enter, id, metadata, |_| ());
    }
}

/// Leaves the span. It is recorded as an event if the description is given.
pub(super) fn exit(id: u64, metadata: Option<&'static Metadata<'static>>) {
    if current::pop(id) {
        spans::leave(id);
    }
    if let Some(metadata) = metadata {
        span_event(Kind::Exit, id, metadata, |_| ());
    }
}

pub(super) fn close(id: u64, metadata: Option<&'static Metadata<'static>>) {
    if let Some(metadata) = metadata {
        span_event(Kind::Close, id, metadata, |_| ());
    }
    spans::close(id);
}

#[inline]
fn span_event(kind: Kind, id: u64, metadata: &'static Metadata<'static>, values: impl FnOnce(&mut Payload)) {
    let Some(site) = site::of_span(metadata, kind) else { return };
    let mut payload = Payload::new(site);
    values(&mut payload);
    payload.number(id);
    class::record(metadata, site, &payload);
}
