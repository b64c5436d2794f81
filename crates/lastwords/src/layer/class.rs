//! Classes of event: one for each callsite of `tracing`, provider, kind, and sequence of types. Found without a lock, never
//! removed.

use tracing_core::Metadata;

use super::interest::Interest;
use super::table::Table;
use super::values::{Payload, Raw, Signature};
use crate::record::callsite::{self, Callsite};
use crate::session::registry::{EventDesc, FieldDesc, FieldType};

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

/// A class, found by its key.
struct Class {
    key: Key,
    callsite: Callsite,
    desc: EventDesc,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    /// Address of the static metadata.
    metadata: usize,
    /// Address of the static name of the provider, which records of the `log` crate do not have from the metadata.
    provider: usize,
    kind: Kind,
    signature: Signature,
}

impl Key {
    #[inline]
    fn hash(&self) -> u64 {
        self.metadata as u64 >> 3 ^ (self.provider as u64) << 20 ^ self.signature.mix() ^ (self.kind as u64) << 59
    }
}

static TABLE: Table<Class> = Table::new();

/// Records the payload under the class of callsite and interest.
#[inline]
pub(super) fn record(metadata: &'static Metadata<'static>, interest: &Interest, kind: Kind, payload: &Payload) {
    let key = Key {
        metadata: core::ptr::from_ref(metadata).addr(),
        provider: interest.desc.provider.as_ptr().addr(),
        kind,
        signature: payload.signature,
    };
    let class =
        TABLE.find(key.hash(), |class| class.key == key).unwrap_or_else(|| add(key, describe(metadata, interest, key)));
    callsite::record_bytes(&class.callsite, &class.desc, Raw(payload.as_bytes()));
}

#[cold]
#[inline(never)]
fn add(key: Key, desc: EventDesc) -> &'static Class {
    TABLE.add(key.hash(), |class| class.key == key, Class { key, callsite: Callsite::new(), desc })
}

#[cold]
fn describe(metadata: &'static Metadata<'static>, interest: &Interest, key: Key) -> EventDesc {
    let id = |name| FieldDesc { name, ty: FieldType::Unsigned { bytes: 8, base: 10 } };
    let name_field = FieldDesc { name: "name", ty: FieldType::String };
    let mut fields = match key.kind {
        Kind::New => vec![id("span"), id("parent"), name_field],
        Kind::Event => vec![id("span")],
        _ => vec![id("span"), name_field],
    };
    let own = metadata.fields().iter();
    fields.extend(own.filter_map(|f| Some(FieldDesc { name: f.name(), ty: key.signature.field(f.index())? })));
    EventDesc {
        file: metadata.file().unwrap_or(""),
        line: metadata.line().unwrap_or(0),
        fields: Vec::leak(fields),
        ..interest.desc
    }
}
