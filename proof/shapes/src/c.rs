//! Shapes as programs in C and C++, which use the library as installed.

use std::fmt::Write as _;

use super::form::Form;
use super::shape::{CLOCKS, Class, Memory, Shape};
use super::value::{self, Scalar, Text, type_name as suffix};

const SUPPORT: &str = include_str!("support.h");

/// The source of a program that records each of `shapes`, which is chosen by its first argument.
pub(super) fn program(shapes: &[&Shape]) -> String {
    let bytes = |text: &str| text.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let pieces = value::pieces(|piece| format!("\"{}\"", bytes(piece)));
    let support = SUPPORT.replace("{ PIECES }", &format!("{{ {pieces} }}"));
    let mut text = support.replace("FACTOR", &format!("{}ull", value::factor()));
    for shape in shapes {
        one(&mut text, shape);
    }
    text.push_str(
        "\nint main(int argc, char **argv)\n{\n    int shape = argc > 3 ? atoi(argv[1]) : -1;\n    begin(argv[3]);\n",
    );
    for shape in shapes {
        let index = shape.index;
        let _ = writeln!(text, "    if (shape == {index})\n        s{index}_run(argv[2]);");
    }
    text.push_str("    fprintf(stderr, \"no shape\\n\");\n    return 1;\n}\n");
    text
}

fn one(text: &mut String, shape: &Shape) {
    let (index, seed) = (shape.index, shape.seed);
    for (number, class) in shape.classes.iter().enumerate() {
        for (at, field) in class.fields.iter().enumerate() {
            labels(text, &format!("l{index}_{number}_{at}"), &field.form);
        }
        line_of(text, shape, number, class);
    }
    for (at, field) in shape.user_contexts.iter().enumerate() {
        let name = format!("l{index}_u_{at}");
        labels(text, &name, &field.form);
        reader(text, index, at, &field.form, &name);
    }
    if !shape.user_contexts.is_empty() {
        let _ = writeln!(text, "static const struct lw_context s{index}_contexts[] = {{");
        for (at, field) in shape.user_contexts.iter().enumerate() {
            let (call, _) = call(&field.form, &field.name, "0", &format!("l{index}_u_{at}"), false);
            let _ = writeln!(text, "    LW_USER_CONTEXT({call}, s{index}_u{at}, 0),");
        }
        text.push_str("};\n");
    }
    let _ = writeln!(
        text,
        "static void s{index}_record(uint64_t w, uint64_t n, uint64_t k, char (*rooms)[8192])\n{{"
    );
    let _ = writeln!(text, "    switch (class_of({seed}ull, n, {})) {{", shape.classes.len());
    for number in 0..shape.classes.len() {
        let _ = writeln!(text, "    case {number}: s{index}_c{number}(w, n, k, rooms); break;");
    }
    text.push_str("    }\n}\n");
    session(text, shape);
}

/// The function of one line that records.
fn line_of(text: &mut String, shape: &Shape, number: usize, class: &Class) {
    let index = shape.index;
    let mut fields = String::new();
    for (at, field) in class.fields.iter().enumerate() {
        let value = expression(&field.form, shape.seed, at);
        let (call, _) =
            call(&field.form, &field.name, &value, &format!("l{index}_{number}_{at}"), true);
        let call = call.replace("@AT@", &at.to_string());
        let _ = write!(fields, ",\n        {call}");
    }
    let _ = writeln!(
        text,
        "static void s{index}_c{number}(uint64_t w, uint64_t n, uint64_t k, char (*rooms)[8192])\n{{\n    \
         (void)w, (void)n, (void)k, (void)rooms;"
    );
    let _ = match &class.mark {
        Some(format) => writeln!(text, "    LW_MARK({format:?}{fields});\n}}"),
        None if class.level == 3 => {
            writeln!(text, "    LW_EVENT(\"s{index}\", \"c{number}\"{fields});\n}}")
        }
        None => writeln!(
            text,
            "    LW_EVENT_AT({}, \"s{index}\", \"c{number}\"{fields});\n}}",
            class.level
        ),
    };
}

fn c_type(of: Scalar) -> String {
    match of {
        Scalar::Integer { bits, signed } => format!("{}int{bits}_t", if signed { "" } else { "u" }),
        Scalar::Single => "float".into(),
        Scalar::Double => "double".into(),
        Scalar::Bool => "bool".into(),
    }
}

fn from_word(of: Scalar, word: &str) -> String {
    match of {
        Scalar::Integer { .. } => format!("({})scalar({word})", c_type(of)),
        Scalar::Single => format!("of_float({word})"),
        Scalar::Double => format!("of_double({word})"),
        Scalar::Bool => format!("({word} & 1) == 1"),
    }
}

/// A field as the header's macro has it, and the C type of its value.
fn call(form: &Form, name: &str, value: &str, labels: &str, with_value: bool) -> (String, String) {
    let plain = |suffix: &str| {
        if with_value {
            format!("lw_{suffix}({name}, {value})")
        } else {
            format!("lw_{suffix}({name})")
        }
    };
    match form {
        Form::Number { bits, signed, hex } => {
            let of = Scalar::Integer { bits: *bits, signed: *signed };
            (plain(&if *hex { format!("x{bits}") } else { suffix(of) }), c_type(of))
        }
        Form::Scalar { of, .. } => (plain(&suffix(*of)), c_type(*of)),
        Form::Hex { pointer: true, .. } => (plain("ptr"), "uint64_t".into()),
        Form::Hex { bits, .. } => (plain(&format!("x{bits}")), format!("uint{bits}_t")),
        Form::Char | Form::Standard { .. } => unreachable!("a form of Rust"),
        Form::Text { .. } => (plain("str"), String::new()),
        Form::Padded { size, .. } => (format!("lw_text({name}, {value}, {size})"), String::new()),
        Form::Bytes { most, .. } => {
            (format!("lw_bytes({name}, {value}, length(word(k, @AT@, 0), {most}))"), String::new())
        }
        Form::Sequence { of, most, .. } => (
            format!("lw_{}s({name}, {value}, length(word(k, @AT@, 0), {most}))", suffix(*of)),
            String::new(),
        ),
        Form::Array { of, count } => {
            (format!("lw_{}a({name}, {value}, {count})", suffix(*of)), String::new())
        }
        Form::Enum { bits, signed, .. } => {
            let of = Scalar::Integer { bits: *bits, signed: *signed };
            let kind = if (*bits, *signed) == (32, true) {
                "lw_enum".into()
            } else {
                format!("lw_enum_{}", suffix(of))
            };
            (format!("{kind}({name}, {value}, {labels})"), c_type(of))
        }
    }
}

/// The value of field `at`: its random words are those of the event's key `k`.
fn expression(form: &Form, seed: u64, at: usize) -> String {
    let word = format!("word(k, {at}, 0)");
    match form {
        Form::Number { bits, signed, .. } => {
            let ty = c_type(Scalar::Integer { bits: *bits, signed: *signed });
            format!("({ty})hidden({seed}ull, w, n)")
        }
        Form::Scalar { of, .. } => from_word(*of, &word),
        Form::Hex { pointer: true, .. } => format!("(void *)(uintptr_t)scalar({word})"),
        Form::Hex { bits, .. } => format!("(uint{bits}_t)scalar({word})"),
        Form::Char | Form::Standard { .. } => unreachable!("a form of Rust"),
        Form::Text { how, most, .. } | Form::Padded { how, most, .. } => {
            let how = match how {
                Text::Any => 0,
                Text::Nul => 1,
                Text::Ascii => 2,
                Text::Null => 3,
                Text::Invalid => 4,
            };
            format!("text(rooms[{at}], k, {at}, {most}, {how})")
        }
        Form::Bytes { most, .. } => {
            format!("list_u8(rooms[{at}], k, {at}, length({word}, {most}))")
        }
        Form::Sequence { of, most, .. } => {
            format!("list_{}(rooms[{at}], k, {at}, length({word}, {most}))", suffix(*of))
        }
        Form::Array { of, count } => format!("list_{}(rooms[{at}], k, {at}, {count})", suffix(*of)),
        Form::Enum { labels, bits, signed } => {
            let ty = c_type(Scalar::Integer { bits: *bits, signed: *signed });
            let mut text = format!("({ty})({word} >> 61 == 0 ? scalar(mix({word}))");
            for (i, (value, _)) in labels.iter().enumerate() {
                let last = i + 1 == labels.len();
                let value = format!("{}ull", *value as u64);
                let _ = if last {
                    write!(text, " : {value})")
                } else {
                    write!(text, " : {word} % {} == {i} ? {value}", labels.len())
                };
            }
            text
        }
    }
}

/// The function that reads a context of the application's own.
fn reader(text: &mut String, index: u64, at: usize, form: &Form, labels: &str) {
    let place = 100 + at;
    let _ = writeln!(
        text,
        "static void s{index}_u{at}(void *to, void *data)\n{{\n    uint64_t k = current();\n    (void)data;"
    );
    let _ = match form {
        Form::Array { of, count } => {
            writeln!(text, "    list_{}(to, k, {place}, {count});", suffix(*of))
        }
        Form::Padded { size, most, .. } => writeln!(
            text,
            "    char room[256];\n    const char *from = text(room, k, {place}, {most}, 2);\n    \
             memcpy(to, from, strlen(from) < {size} ? strlen(from) : {size});"
        ),
        _ => {
            let value = expression(form, 0, place);
            let (_, ty) = call(form, "x", "0", labels, true);
            writeln!(text, "    *({ty} *)to = {value};")
        }
    };
    text.push_str("}\n");
}

fn labels(text: &mut String, name: &str, form: &Form) {
    let Form::Enum { labels, .. } = form else { return };
    let _ = writeln!(text, "static const struct lw_label {name}[] = {{");
    for (value, label) in labels {
        let _ = writeln!(text, "    {{ (int64_t){}ull, {label:?} }},", *value as u64);
    }
    text.push_str("};\n");
}

fn session(text: &mut String, shape: &Shape) {
    let (index, seed) = (shape.index, shape.seed);
    let _ = writeln!(
        text,
        "static void s{index}_run(const char *dir)\n{{\n    static struct plan plan;"
    );
    text.push_str("    struct lw_channel channel;\n    struct lw_builder *builder = lw_builder_new(\"shape\");\n");
    let mut line = |line: String| {
        let _ = writeln!(text, "    {line}");
    };
    line("memset(&channel, 0, sizeof channel);".into());
    line("channel.name = \"main\";".into());
    line(format!("channel.sub_buffer_size = {};", shape.sub_buffer_size));
    line(format!("channel.sub_buffers = {};", shape.sub_buffers));
    match shape.contexts {
        None => {}
        Some(0) => line("channel.contexts = LW_CONTEXT_NONE;".into()),
        Some(bits) => line(format!("channel.contexts = {bits};")),
    }
    line(format!("channel.discard = {};", u32::from(shape.discard)));
    line(format!("channel.payload_size = {};", u32::from(shape.payload_size)));
    line(format!("channel.full_headers = {};", u32::from(shape.full_headers)));
    if !shape.user_contexts.is_empty() {
        line(format!("channel.user_context_count = {};", shape.user_contexts.len()));
        line(format!("channel.user_contexts = s{index}_contexts;"));
    }
    line("must(lw_builder_dir(builder, dir));".into());
    match shape.memory {
        Memory::Shm => line("must(lw_builder_memory(builder, LW_MEMORY_SHM));".into()),
        Memory::Memfd => line("must(lw_builder_memory(builder, LW_MEMORY_MEMFD));".into()),
        Memory::Heap => line("must(lw_builder_memory(builder, LW_MEMORY_HEAP));".into()),
        Memory::Huge => line("must(lw_builder_memory(builder, LW_MEMORY_HUGE));".into()),
        Memory::Dax => line("must(lw_builder_dax(builder, memory_file(dir), 1));".into()),
        Memory::Physical => line(
            "must(lw_builder_physical(builder, memory_file(dir), 8192, size_of(memory_file(dir)) - 12288, 1));".into(),
        ),
    }
    line(format!(
        "must(lw_builder_reservation(builder, LW_RESERVATION_{}));",
        shape.reservation.to_uppercase()
    ));
    if shape.clock > 0 {
        line(format!("must(lw_builder_clock(builder, {}));", CLOCKS[shape.clock].1));
    }
    if shape.of_user {
        line("must(lw_builder_shared(builder));".into());
    }
    if shape.snapshot {
        line("must(lw_builder_snapshot(builder));".into());
    }
    line(format!("plan.seed = {seed}ull;"));
    line(format!("plan.classes = {};", shape.classes.len()));
    line(format!("plan.threads = {};", shape.threads));
    line(format!("plan.every = {};", shape.every));
    line(format!("plan.record = s{index}_record;"));
    line("run(&plan, builder, &channel);".into());
    text.push_str("}\n");
}
