//! The values of a tracing event or span, as payload bytes with their types.

use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;

use tracing_core::field::{Field as TracingField, Visit};

use super::site::Site;
use super::span_text::{SHOWN_LEN, ShownRoom, replace_nuls};
use crate::process::cut;
use crate::record::encode::writer::has_no_nul;
use crate::session::registry::FieldType;

/// Largest size of a payload, in bytes. In memory, less than 4096 bytes are from the payload's start to its last field: a CPU that loads
/// a field waits for stores whose addresses differ from the field's by a multiple of 4096, such as those of the first bytes.
const ROOM: usize = 3840;
/// Largest number of a callsite's fields whose types fit into a signature; `tracing` allows 32.
const MAX_FIELDS: usize = 40;
/// Largest size of a piece of text that is copied without a call, in bytes.
const SHORT: usize = 64;
/// Where the last text of a field ends at most. Each later field needs at most eight bytes, or the NUL of an empty text. The span
/// after them needs its text and ids.
const TEXTS_END: usize = ROOM - 9 * MAX_FIELDS - 2 * SHOWN_LEN;

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
const _: () = assert!(size_of::<Payload>() < 4096 && TEXTS_END >= 3072, "texts of 3 KiB are not cut");

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
        // SAFETY: bytes are initialised before they are added to `len`, by `put` or by the writer of a span's text.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }

    /// Appends the bytes if they fit.
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) -> bool {
        let fits = self.write(self.len, bytes);
        self.len += if fits { bytes.len() } else { 0 };
        fits
    }

    /// Writes the bytes from `at` on, if there is room.
    #[inline(always)]
    fn write(&mut self, at: usize, bytes: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(at..at + bytes.len()) else { return false };
        // SAFETY: `room` has as many bytes as `bytes`, and nobody else uses it.
        unsafe { lastwords_ring::copy(bytes.as_ptr(), room.as_mut_ptr().cast(), bytes.len()) };
        true
    }

    /// Appends a number that is no field of the callsite.
    #[inline]
    pub(super) fn number(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    /// Appends the span in which an event happened: its text, and its id. `write` writes the text into the room by
    /// [`show`](super::span_text::show), and returns its length.
    #[inline]
    pub(super) fn span(&mut self, id: u64, write: impl FnOnce(&mut ShownRoom) -> usize) {
        // There always is room: see `TEXTS_END`.
        let Some(room) = self.bytes.get_mut(self.len..).and_then(|room| room.first_chunk_mut()) else { return };
        self.len += write(room);
        self.put(&[0]);
        self.number(id);
        self.signature.0 |= HAS_SPAN;
    }

    /// Appends as much of the text as there is room for.
    #[inline]
    fn write_cut(&mut self, text: &str) {
        // Formatting consists of short pieces, which are copied without a call, and of empty ones.
        if text.is_empty() {
            return;
        }
        if matches!(text.len(), 1..=SHORT)
            && let Some(room) =
                self.bytes[..TEXTS_END].get_mut(self.len..).and_then(|room| room.first_chunk_mut::<SHORT>())
        {
            // SAFETY: `room` has at least as many bytes as `text`, and nobody else uses it.
            unsafe { lastwords_ring::copy(text.as_ptr(), room.as_mut_ptr().cast(), text.len()) };
            self.len += text.len();
        } else {
            self.write_long(text);
        }
    }

    #[inline(never)]
    fn write_long(&mut self, text: &str) {
        self.put(cut(text, TEXTS_END.saturating_sub(self.len)).as_bytes());
    }

    /// Replaces NULs inside the text that begins at `start`, and ends it.
    #[inline]
    fn end_text(&mut self, start: usize) {
        let text = &self.as_bytes()[start..];
        if if text.len() < 8 { text.contains(&0) } else { !has_no_nul(text) } {
            replace_nuls(&mut self.bytes[start..self.len]);
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

    /// Records a field that is text. Returns false if the field must not be recorded.
    #[inline]
    fn text(&mut self, field: &TracingField, write: impl FnOnce(&mut Self)) -> bool {
        let is_accepted = self.accepts(field);
        if is_accepted {
            let start = self.len;
            write(self);
            self.end_field(field, start);
        }
        is_accepted
    }

    /// Records a value that is `Debug` alone, and passes its text to `see`. Returns false if the field must not be recorded.
    #[inline]
    pub(super) fn debug(&mut self, field: &TracingField, value: &dyn fmt::Debug, see: impl FnOnce(&[u8])) -> bool {
        self.text(field, |payload| {
            let start = payload.len;
            // If formatting fails, the part written so far is recorded.
            let _ = write!(payload, "{value:?}");
            see(&payload.as_bytes()[start..]);
        })
    }

    /// Ends the text of a field, which begins at `start`. A message that is the name of the site's events is left out.
    #[inline(never)]
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
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_cut(text);
        Ok(())
    }

    fn write_char(&mut self, character: char) -> fmt::Result {
        match self.bytes[..TEXTS_END].get_mut(self.len) {
            // Many values are formatted character by character.
            Some(byte) if character.is_ascii() => {
                byte.write(character as u8);
                self.len += 1;
            }
            _ => self.write_cut(character.encode_utf8(&mut [0; 4])),
        }
        Ok(())
    }
}

impl Visit for Payload {
    fn record_u64(&mut self, field: &TracingField, value: u64) {
        self.scalar(field, Type::Unsigned, &value.to_ne_bytes());
    }

    fn record_i64(&mut self, field: &TracingField, value: i64) {
        self.scalar(field, Type::Signed, &value.to_ne_bytes());
    }

    fn record_f64(&mut self, field: &TracingField, value: f64) {
        self.scalar(field, Type::Float, &value.to_ne_bytes());
    }

    fn record_bool(&mut self, field: &TracingField, value: bool) {
        self.scalar(field, Type::Bool, &[u8::from(value)]);
    }

    fn record_str(&mut self, field: &TracingField, value: &str) {
        self.text(field, |payload| payload.write_cut(value));
    }

    fn record_debug(&mut self, field: &TracingField, value: &dyn fmt::Debug) {
        self.debug(field, value, |_| ());
    }
}
