//! The file `format` of an event, in the kernel's layout.
//!
//! The offsets are those of a record of ftrace with these fields: fields of a fixed size follow each other without alignment, and a
//! field of variable size is a word (`__data_loc`) that has its offset and length.

use std::fmt::Write as _;

use lastwords_trace::schema::FieldClass;

use crate::catalog::Event;

/// The fields that each record of ftrace begins with: C type and name, offset, size, sign.
const COMMON: [(&str, usize, usize, u8); 4] = [
    ("unsigned short common_type", 0, 2, 0),
    ("unsigned char common_flags", 2, 1, 0),
    ("unsigned char common_preempt_count", 3, 1, 0),
    ("int common_pid", 4, 4, 1),
];
/// The size of these fields.
const COMMON_LEN: usize = 8;

/// Returns the text.
pub(crate) fn text(event: &Event) -> String {
    let mut text = format!("name: {}\nID: {}\nformat:\n", one_line(&event.name), event.id);
    for (declaration, offset, size, signed) in COMMON {
        line(&mut text, declaration, offset, size, signed != 0);
    }
    text.push('\n');
    let mut offset = COMMON_LEN;
    let (mut print, mut arguments) = (Vec::new(), String::new());
    for field in &event.fields {
        let name = one_line(&field.name);
        let (declaration, size, signed, conversion) = declared(&name, &field.class);
        line(&mut text, &declaration, offset, size, signed);
        offset += size;
        print.push(format!("{name}={conversion}"));
        let _ = match declaration.strip_prefix("__data_loc ") {
            Some(kind) if kind.starts_with("char") => write!(arguments, ", __get_str({name})"),
            Some(_) => write!(arguments, ", __get_dynamic_array({name})"),
            None => write!(arguments, ", REC->{name}"),
        };
    }
    let _ = write!(text, "\nprint fmt: \"{}\"{arguments}\n", print.join(" "));
    if !event.format.is_empty() {
        let _ = writeln!(text, "# message: {}", one_line(&event.format));
    }
    text
}

fn line(text: &mut String, declaration: &str, offset: usize, size: usize, signed: bool) {
    let _ = writeln!(text, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};", u8::from(signed));
}

/// Returns a field's declaration in C, its size in a record, whether it has a sign, and its conversion of printf.
fn declared(name: &str, class: &FieldClass) -> (String, usize, bool, &'static str) {
    match class {
        FieldClass::Array { count, element } => {
            let (size, signed) = (class.fixed_size().unwrap_or(0), is_signed(element));
            (format!("{} {name}[{count}]", c_type(element)), size, signed, "%s")
        }
        FieldClass::Text { size } => (format!("char {name}[{size}]"), *size as usize, true, "%s"),
        FieldClass::String => (format!("__data_loc char[] {name}"), 4, true, "%s"),
        FieldClass::Bytes => (format!("__data_loc u8[] {name}"), 4, false, "%s"),
        FieldClass::Sequence(element) => {
            (format!("__data_loc {}[] {name}", c_type(element)), 4, is_signed(element), "%s")
        }
        scalar => {
            let size = scalar.fixed_size().unwrap_or(0);
            (format!("{} {name}", c_type(scalar)), size, is_signed(scalar), conversion(scalar))
        }
    }
}

fn is_signed(class: &FieldClass) -> bool {
    matches!(
        class,
        FieldClass::Integer { signed: true, .. } | FieldClass::Enum { signed: true, .. } | FieldClass::Float { .. }
    )
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
        FieldClass::Float { .. } => "%f",
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

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_trace::schema::Field;

    #[test]
    fn fields_follow_each_other() {
        let integer = |size, signed| FieldClass::Integer { size, signed, base: 10 };
        let field = |name: &str, class| Field { name: name.into(), class };
        let fields = vec![
            field("a", integer(8, false)),
            field("text", FieldClass::String),
            field("b", integer(2, true)),
            field("four", FieldClass::Array { count: 4, element: Box::new(integer(4, false)) }),
        ];
        let (provider, name) = ("shop".into(), "sale".into());
        let text = text(&Event { provider, name, level: 3, id: 65538, format: String::new(), fields });
        assert!(text.starts_with("name: sale\nID: 65538\nformat:\n\tfield:unsigned short common_type;\toffset:0;"));
        for line in [
            "\tfield:u64 a;\toffset:8;\tsize:8;\tsigned:0;\n",
            "\tfield:__data_loc char[] text;\toffset:16;\tsize:4;\tsigned:1;\n",
            "\tfield:s16 b;\toffset:20;\tsize:2;\tsigned:1;\n",
            "\tfield:u32 four[4];\toffset:22;\tsize:16;\tsigned:0;\n",
            "\nprint fmt: \"a=%llu text=%s b=%d four=%s\", REC->a, __get_str(text), REC->b, REC->four\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
}
