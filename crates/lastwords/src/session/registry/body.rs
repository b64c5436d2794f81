//! Bodies of records, and where they are written to: into memory, or nowhere, to be measured or compared.

use lastwords_abi::registry::field;

use super::fnv;
use super::{EventDesc, FieldType};

/// Takes the bytes of a body one piece after the other.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<S: Sink> Sink for &mut S {
    fn put(&mut self, bytes: &[u8]) {
        S::put(self, bytes);
    }
}

/// Length and hash (FNV-1a) of a body.
#[derive(Debug)]
pub(super) struct Measure {
    pub(super) len: usize,
    pub(super) hash: u32,
}

impl Default for Measure {
    fn default() -> Self {
        Self { len: 0, hash: fnv::BASIS }
    }
}

impl Measure {
    /// Of an event's body as it is with the id 0.
    pub(super) fn of_blanked(body: &[u8]) -> Self {
        let mut measure = Self::default();
        measure.put(&body[..ID_AT]);
        measure.put(&[0; 2]);
        measure.put(&body[ID_AT + 2..]);
        measure
    }
}

impl Sink for Measure {
    fn put(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.hash = bytes.iter().fold(self.hash, |hash, byte| fnv::with_byte(hash, *byte));
    }
}

/// Compares with a body that is there.
#[derive(Debug)]
pub(super) struct Compare<'a> {
    /// What is not compared yet; none once there was a difference.
    rest: Option<&'a [u8]>,
}

impl<'a> Compare<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { rest: Some(body) }
    }

    pub(super) fn is_equal(&self) -> bool {
        self.rest.is_some_and(<[u8]>::is_empty)
    }
}

impl Sink for Compare<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.rest = self.rest.and_then(|rest| rest.strip_prefix(bytes));
    }
}

/// Writes to memory; what goes behind its end is left out.
#[derive(Debug)]
pub(super) struct Fill {
    to: *mut u8,
    room: usize,
}

impl Fill {
    /// # Safety
    /// `room` bytes from `to` on are writable, and nobody else's while this lives.
    pub(super) unsafe fn new(to: *mut u8, room: usize) -> Self {
        Self { to, room }
    }
}

impl Sink for Fill {
    fn put(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.room);
        // SAFETY: `room` bytes are writable from `to` on, as `new` was told.
        unsafe {
            self.to.copy_from_nonoverlapping(bytes.as_ptr(), len);
            self.to = self.to.add(len);
        }
        self.room -= len;
    }
}

/// Body of a record in the making.
#[derive(Debug, Default)]
pub(crate) struct Body<S = Vec<u8>>(pub(crate) S);

impl<S: Sink> Body<S> {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.put(&[value]);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.put(&value.to_ne_bytes());
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.put(&value.to_ne_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.put(&value.to_ne_bytes());
        self
    }

    /// A length and bytes; text is cut at a character where it is longer than a u16 counts.
    pub(crate) fn str(&mut self, text: &str) -> &mut Self {
        let end = text.floor_char_boundary_at(usize::from(u16::MAX));
        self.u16(end as u16);
        self.0.put(&text.as_bytes()[..end]);
        self
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

trait CharBoundary {
    /// The largest character boundary that is not behind `most`.
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl CharBoundary for str {
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        let most = most.min(self.len());
        (0..=most).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

/// Offset of the id in the body of an event's record.
pub(super) const ID_AT: usize = 2;

/// Writes the body of the record of an event.
pub(super) fn event_body(to: &mut impl Sink, channel: u16, id: u16, desc: &EventDesc) {
    let mut body = Body(to);
    let fields = &desc.fields[..desc.fields.len().min(255)];
    body.u16(channel).u16(id).u8(desc.level).u8(fields.len() as u8);
    body.str(desc.provider).str(desc.name).str(desc.format).str(desc.file).u32(desc.line);
    for field in fields {
        body.str(field.name).field(&field.ty);
    }
}

/// Body of the record of a user-defined context.
pub(crate) fn context_body(channel: u16, index: u16, name: &str, ty: &FieldType) -> Vec<u8> {
    let mut body = Body::default();
    body.u16(channel).u16(index).str(name).field(ty);
    body.0
}

/// Body of the record of a trace property.
pub(crate) fn env_body(key: &str, value: &str) -> Vec<u8> {
    let mut body = Body::default();
    body.str(key).str(value);
    body.0
}
