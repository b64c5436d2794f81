//! Classes of event: one for each site and sequence of types of its values. A class is never removed.

use tracing_core::Metadata;

use super::site::{Kind, Site};
use super::threads;
use super::values::{Payload, Signature};
use crate::record::callsite::Callsite;
use crate::record::dispatch;
use crate::record::encode::Parts;
use crate::record::filter::Question;
use crate::record::slot::RecorderSlot;
use crate::session::registry::{EventDesc, FieldDesc, FieldType};

pub(super) struct Class {
    signature: Signature,
    callsite: Callsite,
    desc: EventDesc,
}

/// Records the payload as an event of the site. All events and spans come through one copy of this code: where the rest of a program
/// does much, its own instructions are in the caches, and each copy must be read from further away.
#[inline(never)]
pub(super) fn record(metadata: &'static Metadata<'static>, site: &'static Site, payload: &Payload) {
    threads::write_name();
    let signature = payload.signature;
    let class = site.classes.iter().find(|class| class.signature == signature);
    let class = class.unwrap_or_else(|| add(metadata, site, signature));
    let bytes = payload.as_bytes();
    if let Some((slot, id)) = class.callsite.only() {
        dispatch::record_bytes(slot, id, bytes);
    } else if class.callsite.enabled() != 0 {
        let ask = &mut |question: Question<'_>, slot: &RecorderSlot| question.answer(slot, &Parts(&[bytes]));
        class.callsite.each_slot(&class.desc, ask, &mut |slot, id| dispatch::record_bytes(slot, id, bytes));
    }
}

#[cold]
#[inline(never)]
fn add(metadata: &'static Metadata<'static>, site: &'static Site, signature: Signature) -> &'static Class {
    let class = Class { signature, callsite: Callsite::new(), desc: describe(metadata, site, signature) };
    site.classes.add(|a, b| a.signature == b.signature, class)
}

fn describe(metadata: &'static Metadata<'static>, site: &Site, signature: Signature) -> EventDesc {
    let own = metadata.fields().iter();
    let own = own.filter_map(|f| Some(FieldDesc { name: f.name(), ty: signature.field(f.index())? }));
    let id = |name| FieldDesc { name, ty: FieldType::Unsigned { bytes: 8, base: 10 } };
    let behind = match site.kind {
        Kind::Event if signature.has_span() => vec![FieldDesc { name: "span", ty: FieldType::String }, id("span_id")],
        Kind::Event => Vec::new(),
        Kind::New => vec![id("span_id"), id("parent_id")],
        _ => vec![id("span_id")],
    };
    let is_constant = site.message_at.is_none() || signature.is_named();
    EventDesc {
        name: if is_constant { site.desc.name } else { site.other_name },
        fields: Vec::leak(own.chain(behind).collect()),
        ..site.desc
    }
}
