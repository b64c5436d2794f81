//! Shapes as Rust programs, in a package of their own that uses the library as an application
//! would.

use std::fmt::Write as _;

use super::form::{Form, Standard};
use super::shape::{CLOCKS, CPU, Class, Memory, NAME, PID, Shape, TID};
use super::value::{self, Scalar, Text, type_name as scalar};

const SUPPORT: &str = include_str!("support.rs.in");

/// The source of a program that records each of `shapes`, which is chosen by its first argument.
pub(super) fn program(shapes: &[&Shape]) -> String {
    let pieces = value::pieces(|piece| format!("\"{}\"", piece.escape_unicode()));
    let support =
        SUPPORT.replace("@PIECES@", &pieces).replace("@FACTOR@", &value::factor().to_string());
    let mut text = format!("mod support {{\n{}}}\nuse support::*;\n", support);
    text.push_str("fn main() {\n    let args: Vec<String> = std::env::args().collect();\n    begin(&args[3]);\n");
    text.push_str("    match args[1].as_str() {\n");
    for shape in shapes {
        let index = shape.index;
        let _ = writeln!(text, "        \"{index}\" => s{index}::run_shape(&args[2]),");
    }
    text.push_str("        other => panic!(\"no shape {other}\"),\n    }\n}\n");
    for shape in shapes {
        module(&mut text, shape);
    }
    text
}

fn module(text: &mut String, shape: &Shape) {
    let index = shape.index;
    let _ = writeln!(
        text,
        "\n#[allow(unused, non_camel_case_types)]\nmod s{index} {{\nuse super::support::*;"
    );
    for (number, class) in shape.classes.iter().enumerate() {
        for (at, field) in class.fields.iter().enumerate() {
            enumeration(text, &format!("E{number}_{at}"), &field.form);
        }
        line_of(text, shape, number, class);
    }
    for (at, field) in shape.user_contexts.iter().enumerate() {
        enumeration(text, &format!("Eu_{at}"), &field.form);
    }
    let seed = shape.seed;
    text.push_str("fn record(w: u64, n: u64, k: u64, rooms: &mut Rooms) {\n");
    let _ = writeln!(text, "    match class({seed}, n, {}) {{", shape.classes.len());
    for number in 0..shape.classes.len() {
        let _ = writeln!(text, "        {number} => c{number}(w, n, k, rooms),");
    }
    text.push_str("        _ => {}\n    }\n}\n");
    let _ = writeln!(
        text,
        "pub fn run_shape(dir: &str) -> ! {{\n    let _session = {};",
        session(shape)
    );
    let (classes, threads, every) = (shape.classes.len(), shape.threads, shape.every);
    let _ = writeln!(
        text,
        "    run(Plan {{ seed: {seed}, classes: {classes}, threads: {threads}, every: {every}, record }})\n}}\n}}"
    );
}

/// The function of one line that records.
fn line_of(text: &mut String, shape: &Shape, number: usize, class: &Class) {
    let mut lets = String::new();
    let mut fields = String::new();
    for (at, field) in class.fields.iter().enumerate() {
        let (value, name) =
            (expression(&field.form, shape.seed, at, &format!("E{number}_{at}")), &field.name);
        match class.mark {
            Some(_) if at < class.unnamed => {
                let _ = write!(fields, ", {value}");
            }
            None if at % 3 == 1 => {
                let _ = writeln!(lets, "    let {name} = {value};");
                let _ = write!(fields, ", {}{name}", field.form.prefix());
            }
            _ => {
                let _ = write!(fields, ", {name} = {}{value}", field.form.prefix());
            }
        }
    }
    let rooms: Vec<String> = (0..class.fields.len()).map(|at| format!("r{at}, ")).collect();
    let index = shape.index;
    let _ = writeln!(
        text,
        "fn c{number}(w: u64, n: u64, k: u64, rooms: &mut Rooms) {{\n    let [{}..] = rooms;\n{lets}",
        rooms.concat()
    );
    match &class.mark {
        Some(format) => {
            let _ = writeln!(text, "    lastwords::mark!({format:?}{fields});\n}}");
        }
        None => {
            let provider = if number == 0 { format!("s{index}") } else { format!("\"s{index}\"") };
            let level = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"][usize::from(class.level) - 1];
            let level = if class.level == 3 { String::new() } else { format!(", level: {level}") };
            let _ = writeln!(
                text,
                "    lastwords::event!({provider}, \"c{number}\"{level}{fields});\n}}"
            );
        }
    }
}

/// The value of field `at`: its random words are those of the event's key `k`.
fn expression(form: &Form, seed: u64, at: usize, label: &str) -> String {
    match form {
        Form::Number { bits, signed, hex } => {
            let ty = scalar(Scalar::Integer { bits: *bits, signed: *signed });
            let value = format!("hidden({seed}, w, n) as {ty}");
            if *hex { format!("lastwords::hex({value})") } else { value }
        }
        Form::Scalar { of, spelled } => {
            let ty = if spelled.is_empty() { scalar(*of) } else { (*spelled).into() };
            format!("one::<{ty}>(k, {at})")
        }
        Form::Hex { pointer: true, .. } => format!("one::<usize>(k, {at}) as *const u16"),
        Form::Hex { bits, .. } => format!("lastwords::hex(one::<u{bits}>(k, {at}))"),
        Form::Char => format!("character(k, {at})"),
        Form::Text { how, most, spelled } => {
            let how = match how {
                Text::Any | Text::Null | Text::Invalid => 0,
                Text::Nul => 1,
                Text::Ascii => 2,
            };
            let plain = format!("text(r{at}, k, {at}, {most}, {how})");
            match *spelled {
                "String" => format!("{plain}.to_owned()"),
                "Box" => format!("Box::<str>::from({plain})"),
                "Arc" => format!("std::sync::Arc::<str>::from({plain})"),
                "Cow" => format!("std::borrow::Cow::from({plain})"),
                _ => plain,
            }
        }
        Form::Padded { .. } => unreachable!("a form of C"),
        Form::Standard { what, most } => standard(*what, at, *most),
        Form::Bytes { most, owned } => slice("u8", at, *most, *owned),
        Form::Sequence { of, most, owned } => slice(&scalar(*of), at, *most, *owned),
        Form::Array { of, count } => format!("array::<{}, {count}>(k, {at})", scalar(*of)),
        Form::Enum { labels, .. } => {
            format!("{label}::ALL[(word(k, {at}, 0) % {}) as usize]", labels.len())
        }
    }
}

/// A value of the standard library.
fn standard(what: Standard, at: usize, most: u64) -> String {
    let number = |i: u64| format!("scalar(word(k, {at}, {i}))");
    let (first, second) = (number(1), number(2));
    let text = |how| format!("text(r{at}, k, {at}, {most}, {how})");
    let some = format!("(word(k, {at}, 0) >> 63 == 1)");
    match what {
        Standard::Displayed => text(0),
        Standard::Debugged => format!("{some}.then(|| {first})"),
        Standard::Option(of) => {
            format!("{some}.then(|| <{} as Of>::of(word(k, {at}, 1)))", scalar(of))
        }
        Standard::OptionText => format!("Some({}).filter(|text| text.len() % 3 > 0)", text(1)),
        Standard::Duration => {
            format!("std::time::Duration::new({first}, ({second} % 1_000_000_000) as u32)")
        }
        Standard::SystemTime => {
            format!("moment(({first} as i64) >> 8, ({second} % 1_000_000_000) as u32)")
        }
        Standard::Path => format!("std::path::Path::new({})", text(0)),
        Standard::OsString => format!("std::ffi::OsString::from({})", text(0)),
        Standard::Ipv4 => format!("std::net::Ipv4Addr::from({first} as u32)"),
        Standard::Ipv6 => {
            format!("std::net::Ipv6Addr::from(u128::from({first}) << 64 | u128::from({second}))")
        }
        Standard::Socket => {
            format!(
                "std::net::SocketAddr::from((std::net::Ipv4Addr::from({first} as u32), {second} as u16))"
            )
        }
    }
}

fn slice(ty: &str, at: usize, most: u64, owned: bool) -> String {
    let plain = format!("slice::<{ty}>(r{at}, k, {at}, {most})");
    if owned { format!("{plain}.to_vec()") } else { plain }
}

fn enumeration(text: &mut String, name: &str, form: &Form) {
    let Form::Enum { bits, signed, labels } = form else { return };
    let repr = scalar(Scalar::Integer { bits: *bits, signed: *signed });
    let list = |of: &dyn Fn(usize, &(i128, String)) -> String| {
        labels.iter().enumerate().map(|(i, label)| of(i, label)).collect::<Vec<_>>().join(", ")
    };
    let variants = list(&|i, (value, _)| format!("V{i} = {value}"));
    let names = list(&|i, (_, label)| format!("V{i} => {label:?}"));
    let all = list(&|i, _| format!("Self::V{i}"));
    let _ = writeln!(
        text,
        "#[derive(Clone, Copy)]\n#[repr({repr})]\nenum {name} {{ {variants} }}\n\
         lastwords::labels!({name} as {repr} {{ {names} }});\n\
         impl {name} {{ const ALL: [Self; {}] = [{all}]; }}",
        labels.len()
    );
}

/// The calls that begin the session in `dir`.
fn session(shape: &Shape) -> String {
    let mut channel = format!(
        "lastwords::ChannelConfig::new(\"main\").sub_buffers({}, {}).payload_size({}).full_headers({})",
        shape.sub_buffers, shape.sub_buffer_size, shape.payload_size, shape.full_headers
    );
    if let Some(bits) = shape.contexts {
        let names = [(PID, "PID"), (TID, "TID"), (NAME, "THREAD_NAME"), (CPU, "CPU")];
        let chosen = names.iter().filter(|(bit, _)| bits & bit != 0);
        let sum: String =
            chosen.map(|(_, name)| format!(" | lastwords::Context::{name}")).collect();
        let _ = write!(channel, ".contexts(lastwords::Context::NONE{sum})");
    }
    if shape.discard {
        channel += ".discard()";
    }
    for (at, field) in shape.user_contexts.iter().enumerate() {
        let value = expression(&field.form, shape.seed, 100 + at, &format!("Eu_{at}"))
            .replace("(k, ", "(current(), ");
        let _ = write!(
            channel,
            ".context(lastwords::context::UserContext::new({:?}, || {value}))",
            field.name
        );
    }
    let mut builder = format!("lastwords::Session::builder(\"shape\").dir(dir).channel({channel})");
    let memory = match shape.memory {
        Memory::Shm => "Shm",
        Memory::Memfd => "Memfd",
        Memory::Heap => "Heap",
        Memory::Huge => "Huge",
        Memory::Dax => "Dax { path: format!(\"{dir}/../memory\").into(), reuse: true }",
        Memory::Physical => {
            "Physical { path: format!(\"{dir}/../memory\").into(), offset: 8192, \
             len: std::fs::metadata(format!(\"{dir}/../memory\")).unwrap().len() - 12288, reuse: true }"
        }
    };
    let _ = write!(builder, ".backend(lastwords::Memory::{memory})");
    let reservation = match shape.reservation {
        "rseq" => "Rseq",
        "lockless" => "Lockless",
        _ => "Locked",
    };
    let _ = write!(builder, ".reservation(lastwords::Reservation::{reservation})");
    if shape.clock > 0 {
        let _ = write!(builder, ".clock(lastwords::ClockKind::{})", CLOCKS[shape.clock].0);
    }
    if shape.of_user {
        builder += ".scope(lastwords::Scope::User)";
    }
    if shape.snapshot {
        builder += ".snapshot(true)";
    }
    builder + ".start().expect(\"a session\")"
}

/// The manifest of the package of all Rust programs: the profiles are those of the workspace, so
/// that the library is built once.
pub(super) fn manifest(root: &std::path::Path, workspace: &str, programs: &[String]) -> String {
    let library = root.join("crates/lastwords");
    let mut text = format!(
        "[package]\nname = \"shapes\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n[workspace]\n\n\
         [dependencies]\nlastwords = {{ path = {library:?} }}\nlibc = \"0.2\"\n"
    );
    for program in programs {
        let _ = writeln!(text, "\n[[bin]]\nname = {program:?}\npath = \"{program}.rs\"");
    }
    for name in ["[profile.release]", "[profile.dev]", "[profile.dev.package.lastwords-ring]"] {
        if let Some((_, rest)) = workspace.split_once(name) {
            let body = rest.split("\n[").next().unwrap_or_default();
            let _ = writeln!(text, "\n{name}{body}");
        }
    }
    text
}
