//! The values of a tracing event or span: as payload bytes with their types, and as text for the table of open spans.

use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;

use tracing_core::Metadata;
use tracing_core::field::{Field as TracingField, Visit};

use super::site::Site;
use crate::record::encode::writer::INNER_NUL;
use crate::record::encode::{Out, Pieces, Values};
use crate::record::spans::cut;
use crate::session::registry::FieldType;

/// Bytes of a payload.
const ROOM: usize = 4096;
/// Fields of a callsite whose types a signature can tell; `tracing` allows 32.
const MAX_FIELDS: usize = 40;

/// Type of a value, three bits of a [`Signature`]; 0 = the field has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Unsigned = 1,
    Signed = 2,
    Float = 3,
    Bool = 4,
    Text = 5,
}

/// Which fields have values, and of which types: three bits a field. In the second word also whether the event has a span, and
/// whether its message is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Signature([u64; 2]);

const FIELDS_A_WORD: usize = MAX_FIELDS / 2;
const HAS_SPAN: u64 = 1 << 63;
const IS_NAMED: u64 = 1 << 62;
const _: () = assert!(3 * FIELDS_A_WORD <= 63 && 3 * (MAX_FIELDS - FIELDS_A_WORD) <= 62);

impl Signature {
    pub(super) fn has_span(self) -> bool {
        self.0[1] & HAS_SPAN != 0
    }

    /// The message is the name, and no field.
    pub(super) fn is_named(self) -> bool {
        self.0[1] & IS_NAMED != 0
    }

    #[inline(always)]
    fn add(&mut self, index: usize, ty: Type) {
        if index < FIELDS_A_WORD {
            self.0[0] |= (ty as u64) << (3 * index);
        } else {
            self.0[1] |= (ty as u64) << (3 * (index - FIELDS_A_WORD));
        }
    }

    /// Type of the field of that index.
    pub(super) fn field(self, index: usize) -> Option<FieldType> {
        let word = self.0.get(index / FIELDS_A_WORD)?;
        match word >> (3 * (index % FIELDS_A_WORD)) & 7 {
            1 => Some(FieldType::Unsigned { bytes: 8, base: 10 }),
            2 => Some(FieldType::Signed { bytes: 8, base: 10 }),
            3 => Some(FieldType::Float { bytes: 8 }),
            4 => Some(FieldType::Bool),
            5 => Some(FieldType::String),
            _ => None,
        }
    }
}

/// Payload bytes in the making, and what types they have.
pub(super) struct Payload {
    bytes: [MaybeUninit<u8>; ROOM],
    len: usize,
    pub(super) signature: Signature,
    /// Least index of the next field: the class has the fields in order of index.
    next: usize,
    /// Fields that the description tells, a bit each.
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

    /// The bytes put so far.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        // SAFETY: `put` and `room` initialise bytes before they add them to `len`.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }

    /// Appends the bytes if they fit.
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) else { return false };
        // SAFETY: `room` has as many bytes as `bytes`, and is ours alone.
        unsafe { room.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.len += bytes.len();
        true
    }

    /// A number that is no field of the callsite.
    #[inline]
    pub(super) fn number(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    /// The span that the event happened in: its id and the parts of its text.
    pub(super) fn span(&mut self, id: u64, parts: &[&[u8]]) {
        let start = self.len;
        for part in parts {
            // There is room for the longest text of a span.
            self.put(part);
        }
        self.end_text(start);
        self.number(id);
        self.signature.0[1] |= HAS_SPAN;
    }

    /// Appends as much of the text as there is room for.
    #[inline]
    fn write_cut(&mut self, text: &str) {
        // Each later field needs eight bytes at most, or the NUL of an empty text; the span behind them its text and ids.
        let most = (ROOM - 9 * MAX_FIELDS - 2 * TEXT_LEN).saturating_sub(self.len);
        let len = cut(text.as_bytes(), most);
        self.put(&text.as_bytes()[..len]);
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

    /// Whether the field is to be recorded. One that the description tells is not; a value that comes twice, or out of order, is
    /// left out.
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

    #[inline]
    fn formatted(&mut self, field: &TracingField, arguments: fmt::Arguments<'_>) {
        if !self.accepts(field) {
            return;
        }
        let start = self.len;
        // A value whose formatting fails is recorded as far as it went.
        let _ = self.write_fmt(arguments);
        self.end_field(field, start);
    }

    /// Ends the text of a field, which begins at `start`. A message that is the name of the site's events is left out.
    #[inline]
    fn end_field(&mut self, field: &TracingField, start: usize) {
        let name = self.site.desc.name.as_bytes();
        if self.site.message_at == Some(field.index()) && self.as_bytes()[start..] == *name {
            self.len = start;
            self.signature.0[1] |= IS_NAMED;
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
        if self.accepts(field) {
            let start = self.len;
            self.write_cut(value);
            self.end_field(field, start);
        }
    }

    fn record_error(&mut self, field: &TracingField, value: &(dyn std::error::Error + 'static)) {
        self.formatted(field, format_args!("{value}"));
    }

    #[inline]
    fn record_debug(&mut self, field: &TracingField, value: &dyn fmt::Debug) {
        self.formatted(field, format_args!("{value:?}"));
    }
}

/// The bytes of a payload, as values of an event.
#[derive(Clone, Copy)]
pub(super) struct Raw<'a>(pub(super) &'a [u8]);

impl Values for Raw<'_> {
    const FIXED: Option<usize> = None;

    #[inline(always)]
    fn size(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.raw(self.0);
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        out.0.source(self.0);
    }
}

/// Bytes of a span's text before it is cut: more than the table has room for, which marks the cut.
const TEXT_LEN: usize = lastwords_abi::spans::TEXT_LEN + 8;

/// Stands between the parts of a span's text.
pub(super) const SEPARATOR: u8 = 0x1f;

/// `target`, [`SEPARATOR`], `name`, [`SEPARATOR`], `key=value` joined by blanks.
pub(super) struct SpanText {
    bytes: [u8; TEXT_LEN],
    len: usize,
    /// A field stands before the next one.
    separate: bool,
}

impl SpanText {
    /// The text of a new span, without fields so far.
    pub(super) fn new(metadata: &Metadata<'_>) -> Self {
        let mut text = Self { separate: false, ..Self::more() };
        for part in [metadata.target(), "\x1f", metadata.name(), "\x1f"] {
            // Text is cut, never refused.
            let _ = text.write_str(part);
        }
        text
    }

    /// Fields that a span gets later.
    pub(super) fn more() -> Self {
        Self { bytes: [0; TEXT_LEN], len: 0, separate: true }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn field(&mut self, field: &TracingField, value: fmt::Arguments<'_>) {
        let blank = if std::mem::replace(&mut self.separate, true) { " " } else { "" };
        // Text is cut, never refused.
        let _ = write!(self, "{blank}{}={value}", field.name());
    }
}

impl fmt::Write for SpanText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let len = cut(text.as_bytes(), TEXT_LEN - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
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
