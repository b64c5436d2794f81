//! Tests that arguments shown in one step have the same text as expressions. A width of 1 forces an
//! expression and changes nothing in the text.

use crate::{Format, NoSymbols};
use proptest::prelude::*;

use super::super::{Machine, compile};
use super::*;
use crate::print::{Env, Names};
use crate::samples;
use lastwords_trace::text::page::Page;

const FIELDS: &str = "u8 a:8:1:0, s8 b:9:1:1, u16 c:10:2:0, s16 d:12:2:1, u32 e:16:4:0, int f:20:4:1, \
    u64 g:24:8:0, s64 h:32:8:1, char comm[16]:40:16:1, char name[5]:56:5:1";
const LENGTH: usize = 61;

fn format(print_format: &str) -> Format {
    samples::printed(FIELDS, print_format)
}

/// Returns the text of [`Program::print`](super::super::Program::print), and of
/// [`Program::line`](super::super::Program::line) if the program is plain.
fn texts(
    print_format: &str,
    payload: &[u8],
    machine: Machine,
) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let program =
        compile(&format(print_format), machine, &NoSymbols).unwrap().with_prefix(b"event: ");
    let tracing = samples::silent();
    let mut names = Names::new(&tracing, false);
    let mut scratch = Vec::new();
    let mut env = Env::new(payload, machine, &mut scratch, &mut names);
    let mut out = Vec::new();
    let printed = program.print(&mut env, &mut out).is_ok().then_some(out);
    if !program.is_plain() {
        return (printed, None);
    }
    let mut page = Page::default();
    let is_put = page.line(|line| program.line(payload, machine.order, line).is_ok());
    let line = is_put.then(|| page.text().to_vec());
    assert_eq!(line, printed, "{print_format}");
    (printed, line)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn one_step_is_as_good_as_many(
        bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], LENGTH),
        length in prop_oneof![4 => Just(LENGTH), 1 => 0..LENGTH],
        big in any::<bool>(),
        word_size in prop_oneof![Just(4u8), Just(8)],
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let machine = Machine { order, word_size, page_size: 4096, ticks: None };
        let payload = &bytes[..length];
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            for cast in ["", "(u64)", "(s64)", "(int)", "(unsigned)", "(u8)", "(short)", "(long)(u16)"] {
                for kind in ["d", "u", "x", "ld", "lu", "lx", "lld", "llx", "hd", "hhu", "hx"] {
                    let quick = texts(&format!(r#""v=%{kind};", {cast}REC->{name}"#), payload, machine);
                    let slow = texts(&format!(r#""v=%1{kind};", {cast}REC->{name}"#), payload, machine);
                    prop_assert_eq!(&quick.0, &slow.0, "{}{}{}", kind, cast, name);
                    prop_assert!(slow.1.is_none());
                }
            }
            let prefixed = |width: &str| texts(&format!(r#""%#{width}x %c", REC->{name}, REC->a"#), payload, machine).0;
            prop_assert_eq!(prefixed(""), prefixed("1"));
        }
        for name in ["comm", "name"] {
            let text = |width: &str| texts(&format!(r#""c=%{width}s e=%d", REC->{name}, REC->f"#), payload, machine);
            prop_assert_eq!(text("").0, text("0").0);
            prop_assert_eq!(text("").1.is_some(), length >= if name == "comm" { 56 } else { 61 });
        }
    }
}
