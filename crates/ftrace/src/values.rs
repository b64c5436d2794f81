//! Finds the fields of an event by their declarations.
//!
//! [`columns`] reads the declarations once; [`Column::bytes`] finds a field in a payload.
//! Declarations have the forms that `__field`, `__array`, `__string`, `__dynamic_array` and the
//! other macros of `TRACE_EVENT` write into a `format` file (`include/trace/stages/
//! stage4_event_fields.h` of Linux 6.12).

use crate::{Field, Format};
use lastwords_bytes::{ByteOrder, low_u8};

use super::page::word;

/// Size and sign of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element {
    /// 1, 2, 4 or 8 bytes.
    pub(crate) size: u8,
    pub(crate) signed: bool,
}

/// The kind of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Number(Element),
    /// An `int` argument of a system call, which is recorded as a `long`.
    Argument,
    Bool,
    Text,
    Bytes,
    Numbers(Element),
}

/// The position of a field's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// At its offset.
    Fixed,
    /// At the offset in the word at its offset, which counts from the payload's beginning or from
    /// the word's end.
    Located {
        /// True if the offset counts from the word's end.
        relative: bool,
    },
    /// From its offset to the payload's end.
    Rest,
    /// An array from its offset on, whose element count is an `int` at another offset
    /// (`kernel_stack`).
    Counted {
        /// Offset of the count.
        at: u32,
    },
}

/// A field, and the way in which its value is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column<'f> {
    pub(crate) field: &'f Field,
    pub(crate) location: Location,
    pub(crate) kind: Kind,
}

/// Returns the fields of the event in order, without the common fields.
pub(crate) fn columns(format: &Format, word_size: u8) -> Vec<Column<'_>> {
    format
        .fields
        .iter()
        .filter(|f| !f.is_common)
        .map(|field| column(format, field, word_size))
        .collect()
}

fn column<'f>(format: &Format, field: &'f Field, word_size: u8) -> Column<'f> {
    let relative = field.declaration.starts_with("__rel_loc");
    let is_located = relative || field.declaration.starts_with("__data_loc");
    let of_ftrace = format.system == "ftrace";
    let location = if is_located {
        Location::Located { relative }
    } else if of_ftrace && format.name == "kernel_stack" && field.name == "caller" {
        let count = format.fields.iter().find(|f| f.name == "size" && f.size == 4);
        count.map_or(Location::Rest, |count| Location::Counted { at: count.offset })
    } else if field.size == 0 {
        Location::Rest
    } else {
        Location::Fixed
    };
    let kind = if of_ftrace && format.name == "raw_data" && location == Location::Rest {
        Kind::Bytes
    } else {
        kind(format, field, location, word_size)
    };
    Column { field, location, kind }
}

fn kind(format: &Format, field: &Field, location: Location, word_size: u8) -> Kind {
    let declared = declared(&field.declaration);
    let Some(count) = declared.count else {
        // Bytes of a structure are no number, whatever their count.
        let is_structure =
            declared.element.starts_with("struct ") && !declared.element.contains('*');
        let is_number = matches!(field.size, 1 | 2 | 4 | 8) && !is_structure;
        let whole = is_number.then_some(low_u8(u64::from(field.size)));
        return match whole {
            Some(1) if declared.element == "bool" => Kind::Bool,
            Some(8)
                if format.system == "syscalls" && declared.element == "int" && !field.is_signed =>
            {
                Kind::Argument
            }
            Some(size) if location == Location::Fixed => {
                Kind::Number(Element { size, signed: field.is_signed })
            }
            _ => Kind::Bytes,
        };
    };
    if declared.element == "char" {
        return Kind::Text;
    }
    // A `format` file can have another count than the array: that of user events is not set.
    let size = match size_of(&declared.element, word_size) {
        0 if location == Location::Fixed => {
            field.size.checked_div(count).and_then(|size| u8::try_from(size).ok()).unwrap_or(0)
        }
        size => size,
    };
    match size {
        2 | 4 | 8 => Kind::Numbers(Element { size, signed: is_signed(&declared.element, field) }),
        _ => Kind::Bytes,
    }
}

/// A parsed declaration: the type of the field or of its elements, and the element count of an
/// array (0 if it is not declared).
struct Declaration {
    element: String,
    count: Option<u32>,
}

fn declared(declaration: &str) -> Declaration {
    let text = declaration.trim_start_matches("__data_loc ").trim_start_matches("__rel_loc ");
    let count = text.split_once('[').map(|(_, rest)| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    });
    // `unsigned long caller[8]`, `char[] name`, `struct page * page`: without the brackets, the
    // name is the last word.
    let flat = text.split_once('[').map_or_else(
        || text.to_owned(),
        |(head, rest)| {
            let tail = rest.split_once(']').map_or("", |(_, tail)| tail);
            format!("{head}{tail}")
        },
    );
    let words: Vec<&str> =
        flat.split_whitespace().filter(|w| !matches!(*w, "const" | "volatile")).collect();
    let kept = words.len().saturating_sub(1);
    Declaration { element: words.get(..kept).unwrap_or_default().join(" "), count }
}

/// Returns the size of a type in bytes, or 0 for an unknown type.
fn size_of(element: &str, word_size: u8) -> u8 {
    match element.trim_start_matches("__") {
        "u8" | "s8" | "uint8_t" | "int8_t" | "unsigned char" | "signed char" | "bool" => 1,
        "u16" | "s16" | "be16" | "le16" | "uint16_t" | "int16_t" | "short" | "unsigned short" => 2,
        "u32" | "s32" | "be32" | "le32" | "uint32_t" | "int32_t" | "int" | "unsigned int"
        | "unsigned" | "pid_t" => 4,
        "u64" | "s64" | "be64" | "le64" | "uint64_t" | "int64_t" | "long long"
        | "unsigned long long" => 8,
        "long" | "unsigned long" | "size_t" | "ssize_t" | "cpumask_t" => word_size,
        pointer if pointer.ends_with('*') => word_size,
        _ => 0,
    }
}

/// Returns true if the elements of an array are signed. User events give a locator the sign of an
/// `int`, whatever its elements are.
fn is_signed(element: &str, field: &Field) -> bool {
    let plain = element.trim_start_matches("__");
    let is_unsigned = plain.starts_with("unsigned")
        || matches!(plain, "u16" | "u32" | "u64" | "uint16_t" | "uint32_t" | "uint64_t" | "size_t");
    let by_name = matches!(
        plain,
        "s16" | "s32" | "s64" | "short" | "int" | "long" | "long long" | "pid_t" | "ssize_t"
    );
    by_name || field.is_signed && !is_unsigned
}

impl Column<'_> {
    /// Returns the bytes of the field.
    #[inline]
    pub(crate) fn bytes<'p>(&self, payload: &'p [u8], order: ByteOrder) -> Option<&'p [u8]> {
        let begin = self.field.offset as usize;
        match self.location {
            Location::Fixed => payload.get(begin..begin.saturating_add(self.field.size as usize)),
            Location::Rest => payload.get(begin..),
            Location::Located { relative } => {
                payload.get(begin..begin.saturating_add(4))?;
                let locator = word(payload, begin, order);
                let base = if relative { begin.saturating_add(4) } else { 0 };
                let begin = base.saturating_add((locator & 0xffff) as usize);
                payload.get(begin..begin.saturating_add((locator >> 16) as usize))
            }
            Location::Counted { at } => {
                let rest = payload.get(begin..)?;
                let size = match self.kind {
                    Kind::Numbers(element) => usize::from(element.size),
                    _ => 1,
                };
                let count = word(payload, at as usize, order) as usize;
                rest.get(..count.saturating_mul(size).min(rest.len()))
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::format_file;

    pub(crate) const TEXT: &str = "name: sample\nID: 9\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char comm[4];\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:__rel_loc u32[] list;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:bool ok;\toffset:20;\tsize:1;\tsigned:0;\n\
        \tfield:__u8 mac[3];\toffset:21;\tsize:3;\tsigned:0;\n\
        \tfield:s16 low;\toffset:24;\tsize:2;\tsigned:1;\n\
        \tfield:unsigned short pair[2];\toffset:26;\tsize:4;\tsigned:0;\n\
        \tfield:struct page * page;\toffset:32;\tsize:8;\tsigned:0;\n\nprint fmt: \"\"\n";

    pub(crate) fn payload() -> Vec<u8> {
        let mut out = vec![0; 40];
        out[8..12].copy_from_slice(b"ab\0x");
        out[12..16].copy_from_slice(&(3u32 << 16 | 40).to_le_bytes());
        out[16..20].copy_from_slice(&(8u32 << 16 | 24).to_le_bytes());
        out[20..24].copy_from_slice(&[1, 9, 8, 7]);
        out[24..26].copy_from_slice(&(-2i16).to_le_bytes());
        out[26..30].copy_from_slice(&[1, 0, 2, 0]);
        out[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        out.extend(b"me\0\0");
        out.extend([5, 0, 0, 0, 6, 0, 0, 0]);
        out
    }

    #[test]
    fn each_kind_of_declaration() {
        let format = format_file::parse("test", TEXT).unwrap();
        let columns = columns(&format, 8);
        let payload = payload();
        let number = |size, signed| Element { size, signed };
        let expected: [(Kind, &[u8]); 8] = [
            (Kind::Text, b"ab\0x"),
            (Kind::Text, b"me\0"),
            (Kind::Numbers(number(4, false)), &[5, 0, 0, 0, 6, 0, 0, 0]),
            (Kind::Bool, &[1]),
            (Kind::Bytes, &[9, 8, 7]),
            (Kind::Number(number(2, true)), &[0xfe, 0xff]),
            (Kind::Numbers(number(2, false)), &[1, 0, 2, 0]),
            (Kind::Number(number(8, false)), &[0xff; 8]),
        ];
        let got: Vec<_> = columns
            .iter()
            .map(|c| (c.kind, c.bytes(&payload, ByteOrder::Little).unwrap()))
            .collect();
        assert_eq!(got, expected);
    }

    /// Fields of user events: the number of elements is not set, and structures are given by their
    /// names and sizes alone.
    #[test]
    fn sizes_count_and_not_the_numbers_of_elements() {
        for (declaration, size, expected) in [
            ("char name[]", 20, Kind::Text),
            ("char name[-5]", 20, Kind::Text),
            ("unsigned char mac[3]", 6, Kind::Bytes),
            ("__rel_loc u32[] list", 4, Kind::Numbers(Element { size: 4, signed: false })),
            ("__rel_loc s32[] list", 4, Kind::Numbers(Element { size: 4, signed: true })),
            ("struct pair two", 8, Kind::Bytes),
            ("struct pair * two", 8, Kind::Number(Element { size: 8, signed: true })),
            ("s64 two", 8, Kind::Number(Element { size: 8, signed: true })),
        ] {
            let field = format!("{declaration}:8:{size}:1");
            let (_, format) = crate::samples::format("user_events", 9, "e", &field, "");
            let [column] = columns(&format, 8)[..] else { panic!("{declaration}: one field") };
            assert_eq!(column.kind, expected, "{declaration}");
            if column.location == Location::Fixed {
                let bytes = column.bytes(&[7; 40], ByteOrder::Little).unwrap();
                assert_eq!(bytes.len(), size, "{declaration}");
            }
        }
    }

    #[test]
    fn fields_outside_the_payload_are_none() {
        let format = format_file::parse("test", TEXT).unwrap();
        let columns = columns(&format, 8);
        let payload = payload();
        for len in 0..payload.len() {
            let short = &payload[..len];
            assert!(
                columns
                    .iter()
                    .all(|c| c.bytes(short, ByteOrder::Little).is_none_or(|b| b.len() <= len))
            );
        }
        assert_eq!(columns[0].bytes(&payload[..9], ByteOrder::Little), None);
        assert_eq!(columns[1].bytes(&payload[..42], ByteOrder::Little), None);
    }
}
