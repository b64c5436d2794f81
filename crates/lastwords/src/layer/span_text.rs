//! The text of a span: as the table of open spans has it, and as the events inside the span show
//! it.

use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;

use lastwords_abi::spans::TEXT_LEN;
use lastwords_abi::sync::AtomicU64;
use tracing_core::field::{Field, Visit};

use super::payload::Payload;
use super::shown::{ShownRoom, replace_nuls};
use crate::process::cut;
use crate::record::encode::writer::{INNER_NUL, zero_bytes};
use crate::record::encode::{CUT, Formatted};
/// The beginnings of a span's texts, before the fields. All spans of a callsite have the same ones.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SpanHead {
    /// `target`, 0x1f, `name`, 0x1f, for the table of open spans.
    in_table: &'static str,
    /// `target::name{`, for events inside the span. Like the table's text, it is cut where the
    /// table has no room.
    shown: &'static str,
    /// Where fields begin in the table's text; beyond its end if there is no room for fields.
    fields_at: usize,
}

impl SpanHead {
    /// Makes the texts, which are never freed. Separators and NULs in names are replaced.
    pub(super) fn leak(target: &str, name: &str) -> Self {
        let [target, name] = &[target, name].map(|part| part.replace(['\x1f', '\0'], "\x1a"));
        let in_table: &'static str = String::leak(format!("{target}\x1f{name}\x1f"));
        let fits = in_table.len() <= TEXT_LEN - CUT.len();
        let mut shown = format!("{target}::{name}");
        if !fits {
            // In the table, there is one byte for `::`.
            let most = TEXT_LEN - CUT.len() + usize::from(target.len() < TEXT_LEN - CUT.len());
            shown.truncate(cut(&shown, most).len());
            shown.push_str(CUT);
        }
        let shown = String::leak(shown + "{");
        Self { in_table, shown, fields_at: if fits { in_table.len() } else { TEXT_LEN } }
    }

    /// Returns the table's text of a span without fields, if the table has room for it.
    #[inline]
    pub(super) fn alone(&self) -> Option<&'static [u8]> {
        (self.fields_at < TEXT_LEN).then_some(self.in_table.as_bytes())
    }
}

/// The text of a span in the table: `target`, 0x1f, `name`, 0x1f, and `key=value` fields joined by
/// blanks. The text is cut if the table has no room for it.
pub(super) struct SpanText {
    text: Formatted<TEXT_LEN>,
    /// The text in front of `text`, as long as there is no field. Most spans have none, so that
    /// nothing is copied.
    head: &'static str,
    /// The text has a field already, so a blank precedes the next one.
    separate: bool,
}

impl SpanText {
    /// Returns an empty text.
    #[inline(always)]
    pub(super) fn empty() -> Self {
        Self { text: Formatted::empty(), head: "", separate: false }
    }

    /// Returns the text of a span without fields so far.
    #[inline(always)]
    pub(super) fn new(head: &SpanHead) -> Self {
        let mut text = Self::empty();
        text.start(head);
        text
    }

    /// Makes an empty text that of a span without fields.
    #[inline(always)]
    pub(super) fn start(&mut self, head: &SpanHead) {
        if head.fields_at < TEXT_LEN {
            self.head = head.in_table;
        } else {
            self.text.push(head.in_table.as_bytes());
        }
    }

    fn separator(&mut self) {
        self.begin();
        if std::mem::replace(&mut self.separate, true) {
            self.text.push(b" ");
        }
    }

    /// Writes what is in front of the fields, unless it was written.
    fn begin(&mut self) {
        if !self.head.is_empty() {
            self.text.push(std::mem::take(&mut self.head).as_bytes());
        }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        if self.head.is_empty() { self.text.as_bytes() } else { self.head.as_bytes() }
    }

    /// Returns true if some of the text found no room.
    #[inline]
    pub(super) fn is_cut(&self) -> bool {
        self.text.is_cut()
    }

    /// Begins a field.
    #[inline]
    fn field(&mut self, field: &Field) {
        self.separator();
        self.text.push(field.name().as_bytes());
        self.text.push(b"=");
    }
}

impl Visit for SpanText {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field);
        self.text.push(decimal(value, &mut [0; 20]));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field);
        self.text.push(value.as_bytes());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field);
        // Text is cut, so only the value itself can fail. Then the part written so far is kept.
        let _ = write!(self.text, "{value:?}");
    }
}

/// Returns the text of the fields that a span gets later: in the order in which the callsite has
/// them, each once. The last value of a field counts.
pub(super) fn more(values: &dyn Fn(&mut dyn Visit)) -> SpanText {
    let mut more = MoreText { text: SpanText::empty(), next: 0, are_unordered: false };
    values(&mut more);
    if more.are_unordered { in_order(values, more.next) } else { more.text }
}

/// Returns the text of the first `count` fields of the callsite, by a look at all values for each:
/// programs nearly always pass the values in order.
#[cold]
#[inline(never)]
fn in_order(values: &dyn Fn(&mut dyn Visit), count: usize) -> SpanText {
    let mut sorted = SpanText::empty();
    for index in 0..count {
        let mut one = OneField { index, text: SpanText::empty() };
        values(&mut one);
        if one.text.separate {
            sorted.separator();
            sorted.text.push(one.text.as_bytes());
        }
    }
    sorted
}

/// The text of fields in the order in which the values come.
struct MoreText {
    text: SpanText,
    /// The largest index of a field so far, plus one.
    next: usize,
    /// A field had the index of one before it, or a smaller one.
    are_unordered: bool,
}

impl MoreText {
    fn note(&mut self, field: &Field) {
        self.are_unordered |= field.index() < self.next;
        self.next = self.next.max(field.index() + 1);
    }
}

impl Visit for MoreText {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.note(field);
        self.text.record_u64(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field);
        self.text.record_str(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field);
        self.text.record_debug(field, value);
    }
}

/// The text of the last value of one field.
struct OneField {
    index: usize,
    text: SpanText,
}

impl OneField {
    /// Returns the text, empty again, if this is the field.
    fn text_for(&mut self, field: &Field) -> Option<&mut SpanText> {
        let is_field = field.index() == self.index;
        if is_field {
            self.text = SpanText::empty();
        }
        is_field.then_some(&mut self.text)
    }
}

impl Visit for OneField {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.text_for(field).into_iter().for_each(|text| text.record_u64(field, value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text_for(field).into_iter().for_each(|text| text.record_str(field, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text_for(field).into_iter().for_each(|text| text.record_debug(field, value));
    }
}

/// The payload of a new span's event, and the span's text for the table. Each value is formatted
/// once for both.
pub(super) struct NewSpan<'a> {
    pub(super) payload: &'a mut Payload,
    pub(super) text: SpanText,
}

impl Visit for NewSpan<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.payload.record_u64(field, value);
        self.text.record_u64(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.payload.record_i64(field, value);
        self.text.record_i64(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.payload.record_f64(field, value);
        self.text.record_f64(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.payload.record_bool(field, value);
        self.text.record_bool(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.payload.record_str(field, value);
        self.text.record_str(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let (text, mut is_copied) = (&mut self.text, false);
        // A payload has far more room than the text. If it cuts a value, the text has been cut too,
        // or is made again.
        let copy = |formatted: &[u8]| {
            text.field(field);
            text.text.push(formatted);
            is_copied = true;
        };
        self.payload.debug(field, value, copy);
        if !is_copied {
            self.text.record_debug(field, value);
        }
    }
}

/// Writes a span's text as events show it, `target::name{fields}`. `words` has the table's text, of
/// `len` bytes. Returns the length of what is written, and whether a NUL was replaced.
#[inline]
pub(super) fn show(
    head: &SpanHead,
    words: &[AtomicU64],
    len: usize,
    to: &mut ShownRoom,
) -> (usize, bool) {
    if len <= head.fields_at {
        return (show_head(head, to) - 1, false);
    }
    // The text is one byte longer here in front of the fields. Each word is written as it is,
    // because a CPU waits where it reads parts of several stores that it has just made.
    let (first, whole) = (head.fields_at / 8, len / 8);
    let mut nuls = 0;
    for at in first..whole {
        nuls |= zero_bytes(copy_word(words, at, to));
    }
    if !len.is_multiple_of(8) {
        // The bytes behind the text are not looked at.
        nuls |= zero_bytes(copy_word(words, whole, to) | u64::MAX << (8 * (len % 8)));
    }
    // The first word also has bytes from before the fields.
    let start = show_head(head, to);
    if nuls != 0 {
        replace_nuls(&mut to[start..len + 1]);
    }
    to[len + 1].write(b'}');
    (len + 2, nuls != 0)
}

/// Does what [`show`] does for a span whose head is not known.
pub(super) fn show_listed(words: &[AtomicU64], len: usize, to: &mut ShownRoom) -> (usize, bool) {
    let (mut at, mut separators, mut has_fields, mut is_changed) = (0, 0, false, false);
    let mut put = |bytes: &[u8]| {
        for byte in bytes {
            is_changed |= *byte == 0;
            to[at].write(if *byte == 0 { INNER_NUL } else { *byte });
            at += 1;
        }
    };
    for byte in words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).take(len) {
        if byte == 0x1f && separators < 2 {
            put([&b"::"[..], b""][separators]);
            separators += 1;
            continue;
        }
        if separators == 2 && !has_fields {
            put(b"{");
            has_fields = true;
        }
        put(&[byte]);
    }
    if has_fields {
        put(b"}");
    }
    (at, is_changed)
}

/// Writes a word of the table's text, and returns it. Its lowest byte is the first.
#[inline(always)]
fn copy_word(words: &[AtomicU64], at: usize, to: &mut ShownRoom) -> u64 {
    let word = words[at].load(Relaxed).to_ne_bytes();
    to[8 * at + 1..][..8].copy_from_slice(&word.map(MaybeUninit::new));
    u64::from_le_bytes(word)
}

/// Writes the text in front of the fields, and returns its length.
#[inline]
fn show_head(head: &SpanHead, to: &mut ShownRoom) -> usize {
    let shown = head.shown.as_bytes();
    let room = &mut to[..shown.len()];
    // SAFETY: `room` has as many bytes as `shown`, and nobody else uses it.
    unsafe { lastwords_ring::copy(shown.as_ptr(), room.as_mut_ptr().cast(), shown.len()) };
    shown.len()
}

/// Returns the decimal digits of the number, without the formatting machinery.
fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shown::SHOWN_LEN;
    use super::*;

    /// Returns what [`show`] writes for a span, and the table's text. The bytes behind the text are
    /// those of a longer text before it.
    fn shown(target: &str, name: &str, fields: &str) -> (Vec<u8>, Vec<u8>) {
        let head = SpanHead::leak(target, name);
        let mut text = SpanText::new(&head);
        if !fields.is_empty() {
            text.begin();
            text.text.push(fields.as_bytes());
        }
        let text = text.as_bytes();
        let mut bytes = [0; TEXT_LEN];
        bytes[..text.len()].copy_from_slice(text);
        let words: Vec<_> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|word| AtomicU64::new(u64::from_ne_bytes(*word)))
            .collect();
        let mut room = [MaybeUninit::new(b'?'); SHOWN_LEN];
        let (len, is_changed) = show(&head, &words, text.len(), &mut room);
        let bytes = |room: &ShownRoom, len| -> Vec<u8> {
            // SAFETY: all bytes of the rooms are initialised.
            room[..len].iter().map(|byte| unsafe { byte.assume_init() }).collect()
        };
        let shown = bytes(&room, len);
        let fields = text.splitn(3, |byte| *byte == 0x1f).nth(2).unwrap_or_default();
        assert_eq!(is_changed, fields.contains(&0), "{fields:?}");
        let (len, is_changed) = show_listed(&words, text.len(), &mut room);
        assert_eq!(bytes(&room, len), shown, "without the head");
        assert_eq!(is_changed, text.contains(&0), "{text:?}");
        (shown, text.to_vec())
    }

    /// Returns what events must show of the table's text: the first two separators are replaced,
    /// and there are braces around fields.
    fn expected(text: &[u8]) -> Vec<u8> {
        let text: Vec<u8> = text.iter().map(|byte| if *byte == 0 { 0x1a } else { *byte }).collect();
        let parts: Vec<&[u8]> = text.splitn(3, |byte| *byte == 0x1f).collect();
        match parts[..] {
            [target, name, fields] if !fields.is_empty() => {
                [target, b"::", name, b"{", fields, b"}"].concat()
            }
            [target, name, ..] => [target, b"::", name].concat(),
            _ => text,
        }
    }

    #[test]
    fn spans_of_all_shapes() {
        let shapes = [
            ("svc", "handle", "id=7 n=1", "svc::handle{id=7 n=1}"),
            ("svc", "handle", "", "svc::handle"),
            ("", "", "", "::"),
            ("", "h", "a=\x1f", "::h{a=\x1f}"),
            ("a target", "name", "a=\0 b=\0", "a target::name{a=\x1a b=\x1a}"),
            ("a\0", "n", "", "a\x1a::n"),
            ("a\x1fb", "n\x1f", "a=1", "a\x1ab::n\x1a{a=1}"),
        ];
        for (target, name, fields, as_shown) in shapes {
            assert_eq!(String::from_utf8_lossy(&shown(target, name, fields).0), as_shown);
        }
    }

    /// All lengths of target, name and fields around the places where words end and where the text
    /// is cut.
    #[test]
    fn a_slow_loop_shows_the_same() {
        let step = if cfg!(miri) { 53 } else { 1 };
        let near_the_end = [60, 61, 62, 63, 64, 176, 177, 178, 179, 180, 181, 182, 183, 200];
        for target in (0..9).chain(near_the_end).step_by(step) {
            for name in (0..9).chain(near_the_end) {
                for fields in (0..20).chain([50, 60, 110, 120, 180, 200]).step_by(step) {
                    // A NUL in one place after the other.
                    let nul_at = (target + name) % (fields + 1);
                    let nul = if nul_at < fields { "\0" } else { "" };
                    let fields = "é\x1f".repeat(nul_at / 3) + nul + &"f".repeat(fields);
                    let (target, name) =
                        ("t".repeat(target % 3) + &"€".repeat(target / 3), "n".repeat(name));
                    let (shown, text) = shown(&target, &name, &fields);
                    assert_eq!(
                        String::from_utf8_lossy(&shown),
                        String::from_utf8_lossy(&expected(&text))
                    );
                }
            }
        }
    }

    #[test]
    fn numbers_as_the_standard_library_shows_them() {
        let powers = (0..20).map(|power| 10u64.pow(power));
        for value in powers.flat_map(|power| [power - 1, power, power + 7]).chain([0, u64::MAX]) {
            assert_eq!(decimal(value, &mut [0; 20]), value.to_string().as_bytes());
        }
    }
}
