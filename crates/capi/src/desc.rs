//! Converts descriptions of events and of their fields, as the macros of `lastwords_event.h` make
//! them.

use std::ffi::{CStr, c_char};

use lastwords::__private::{keep, keep_all};
use lastwords::{EventDesc, FieldDesc, FieldType};

use crate::args::slice;

#[repr(C)]
pub struct lw_label {
    pub value: i64,
    pub label: *const c_char,
}

#[repr(C)]
pub struct lw_field_desc {
    pub name: *const c_char,
    pub ty: u8,
    pub bytes: u8,
    pub base: u8,
    pub element: u8,
    pub count: u32,
    pub labels: *const lw_label,
}

#[repr(C)]
pub struct lw_event_desc {
    pub provider: *const c_char,
    pub name: *const c_char,
    pub format: *const c_char,
    pub file: *const c_char,
    pub line: u32,
    pub level: u32,
    pub field_count: usize,
    pub fields: *const lw_field_desc,
}

/// Converts the description to the library's own form. It is kept for ever, once for each callsite.
/// Returns none if a type is unknown; the macros do not make such types.
///
/// # Safety
/// `event` is static and complete.
pub(crate) unsafe fn describe(event: *const lw_event_desc) -> Option<&'static EventDesc> {
    // SAFETY: the caller passes a complete static description; its texts end with NULs.
    unsafe {
        let event = &*event;
        let fields = slice(event.fields, event.field_count).unwrap_or_default();
        // The check comes before anything is kept, because an event that cannot be described is
        // converted each time it is reached.
        if !fields.iter().all(is_sound) {
            return None;
        }
        let fields = keep_all(fields.iter().map(|field| field_of(field)))?;
        let (provider, name) = (text(event.provider)?, text(event.name)?);
        let (format, file) = (text(event.format)?, text(event.file)?);
        let level = event.level.clamp(1, 5) as u8;
        keep(EventDesc { provider, name, level, format, file, line: event.line, fields })
    }
}

/// Converts the field to the library's own form. Its type is kept for ever. Returns none if the
/// type is unknown.
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
        8 => {
            // SAFETY: the caller guarantees the labels and their texts.
            let labels = unsafe { slice(field.labels, field.count as usize) }.unwrap_or_default();
            // SAFETY: the caller guarantees the texts of the labels.
            let labels = keep_all(
                labels.iter().map(|label| Some((label.value, unsafe { text(label.label)? }))),
            )?;
            FieldType::Enum { bytes: field.bytes, signed: field.element == 2, labels }
        }
        9 => FieldType::Text { bytes: field.count },
        10 => FieldType::Bytes,
        other => scalar(field, other)?,
    };
    // SAFETY: the caller guarantees the name.
    Some(FieldDesc { name: unsafe { text(field.name)? }, ty })
}

/// Returns true if the type of the field is known.
fn is_sound(field: &lw_field_desc) -> bool {
    let has_scalar = |ty| scalar(field, ty).is_some();
    match field.ty {
        5 | 9 | 10 => true,
        6 | 7 => has_scalar(field.element),
        8 => matches!(field.element, 1 | 2) && has_scalar(field.element),
        other => has_scalar(other),
    }
}

/// Returns the scalar type with this number and the field's size.
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

/// Returns the text. If it is not UTF-8, returns a copy that is kept for ever, with `?` for each
/// byte that is not ASCII. Returns `None` if there is no memory for the copy.
///
/// # Safety
/// `text` is null or static and ends with a NUL.
unsafe fn text(text: *const c_char) -> Option<&'static str> {
    if text.is_null() {
        return Some("");
    }
    // SAFETY: the caller guarantees the text.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    let plain =
        || keep_all(bytes.iter().map(|byte| Some(if byte.is_ascii() { *byte } else { b'?' })));
    str::from_utf8(bytes).ok().or_else(|| str::from_utf8(plain()?).ok())
}
