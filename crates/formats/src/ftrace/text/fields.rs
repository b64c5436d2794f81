//! The form of option `fields` (`print_event_fields`): every field by its name.

use lastwords_trace::ftrace::{Field, Format};
use lastwords_trace::schema::ByteOrder;

use crate::ftrace::page::{long, word};
use crate::ftrace::print::{Names, Show, Spec, hex, number, padded};
use crate::text::number::unsigned;

/// How a field is shown; the kernel decides so by the words of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    DynamicText { relative: bool },
    PointerText,
    Mask,
    Other,
}

fn form(declaration: &str) -> Form {
    let has = |part| declaration.contains(part);
    let kind = declaration.rsplit_once(' ').map_or(declaration, |(kind, _)| kind);
    let is_located = has("__data_loc") || has("__rel_loc");
    if is_located && has("char") {
        Form::DynamicText { relative: has("__rel_loc") }
    } else if is_located && has("cpumask_t") {
        Form::Mask
    } else if declaration.contains('[') && kind.contains("char") {
        Form::Text
    } else if kind == "char *" || kind == "const char *" {
        Form::PointerText
    } else {
        Form::Other
    }
}

/// Appends ` name=value` for each field that is the event's own. `named`: addresses of the kernel's functions are shown by
/// their names, as since Linux 6.15.
pub(crate) fn write(
    out: &mut Vec<u8>,
    format: &Format,
    payload: &[u8],
    order: ByteOrder,
    names: &mut Names,
    named: bool,
) {
    for field in format.fields.iter().filter(|f| !f.is_common) {
        out.push(b' ');
        out.extend_from_slice(field.name.as_bytes());
        out.push(b'=');
        let begin = field.offset as usize;
        match payload.get(begin..begin.saturating_add(field.size as usize)) {
            None => out.extend_from_slice(b"<OVERFLOW>"),
            Some(bytes) if named && bytes.len() == 8 && form(&field.declaration) == Form::Other => {
                let value = long(bytes, 0, order);
                both(out, value, value as i64, Some(names));
            }
            Some(bytes) => value(out, field, bytes, payload, order, names),
        }
    }
}

fn value(out: &mut Vec<u8>, field: &Field, bytes: &[u8], payload: &[u8], order: ByteOrder, names: &Names) {
    let until_nul = |text: &'_ [u8]| text.iter().position(|b| *b == 0).unwrap_or(text.len());
    match form(&field.declaration) {
        Form::Text => out.extend_from_slice(&bytes[..until_nul(bytes)]),
        Form::DynamicText { relative } => match located(field, bytes, payload, relative, order) {
            Some(text) if is_copy(&field.name) => copied(out, text.strip_suffix(b"\0").unwrap_or(text)),
            Some(text) => padded(out, Spec::default(), &text[..until_nul(text)]),
            None => out.extend_from_slice(b"<OVERFLOW>"),
        },
        Form::PointerText => {
            let address = if bytes.len() == 8 { long(bytes, 0, order) } else { u64::from(word(bytes, 0, order)) };
            out.extend_from_slice(b"(0x");
            let width = bytes.len() as u32 * 2;
            number(out, Spec { width, zero: true, ..Spec::default() }, address, false, 16, false);
            if let Some(text) = names.text_at(address) {
                out.push(b':');
                out.extend_from_slice(&text[..until_nul(&text)]);
            }
            out.push(b')');
        }
        Form::Mask => out.extend_from_slice(b"<INVALID-TYPE>"),
        Form::Other => other(out, field, bytes, payload, order),
    }
}

/// What a system call was given in the program's memory stands in fields such as `__buf_val`.
fn is_copy(name: &str) -> bool {
    name.strip_prefix("__").is_some_and(|rest| rest.ends_with("_val"))
}

/// Text, and where not all of it can be printed a dot for each such byte, and all bytes in hexadecimal behind it.
fn copied(out: &mut Vec<u8>, bytes: &[u8]) {
    let is_printed = |byte: u8| matches!(byte, 0x20..=0x7e | 0xa0..);
    out.extend(bytes.iter().map(|byte| if is_printed(*byte) { *byte } else { b'.' }));
    if bytes.iter().all(|byte| is_printed(*byte)) {
        return;
    }
    out.extend_from_slice(b" (");
    for (index, byte) in bytes.iter().enumerate() {
        out.extend((index > 0).then_some(b':'));
        number(out, Spec { width: 2, zero: true, ..Spec::default() }, u64::from(*byte), false, 16, false);
    }
    out.push(b')');
}

fn located<'a>(field: &Field, bytes: &[u8], payload: &'a [u8], relative: bool, order: ByteOrder) -> Option<&'a [u8]> {
    let told = word(bytes, 0, order);
    let base = if relative { field.offset as usize + 4 } else { 0 };
    let begin = base + (told & 0xffff) as usize;
    payload.get(begin..begin + (told >> 16) as usize)
}

/// The value in hexadecimal, or by the name of the function at it, and in decimal.
fn both(out: &mut Vec<u8>, value: u64, signed: i64, names: Option<&mut Names>) {
    match names.filter(|names| names.has(value)) {
        Some(names) => names.show(out, value, Show::Offset),
        None => {
            out.extend_from_slice(b"0x");
            hex(out, value);
        }
    }
    out.extend_from_slice(b" (");
    number(out, Spec::default(), signed.unsigned_abs(), signed < 0, 10, false);
    out.push(b')');
}

fn other(out: &mut Vec<u8>, field: &Field, bytes: &[u8], payload: &[u8], order: ByteOrder) {
    match bytes.len() {
        1 => {
            if matches!(bytes[0], 0x20..=0x7e | 0xa0..) {
                out.extend_from_slice(&[b'\'', bytes[0], b'\'']);
            }
            out.push(b'(');
            unsigned(out, u64::from(bytes[0]));
            out.push(b')');
        }
        2 => {
            let value = match order {
                ByteOrder::Little => u16::from_le_bytes([bytes[0], bytes[1]]),
                ByteOrder::Big => u16::from_be_bytes([bytes[0], bytes[1]]),
            };
            both(out, u64::from(value), i64::from(value), None);
        }
        4 if field.declaration.contains("__data_loc") || field.declaration.contains("__rel_loc") => {
            match located(field, bytes, payload, field.declaration.contains("__rel_loc"), order) {
                None => out.extend_from_slice(b"<OVERFLOW>"),
                Some(array) => {
                    for (index, byte) in array.iter().enumerate() {
                        out.extend((index > 0).then_some(b','));
                        number(
                            out,
                            Spec { width: 2, zero: true, ..Spec::default() },
                            u64::from(*byte),
                            false,
                            16,
                            false,
                        );
                    }
                }
            }
        }
        4 => {
            let value = word(bytes, 0, order);
            both(out, u64::from(value), i64::from(value as i32), None);
        }
        8 => {
            let value = long(bytes, 0, order);
            both(out, value, value as i64, None);
        }
        _ => out.extend_from_slice(b"<INVALID-SIZE>"),
    }
}
