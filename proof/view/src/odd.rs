//! Writes a trace of CTF 1.8 with values, names and texts that are easily shown as something else.

use std::path::Path;

use anyhow::Result;

use lastwords_testkit::ctf::Stream;

use super::filters::Words;
use super::made::describe;

/// A type of fields, and the events.
const DOUBLE: &str =
    "typealias floating_point { exp_dig = 11; mant_dig = 53; align = 8; } := double;";
const EVENTS: &str = r#"
event { name = "odd"; id = 0; stream_id = 0; fields := struct {
    enum : u16 { A = 0, "x y" = 2 } kind; struct { i32 value; string label; } same; double d; string text; u64 large;
    u32 _10; u32 _2; u32 _1; }; };
event { name = "long"; id = 1; stream_id = 0; fields := struct { string text; }; };
event { name = "syscall_entry_read"; id = 2; stream_id = 0; fields := struct { u32 fd; }; };
event { name = "syscall_exit_read"; id = 3; stream_id = 0; fields := struct { u64 ret; }; };
"#;

/// The names and values of the trace, of which filters are made. The text of the long event is not
/// on the page.
pub(super) const WORDS: Words = Words {
    names: "kind same.value same.label d large fd ret tid procname event",
    texts: &[r#""A""#, r#""x y""#, r#""lab""#, r#""odd""#, "\"a\u{202e}b\""],
    globs: &[r#""*""#, r#""l?b""#, r#""[!A]*""#, r#""syscall_*""#, r#""a*b""#],
    numbers: "0 1 2 3 5 7 9007199254740992 9007199254740992.5 1e22 true",
};

/// Writes the trace into a new folder. `odd.js` knows what is in it.
pub(super) fn write(folder: &Path) -> Result<()> {
    describe(folder, ["odd", DOUBLE, "i32 tid; string procname;", EVENTS])?;
    let mut stream = Stream::default();
    let mut put = |kind: u16, time: u64, fields: &[&[u8]]| {
        let head = [
            &kind.to_le_bytes()[..],
            &time.to_le_bytes(),
            &7i32.to_le_bytes(),
            "a\u{202e}b\0".as_bytes(),
        ];
        stream.put(time, &[head.concat(), fields.concat()].concat());
    };
    let numbered = [10u32, 2, 1].map(u32::to_le_bytes).concat();
    let odd = |kind: u16, value: i32, d: f64, large: u64| {
        [&kind.to_le_bytes()[..], &value.to_le_bytes(), b"lab\0", &d.to_le_bytes()]
            .concat()
            .into_iter()
            .chain(
                [
                    if kind == 0 { "\u{1b}[1m\0" } else { "\0" }.as_bytes(),
                    &large.to_le_bytes(),
                    &numbered,
                ]
                .concat(),
            )
    };
    put(0, 1000, &[&odd(0, 5, f64::INFINITY, (1 << 53) + 1).collect::<Vec<_>>()]);
    put(0, 1001, &[&odd(2, -5, 1e22, 1 << 53).collect::<Vec<_>>()]);
    put(1, 1002, &["x".repeat(70_000).as_bytes(), b"\0"]);
    // Of three calls, only the last one has an end.
    for time in [2000, 3000, 4000] {
        put(2, time, &[&3u32.to_le_bytes()]);
    }
    put(3, 4500, &[&1u64.to_le_bytes()]);
    stream.close(0);
    Ok(std::fs::write(folder.join("stream_0"), &stream.file)?)
}
