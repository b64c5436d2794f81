//! Tests that `include/lastwords.h` declares what the sources define: functions, structures,
//! constants. Both headers must not define any name that C or C++ reserves.

use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// Returns the text with its words separated by one space.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the text without the parts from `open` to `close`, both included.
fn without(text: &str, open: &str, close: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(open) {
        left += before;
        rest = behind.split_once(close).expect(close).1;
    }
    left + rest
}

/// Returns the declarations of the header, and its constants.
fn declared() -> BTreeSet<String> {
    let header = without(&read("include/lastwords.h"), "/*", "*/");
    let constant = |line: &str| {
        let (name, value) = line.strip_prefix("#define LW_")?.split_once(' ')?;
        Some(format!("LW_{name} = {}", value.trim_end_matches('u')))
    };
    let mut found: BTreeSet<String> = header.lines().filter_map(constant).collect();
    let code: String = header
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut code = words(&without(&code, "static inline", "\n}\n")).replace("extern \"C\" { ", "");
    while let Some((before, block)) = code.split_once('{') {
        let start = before.rfind(';').map_or(0, |at| at + 1);
        let (name, (body, rest)) =
            (before[start..].trim(), block.split_once("};").expect("an end"));
        if name.starts_with("enum") {
            found.extend(body.split(',').map(words));
        } else {
            found.insert(format!("{name} {{ {} }}", words(body)));
        }
        code = format!("{}{rest}", &before[..start]);
    }
    found.extend(code.split(';').map(words).filter(|text| text.contains('(')));
    found
}

/// Returns a declaration in C with this name and the C form of a type in Rust.
fn in_c(ty: &str, name: &str) -> String {
    let base = |ty: &str| match ty {
        "u8" | "u16" | "u32" | "u64" => format!("uint{}_t", &ty[1..]),
        "i64" => "int64_t".to_owned(),
        "usize" => "size_t".to_owned(),
        "bool" => ty.to_owned(),
        "c_int" | "c_char" | "c_void" => ty[2..].to_owned(),
        other => format!("struct {other}"),
    };
    if let Some(to) = ty.strip_prefix("*const ") {
        return format!("const {} *{name}", base(to));
    }
    if let Some(to) = ty.strip_prefix("*mut ") {
        return format!("{} *{name}", base(to));
    }
    if let Some((element, count)) =
        ty.strip_prefix('[').and_then(|array| array.strip_suffix(']')?.split_once("; "))
    {
        return format!("{} {name}[{count}]", base(element));
    }
    if let Some(callback) =
        ty.strip_prefix("Option<unsafe extern \"C\" fn(").and_then(|rest| rest.strip_suffix(")>"))
    {
        return format!("void (*{name})({})", list(callback, ", "));
    }
    format!("{} {name}", base(ty))
}

/// Returns each `name: type` in C.
fn list(text: &str, separator: &str) -> String {
    let each = |one: &str| {
        let (name, ty) = one.split_once(": ").expect(one);
        in_c(ty, name)
    };
    // The callback contains commas of its own, so it is split off first.
    let (before, callback) =
        text.split_once(", read: ").map_or((text, None), |(a, b)| (a, b.split_once(")>, ")));
    let mut made: Vec<String> =
        before.split(", ").filter(|one| !one.is_empty()).map(each).collect();
    if let Some((read, behind)) = callback {
        made.push(in_c(&format!("{read})>"), "read"));
        made.extend(behind.split(", ").map(each));
    }
    made.join(separator)
}

fn function(name: &str, arguments: &str, result: &str) -> String {
    let arguments = list(arguments.trim_end_matches(','), ", ");
    in_c(result, &format!("{name}({})", if arguments.is_empty() { "void" } else { &arguments }))
}

/// Returns the definitions of a source for C.
fn defined(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: Vec<&str> = code.collect();
    for line in &code {
        if let Some((constant, _)) =
            line.trim_start().strip_prefix("LW_").and_then(|rest| rest.split_once(" => "))
        {
            found.insert(format!("LW_{constant}"));
        }
        if let Some((code, _)) =
            line.strip_prefix("    LW_").and_then(|rest| rest.split_once(", c\""))
        {
            found.insert(format!("LW_{code}"));
        }
    }
    let text = words(&code.join("\n"));
    for one in text.split("#[repr(C)] ").skip(1) {
        let (name, fields) = one
            .split_once("struct ")
            .and_then(|(_, rest)| rest.split_once(" { "))
            .expect("a struct");
        let fields = fields.split_once(", }").expect("its end").0.replace("pub ", "");
        found.insert(format!("struct {name} {{ {}; }}", list(&fields, "; ")));
    }
    for one in text.split("extern \"C\" fn lw_").skip(1) {
        let (head, _) = one.split_once(" {").expect("a body");
        let ((name, rest), result) = (
            head.split_once('(').expect(head),
            head.split_once(") -> ").map_or("c_void", |all| all.1),
        );
        let arguments = rest.rsplit_once(')').expect(head).0;
        let arguments = rest.split_once(") -> ").map_or(arguments, |all| all.0).trim();
        found.insert(function(&format!("lw_{name}"), arguments, result));
    }
    // These are functions that a macro defines: the first argument has the macro's type.
    for (macro_name, first, result) in [
        ("options! {", "builder: *mut lw_builder", "c_int"),
        ("actions! {", "session: *const lw_session", "c_int"),
        ("texts! {", "session: *const lw_session", "*const c_char"),
    ] {
        let table = source
            .split_once(&format!("\n{macro_name}\n"))
            .and_then(|(_, rest)| rest.split_once("\n}\n"));
        for one in table.map_or("", |(table, _)| table).split("    fn lw_").skip(1) {
            let (name, rest) = one.split_once('(').expect(one);
            let more = rest
                .split_once(") =")
                .expect(one)
                .0
                .split_once(", ")
                .map_or(String::new(), |(_, more)| format!(", {more}"));
            found.insert(function(&format!("lw_{name}"), &format!("{first}{more}"), result));
        }
    }
    found
}

#[test]
fn header_declares_what_is_defined() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources = std::fs::read_dir(folder)
        .expect("the sources")
        .map(|entry| entry.expect("a source").path());
    let defined: BTreeSet<String> =
        sources.flat_map(|path| defined(&std::fs::read_to_string(path).expect("text"))).collect();
    // Levels and contexts are constants of the library, and are passed to it unchanged.
    let passed_on =
        |text: &&String| text.starts_with("LW_LEVEL_") || text.starts_with("LW_CONTEXT_");
    let declared = declared();
    let missing: Vec<_> = defined.difference(&declared).filter(|text| !passed_on(text)).collect();
    let surplus: Vec<_> = declared.difference(&defined).filter(|text| !passed_on(text)).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "the header lacks {missing:#?}, the sources lack {surplus:#?}"
    );
    assert!(declared.len() > 80, "{declared:#?}");
}

#[test]
fn headers_are_ascii_and_take_no_reserved_name() {
    for path in ["include/lastwords.h", "include/lastwords_event.h"] {
        let text = read(path);
        assert!(text.is_ascii(), "{path}");
        // Pasted parts belong to one name.
        let code = without(&text, "/*", "*/").replace("##", "");
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let names = code
            .split(|letter| !is_word(letter))
            .filter(|word| !word.starts_with(|first: char| first.is_ascii_digit()));
        // These are names that compilers define and the macros use.
        let compilers = |name: &str| {
            name.starts_with("__atomic_")
                || name.starts_with("__ATOMIC_")
                || name.starts_with("__builtin_")
                || name.contains("ORDER_")
                || ["__VA_ARGS__", "__cplusplus", "__FILE__", "__LINE__", "__extension__"]
                    .contains(&name)
        };
        let reserved: BTreeSet<&str> = names
            .filter(|name| (name.contains("__") || name.starts_with('_')) && !compilers(name))
            .collect();
        assert!(reserved.is_empty(), "{path}: C++ reserves {reserved:?}");
    }
}
