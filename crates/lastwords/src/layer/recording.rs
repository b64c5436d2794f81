//! Records events and spans for the layer and for the subscriber. `span_of` returns the site of an open span, and `metadata_of` its
//! description; they return none if a filter keeps the span from the layer.

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata};

use super::class;
use super::current;
use super::site::{self, Kind, Site};
use super::span_text::{self, NewSpan, SpanHead, SpanText};
use super::values::Payload;
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
pub(super) fn event(event: &Event<'_>, span_of: impl FnOnce(u64) -> Option<&'static Site>) {
    let Some(site) = site::of_event(event) else { return };
    let mut payload = Payload::new(site);
    event.record(&mut payload);
    let span = parent(event.parent(), event.is_root());
    if span != 0
        && let Some(of_span) = span_of(span)
    {
        put_span(&mut payload, span, &of_span.span_head);
    }
    class::record(event.metadata(), site, &payload);
}

/// Appends the span in which an event happened, as the table of open spans has it. Only the name is appended if no
/// session has a table, or if the span found no room there.
#[inline]
fn put_span(payload: &mut Payload, id: u64, head: &SpanHead) {
    payload.span(id, |room| {
        let listed = spans::read_text(id, |words, len| span_text::show(head, words, len, room));
        listed.unwrap_or_else(|| span_text::show(head, &[], 0, room))
    });
}

/// Returns the site of new spans from the callsite.
#[inline]
pub(super) fn site_of_new(metadata: &'static Metadata<'static>) -> &'static Site {
    site::of_span(metadata, Kind::New)
}

/// Records a new span of the site.
pub(super) fn new_span(site: &'static Site, attributes: &Attributes<'_>, id: u64, parent: u64) {
    let metadata = site.metadata;
    let list = |text: &SpanText| spans::open(id, parent, site::level_of(metadata), text.as_bytes());
    if site.if_wanted().is_none() {
        if spans::are_listed() {
            let mut text = SpanText::new(&site.span_head);
            attributes.record(&mut text);
            list(&text);
        }
        return;
    }
    let mut payload = Payload::new(site);
    let mut new = NewSpan { payload: &mut payload, text: SpanText::new(&site.span_head) };
    attributes.record(&mut new);
    list(&new.text);
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
        spans::append(id, text.as_bytes());
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
    let Some(site) = site::of_span(metadata, kind).if_wanted() else { return };
    let mut payload = Payload::new(site);
    values(&mut payload);
    payload.number(id);
    class::record(metadata, site, &payload);
}
