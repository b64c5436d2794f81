//! The file `format` of an event, in the kernel's layout.
//!
//! The fields are those of the event's record in `trace_pipe_raw` ([`crate::raw`]): fields of a
//! fixed size follow each other without alignment, and a field of variable size is a word
//! (`__data_loc`) that has its offset and length. libtraceevent parses the text, so that names are
//! identifiers of C.

use std::collections::HashSet;

use lastwords_ftrace::format_file;
use lastwords_ftrace::{Field, Format, identifier};
use lastwords_trace::schema::FieldClass;

use crate::catalog::Event;
use crate::raw;

/// Returns the text; none if the event has no number.
pub(crate) fn text(event: &Event) -> Option<String> {
    let mut fields = Field::common();
    let mut taken: HashSet<String> = fields.iter().map(|field| field.name.clone()).collect();
    let mut offset = raw::COMMON_LEN;
    let (mut print, mut arguments) = (Vec::new(), String::new());
    for field in &event.fields {
        let name = unique(&mut taken, &identifier(&field.name));
        let (conversion, argument) = printed(&name, &field.class);
        print.push(format!("{name}={conversion}"));
        arguments.extend([", ", &argument]);
        let size = raw::record_size(&field.class);
        fields.push(Field {
            declaration: declaration(&name, &field.class),
            name,
            offset: u32::try_from(offset).ok()?,
            size: u32::try_from(size).ok()?,
            is_signed: is_signed(&field.class),
            is_common: false,
        });
        offset += size;
    }
    // The message of a marker stands before its fields.
    let message = if event.format.is_empty() {
        String::new()
    } else {
        format!("{}: ", quoted(&event.format))
    };
    let print_format = format!("\"{message}{}\"{arguments}", print.join(" "));
    let (system, name) = (event.kind.folders.0.clone(), event.kind.identifier.clone());
    let format = Format { id: event.kind.id?, system, name, fields, print_format, probed: None };
    let mut text = String::new();
    format_file::write(&format, &mut text);
    Some(text)
}

/// Returns a name that no other field has.
fn unique(taken: &mut HashSet<String>, name: &str) -> String {
    let mut name = name.to_owned();
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// Returns a text as a part of a format string of C.
fn quoted(text: &str) -> String {
    let piece = |c: char| match c {
        '%' => "%%".to_owned(),
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => " ".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(piece).collect()
}

/// Returns a field's declaration in C.
fn declaration(name: &str, class: &FieldClass) -> String {
    match class {
        FieldClass::Array { count, element } => format!("{} {name}[{count}]", c_type(element)),
        FieldClass::Text { size } => format!("char {name}[{size}]"),
        FieldClass::String => format!("__data_loc char[] {name}"),
        FieldClass::Bytes => format!("__data_loc u8[] {name}"),
        // A field that an event lacks has length 0.
        FieldClass::Optional(inner) if is_text(inner) => format!("__data_loc char[] {name}"),
        FieldClass::Sequence(element) | FieldClass::Optional(element) => {
            format!("__data_loc {}[] {name}", c_type(element))
        }
        scalar => format!("{} {name}", c_type(scalar)),
    }
}

/// Returns the conversion of printf for a field, and its argument.
fn printed(name: &str, class: &FieldClass) -> (&'static str, String) {
    let dynamic = format!("__get_dynamic_array({name})");
    match class {
        FieldClass::Array { count, element } => (
            "%s",
            format!("__print_array(REC->{name}, {count}, {})", element.fixed_size().unwrap_or(1)),
        ),
        FieldClass::Text { .. } => ("%s", format!("REC->{name}")),
        FieldClass::String => ("%s", format!("__get_str({name})")),
        FieldClass::Optional(inner) if is_text(inner) => ("%s", format!("__get_str({name})")),
        FieldClass::Bytes => {
            ("%s", format!("__print_hex({dynamic}, __get_dynamic_array_len({name}))"))
        }
        FieldClass::Sequence(element) | FieldClass::Optional(element) => {
            let size = element.fixed_size().unwrap_or(1);
            (
                "%s",
                format!(
                    "__print_array({dynamic}, __get_dynamic_array_len({name}) / {size}, {size})"
                ),
            )
        }
        scalar => (conversion(scalar), format!("REC->{name}")),
    }
}

fn is_text(class: &FieldClass) -> bool {
    matches!(class, FieldClass::String | FieldClass::Text { .. })
}

fn is_signed(class: &FieldClass) -> bool {
    match class {
        FieldClass::Integer { signed, .. } | FieldClass::Enum { signed, .. } => *signed,
        FieldClass::Float { .. } | FieldClass::String | FieldClass::Text { .. } => true,
        FieldClass::Array { element, .. }
        | FieldClass::Sequence(element)
        | FieldClass::Optional(element) => is_signed(element),
        FieldClass::Bool | FieldClass::Bytes => false,
    }
}

fn c_type(class: &FieldClass) -> String {
    match class {
        FieldClass::Float { size: 4 } => "float".to_owned(),
        FieldClass::Float { .. } => "double".to_owned(),
        FieldClass::Bool => "bool".to_owned(),
        FieldClass::Integer { size, signed, .. } | FieldClass::Enum { size, signed, .. } => {
            format!("{}{}", if *signed { 's' } else { 'u' }, u32::from(*size) * 8)
        }
        _ => "char".to_owned(),
    }
}

fn conversion(class: &FieldClass) -> &'static str {
    match class {
        // libtraceevent prints no floats: the bits.
        FieldClass::Float { size: 4 } => "0x%x",
        FieldClass::Float { .. } => "0x%llx",
        FieldClass::Integer { base: 16, size: 8, .. } => "0x%llx",
        FieldClass::Integer { base: 16, .. } => "0x%x",
        class if class.fixed_size() == Some(8) => match is_signed(class) {
            true => "%lld",
            false => "%llu",
        },
        class if is_signed(class) => "%d",
        _ => "%u",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_trace::schema;

    #[test]
    fn fields_follow_each_other() {
        let integer = |size, signed| FieldClass::Integer { size, signed, base: 10 };
        let field = |name: &str, class| schema::Field { name: name.into(), class };
        let fields = vec![
            field("a", integer(8, false)),
            field("text", FieldClass::String),
            field("common_pid", integer(2, true)),
            field("net.peer", FieldClass::Array { count: 4, element: Box::new(integer(4, false)) }),
            field("net_peer", FieldClass::Sequence(Box::new(integer(8, false)))),
        ];
        let event =
            Event { format: "\"{}\" is 100 %".into(), ..Event::made("shop", "sale of {}", fields) };
        let text = text(&event).unwrap();
        assert!(
            text.starts_with(
                "name: sale_of___\nID: 32\nformat:\n\tfield:unsigned short common_type;\toffset:0;"
            ),
            "{text}"
        );
        for line in [
            "\tfield:u64 a;\toffset:8;\tsize:8;\tsigned:0;\n",
            "\tfield:__data_loc char[] text;\toffset:16;\tsize:4;\tsigned:1;\n",
            "\tfield:s16 common_pid_;\toffset:20;\tsize:2;\tsigned:1;\n",
            "\tfield:u32 net_peer[4];\toffset:22;\tsize:16;\tsigned:0;\n",
            "\tfield:__data_loc u64[] net_peer_;\toffset:38;\tsize:4;\tsigned:0;\n",
            "\nprint fmt: \"\\\"{}\\\" is 100 %%: a=%llu text=%s common_pid_=%d net_peer=%s net_peer_=%s\", REC->a, \
             __get_str(text), REC->common_pid_, __print_array(REC->net_peer, 4, 4), \
             __print_array(__get_dynamic_array(net_peer_), __get_dynamic_array_len(net_peer_) / 8, 8)\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }

    /// A field that an event may lack has a length, which is 0 then.
    #[test]
    fn optional_fields_have_lengths() {
        let field = |name: &str, class| schema::Field {
            name: name.into(),
            class: FieldClass::Optional(Box::new(class)),
        };
        let number = FieldClass::Integer { size: 8, signed: true, base: 10 };
        let fields = vec![field("number", number), field("text", FieldClass::String)];
        let text = text(&Event::made("shop", "maybe", fields)).unwrap();
        for line in [
            "\tfield:__data_loc s64[] number;\toffset:8;\tsize:4;\tsigned:1;\n",
            "\tfield:__data_loc char[] text;\toffset:12;\tsize:4;\tsigned:1;\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
}
