//! Reads and writes the text of `events/SYSTEM/NAME/format`, `events/header_page` and
//! `events/header_event`.

use crate::{Field, Format, HeaderPage};

/// Reads the text of a `format` file. `system` is the name of its folder. Returns `None` if the
/// text has another form.
///
/// If the kernel wrote the text, [`write()`] reproduces it byte for byte from the result.
#[must_use]
pub fn parse(system: &str, text: &str) -> Option<Format> {
    let (head, print_format) = text.split_once("\nprint fmt: ")?;
    let print_format = print_format.strip_suffix('\n').unwrap_or(print_format).to_owned();
    let (system, fields) = (system.to_owned(), Vec::new());
    let mut format =
        Format { id: 0, system, name: String::new(), fields, print_format, probed: None };
    let mut is_common = true;
    let mut has_id = false;
    for line in head.lines() {
        if let Some(name) = line.strip_prefix("name: ") {
            name.clone_into(&mut format.name);
        } else if let Some(id) = line.strip_prefix("ID: ") {
            format.id = id.trim().parse().ok()?;
            has_id = true;
        } else if line.trim_start().starts_with("field:") {
            format.fields.push(field(line, is_common)?);
        } else if line.is_empty() {
            is_common = false;
        } else if ["offset:", "size:", "signed:"]
            .iter()
            .any(|key| line.trim_start().starts_with(key))
        {
            // The begin of the line, with the field, is lost.
            return None;
        }
    }
    (has_id && !format.name.is_empty() && !lacks_field(&format)).then_some(format)
}

/// Bytes between two fields that no alignment explains.
const GAP: u32 = 8;

/// Returns true if bytes between two fields belong to none. The begin of one line and the end of a
/// later one may look like one line: it has the name of one field and the place of the other.
fn lacks_field(format: &Format) -> bool {
    // Readers make this format, without the first numbers of its structure.
    if (format.system.as_str(), format.name.as_str()) == ("ftrace", "blktrace") {
        return false;
    }
    let mut places: Vec<_> = format.fields.iter().map(|field| (field.offset, field.size)).collect();
    places.sort_unstable();
    let mut end = places.first().map_or(0, |(offset, _)| *offset);
    places.into_iter().any(|(offset, size)| {
        let gap = offset.saturating_sub(end);
        end = end.max(offset.saturating_add(size));
        gap >= GAP
    })
}

/// Reads a line such as `\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;`; some kernels and
/// tools leave out the sign. A line of which parts are lost may have joined another: it has no
/// other form.
fn field(line: &str, is_common: bool) -> Option<Field> {
    let line = line.trim_start().strip_prefix("field:")?;
    let (declaration, rest) = line.split_once(';')?;
    let mut parts = rest.split(';').map(str::trim).filter(|part| !part.is_empty());
    let number = |part: Option<&str>, key: &str| -> Option<u32> {
        part?.strip_prefix(key)?.trim().parse().ok()
    };
    let (offset, size) = (number(parts.next(), "offset:")?, number(parts.next(), "size:")?);
    let is_signed = match parts.next() {
        None => false,
        signed => number(signed, "signed:")? != 0,
    };
    if parts.next().is_some() {
        return None;
    }
    Some(Field {
        declaration: declaration.to_owned(),
        name: declared_name(declaration).to_owned(),
        offset,
        size,
        is_signed,
        is_common,
    })
}

/// Returns the name in a declaration: its last word, without the brackets of an array.
#[must_use]
pub fn declared_name(declaration: &str) -> &str {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = declaration.trim_end();
    while let Some(open) = rest.strip_suffix(']').and_then(|_| rest.rfind('[')) {
        rest = rest[..open].trim_end();
    }
    let begin = rest
        .rfind(|c| !word(c))
        .map_or(0, |at| at.saturating_add(rest[at..].chars().next().map_or(1, char::len_utf8)));
    &rest[begin..]
}

/// Appends the text of the event's `format` file, as the kernel writes it.
pub fn write(format: &Format, out: &mut String) {
    use std::fmt::Write;
    let _ = write!(out, "name: {}\nID: {}\nformat:\n", format.name, format.id);
    let line = |out: &mut String, f: &Field| {
        let signed = u8::from(f.is_signed);
        let _ = writeln!(
            out,
            "\tfield:{};\toffset:{};\tsize:{};\tsigned:{signed};",
            f.declaration, f.offset, f.size
        );
    };
    format.fields.iter().filter(|f| f.is_common).for_each(|f| line(out, f));
    out.push('\n');
    format.fields.iter().filter(|f| !f.is_common).for_each(|f| line(out, f));
    let _ = writeln!(out, "\nprint fmt: {}", format.print_format);
}

/// Reads the text of `events/header_page`. Returns `None` if the text has another form.
#[must_use]
pub fn parse_header_page(text: &str) -> Option<HeaderPage> {
    let find = |name: &str| text.lines().filter_map(|l| field(l, true)).find(|f| f.name == name);
    let (commit, data) = (find("commit")?, find("data")?);
    let commit_size = u8::try_from(commit.size).ok().filter(|s| matches!(s, 4 | 8))?;
    let fits = commit.offset == 8
        && (12..=64).contains(&data.offset)
        && data.offset >= commit.size.saturating_add(8);
    fits.then_some(HeaderPage { commit_size, data_offset: data.offset })
}

/// Returns the text of `events/header_page` for a machine whose sub-buffers have `sub_buffer_size`
/// bytes.
#[must_use]
pub fn write_header_page(page: HeaderPage, sub_buffer_size: u32) -> String {
    let (commit, data) = (page.commit_size, page.data_offset);
    let room = sub_buffer_size.saturating_sub(data);
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:8;\tsize:{commit};\tsigned:1;\n\
         \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:{data};\tsize:{room};\tsigned:0;\n"
    )
}

/// The text of `events/header_event`, which is the same on all machines.
pub const HEADER_EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\
    \tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30\n\ttime_stamp : type == 31\n\
    \tdata max type_len  == 28\n";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "name: sched_process_exec\nID: 310\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;\n\n\
        print fmt: \"filename=%s\", __get_str(filename)\n";

    /// The rests of two lines, joined, are refused.
    #[test]
    fn lines_of_which_parts_are_lost() {
        let of = |fields: &str| {
            parse("a", &format!("name: b\nID: 7\nformat:\n{fields}\n\nprint fmt: \"\"\n"))
        };
        let line = "\tfield:int a;\toffset:0;\tsize:4;\tsigned:1;\n\tfield:long b;\toffset:8;\tsize:8;\tsigned:1;";
        assert_eq!(of(line).map(|format| format.fields.len()), Some(2));
        assert_eq!(
            of("\tfield:int a;\toffset:0;\tsize:4;").map(|format| format.fields.len()),
            Some(1)
        );
        let parts: Vec<&str> = line.split_inclusive(';').collect();
        for lost in 0..parts.len() {
            let rest = [&parts[..lost], &parts[lost + 1..]].concat().concat();
            // A field may have no sign.
            assert_eq!(of(&rest).is_some(), lost % 4 == 3, "{rest:?}");
        }
        // The begin of one line, and the offset and the end of a later one.
        let joined = "\tfield:int a;\toffset:0;\tsize:4;\tsigned:1;\n\tfield:long b;\toffset:16;\tsize:8;\tsigned:1;";
        assert_eq!(of(joined), None);
        let none = "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:u64 b;\toffset:16;\tsize:8;\tsigned:0;";
        assert!(of(none).is_some(), "bytes before the first field, and four for the alignment");
        // The begin of one line and the end of another.
        assert!(of("\tfield:int a;\toffset:0;\tsize:4;\toffset:8;\tsize:8;\tsigned:1;").is_none());
    }

    #[test]
    fn a_format_is_read_and_written_again() {
        let format = parse("sched", TEXT).unwrap();
        assert_eq!(
            (format.id, format.name.as_str(), format.fields.len()),
            (310, "sched_process_exec", 4)
        );
        let names: Vec<_> =
            format.fields.iter().map(|f| (f.name.as_str(), f.offset, f.is_common)).collect();
        let expected = [
            ("common_type", 0, true),
            ("common_pid", 4, true),
            ("filename", 8, false),
            ("caller", 16, false),
        ];
        assert_eq!(names, expected);
        let mut out = String::new();
        write(&format, &mut out);
        assert_eq!(out, TEXT);
    }

    #[test]
    fn a_header_page_is_read_and_written_again() {
        let page = HeaderPage { commit_size: 8, data_offset: 16 };
        let text = write_header_page(page, 4096);
        assert!(text.ends_with("\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n"));
        assert_eq!(parse_header_page(&text), Some(page));
    }

    proptest! {
        #[test]
        fn no_text_panics(cut in 0..TEXT.len(), with in "\\PC{0,8}", to in 0..TEXT.len()) {
            let text = format!("{}{with}{}", &TEXT[..cut], &TEXT[to..]);
            if let Some(format) = parse("s", &text) {
                let mut out = String::new();
                write(&format, &mut out);
                prop_assert!(parse("s", &out).is_some());
            }
            let _ = parse_header_page(&text);
            let _ = declared_name(&with);
        }
    }
}
