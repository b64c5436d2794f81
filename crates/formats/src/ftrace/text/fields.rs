//! The form of option `fields` (`print_event_fields`): every field with its name.

use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_trace::ftrace::{Field, Format};

use super::slot::Slot;
use crate::ftrace::page::{long, word};
use crate::ftrace::print::{Names, Show, Spec, hex, joined, number, padded};
use crate::text::number::{Constant, unsigned};
use lastwords_trace::nul;

/// The form of a field. The kernel selects it by the words of the field's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    DynamicText {
        relative: bool,
    },
    PointerText,
    Mask,
    /// The bytes that a locator points to.
    Array {
        relative: bool,
    },
    Other,
}

/// The fields of a kind of event, without the common fields.
pub(crate) struct Fields {
    /// True if addresses of the kernel's functions are shown by their names, as since Linux 6.15.
    named: bool,
    all: Vec<FieldText>,
}

/// The position and form of a field.
struct FieldText {
    /// ` name=`.
    head: Constant,
    offset: usize,
    size: usize,
    form: Form,
    /// True for fields such as `__buf_val`, which have a copy of data that a system call was passed by address.
    is_copy: bool,
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

impl Fields {
    /// Prepares the fields of a format. `named`: addresses of the kernel's functions are shown by their names.
    pub(crate) fn new(format: &Format, named: bool) -> Self {
        let shown = |field: &Field| FieldText {
            head: Constant::new(format!(" {}=", field.name).as_bytes()),
            offset: field.offset as usize,
            size: field.size as usize,
            form: match form(&field.declaration) {
                Form::Other if field.size == 4 => array(&field.declaration),
                form => form,
            },
            is_copy: field.name.strip_prefix("__").is_some_and(|rest| rest.ends_with("_val")),
        };
        Self { named, all: format.fields.iter().filter(|f| !f.is_common).map(shown).collect() }
    }

    /// Appends ` name=value` for each field.
    pub(crate) fn write(&self, out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, names: &mut Names) {
        for field in &self.all {
            field.head.put(out);
            match payload.get(field.offset..field.offset.saturating_add(field.size)) {
                None => out.extend_from_slice(b"<OVERFLOW>"),
                Some(bytes) if self.named && bytes.len() == 8 && field.form == Form::Other => {
                    let value = long(bytes, 0, order);
                    both(out, value, value.cast_signed(), Some(names));
                }
                Some(bytes) => value(out, field, bytes, payload, order, names),
            }
        }
    }
}

fn array(declaration: &str) -> Form {
    let relative = declaration.contains("__rel_loc");
    if relative || declaration.contains("__data_loc") { Form::Array { relative } } else { Form::Other }
}

fn value(out: &mut Vec<u8>, field: &FieldText, bytes: &[u8], payload: &[u8], order: ByteOrder, names: &Names) {
    match field.form {
        Form::Text => out.extend_from_slice(nul::until(bytes)),
        Form::DynamicText { relative } => match located(field, bytes, payload, relative, order) {
            Some(text) if field.is_copy => copied(out, text.strip_suffix(b"\0").unwrap_or(text)),
            Some(text) => padded(out, Spec::default(), nul::until(text)),
            None => out.extend_from_slice(b"<OVERFLOW>"),
        },
        Form::PointerText => {
            let address = if bytes.len() == 8 { long(bytes, 0, order) } else { u64::from(word(bytes, 0, order)) };
            out.extend_from_slice(b"(0x");
            let width = low_u32(bytes.len() as u64).saturating_mul(2);
            number(out, Spec { width, zero: true, ..Spec::default() }, address, false, 16, false);
            if let Some(text) = names.text_at(address) {
                out.push(b':');
                out.extend_from_slice(nul::until(&text));
            }
            out.push(b')');
        }
        Form::Mask => out.extend_from_slice(b"<INVALID-TYPE>"),
        Form::Array { relative } => match located(field, bytes, payload, relative, order) {
            None => out.extend_from_slice(b"<OVERFLOW>"),
            Some(array) => joined(out, array, Some(b',')),
        },
        Form::Other => other(out, bytes, order),
    }
}

/// Appends text. If a byte of it cannot be printed, a dot replaces it, and all bytes follow in hexadecimal.
fn copied(out: &mut Vec<u8>, bytes: &[u8]) {
    let is_printed = |byte: u8| matches!(byte, 0x20..=0x7e | 0xa0..);
    out.extend(bytes.iter().map(|byte| if is_printed(*byte) { *byte } else { b'.' }));
    if bytes.iter().all(|byte| is_printed(*byte)) {
        return;
    }
    out.extend_from_slice(b" (");
    joined(out, bytes, Some(b':'));
    out.push(b')');
}

fn located<'a>(
    field: &FieldText,
    bytes: &[u8],
    payload: &'a [u8],
    relative: bool,
    order: ByteOrder,
) -> Option<&'a [u8]> {
    let locator = word(bytes, 0, order);
    let base = if relative { field.offset.saturating_add(4) } else { 0 };
    let begin = base.saturating_add((locator & 0xffff) as usize);
    payload.get(begin..begin.saturating_add((locator >> 16) as usize))
}

/// Appends the value in hexadecimal or as the name of the function at that address, and in decimal.
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

fn other(out: &mut Vec<u8>, bytes: &[u8], order: ByteOrder) {
    match bytes.len() {
        1 => {
            let byte = bytes.first().copied().unwrap_or(0);
            if matches!(byte, 0x20..=0x7e | 0xa0..) {
                out.extend_from_slice(&[b'\'', byte, b'\'']);
            }
            out.push(b'(');
            unsigned(out, u64::from(byte));
            out.push(b')');
        }
        size @ (2 | 4 | 8) => {
            let slot = Slot { offset: 0, size: low_u32(size as u64) };
            both(out, slot.unsigned(bytes, order), slot.signed(bytes, order), None);
        }
        _ => out.extend_from_slice(b"<INVALID-SIZE>"),
    }
}
