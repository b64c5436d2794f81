//! Descriptions of events and of their fields, as the macros of `lastwords_event.h` make them.

use std::ffi::{CStr, c_char};

use lastwords::__private::{keep, keep_all};
use lastwords::{EventDesc, FieldDesc, FieldType};

/// A value of an enumeration that has a name.
#[repr(C)]
pub struct lw_label {
    /// The value; of an unsigned type, the same bits.
    pub value: i64,
    /// Its name, ASCII or UTF-8.
    pub label: *const c_char,
}

/// A field of an event. The list ends where the event's count says.
#[repr(C)]
pub struct lw_field_desc {
    /// Name, ASCII or UTF-8.
    pub name: *const c_char,
    /// Type: 1 unsigned, 2 signed, 3 float, 4 bool, 5 text up to a NUL, 6 sequence, 7 array, 8 enumeration, 9 text of fixed
    /// size, 10 bytes.
    pub ty: u8,
    /// Bytes of a number, or of an element.
    pub bytes: u8,
    /// 10 or 16, for integers.
    pub base: u8,
    /// Type of the elements, 1 to 4, or of an enumeration's values, 1 or 2.
    pub element: u8,
    /// Elements of an array, labels of an enumeration, bytes of a text of fixed size.
    pub count: u32,
    /// An enumeration's labels.
    pub labels: *const lw_label,
}

/// An event. All of it lives as long as the process.
#[repr(C)]
pub struct lw_event_desc {
    /// Provider.
    pub provider: *const c_char,
    /// Name.
    pub name: *const c_char,
    /// Format string of a marker, or empty.
    pub format: *const c_char,
    /// Source file.
    pub file: *const c_char,
    /// Source line.
    pub line: u32,
    /// One of `LW_LEVEL_`.
    pub level: u32,
    /// Fields.
    pub field_count: usize,
    /// The fields in the order of the payload.
    pub fields: *const lw_field_desc,
}

/// The description in the library's own form; it is kept for ever, once a callsite. None where a type is unknown, which the
/// macros do not make.
///
/// # Safety
/// `event` is static and whole.
pub(crate) unsafe fn describe(event: *const lw_event_desc) -> Option<&'static EventDesc> {
    const UNKNOWN: FieldDesc = FieldDesc { name: "", ty: FieldType::Bytes };
    // SAFETY: the caller gives a whole static description; its texts end with NULs.
    unsafe {
        let event = &*event;
        let fields = list(event.fields, event.field_count);
        // Nothing is kept of an event that cannot be described: it is asked for each time that it is reached.
        if !fields.iter().all(is_sound) {
            return None;
        }
        let fields = keep_each(fields, |field| field_of(field), UNKNOWN)?;
        let (provider, name) = (text(event.provider)?, text(event.name)?);
        let (format, file) = (text(event.format)?, text(event.file)?);
        let level = event.level.clamp(1, 5) as u8;
        keep(EventDesc { provider, name, level, format, file, line: event.line, fields })
    }
}

/// The field in the library's own form, its type kept for ever. None where the type is unknown.
///
/// # Safety
/// Name and labels are static.
pub(crate) unsafe fn field_of(field: &lw_field_desc) -> Option<FieldDesc> {
    if !is_sound(field) {
        return None;
    }
    let element = || scalar(field, field.element);
    let ty = match field.ty {
        5 => FieldType::String,
        6 => FieldType::Sequence(keep(element()?)?),
        7 => FieldType::Array { count: field.count, element: keep(element()?)? },
        // SAFETY: the caller vouches for the labels.
        8 => FieldType::Enum { bytes: field.bytes, signed: field.element == 2, labels: unsafe { labels(field)? } },
        9 => FieldType::Text { bytes: field.count },
        10 => FieldType::Bytes,
        other => scalar(field, other)?,
    };
    // SAFETY: the caller vouches for the name.
    Some(FieldDesc { name: unsafe { text(field.name)? }, ty })
}

/// Whether its type is known.
fn is_sound(field: &lw_field_desc) -> bool {
    let has_scalar = |ty| scalar(field, ty).is_some();
    match field.ty {
        5 | 9 | 10 => true,
        6 | 7 => has_scalar(field.element),
        8 => matches!(field.element, 1 | 2) && has_scalar(field.element),
        other => has_scalar(other),
    }
}

/// The scalar of that number and of the field's size.
fn scalar(field: &lw_field_desc, ty: u8) -> Option<FieldType> {
    let (bytes, base) = (field.bytes, field.base);
    match (ty, bytes) {
        (1, 1 | 2 | 4 | 8) => Some(FieldType::Unsigned { bytes, base }),
        (2, 1 | 2 | 4 | 8) => Some(FieldType::Signed { bytes, base }),
        (3, 4 | 8) => Some(FieldType::Float { bytes }),
        (4, 1) => Some(FieldType::Bool),
        _ => None,
    }
}

/// # Safety
/// As for `field_of`.
unsafe fn labels(field: &lw_field_desc) -> Option<&'static [(i64, &'static str)]> {
    // SAFETY: the caller vouches for the labels and for their texts.
    let labels = unsafe { list(field.labels, field.count as usize) };
    // SAFETY: as above.
    keep_each(labels, |label| Some((label.value, unsafe { text(label.label)? })), (0, ""))
}

/// Keeps what `each` makes of the values, for ever; `None` where there is no memory, or `each` gave none for a value. `blank`
/// stands in for such a value, as what was kept before it cannot be taken back.
fn keep_each<T, U: Copy>(of: &[T], each: impl Fn(&T) -> Option<U>, blank: U) -> Option<&'static [U]> {
    let mut whole = true;
    let kept = keep_all(of.iter().map(|one| {
        let made = each(one);
        whole &= made.is_some();
        made.unwrap_or(blank)
    }))?;
    whole.then_some(kept)
}

/// # Safety
/// `first` leads to `count` values, static ones; it may be null where there are none.
unsafe fn list<T>(first: *const T, count: usize) -> &'static [T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: the caller vouches for it.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// The text; where it is not UTF-8, a copy that is kept for ever, with `?` for each byte that is not ASCII. `None` where there
/// is no memory for the copy.
///
/// # Safety
/// `text` is null or static and ends with a NUL.
unsafe fn text(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return Some("");
    }
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    let plain = || keep_all(bytes.iter().map(|byte| if byte.is_ascii() { *byte } else { b'?' }));
    str::from_utf8(bytes).ok().or_else(|| str::from_utf8(plain()?).ok())
}
