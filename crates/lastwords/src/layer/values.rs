//! The values of a tracing event or span: as payload bytes with their types, and as text for the table of open spans.

use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;

use lastwords_abi::spans::TEXT_LEN;
use tracing_core::Metadata;
use tracing_core::field::{Field as TracingField, Visit};

use super::site::Site;
use crate::process::cut;
use crate::record::encode::Formatted;
use crate::record::encode::writer::INNER_NUL;
use crate::session::registry::FieldType;

/// Largest size of a payload, in bytes.
const ROOM: usize = 4096;
/// Largest number of a callsite's fields whose types fit into a signature; `tracing` allows 32.
const MAX_FIELDS: usize = 40;

/// Type of a value, in three bits of a [`Signature`]: one more than its position in [`TYPES`]; 0 means that the field
/// has no value.
#[derive(Debug, Clone, Copy)]
enum Type {
    Unsigned = 1,
    Signed = 2,
    Float = 3,
    Bool = 4,
    Text = 5,
}

const TYPES: [FieldType; 5] = [
    FieldType::Unsigned { bytes: 8, base: 10 },
    FieldType::Signed { bytes: 8, base: 10 },
    FieldType::Float { bytes: 8 },
    FieldType::Bool,
    FieldType::String,
];

/// Records which fields have values, and of which types, in three bits for each field. Two more bits mean that the
/// event has a span, and that its message is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Signature(u128);

const HAS_SPAN: u128 = 1 << 127;
const IS_NAMED: u128 = 1 << 126;
const _: () = assert!(3 * MAX_FIELDS <= 126);

impl Signature {
    pub(super) fn has_span(self) -> bool {
        self.0 & HAS_SPAN != 0
    }

    /// Returns true if the message is the name, and no field.
    pub(super) fn is_named(self) -> bool {
        self.0 & IS_NAMED != 0
    }

    #[inline(always)]
    fn add(&mut self, index: usize, ty: Type) {
        self.0 |= (ty as u128) << (3 * index);
    }

    /// Returns the type of the field with this index.
    pub(super) fn field(self, index: usize) -> Option<FieldType> {
        let bits = if index < MAX_FIELDS { self.0 >> (3 * index) & 7 } else { 0 };
        TYPES.get((bits as usize).checked_sub(1)?).copied()
    }
}

/// Payload bytes under construction, and their types.
pub(super) struct Payload {
    bytes: [MaybeUninit<u8>; ROOM],
    len: usize,
    pub(super) signature: Signature,
    /// Smallest index that the next field may have: the class has the fields in order of index.
    next: usize,
    /// Fields that the description already contains, one bit each.
    told: u64,
    site: &'static Site,
}

impl Payload {
    #[inline]
    pub(super) fn new(site: &'static Site) -> Self {
        Self {
            bytes: [const { MaybeUninit::uninit() }; ROOM],
            len: 0,
            signature: Signature::default(),
            next: 0,
            told: site.told,
            site,
        }
    }

    /// Returns the bytes written so far.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        // SAFETY: `put` and `room` initialise bytes before they add them to `len`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }

    /// Appends the bytes if they fit.
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) else { return false };
        // SAFETY: `room` has as many bytes as `bytes`, and nobody else uses it.
        unsafe { room.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.len += bytes.len();
        true
    }

    /// Appends a number that is no field of the callsite.
    #[inline]
    pub(super) fn number(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    /// Appends the span in which the event happened: its id and the parts of its text.
    pub(super) fn span(&mut self, id: u64, parts: &[&[u8]]) {
        let start = self.len;
        for part in parts {
            // There is room for the longest text of a span.
            self.put(part);
        }
        self.end_text(start);
        self.number(id);
        self.signature.0 |= HAS_SPAN;
    }

    /// Appends as much of the text as there is room for.
    #[inline]
    fn write_cut(&mut self, text: &str) {
        // Each later field needs at most eight bytes, or the NUL of an empty text. The span after them needs its text
        // and ids.
        let most = (ROOM - 9 * MAX_FIELDS - 2 * TEXT_LEN).saturating_sub(self.len);
        self.put(cut(text, most).as_bytes());
    }

    /// Replaces NULs inside the text that begins at `start`, and ends it.
    #[inline]
    fn end_text(&mut self, start: usize) {
        for byte in &mut self.bytes[start..self.len] {
            // SAFETY: bytes before `len` are initialised.
            let byte = unsafe { byte.assume_init_mut() };
            if *byte == 0 {
                *byte = INNER_NUL;
            }
        }
        self.put(&[0]);
    }

    /// Returns true if the field must be recorded. A field that the description already contains is not recorded. A
    /// value that comes twice, or out of order, is left out.
    #[inline(always)]
    fn accepts(&mut self, field: &TracingField) -> bool {
        let index = field.index();
        let good = index >= self.next && index < MAX_FIELDS && self.told >> index & 1 == 0;
        if good {
            self.next = index + 1;
        }
        good
    }

    #[inline(always)]
    fn scalar(&mut self, field: &TracingField, ty: Type, bytes: &[u8]) {
        if self.accepts(field) && self.put(bytes) {
            self.signature.add(field.index(), ty);
        }
    }

    /// Records a field that is text.
    #[inline]
    fn text(&mut self, field: &TracingField, write: impl FnOnce(&mut Self)) {
        if self.accepts(field) {
            let start = self.len;
            write(self);
            self.end_field(field, start);
        }
    }

    /// Ends the text of a field, which begins at `start`. A message that is the name of the site's events is left out.
    #[inline]
    fn end_field(&mut self, field: &TracingField, start: usize) {
        let name = self.site.desc.name.as_bytes();
        if self.site.message_at == Some(field.index()) && self.as_bytes()[start..] == *name {
            self.len = start;
            self.signature.0 |= IS_NAMED;
            return;
        }
        self.end_text(start);
        self.signature.add(field.index(), Type::Text);
    }
}

impl fmt::Write for Payload {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_cut(text);
        Ok(())
    }
}

impl Visit for Payload {
    #[inline]
    fn record_u64(&mut self, field: &TracingField, value: u64) {
        self.scalar(field, Type::Unsigned, &value.to_ne_bytes());
    }

    #[inline]
    fn record_i64(&mut self, field: &TracingField, value: i64) {
        self.scalar(field, Type::Signed, &value.to_ne_bytes());
    }

    #[inline]
    fn record_f64(&mut self, field: &TracingField, value: f64) {
        self.scalar(field, Type::Float, &value.to_ne_bytes());
    }

    #[inline]
    fn record_bool(&mut self, field: &TracingField, value: bool) {
        self.scalar(field, Type::Bool, &[u8::from(value)]);
    }

    #[inline]
    fn record_str(&mut self, field: &TracingField, value: &str) {
        self.text(field, |payload| payload.write_cut(value));
    }

    #[inline]
    fn record_debug(&mut self, field: &TracingField, value: &dyn fmt::Debug) {
        // If formatting fails, the part written so far is recorded.
        self.text(field, |payload| _ = write!(payload, "{value:?}"));
    }
}

/// Separates the parts of a span's text.
pub(super) const SEPARATOR: u8 = 0x1f;

/// `target`, [`SEPARATOR`], `name`, [`SEPARATOR`], and `key=value` fields joined by blanks. The text is cut if the
/// table has no room for it.
pub(super) struct SpanText {
    pub(super) text: Formatted<TEXT_LEN>,
    /// The text has a field already, so a blank precedes the next one.
    separate: bool,
}

impl SpanText {
    /// Returns the text of a new span, without fields so far.
    pub(super) fn new(metadata: &Metadata<'_>) -> Self {
        let mut text = Self { separate: false, ..Self::more() };
        // Text is cut, so the write cannot fail.
        let _ = write!(text.text, "{}\x1f{}\x1f", metadata.target(), metadata.name());
        text
    }

    /// Returns an empty text for fields that a span gets later.
    pub(super) fn more() -> Self {
        Self { text: Formatted::EMPTY, separate: true }
    }

    fn field(&mut self, field: &TracingField, value: fmt::Arguments<'_>) {
        let blank = if std::mem::replace(&mut self.separate, true) { " " } else { "" };
        // Text is cut, so the write cannot fail.
        let _ = write!(self.text, "{blank}{}={value}", field.name());
    }
}

impl Visit for SpanText {
    fn record_str(&mut self, field: &TracingField, value: &str) {
        self.field(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &TracingField, value: &dyn fmt::Debug) {
        self.field(field, format_args!("{value:?}"));
    }
}
