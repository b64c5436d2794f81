//! Records events and spans for the layer and for the subscriber. Ids of spans are those of a
//! recorder ([`Domain`]); sessions have their keys. `span_of` returns the site of an open span, and
//! `metadata_of` its description; they return none if a filter keeps the span from the layer.

use tracing_core::field::Visit;
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Metadata};

use super::classify::{self, Timed};
use super::current::{self, Known, entry_of};
use super::domain::Domain;
use super::hiding;
use super::payload::Payload;
use super::shares;
use super::shown::ShownRoom;
use super::site::{self, Kind, Site};
use super::span_text::{self, NewSpan, SpanText};
use crate::record::in_span::{self, Shown};
use crate::record::spans::{self, By, Hint, NO_HINT};

/// Returns the span that contains an event or a new span: the named one, otherwise the innermost of
/// the thread; 0 if there is none.
#[inline]
pub(super) fn parent(domain: &Domain, named: Option<&Id>, is_root: bool) -> u64 {
    match named {
        Some(parent) => parent.into_u64(),
        None if is_root => 0,
        None => current::top(domain.number),
    }
}

#[inline]
pub(super) fn event(
    domain: &Domain,
    event: &Event<'_>,
    span_of: impl Fn(u64) -> Option<&'static Site>,
) {
    let Some(site) = site::of_event(event) else { return };
    let values = |visitor: &mut dyn Visit| hiding::values(site, visitor, |to| event.record(to));
    Payload::with(site, |payload| {
        values(payload);
        let (span, known) = match event.parent() {
            None if !event.is_root() => current::top_known(domain.number),
            named => (named.map_or(0, Id::into_u64), None),
        };
        match span {
            0 => commit(payload, &values, |_| ()),
            _ => commit(payload, &values, |payload| {
                put_span(payload, domain.key(span), known, || span_of(span))
            }),
        };
    });
}

/// Records an event that no dispatcher was asked about. It has the innermost span of the thread,
/// whatever recorder that is of.
pub(super) fn event_of_thread(event: &Event<'_>) {
    let Some(site) = site::of_event(event) else { return };
    let values = |visitor: &mut dyn Visit| hiding::values(site, visitor, |to| event.record(to));
    Payload::with(site, |payload| {
        values(payload);
        commit(payload, &values, |payload| {
            if in_span::is_inside() {
                payload.span(show_innermost);
            }
        });
    });
}

/// Appends what follows the values, and records the event. If the values did not fit, or the site
/// has too many classes, `values` passes them again. Returns the slot whose channel knows the time
/// of the event, if one does.
#[inline]
fn commit(
    payload: &mut Payload,
    values: &dyn Fn(&mut dyn Visit),
    rest: impl Fn(&mut Payload),
) -> Timed {
    if !payload.is_full {
        rest(payload);
        if let Ok(timed) = classify::record(payload) {
            return timed;
        }
    }
    commit_again(payload.site, payload.is_full, values, &rest);
    None
}

#[cold]
#[inline(never)]
fn commit_again(
    site: &'static Site,
    is_full: bool,
    values: &dyn Fn(&mut dyn Visit),
    rest: &dyn Fn(&mut Payload),
) {
    let try_as = |is_text: bool| {
        let share = shares::share(is_text, values);
        Payload::with(site, |payload| {
            payload.set_share(share, is_text);
            values(payload);
            rest(payload);
            classify::record(payload).is_ok()
        })
    };
    if !(is_full && try_as(false)) {
        // Values that are all text always have a class.
        let _ = try_as(true);
    }
}

/// Appends the span in which an event happened, as the table of open spans has it. Only the name is
/// appended if no session has a table, or if the span found no room there. A span that is in no
/// table may have been closed by another thread, so that its site counts only if `open` still
/// returns it; `known` is what this thread knows of the span.
#[inline]
fn put_span(
    payload: &mut Payload,
    key: u64,
    known: Known,
    open: impl Fn() -> Option<&'static Site>,
) {
    payload.span(|room| {
        let site = known.map(|made| made.site).or_else(&open)?;
        let listed = spans::read_text(key, entry_of(known), |words, len| {
            span_text::show(&site.span_head, words, len, room)
        });
        let shown = listed.or_else(|| Some(span_text::show(&open()?.span_head, &[], 0, room)))?;
        Some(Shown::new(shown, key))
    });
}

/// Shows the innermost span of this thread, whatever recorder it is of: see
/// [`in_span::Show`]. A span that is in no table is shown by its name, if this thread made it.
fn show_innermost(room: &mut ShownRoom) -> Option<Shown> {
    let (owner, id, known) = current::innermost()?;
    let key = Domain::numbered(owner).key(id);
    let listed = spans::read_text(key, entry_of(known), |words, len| {
        span_text::show_listed(words, len, room)
    });
    let shown = listed.or_else(|| Some(span_text::show(&known?.site.span_head, &[], 0, room)))?;
    Some(Shown::new(shown, key))
}

/// Returns the site of new spans from the callsite.
#[inline]
pub(super) fn site_of_new(metadata: &'static Metadata<'static>) -> &'static Site {
    site::of_span(metadata, Kind::New)
}

/// Records a new span of the site. Returns the number of its entry in the table of open spans.
pub(super) fn new_span(
    domain: &Domain,
    site: &'static Site,
    attributes: &Attributes<'_>,
    id: u64,
    parent: u64,
) -> Hint {
    domain.opens_span();
    let (key, parent) = (domain.key(id), domain.key(parent));
    let by = By { level: site.level, recorder: domain.number };
    // A span without fields needs no room for them.
    if site.fields == 0
        && let Some(text) = site.span_head.alone()
        && site.if_wanted().is_some()
        && let Some(timed) = classify::record_numbers::<2, 3>(site, [key, parent])
    {
        return spans::open(key, parent, by, timed, text, None);
    }
    new_span_with_values(site, attributes, by, key, parent)
}

#[inline(never)]
fn new_span_with_values(
    site: &'static Site,
    attributes: &Attributes<'_>,
    by: By,
    key: u64,
    parent: u64,
) -> Hint {
    let list = |text: &SpanText, timed: Timed| {
        let cut = text.is_cut().then_some(&site.desc);
        spans::open(key, parent, by, timed, text.as_bytes(), cut)
    };
    let values =
        |visitor: &mut dyn Visit| hiding::values(site, visitor, |to| attributes.record(to));
    let text_alone = || {
        let mut text = SpanText::new(&site.span_head);
        values(&mut text);
        list(&text, None)
    };
    if site.if_wanted().is_none() {
        return if spans::are_listed() { text_alone() } else { NO_HINT };
    }
    Payload::with(site, |payload| {
        // The text is made where it stays.
        let mut new = NewSpan { payload, text: SpanText::empty() };
        new.text.start(&site.span_head);
        values(&mut new);
        let is_full = new.payload.is_full;
        let ids = |payload: &mut Payload| {
            payload.number(key);
            payload.number(parent);
        };
        let timed = commit(new.payload, &values, ids);
        match is_full {
            false => list(&new.text, timed),
            // The text lacks the values after the one that found no room.
            true => text_alone(),
        }
    })
}

pub(super) fn values(
    domain: &Domain,
    id: u64,
    values: &Record<'_>,
    metadata_of: impl FnOnce(u64) -> Option<&'static Metadata<'static>>,
) {
    let metadata = metadata_of(id);
    let site = metadata.map(|metadata| site::of_span(metadata, Kind::Record));
    let values = |visitor: &mut dyn Visit| match site {
        Some(site) => hiding::values(site, visitor, |to| values.record(to)),
        None => hiding::values_by_name(visitor, |to| values.record(to)),
    };
    if spans::are_listed() {
        let text = span_text::more(&values);
        if !text.as_bytes().is_empty() {
            spans::append(domain.key(id), text.as_bytes(), site.map(|site| &site.desc));
        }
    }
    if let Some(site) = site.filter(|site| site.if_wanted().is_some()) {
        span_event(site, domain.key(id), &values);
    }
}

/// Enters the span. It is recorded as an event if the description is given.
pub(super) fn enter(domain: &Domain, id: u64, metadata: Option<&'static Metadata<'static>>) {
    if let Some(entry) = current::push(domain.number, id) {
        spans::enter(domain.key(id), entry);
    }
    in_span::note(true, show_innermost);
    if let Some(metadata) = metadata {
        bare_event(domain, Kind::Enter, id, metadata);
    }
}

/// Leaves the span. It is recorded as an event if the description is given.
pub(super) fn exit(domain: &Domain, id: u64, metadata: Option<&'static Metadata<'static>>) {
    if let Some(entry) = current::pop(domain.number, id) {
        spans::leave(domain.key(id), entry);
    }
    in_span::note(current::is_in_any(), show_innermost);
    if let Some(metadata) = metadata {
        bare_event(domain, Kind::Exit, id, metadata);
    }
}

/// Closes the span. `metadata` returns its description, if this thread does not know the span.
pub(super) fn close(
    domain: &Domain,
    id: u64,
    metadata: impl FnOnce() -> Option<&'static Metadata<'static>>,
) {
    let known = current::noted(domain.number, id);
    if let Some(metadata) = known.map_or_else(metadata, |made| Some(made.site.metadata)) {
        bare_event(domain, Kind::Close, id, metadata);
    }
    spans::close(domain.key(id), entry_of(known));
}

/// Records an event of a span that has no values.
#[inline]
fn bare_event(domain: &Domain, kind: Kind, id: u64, metadata: &'static Metadata<'static>) {
    let (site, key) = (site::of_span(metadata, kind), domain.key(id));
    if site.if_wanted().is_some() && classify::record_numbers::<1, 2>(site, [key]).is_none() {
        span_event(site, key, &|_| ());
    }
}

#[inline(never)]
fn span_event(site: &'static Site, key: u64, values: &dyn Fn(&mut dyn Visit)) {
    Payload::with(site, |payload| {
        values(payload);
        commit(payload, values, |payload| payload.number(key));
    });
}
