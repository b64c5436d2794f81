//! The form of option `fields` (`print_event_fields`): every field with its name.

use crate::{Field, Format};
use lastwords_bytes::{ByteOrder, low_u32};

use super::slot::Slot;
use crate::is_since;
use crate::page::{long, word};
use crate::print::{Names, Show, Spec, hex, joined, number, padded, padded_hex};
use lastwords_trace::nul;
use lastwords_trace::text::number::{Constant, unsigned};

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
    since: Since,
    all: Vec<FieldText>,
}

/// Details of the form that depend on the kernel's release.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Since {
    /// Addresses of the kernel's functions by their names: Linux 6.15.
    names: bool,
    /// Functions by their distance from the kernel's begin: 6.16.
    offsets: bool,
    /// Text with a byte that cannot be printed in dots and hexadecimal: 6.19.
    bytes: bool,
}

impl Since {
    pub(crate) fn from_release(release: &str) -> Self {
        let since = |minor| is_since(release, (6, minor));
        Self { names: since(15), offsets: since(16), bytes: since(19) }
    }
}

/// The position and form of a field.
struct FieldText {
    /// ` name=`.
    head: Constant,
    offset: usize,
    size: usize,
    form: Form,
    /// True if the field is the distance of a function from the kernel's begin.
    is_offset: bool,
}

fn form(declaration: &str) -> Form {
    // The name and, behind it, bounds are not of the type.
    let kind = declaration.rsplit_once(' ').map_or(declaration, |(kind, _)| kind);
    let has = |part| kind.contains(part);
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
    /// Prepares the fields of a format.
    pub(crate) fn new(format: &Format, since: Since) -> Self {
        let shown = |field: &Field| FieldText {
            head: Constant::new(format!(" {}=", field.name).as_bytes()),
            offset: field.offset as usize,
            size: field.size as usize,
            form: match form(&field.declaration) {
                Form::Other if field.size == 4 => array(&field.declaration),
                form => form,
            },
            is_offset: since.offsets
                && field.size == 4
                && matches!(&*field.name, "caller_offs" | "parent_offs"),
        };
        Self { since, all: format.fields.iter().filter(|f| !f.is_common).map(shown).collect() }
    }

    /// Appends ` name=value` for each field, or says that there is none.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
        payload: &[u8],
        order: ByteOrder,
        names: &mut Names,
    ) {
        if self.all.is_empty() {
            return out.extend_from_slice(b"No fields found");
        }
        for field in &self.all {
            field.head.put(out);
            match payload.get(field.offset..field.offset.saturating_add(field.size)) {
                None => out.extend_from_slice(b"<OVERFLOW>"),
                Some(bytes)
                    if self.since.names && bytes.len() == 8 && field.form == Form::Other =>
                {
                    let value = long(bytes, 0, order);
                    both(out, value, value.cast_signed(), Some(names));
                }
                Some(bytes) => self.value(out, field, bytes, payload, order, names),
            }
        }
    }

    fn value(
        &self,
        out: &mut Vec<u8>,
        field: &FieldText,
        bytes: &[u8],
        payload: &[u8],
        order: ByteOrder,
        names: &mut Names,
    ) {
        match field.form {
            Form::Text => out.extend_from_slice(nul::until(bytes)),
            Form::DynamicText { relative } => match located(field, bytes, payload, relative, order)
            {
                Some(text)
                    if self.since.bytes
                        && !text.iter().all(|byte| *byte == 0 || is_printed(*byte)) =>
                {
                    dotted(out, text)
                }
                Some(text) => padded(out, Spec::default(), nul::until(text)),
                None => out.extend_from_slice(b"<OVERFLOW>"),
            },
            Form::PointerText => {
                let address = if bytes.len() == 8 {
                    long(bytes, 0, order)
                } else {
                    u64::from(word(bytes, 0, order))
                };
                out.extend_from_slice(b"(0x");
                let width = low_u32(bytes.len() as u64).saturating_mul(2);
                padded_hex(out, address, width);
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
            Form::Other if field.is_offset => {
                let begin = names.address_of("_stext").unwrap_or(0);
                names.show(out, begin.wrapping_add(word(bytes, 0, order).into()), Show::Offset);
                out.push(b' ');
                other(out, bytes, order);
            }
            Form::Other => other(out, bytes, order),
        }
    }
}

fn array(declaration: &str) -> Form {
    let relative = declaration.contains("__rel_loc");
    if relative || declaration.contains("__data_loc") {
        Form::Array { relative }
    } else {
        Form::Other
    }
}

fn is_printed(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e)
}

/// Appends text with a byte that cannot be printed: a dot for each such byte, then all bytes in
/// hexadecimal.
fn dotted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes.iter().map(|byte| if is_printed(*byte) { *byte } else { b'.' }));
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
        // The kernel never shows two bytes as a negative number.
        2 => {
            let value = Slot { offset: 0, size: 2 }.unsigned(bytes, order);
            both(out, value, value.cast_signed(), None);
        }
        size @ (4 | 8) => {
            let slot = Slot { offset: 0, size: low_u32(size as u64) };
            both(out, slot.unsigned(bytes, order), slot.signed(bytes, order), None);
        }
        _ => out.extend_from_slice(b"<INVALID-SIZE>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// The fields of an event as kernels of these releases show them.
    #[test]
    fn fields_follow_the_kernels_release() {
        let (_, format) = samples::format(
            "irq",
            9,
            "e",
            "u16 port:8:2:0, __data_loc unsigned char[] line:12:4:0, s32 caller_offs:16:4:1",
            "",
        );
        let mut payload = vec![0; 20];
        payload[8..10].copy_from_slice(&0xa36cu16.to_le_bytes());
        payload[12..16].copy_from_slice(&(4u32 << 16 | 20).to_le_bytes());
        payload[16..20].copy_from_slice(&8u32.to_le_bytes());
        payload.extend_from_slice(b"*\x01b\0");
        let tracing = samples::silent();
        let show = |release, payload: &[u8]| {
            let mut out = Vec::new();
            let mut names = Names::new(&tracing, true);
            Fields::new(&format, Since::from_release(release)).write(
                &mut out,
                payload,
                ByteOrder::Little,
                &mut names,
            );
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            show("6.12.1", &payload),
            " port=0xa36c (41836) line=*\u{1}b caller_offs=0x8 (8)"
        );
        assert_eq!(
            show("7.2.0", &payload),
            " port=0xa36c (41836) line=*.b. (2a:01:62:00) caller_offs=0x8 0x8 (8)"
        );
        payload[21] = b'a';
        assert_eq!(
            show("7.2.0", &payload),
            " port=0xa36c (41836) line=*ab caller_offs=0x8 0x8 (8)"
        );
    }
}
