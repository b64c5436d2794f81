//! Classes of event: one for each callsite of `tracing`, kind, and sequence of types. Found without a lock, never removed.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use lastwords_abi::registry::level;
use tracing_core::Metadata;

use super::payload::{Payload, Raw, Signature};
use crate::callsite::{self, Callsite};
use crate::registry::{EventDesc, FieldDesc, FieldType};

/// What happened at the callsite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Event,
    New,
    Enter,
    Exit,
    Record,
    Close,
}

/// A class, found by the first three fields.
struct Class {
    /// Address of the static metadata.
    metadata: usize,
    kind: Kind,
    signature: Signature,
    callsite: Callsite,
    desc: EventDesc,
    /// Next of the bucket; fixed when the class is published.
    next: AtomicPtr<Class>,
}

const BUCKETS: usize = 1024;
static TABLE: [AtomicPtr<Class>; BUCKETS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKETS];

/// Records the payload under the class of the callsite.
#[inline]
pub(super) fn record(metadata: &'static Metadata<'static>, kind: Kind, payload: &Payload) {
    let key = core::ptr::from_ref(metadata) as usize;
    let hash = (key as u64 >> 3 ^ payload.signature.mix() ^ (kind as u64) << 59).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bucket = &TABLE[(hash >> 54) as usize];
    let class = find(bucket.load(Acquire), key, kind, payload.signature)
        .unwrap_or_else(|| add(bucket, metadata, kind, payload.signature));
    callsite::record_bytes(&class.callsite, &class.desc, Raw(payload.as_bytes()));
}

#[inline]
fn find(first: *mut Class, metadata: usize, kind: Kind, signature: Signature) -> Option<&'static Class> {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: only leaked boxes are put into the table, whole before they are published.
        let class = unsafe { &*next };
        if class.metadata == metadata && class.signature == signature && class.kind == kind {
            return Some(class);
        }
        next = class.next.load(Relaxed);
    }
    None
}

/// Makes the class and publishes it, unless another thread was faster.
#[cold]
#[inline(never)]
fn add(
    bucket: &AtomicPtr<Class>,
    metadata: &'static Metadata<'static>,
    kind: Kind,
    signature: Signature,
) -> &'static Class {
    let key = core::ptr::from_ref(metadata) as usize;
    let desc = describe(metadata, kind, signature);
    let class = Class { metadata: key, kind, signature, callsite: Callsite::new(), desc, next: AtomicPtr::default() };
    let class: &'static Class = Box::leak(Box::new(class));
    let mut first = bucket.load(Acquire);
    loop {
        if let Some(other) = find(first, key, kind, signature) {
            return other;
        }
        class.next.store(first, Relaxed);
        match bucket.compare_exchange(first, core::ptr::from_ref(class).cast_mut(), AcqRel, Acquire) {
            Ok(_) => return class,
            Err(now) => first = now,
        }
    }
}

fn describe(metadata: &'static Metadata<'static>, kind: Kind, signature: Signature) -> EventDesc {
    let id = |name| FieldDesc { name, ty: FieldType::Unsigned { bytes: 8, base: 10 } };
    let name_field = FieldDesc { name: "name", ty: FieldType::String };
    let mut fields = match kind {
        Kind::New => vec![id("span"), id("parent"), name_field],
        Kind::Event => vec![id("span")],
        _ => vec![id("span"), name_field],
    };
    let own = metadata.fields().iter();
    fields.extend(own.filter_map(|f| Some(FieldDesc { name: f.name(), ty: signature.field(f.index())? })));
    let (provider, name) = match kind {
        Kind::Event => (metadata.target(), event_name(metadata)),
        Kind::New => ("span", "new"),
        Kind::Enter => ("span", "enter"),
        Kind::Exit => ("span", "exit"),
        Kind::Record => ("span", "record"),
        Kind::Close => ("span", "close"),
    };
    EventDesc {
        provider,
        name,
        level: level_of(metadata, kind),
        format: "",
        file: metadata.file().unwrap_or(""),
        line: metadata.line().unwrap_or(0),
        fields: Vec::leak(fields),
    }
}

/// Level of the records of that kind. What a span does is no warning and no error, whatever the level of what happens in it:
/// a channel for those takes none of it.
fn level_of(metadata: &Metadata<'_>, kind: Kind) -> u8 {
    let own = super::level_of(metadata);
    if kind == Kind::Event { own } else { own.max(level::INFO) }
}

/// The name that an event was given; the macros make up `event FILE:LINE` for those without, tracing-log `log event`.
fn event_name(metadata: &'static Metadata<'static>) -> &'static str {
    let name = metadata.name();
    if name.starts_with("event ") || name == "log event" || name.is_empty() { "event" } else { name }
}
