//! The values of a tracing event or span: as payload bytes with their types, and as text for the table of open spans.

use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;

use lastwords_abi::spans::TEXT_LEN;
use tracing_core::Metadata;
use tracing_core::field::{Field as TracingField, Visit};

use super::site::Site;
use crate::process::cut;
use crate::record::encode::Formatted;
use crate::record::encode::writer::{INNER_NUL, has_no_nul, zero_bytes};
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
        // SAFETY: `put` initialises bytes before it adds them to `len`.
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

    /// Appends the span in which the event happened: its text, in the form of [`SpanText`], as `target::name{fields}`, and its id.
    pub(super) fn span(&mut self, id: u64, text: &[u8]) {
        let start = self.len;
        // A text that was cut may have one separator or none.
        let (first, has_nul) = look_through(text);
        let second = text.iter().skip(first + 1).position(|byte| *byte == SEPARATOR).map(|more| first + 1 + more);
        // There is room for the longest text of a span, and nearly all of it is copied in one piece: only the target stands one byte
        // further in front than in the text of the table.
        self.put(&[0]);
        self.put(text);
        if first == text.len() {
            self.put(b":");
        }
        self.write(start, &text[..first]);
        self.write(start + first, b"::");
        match second {
            Some(second) if second + 1 < text.len() => {
                self.write(start + 1 + second, b"{");
                self.put(b"}");
            }
            Some(_) => self.len -= 1,
            None => (),
        }
        if has_nul {
            self.replace_nuls(start);
        }
        self.put(&[0]);
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
    fn end_text(&mut self, start: usize) {
        let text = &self.as_bytes()[start..];
        if text.len() < 8 || !has_no_nul(text) {
            self.replace_nuls(start);
        }
        self.put(&[0]);
    }

    #[inline(never)]
    fn replace_nuls(&mut self, start: usize) {
        for byte in &mut self.bytes[start..self.len] {
            // SAFETY: bytes before `len` are initialised.
            let byte = unsafe { byte.assume_init_mut() };
            if *byte == 0 {
                *byte = INNER_NUL;
            }
        }
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
        self.write_cut(character.encode_utf8(&mut [0; 4]));
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
        // If formatting fails, the part written so far is recorded.
        self.text(field, |payload| _ = write!(payload, "{value:?}"));
    }
}

/// Separates the parts of a span's text.
const SEPARATOR: u8 = 0x1f;

/// Returns where the first separator of the text is, or the length, and whether there is a NUL. It reads whole words, as they were
/// stored just before: a CPU waits where it reads parts of several stores at once.
fn look_through(text: &[u8]) -> (usize, bool) {
    let (words, rest) = text.as_chunks();
    let (mut first, mut has_nul) = (None, rest.contains(&0));
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let separators = zero_bytes(word ^ u64::from_ne_bytes([SEPARATOR; 8]));
        has_nul |= zero_bytes(word) != 0;
        if separators != 0 && first.is_none() {
            first = Some(8 * at + separators.trailing_zeros() as usize / 8);
        }
    }
    let in_rest = || Some(text.len() - rest.len() + rest.iter().position(|byte| *byte == SEPARATOR)?);
    (first.or_else(in_rest).unwrap_or(text.len()), has_nul)
}

/// `target`, [`SEPARATOR`], `name`, [`SEPARATOR`], and `key=value` fields joined by blanks. The text is cut if the
/// table has no room for it.
pub(super) struct SpanText {
    pub(super) text: Formatted<TEXT_LEN>,
    /// The text has a field already, so a blank precedes the next one.
    separate: bool,
}

impl SpanText {
    /// Returns the text of a new span, without fields so far.
    #[inline]
    pub(super) fn new(metadata: &Metadata<'_>) -> Self {
        let mut text = Self { text: Formatted::EMPTY, separate: false };
        text.put(&[metadata.target(), "\x1f", metadata.name(), "\x1f"]);
        text
    }

    /// Returns an empty text for fields that a span gets later.
    #[inline]
    pub(super) fn more() -> Self {
        Self { text: Formatted::EMPTY, separate: true }
    }

    #[inline]
    fn put(&mut self, parts: &[&str]) {
        // Text is cut, so the write cannot fail.
        parts.iter().for_each(|part| _ = self.text.write_str(part));
    }

    #[inline]
    fn field(&mut self, field: &TracingField) {
        let blank = if std::mem::replace(&mut self.separate, true) { " " } else { "" };
        self.put(&[blank, field.name(), "="]);
    }
}

impl Visit for SpanText {
    fn record_u64(&mut self, field: &TracingField, value: u64) {
        self.field(field);
        let mut digits = [0; 20];
        self.put(&[decimal(value, &mut digits)]);
    }

    fn record_str(&mut self, field: &TracingField, value: &str) {
        self.field(field);
        self.put(&[value]);
    }

    fn record_debug(&mut self, field: &TracingField, value: &dyn fmt::Debug) {
        self.field(field);
        // Text is cut, so only the value itself can fail. Then the part written so far is kept.
        let _ = write!(self.text, "{value:?}");
    }
}

/// Returns the decimal digits of the number, without the formatting machinery.
fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return std::str::from_utf8(&digits[at..]).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::site::Kind;
    use crate::session::registry::EventDesc;

    #[test]
    fn spans_of_all_shapes() {
        struct Callsite;
        impl tracing_core::Callsite for Callsite {
            fn set_interest(&self, _: tracing_core::Interest) {}
            fn metadata(&self) -> &Metadata<'_> {
                &METADATA
            }
        }
        static METADATA: Metadata<'static> = tracing_core::metadata! {
            name: "x", target: "x", level: tracing_core::Level::INFO, fields: &[], callsite: &Callsite,
            kind: tracing_core::metadata::Kind::EVENT,
        };
        let desc = EventDesc { provider: "", name: "", level: 1, format: "", file: "", line: 0, fields: &[] };
        let site: &'static Site = Box::leak(Box::new(Site::new(&METADATA, Kind::Close, desc)));
        let shapes: [(&[u8], &[u8]); 8] = [
            (b"svc\x1fhandle\x1fid=7 n=1", b"svc::handle{id=7 n=1}"),
            (b"svc\x1fhandle\x1f", b"svc::handle"),
            (b"\x1f\x1f", b"::"),
            (b"\x1fh\x1fa=\x1f", b"::h{a=\x1f}"),
            (b"a target\x1fname\x1fa=\0 b=\0", b"a target::name{a=\x1a b=\x1a}"),
            ("svc\x1fa long name that was cut…".as_bytes(), "svc::a long name that was cut…".as_bytes()),
            ("a long target…".as_bytes(), "a long target…::".as_bytes()),
            (b"", b"::"),
        ];
        for (text, shown) in shapes {
            let mut payload = Payload::new(site);
            payload.number(1);
            payload.span(2, text);
            let expected = [&1u64.to_ne_bytes(), shown, b"\0", &2u64.to_ne_bytes()].concat();
            assert_eq!(payload.as_bytes(), expected, "{}", String::from_utf8_lossy(shown));
        }
    }

    #[test]
    fn separators_and_nuls_are_where_they_are() {
        for len in 0..40 {
            let plain = vec![0x9f; len];
            assert_eq!(look_through(&plain), (len, false));
            for at in 0..len {
                for nul in 0..len {
                    let mut text = plain.clone();
                    text[at] = SEPARATOR;
                    text[len - 1] = SEPARATOR;
                    assert_eq!(look_through(&text), (at, false), "{at} of {len}");
                    text[nul] = 0;
                    let first = text.iter().position(|byte| *byte == SEPARATOR).unwrap_or(len);
                    assert_eq!(look_through(&text), (first, true), "{at} of {len}, a NUL at {nul}");
                }
            }
        }
    }

    #[test]
    fn numbers_as_the_standard_library_shows_them() {
        let powers = (0..20).map(|power| 10u64.pow(power));
        for value in powers.flat_map(|power| [power - 1, power, power + 7]).chain([0, u64::MAX]) {
            assert_eq!(decimal(value, &mut [0; 20]), value.to_string());
        }
    }
}
