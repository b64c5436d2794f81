//! Tests fields of every type, from the macros to the report and to the output of Babeltrace 2.

use std::process::Command;

use super::{COMPILERS, compile, lastwords, reported, run, said};

/// The reported lines of the events that `fields.c` records.
const EVENTS: [&str; 15] = [
    "f:state: state=busy",
    "f:state: state=busy",
    "f:enums: u8=large u16=none u32=large u64=all i8=failed i16=most i32=done i64=failed behind=it",
    "f:unlabeled: state=5",
    "f:many: value=\"the last\"",
    "f:short: a={1,2,255} b={3,65535}",
    "f:head: a={1,2,255} text=\"behind an array\"",
    "f:arrays: c={4,5} d={-1,8} e={-2,9} f={-3,10} g={-4,11} h={0.5,-1.5} i={0.25,-2.5} j={true,false}",
    "f:long: k={6,7,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}",
    "f:sequences: a={-1,8} b={true,false} none={}",
    "f:text: exact=abcd cut=abcd padded=ab",
    "f:short text: n=1 name=worker",
    "f:no text: name=(null)",
    "f:stra?e: farbe=gr?n text=\"gr\\xfcn\"",
    "f:sixteen: a=1 b=2 c=3 d=4 e=5 f=6 g=7 h=8 i=9 j=10 k=11 l=12 m=13 n=14 o=15 p=16",
];

/// Some of the lines that Babeltrace 2 prints for them.
const PRINTED: [&str; 6] = [
    r#"{ state = ( "busy" : container = 7 ) }"#,
    r#"u64 = ( "all" : container = 18446744073709551615 ), i8 = ( "failed" : container = -1 )"#,
    r#"{ state = ( <unknown> : container = 5 ) }"#,
    r#"{ value = ( "the last" : container = 2000 ) }"#,
    r#"{ a = [ [0] = 1, [1] = 2, [2] = 255 ], text = "behind an array" }"#,
    r#"{ exact = "abcd", cut = "abcd", padded = "ab" }"#,
];

#[test]
fn of_every_type() {
    let prefix = tempfile::tempdir().expect("a folder");
    for (at, (compiler, flags)) in COMPILERS.into_iter().enumerate() {
        let program = compile(compiler, flags, "tests/capi/c/fields.c");
        let folder = &said(prefix.path(), &program, &[])[0];
        assert_eq!(reported(&[folder]), EVENTS, "{compiler} {flags:?}");
        let out = prefix.path().join(format!("ctf-{at}"));
        lastwords(&["recover", folder, "-o", out.to_str().expect("text")]);
        let printed = run(Command::new("babeltrace2").arg(out));
        let text = String::from_utf8_lossy(&printed.stdout);
        assert_eq!(
            (text.lines().count(), String::from_utf8_lossy(&printed.stderr).as_ref()),
            (EVENTS.len(), "")
        );
        for wanted in PRINTED {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
    }
}
