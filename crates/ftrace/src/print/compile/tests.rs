use std::collections::BTreeMap;
use std::sync::Arc;

use crate::samples;
use crate::{Field, HeaderPage, Symbol, SymbolRow, Symbols, Tracing};
use lastwords_bytes::ByteOrder;
use proptest::prelude::*;

use super::super::Names;
use super::*;

struct Some2;

impl Symbols for Some2 {
    fn at(&self, address: u64) -> Option<Symbol> {
        let (name, offset, size) = match address {
            0xffff_0000.. => ("work", address - 0xffff_0000, 0x100),
            // A module without symbols.
            0xfffe_0000.. => ("0xfffe0000", address - 0xfffe_0000, 0),
            _ => return None,
        };
        Some(Symbol { name: name.into(), offset, size, module: Some("mod".into()) })
    }

    fn each(&self, _: &mut dyn FnMut(SymbolRow<'_>)) {}

    fn constant(&self, name: &str) -> Option<i64> {
        (name == "KNOWN").then_some(3)
    }
}

fn tracing() -> Tracing {
    Tracing {
        machine: "x86_64".into(),
        cpus: 1,
        printk_formats: BTreeMap::from([(0x1234, "known".to_owned())]),
        symbols: Arc::new(Some2),
        pointer_key: Some([1, 2]),
        ..Tracing::from_uname("", HeaderPage::of_word_size(8), ByteOrder::Little)
    }
}

const FIELDS: &str = "int a:0:4:1, u8 b:4:1:0, char comm[8]:8:8:1, u64 p:16:8:0, __data_loc char[] name:24:4:0, \
    __data_loc u32[] list:28:4:0, __u8 ip[16]:32:16:0, u16 words[2]:48:4:0, \
    __rel_loc char[] rel:52:4:0, __u8 four[4]:32:4:0, __u8 zero[4]:36:4:0, \
    __be16 port[1]:34:2:0, __u64 eight[1]:32:8:0";

fn payload() -> Vec<u8> {
    let mut out = vec![0; 56];
    out[0..4].copy_from_slice(&(-5i32).to_le_bytes());
    out[4] = 200;
    out[8..12].copy_from_slice(b"init");
    out[16..24].copy_from_slice(&0xffff_0010u64.to_le_bytes());
    out[24..28].copy_from_slice(&(5u32 << 16 | 56).to_le_bytes());
    out[28..32].copy_from_slice(&(8u32 << 16 | 64).to_le_bytes());
    out[32..48].copy_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    out[48..52].copy_from_slice(&[1, 0, 2, 1]);
    out[52..56].copy_from_slice(&(4u32 << 16 | 16).to_le_bytes());
    out.extend_from_slice(b"file\0\0\0\0");
    out.extend_from_slice(&7u32.to_le_bytes());
    out.extend_from_slice(&9u32.to_le_bytes());
    out.extend_from_slice(b"end\0");
    out
}

fn format(print_format: &str) -> Format {
    samples::printed(FIELDS, print_format)
}

/// Returns the text, or why it is not wholly the kernel's.
fn run(print_format: &str, payload: &[u8]) -> Result<String, String> {
    let (text, fault, _) = run_through(print_format, payload)?;
    fault.map_or(Ok(text), |fault| Err(format!("{fault:?}")))
}

/// Returns the text, the first fault, and the parts that only the kernel can evaluate.
fn run_through(
    print_format: &str,
    payload: &[u8],
) -> Result<(String, Option<Fault>, Vec<Unknown>), String> {
    print_through(&format(print_format), payload)
}

fn print_through(
    format: &Format,
    payload: &[u8],
) -> Result<(String, Option<Fault>, Vec<Unknown>), String> {
    let tracing = tracing();
    let program = compile(format, Machine::from_tracing(&tracing), &*tracing.symbols)?;
    let mut names = Names::new(&tracing, true);
    let mut scratch = Vec::new();
    let mut env = Env::new(payload, Machine::from_tracing(&tracing), &mut scratch, &mut names);
    let mut out = Vec::new();
    let fault = program.print(&mut env, &mut out).err();
    Ok((String::from_utf8_lossy(&out).into_owned(), fault, program.unknown().to_vec()))
}

/// Formats, and the text that the kernel would print for the payload.
const SHOWN: [(&str, &str); 31] = [
    (r#""a=%d b=%u %s", REC->a, REC->b, REC->comm"#, "a=-5 b=200 init"),
    (r#""%5d|%-5d|%05d|%x", REC->a, REC->a, REC->a, REC->a"#, "   -5|-5   |-0005|fffffffb"),
    (r#""%lx %llu", (unsigned long)REC->a, (u64)REC->b"#, "fffffffffffffffb 200"),
    (r#""%s", REC->a < 0 ? "neg" : "pos""#, "neg"),
    (r#""%d", REC->a < 0U"#, "0"),
    (r#""%d %d", -7 / 2 * (1 + REC->b % 7), ~0 ^ 3"#, "-15 -4"),
    (r#""%s %s", __get_str(name), __get_rel_str(rel)"#, "file end"),
    (r#""%d %u", __get_dynamic_array_len(list), ((u32 *)__get_dynamic_array(list))[1]"#, "8 9"),
    (
        r#""%s", __print_array(__get_dynamic_array(list), __get_dynamic_array_len(list) / sizeof(u32), sizeof(u32))"#,
        "{0x7,0x9}",
    ),
    (
        r#""%s", __print_flags(REC->b, "|", { 0x80, "A" }, { 0x40, "B" }, { 1 << 0, "C" })"#,
        "A|B|0x8",
    ),
    (
        r#""%s %8s", __print_symbolic(REC->b, { 200, "two" "hundred" }), __print_symbolic(1, { 2, "x" })"#,
        "twohundred      0x1",
    ),
    (r#""%s", __print_symbolic(3, { KNOWN, "known" })"#, "known"),
    (r#""%s %s", __print_hex(REC->ip, 4), __print_hex_str(REC->ip, 2)"#, "20 01 0d b8 2001"),
    (r#""%pI6c %pI4", REC->ip, REC->ip"#, "2001:db8::1 32.1.13.184"),
    (
        r#""%pS %ps %pB", (void *)REC->p, (void *)REC->p, (void *)REC->p"#,
        "work+0x10/0x100 [mod] work [mod] work+0x10/0x100 [mod]",
    ),
    (
        r#""%pS %ps %pS", (void *)(REC->p - 65536), (void *)(REC->p - 65536), (void *)(REC->p - 131072)"#,
        "0xfffe0000+0x10/0x0 [mod] 0xfffe0000+0x10/0x0 [mod] 0xfffd0010",
    ),
    (r#""%px %p", (void *)REC->p, NULL"#, "00000000ffff0010 0000000000000000"),
    (
        r#""%*phC %pM %pUb", 3, REC->ip, REC->ip, REC->ip"#,
        "20:01:0d 20:01:0d:b8:00:00 20010db8-0000-0000-0000-000000000001",
    ),
    (r#""%.2s|%.*s|%*d", REC->comm, 3, REC->comm, 4, 7"#, "in|ini|   7"),
    (r#""%d %d", REC->words[1], sizeof(REC->words) / sizeof(REC->words[0])"#, "258 2"),
    (r#""%s %s", (char *)0x1234, (char *)0"#, "known (null)"),
    (r#""%c%c%%", 'a', REC->b - 102"#, "ab%"),
    (r#""%llu.%06u", __print_ns_to_secs(REC->p), __print_ns_without_secs(REC->p)"#, "4.294901776"),
    (r#""%#x %#o %+d % d %X", 255, 8, 1, 1, 0xab"#, "0xff 010 +1  1 AB"),
    (r#""%s", REC->b && !REC->a || 0 ? "y" : REC->b == 200 ? "z" : "n""#, "z"),
    (r#""%hhd %hu %zu %Lu", 0x1ff, 0x1ffff, 5UL, 6ULL"#, "-1 65535 5 6"),
    (r#""%pe %pISpc", -12L, REC->ip"#, "-ENOMEM (einval)"),
    (r#""%u", ((unsigned int) ((REC->p) & ((1U << 20) - 1)))"#, "983056"),
    // Arrays of `__u8` are not numbers, whatever their size.
    (r#""%pI4 %pi4 %pI4", REC->four, REC->four, REC->zero"#, "32.1.13.184 032.001.013.184 0.0.0.0"),
    (
        r#""%u %u %llx %s", REC->four[2], REC->port[0], REC->eight[0], __print_hex(REC->zero, 4)"#,
        "13 47117 b80d0120 00 00 00 00",
    ),
    // A row whose value is a name of unknown value is ignored; the rest is printed.
    (
        r#""%s", __print_symbolic(REC->b, { UNKNOWN, "u" }, { (1 << (NOT_KNOWN)), "v" }, { 200, "known" })"#,
        "known",
    ),
];

#[test]
fn formats_print_as_the_kernel_does() {
    let payload = payload();
    for (print_format, expected) in SHOWN {
        assert_eq!(run(print_format, &payload).as_deref(), Ok(expected), "{print_format}");
    }
}

/// Formats with a part that only the kernel can evaluate: the text, and a word of the reason.
const PARTLY: [(&str, &str, &str); 17] = [
    (
        r#""%s", (REC->b) ? __print_flags(REC->b, "|", {(unsigned long)((1UL) << (___GFP_BIT)), "GFP" }, { 0x80, "A" }) : "none""#,
        "A|0x48",
        "___GFP_BIT",
    ),
    (r#""%s", __print_flags(REC->b, "", { MINE | 1, "x" })"#, "0xc8", "MINE"),
    (r#""%d ms, b=%u", jiffies_to_secs(REC->a), REC->b"#, "-5 ms, b=200", "jiffies_to_secs"),
    (
        r#""%s|%u", decode(buf, 500, REC->a, REC->p, REC->a), REC->b"#,
        "(0xfffffffffffffffb, 0xffff0010)|200",
        "decode",
    ),
    (r#""%s %u", name_of(p, REC->comm), REC->b"#, "init 200", "name_of"),
    (r#""%s %u", name_of(__get_str(name), ","), REC->b"#, "file 200", "name_of"),
    (r#""%s %u", decode(__get_dynamic_array(list)), REC->b"#, "{0x7,0x9} 200", "decode"),
    (
        r#""page=%p b=%u", ((struct page *)base_of_all + REC->b), REC->b"#,
        "page=0xc8 b=200",
        "base_of_all",
    ),
    (
        r#""page=%p %s", REC->b == 200 ? NULL : base + REC->p, REC->comm"#,
        "page=0000000000000000 init",
        "base",
    ),
    (r#""%lu,%u", (ticks_now - REC->p) / 250, REC->b"#, "4294901776,200", "ticks_now"),
    (r#""%d %u", REC->none, REC->b"#, "unknown 200", "REC->none"),
    (r#""%d %u", UNKNOWN, REC->b"#, "unknown 200", "UNKNOWN"),
    (r#""%u %u", REC->p->member, REC->b"#, "4294901776 200", "member"),
    (r#""%u %u", REC->b REC->a, REC->b"#, "(0xc8, 0xfffffffffffffffb) 200", "behind an argument"),
    (r#""%*d %u", UNKNOWN, REC->a, REC->b"#, "-5 200", "UNKNOWN"),
    (r#""%s %u", __print_symbolic(REC->b, { UNKNOWN, "u" }), REC->b"#, "0xc8 200", "UNKNOWN"),
    (
        r#""%s %u", __print_flags(REC->b, "|", { 0x80, "A" }, { UNKNOWN, "u" }), REC->b"#,
        "A|0x48 200",
        "UNKNOWN",
    ),
];

#[test]
fn a_part_that_cannot_be_evaluated_costs_itself() {
    let payload = payload();
    for (print_format, expected, reason) in PARTLY {
        let (text, fault, unknown) =
            run_through(print_format, &payload).expect("it has directives and arguments");
        assert_eq!(text, expected, "{print_format}");
        let is_told = unknown.iter().any(|part| format!("{part:?}").contains(reason));
        assert!(is_told, "{print_format}: {unknown:?}");
        // The branch of the unknown base is not taken.
        let is_known = print_format.contains("NULL");
        assert_eq!(fault, (!is_known).then_some(Fault::Unknown), "{print_format}");
    }
}

#[test]
fn a_part_that_lies_outside_the_event_costs_itself() {
    let payload = payload();
    let print =
        |print_format, payload: &[u8]| run_through(print_format, payload).expect("it is a format");
    let (text, fault, unknown) = print(r#""%s %u", __get_str(name), REC->b"#, &payload[..58]);
    assert_eq!((text.as_str(), fault, unknown.len()), ("unknown 200", Some(Fault::Outside), 0));
    let (text, fault, _) = print(r#""%u %d %s", REC->b, REC->words[1], REC->comm"#, &payload[..12]);
    assert_eq!((text.as_str(), fault), ("200 unknown unknown", Some(Fault::Outside)));
    let (text, fault, _) = print(r#""%d %u", 1 / (REC->b - 200), REC->b"#, &payload);
    assert_eq!((text.as_str(), fault), ("200 200", Some(Fault::Division)));
}

#[test]
fn common_fields_and_arrays_of_strings_are_fields() {
    let common =
        Field { name: "common_pid".into(), is_common: true, ..format("").fields[0].clone() };
    let mut all =
        format(r#""pid: %d %s %s", REC->ent.pid, __get_str(name[0]), __get_str(name[1])"#);
    all.fields.push(common);
    let mut payload = payload();
    payload[28..32].copy_from_slice(&(4u32 << 16 | 72).to_le_bytes());
    assert_eq!(print_through(&all, &payload).unwrap().0, "pid: -5 file end");
    assert_eq!(run(r#""%d", REC->ent.pid"#, &payload).unwrap_err(), "Unknown");
}

/// Statement expressions, as `min()` and `max()` of several kernels leave them.
#[test]
fn statements_have_the_value_of_the_last() {
    let payload = payload();
    let min = |value: &str| {
        format!(
            "\"%d %u\", ({{ int __x_1 = ({value}); int __y_2 = (128); ((__x_1) < (__y_2) ? (__x_1) : (__y_2)); }}), REC->b"
        )
    };
    assert_eq!(run(&min("REC->a"), &payload).as_deref(), Ok("-5 200"));
    assert_eq!(run(&min("REC->b"), &payload).as_deref(), Ok("128 200"));
    for (print_format, expected) in [
        (
            r#""%d", ({ typeof(REC->a) _a = (REC->a); typeof(REC->b) _b = (REC->b); (void) (&_a == &_b); _a > _b ? _a : _b; })"#,
            "200",
        ),
        (r#""%d", ({ __auto_type x = REC->b; __auto_type y = x + 1; y * 2; })"#, "402"),
        (r#""%d", ({ u8 x = REC->b + 100; x; })"#, "44"),
        (r#""%d", ({ int x = ({ int x = REC->b; x + 1; }); x + 1; })"#, "202"),
        (
            r#""%u", __builtin_choose_expr(((!!(sizeof((typeof(REC->b) *)1 == (typeof(8) *)1)))), ((REC->b) < (8) ? (REC->b) : (8)), ({ typeof(8) y = (8); y; }))"#,
            "8",
        ),
        (r#""%u", __builtin_choose_expr(0, REC->a, REC->b)"#, "200"),
    ] {
        assert_eq!(run(print_format, &payload).as_deref(), Ok(expected), "{print_format}");
    }
    let (text, _, unknown) =
        run_through(r#""%d %u", ({ int x = REC->a; }), REC->b"#, &payload).unwrap();
    assert_eq!((text.as_str(), unknown.len()), ("-5 200", 1));
}

/// Stacks in synthetic events: each return address on a line of its own, and nothing between the
/// last and the next field.
#[test]
fn stacks_of_synthetic_events_are_named() {
    let fields = "__data_loc unsigned long[] stack:8:8:0, u64 d:16:8:0";
    let synthetic = |print_format: &str| Format {
        system: "synthetic".into(),
        ..samples::printed(fields, print_format)
    };
    let mut payload = vec![0; 24];
    payload[8..12].copy_from_slice(&(24u32 << 16 | 24).to_le_bytes());
    payload[16..24].copy_from_slice(&7u64.to_le_bytes());
    for word in [2, 0xffff_0010, 0xffff_0020u64] {
        payload.extend_from_slice(&word.to_le_bytes());
    }
    let stack = "STACK:\n=> work+0x10/0x100 [mod]\n=> work+0x20/0x100 [mod]\n";
    let text = |print_format| print_through(&synthetic(print_format), &payload).unwrap().0;
    assert_eq!(
        text(r#""stack=%s d=%llu", __get_stacktrace(stack), REC->d"#),
        format!("stack={stack}d=7")
    );
    assert_eq!(
        text(r#""d=%llu, stack=%s", REC->d, __get_stacktrace(stack)"#),
        format!("d=7 stack={stack}")
    );
    payload[8..12].copy_from_slice(&(24u32 << 16 | 25).to_le_bytes());
    let text = print_through(
        &synthetic(r#""stack=%s d=%llu", __get_stacktrace(stack), REC->d"#),
        &payload,
    )
    .unwrap()
    .0;
    assert_eq!(text, "stack=unknownd=7");
}

#[test]
fn ticks_are_milliseconds_where_the_kernels_own_formats_tell_them() {
    let ticks = |text: &str, name: &str| {
        let mut tracing = tracing();
        tracing
            .formats
            .insert(1, Format { name: name.into(), print_format: text.into(), ..format("") });
        Machine::from_tracing(&tracing).ticks
    };
    let age = r#""age=%lu", (jiffies - REC->dirtied_when) / 250, REC->index"#;
    assert_eq!(ticks(age, "writeback_single_inode_start"), Some(250));
    assert_eq!((ticks(age, "other"), ticks(r#""x""#, "writeback_single_inode")), (None, None));
    let mut tracing = tracing();
    tracing.formats.insert(
        1,
        Format { name: "writeback_single_inode".into(), print_format: age.into(), ..format("") },
    );
    let of = |text: &str| {
        let program =
            compile(&format(text), Machine::from_tracing(&tracing), &*tracing.symbols).unwrap();
        let (mut names, payload) = (Names::new(&tracing, true), payload());
        let machine = Machine::from_tracing(&tracing);
        let mut scratch = Vec::new();
        let mut env = Env::new(&payload, machine, &mut scratch, &mut names);
        let mut out = Vec::new();
        program.print(&mut env, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(of(r#""%u", jiffies_to_msecs(REC->b)"#), "800");
}

#[test]
fn text_without_directives_and_arguments_that_belong_together_has_a_reason() {
    let payload = payload();
    assert!(run(r#""%d""#, &payload).unwrap_err().contains("fewer arguments"));
    let wide = format!("\"{}\"{}", "%4000d".repeat(1000), ", REC->a".repeat(1000));
    assert_eq!(run(&wide, &payload).unwrap_err(), "TooLong");
    let deep = format!("\"%d\", {}1", "(".repeat(100_000));
    assert!(format!("{:?}", run_through(&deep, &payload).unwrap().2).contains("operators"));
    let long = format!("\"%d\", 1{}", "+REC->a".repeat(100_000));
    assert!(run(&long, &payload).is_err());
    let doubling =
        (1..64).map(|n| format!("int x{n} = x{} + x{};", n - 1, n - 1)).collect::<String>();
    assert!(run(&format!("\"%d\", ({{ int x0 = 1; {doubling} x63; }})"), &payload).is_err());
}

proptest! {
    #[test]
    fn mutated_formats_neither_panic_nor_hang(
        which in 0..SHOWN.len(),
        at in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        with in "[-+*/%()\\[\\]{}<>!~&|^?:,\"a-zREC0-9_ ]{0,12}",
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let text = SHOWN[which].0;
        let (from, to) = (at.index(text.len()), to.index(text.len()));
        let mutated = format!("{}{with}{}", &text[..from], &text[to..]);
        let _ = run(&mutated, &bytes);
        let _ = run(text, &bytes);
    }

    #[test]
    fn packed_arguments_neither_panic_nor_hang(format in "[%a-zA-Z0-9 .*#-]{0,24}", arguments in proptest::collection::vec(any::<u8>(), 0..40)) {
        let tracing = tracing();
        let mut names = Names::new(&tracing, true);
        let mut scratch = Vec::new();
        let mut env = Env::new(&[], Machine::from_tracing(&tracing), &mut scratch, &mut names);
        let _ = super::super::print_binary(format.as_bytes(), &arguments, &mut env, &mut Vec::new());
    }
}

#[test]
fn packed_arguments_print() {
    let tracing = tracing();
    let mut names = Names::new(&tracing, true);
    let mut scratch = Vec::new();
    let mut env = Env::new(&[], Machine::from_tracing(&tracing), &mut scratch, &mut names);
    let mut arguments = vec![7, 0, 0, 0];
    arguments.extend_from_slice(b"text\0");
    arguments.extend_from_slice(&[0, 0, 0]);
    arguments.extend_from_slice(&0xffff_0004u64.to_le_bytes());
    let mut out = Vec::new();
    super::super::print_binary(b"%d %s %pS\n", &arguments, &mut env, &mut out).unwrap();
    assert_eq!(String::from_utf8_lossy(&out), "7 text work+0x4/0x100 [mod]\n");
}
