//! Records a payload as an event of the class that has its fields, and makes the class if there is
//! none.

use tracing_core::Metadata;

use super::class::{Class, Form};
use super::payload::Payload;
use super::signature::{Shape, Type};
use super::site::{Kind, Site};
use super::threads;
use crate::record::callsite::Callsite;
use crate::record::dispatch;
use crate::record::in_span;
use crate::record::slot::{Flaws, RecorderSlot};
use crate::session::desc::{EventDesc, FieldDesc, FieldType};

/// Largest number of classes of a site beyond those that its fields need if each has one type.
/// Values that would need more are recorded as text.
const MOST_CLASSES: usize = 32;

/// Largest number of fields in the descriptions of a site's classes, in round numbers: a site of
/// many fields whose types change must not fill the registry.
const MOST_DESCRIBED: usize = 4096;

/// The slot in which an event was recorded, if its channel knows the time.
pub(super) type Timed = Option<&'static RecorderSlot>;

/// The site has too many classes: the values must be recorded as text.
#[derive(Debug)]
pub(super) struct TooMany;

/// Records the payload as an event of the site. All events and spans come through one copy of this
/// code: where the rest of a program does much, its own instructions are in the caches, and each
/// copy must be read from further away.
///
/// The newest class takes nearly all events. If it has no optional fields, an event takes the
/// shortest way, and if it has few, the shortest but one.
///
/// Returns the slot whose channel knows the time of the event, if one does
/// ([`dispatch::record_bytes`]).
#[inline(never)]
pub(super) fn record(payload: &mut Payload) -> Result<Timed, TooMany> {
    threads::write_name();
    if let Some(class) = payload.site.classes.iter().next()
        && class.form == payload.form
        && let Some((slot, id)) = class.callsite.only()
    {
        if class.shape.is_exactly(&payload.signature) {
            return Ok(dispatch::record_bytes(slot, id, payload.all_values()).then_some(slot));
        }
        // Which optional fields an event has is often unpredictable, so no jump depends on it.
        if let Some(mask) = class.shape.short_mask(&payload.signature)
            && dispatch::record_masked(slot, id, mask, payload.all_values())
        {
            return Ok(Some(slot));
        }
    }
    record_in_any(payload)
}

/// Records an event without values of a site of spans, whose payload is these numbers: the key of
/// the span, and its parent's if the site is of new spans. Returns none, and records nothing, unless
/// one slot takes such events and there was one before.
#[inline(never)]
pub(super) fn record_numbers<const N: usize, const W: usize>(
    site: &'static Site,
    numbers: [u64; N],
) -> Option<Timed> {
    threads::write_name();
    let class = site.classes.iter().next().filter(|class| class.shape.is_empty())?;
    let (slot, id) = class.callsite.only()?;
    Some(dispatch::record_numbers::<N, W>(slot, id, numbers).then_some(slot))
}

/// Records the payload as an event of the class that has its fields, and makes the class if there
/// is none.
#[inline(never)]
fn record_in_any(payload: &mut Payload) -> Result<Timed, TooMany> {
    let site = payload.site;
    let class = match site.classes.iter().find(|class| class.fits(payload.form, &payload.signature))
    {
        Some(class) => class,
        None => add(site, payload)?,
    };
    let flaws = payload.flaws;
    let bytes = payload.finish(&class.shape);
    if flaws != Flaws::default() {
        record_counting(class, bytes, flaws);
    } else if let Some((slot, id)) = class.callsite.only() {
        return Ok(dispatch::record_bytes(slot, id, bytes).then_some(slot));
    } else if class.callsite.enabled() != 0 {
        class.record(bytes, &mut |_| ());
    }
    Ok(None)
}

/// Records an event of which values are not as they were given, and counts them once in each
/// session that takes the event.
#[cold]
#[inline(never)]
fn record_counting(class: &'static Class, bytes: &[u8], flaws: Flaws) {
    class.record(bytes, &mut flaws.count());
}

/// Adds a class for the payload: the newest one whose fields have the same types, with this event's
/// fields, or one for the event alone.
#[cold]
#[inline(never)]
fn add(site: &'static Site, payload: &Payload) -> Result<&'static Class, TooMany> {
    let known = || site.classes.iter().filter(|class| class.form == payload.form.of_class());
    let wider = known().find_map(|class| class.shape.with(&payload.signature));
    // Each wider class makes a field optional or adds one, so that there are few of them.
    let are_too_many = || {
        let described = known().count() * site.fields;
        described >= MOST_DESCRIBED.max(site.fields)
            || site.classes.iter().count() >= MOST_CLASSES + 2 * site.fields
    };
    if wider.is_none() && !payload.is_text() && are_too_many() {
        return Err(TooMany);
    }
    let shape = wider.unwrap_or_else(|| Shape::exact(&payload.signature));
    let desc = describe(site, &shape, payload);
    let class = Class {
        shape,
        form: payload.form.of_class(),
        // The layer hides values before it has a class for them.
        callsite: Callsite::hidden(u32::MAX),
        desc,
    };
    Ok(site.classes.add(Class::is_same, class))
}

fn describe(site: &Site, shape: &Shape, payload: &Payload) -> EventDesc {
    let metadata: &'static Metadata<'static> = site.metadata;
    let ty = |(ty, is_optional): (Type, bool)| match is_optional {
        true => FieldType::Optional(ty.field()),
        false => *ty.field(),
    };
    let own = metadata.fields().iter();
    let own =
        own.filter_map(|f| Some(FieldDesc { name: f.name(), ty: ty(shape.field(f.index())?) }));
    let id = |name| FieldDesc { name, ty: FieldType::Unsigned { bytes: 8, base: 10 } };
    let behind = match site.kind {
        Kind::Event if payload.form.has(Form::HAS_SPAN) => in_span::FIELDS.to_vec(),
        Kind::Event => Vec::new(),
        Kind::New => vec![id("span_id"), id("parent_id")],
        _ => vec![id("span_id")],
    };
    let name = if payload.form.has(Form::IS_NAMED) { site.desc.name } else { site.other_name };
    EventDesc { name, fields: Vec::leak(own.chain(behind).collect()), ..site.desc }
}
