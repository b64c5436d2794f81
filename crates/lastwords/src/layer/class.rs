//! Classes of event: one for each site and sequence of types of its values, never removed.

use lastwords_abi::session::context as bits;
use lastwords_ring::{Tail, prepend};
use tracing_core::Metadata;

use super::site::{Kind, Site};
use super::values::{Payload, Raw, Signature};
use crate::process::identity;
use crate::record::callsite::Callsite;
use crate::record::dispatch;
use crate::record::slot::RecorderSlot;
use crate::session::registry::{EventDesc, FieldDesc, FieldType};

pub(super) struct Class {
    signature: Signature,
    callsite: Callsite,
    desc: EventDesc,
}

/// Records the payload as an event of the site.
#[inline]
pub(super) fn record(metadata: &'static Metadata<'static>, site: &'static Site, payload: &Payload) {
    let signature = payload.signature;
    let class = site.classes.iter().find(|class| class.signature == signature);
    let class = class.unwrap_or_else(|| add(metadata, site, signature));
    let bytes = payload.as_bytes();
    if let Some((slot, id)) = class.callsite.only() {
        record_in(slot, id, bytes);
    } else if class.callsite.enabled() != 0 {
        class.callsite.each_slot(&class.desc, &mut |slot, id| record_in(slot, id, bytes));
    }
}

/// Records the bytes in one slot, copied once, where at most the thread id stands before them.
#[inline]
fn record_in(slot: &'static RecorderSlot, id: u16, bytes: &[u8]) {
    // What is lost is counted in the stream.
    let _ = match (slot.contexts, bytes.len()) {
        (0, 8..) => slot.channel.record_tail(id, [], 0, Tail::Bytes(bytes)),
        (bits::TID, 8..) => slot.channel.record_tail(id, prepend::<1>(tid(), &[]), 4, Tail::Bytes(bytes)),
        (0, len) => slot.channel.record_words(id, [word(bytes)], len),
        (bits::TID, len) => slot.channel.record_words(id, prepend::<2>(tid(), &[word(bytes)]), len + 4),
        _ => return dispatch::record_to(slot, id, Raw(bytes)),
    };
}

fn tid() -> u32 {
    identity::identity().tid
}

/// Fewer than eight bytes as a word in memory order.
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(word)
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
    let text = |name| FieldDesc { name, ty: FieldType::String };
    let id = |name| FieldDesc { name, ty: FieldType::Unsigned { bytes: 8, base: 10 } };
    let behind = match site.kind {
        Kind::Event if signature.has_span() => vec![text("span"), id("span_id")],
        Kind::Event => Vec::new(),
        Kind::New => vec![id("span_id"), id("parent_id")],
        Kind::Enter | Kind::Exit | Kind::Record | Kind::Close => vec![id("span_id")],
    };
    let is_constant = site.message_at.is_none() || signature.is_named();
    EventDesc {
        name: if is_constant { site.desc.name } else { site.other_name },
        fields: Vec::leak(own.chain(behind).collect()),
        ..site.desc
    }
}
