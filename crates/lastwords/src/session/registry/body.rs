//! Bodies of records. They are written piece by piece to a destination of the caller: into memory,
//! or nowhere, to measure or compare them.

use lastwords_abi::registry::{KIND_EVENT, KIND_EVENT_MANY, field};

use crate::process::cut;
use crate::session::desc::{EventDesc, FieldType};
use crate::session::user_context::UserContext;

/// Body of a record under construction. It passes its bytes on, one piece after the other.
pub(crate) struct Body<'a>(pub(crate) &'a mut dyn FnMut(&[u8]));

macro_rules! numbers {
    ($($ty:ident)*) => { $(
        pub(crate) fn $ty(&mut self, value: $ty) -> &mut Self {
            self.bytes(&value.to_ne_bytes())
        }
    )* };
}

impl Body<'_> {
    numbers!(u8 u16 u32 u64);

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        (self.0)(bytes);
        self
    }

    /// Writes a length and bytes. Text that is longer than a u16 can count is cut at a character.
    pub(crate) fn str(&mut self, text: &str) -> &mut Self {
        let text = cut(text, usize::from(u16::MAX));
        self.u16(text.len() as u16).bytes(text.as_bytes())
    }

    pub(crate) fn field(&mut self, ty: &FieldType) -> &mut Self {
        match ty {
            FieldType::Unsigned { bytes, base } => self.u8(field::UNSIGNED).u8(*bytes).u8(*base),
            FieldType::Signed { bytes, base } => self.u8(field::SIGNED).u8(*bytes).u8(*base),
            FieldType::Float { bytes } => self.u8(field::FLOAT).u8(*bytes),
            FieldType::Bool => self.u8(field::BOOL),
            FieldType::String => self.u8(field::STRING),
            FieldType::Sequence(element) => self.u8(field::SEQUENCE).field(element),
            FieldType::Array { count, element } => self.u8(field::ARRAY).u32(*count).field(element),
            FieldType::Enum { bytes, signed, labels } => self.labels(*bytes, *signed, labels),
            FieldType::Text { bytes } => self.u8(field::TEXT).u32(*bytes),
            FieldType::Bytes => self.u8(field::BYTES),
            FieldType::Optional(inner) => self.u8(field::OPTIONAL).field(inner),
        }
    }

    fn labels(&mut self, bytes: u8, signed: bool, labels: &[(i64, &str)]) -> &mut Self {
        let container = if signed { field::SIGNED } else { field::UNSIGNED };
        let count = labels.len().min(usize::from(u16::MAX));
        self.u8(field::ENUM).u8(container).u8(bytes).u8(10).u16(count as u16);
        for (value, label) in &labels[..count] {
            self.u64(*value as u64).str(label);
        }
        self
    }
}

/// Returns the body that `write` writes, as bytes.
pub(crate) fn body_of(write: impl FnOnce(&mut Body<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Body(&mut |piece| bytes.extend_from_slice(piece)));
    bytes
}

/// Offset of the id in the body of an event's record.
pub(super) const ID_AT: usize = 2;

/// Returns the kind of the record of an event, which depends on the number of its fields.
pub(super) fn event_kind(desc: &EventDesc) -> u16 {
    if desc.fields.len() < 256 { KIND_EVENT } else { KIND_EVENT_MANY }
}

/// Writes the body of the record of an event.
pub(super) fn event_body(put: &mut dyn FnMut(&[u8]), channel: u16, id: u16, desc: &EventDesc) {
    let mut body = Body(put);
    let fields = &desc.fields[..desc.fields.len().min(usize::from(u16::MAX))];
    body.u16(channel).u16(id).u8(desc.level);
    match event_kind(desc) {
        KIND_EVENT => body.u8(fields.len() as u8),
        _ => body.u16(fields.len() as u16),
    };
    body.str(desc.provider).str(desc.name).str(desc.format).str(desc.file).u32(desc.line);
    for field in fields {
        body.str(field.name).field(&field.ty);
    }
}

/// Returns the bodies of the records of a channel's user-defined contexts.
pub(crate) fn context_bodies(
    channel: u16,
    contexts: &[UserContext],
) -> impl Iterator<Item = Vec<u8>> {
    let body = move |(index, context): (u16, &UserContext)| {
        body_of(|body| {
            body.u16(channel).u16(index).str(&context.name).field(&context.ty);
        })
    };
    (0..).zip(contexts).map(body)
}

/// Returns the body of the record of a trace property.
pub(crate) fn env_body(key: &str, value: &str) -> Vec<u8> {
    body_of(|body| {
        body.str(key).str(value);
    })
}

/// Returns key and value of the record of a trace property.
pub(super) fn env_of(body: &[u8]) -> Option<(String, String)> {
    let text = |at: usize| {
        let len = usize::from(u16::from_ne_bytes(*body.get(at..)?.first_chunk()?));
        let bytes = body.get(at + 2..at + 2 + len)?;
        Some((String::from_utf8_lossy(bytes).into_owned(), at + 2 + len))
    };
    let (key, end) = text(0)?;
    Some((key, text(end)?.0))
}
