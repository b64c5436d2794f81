//! Targets of the CTF reader.

use lastwords_bytes::{Budget, Limits};
use lastwords_ctf::metadata;
use lastwords_ctf::program::{PacketPart, Program};
use lastwords_trace::class::Scope;
use lastwords_trace::visit::Ignore;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Metadata that the streams are read by: nearly every class of field.
const METADATA: [&str; 2] = [
    r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
trace { major = 1; minor = 8; byte_order = be; packet.header := struct { u8 stream_id; }; };
clock { name = c; freq = 1000; };
stream { id = 0;
    packet.context := struct { integer { size = 16; align = 8; } packet_size; integer { size = 16; } content_size; };
    event.header := struct { enum : integer { size = 5; } { s = 0 ... 30, l = 31 } id;
        variant <id> { struct { integer { size = 27; map = clock.c.value; } t; } s; struct { u8 id; } l; } v; } align(8); };
event { id = 0; stream_id = 0; fields := struct { u8 n; string a[n]; u8 b[n]; struct { u8 k; u8 r[k][n]; } c[3]; }; };
event { id = 1; stream_id = 0; fields := struct { enum : u8 { x, y = 5 ... 9 } e;
    variant <e> { string x; struct { integer { size = 3; signed = true; byte_order = le; } z; } y; } v; struct { } q[4]; }; };
"#,
    concat!(
        "\x1e",
        r#"{"type":"preamble","version":2}"#,
        "\x1e",
        r#"{"type":"data-stream-class","event-record-header-field-class":{"type":"structure","member-classes":[{"name":"i","field-class":{"type":"variable-length-unsigned-integer","roles":["event-record-class-id"]}}]}}"#,
        "\x1e",
        r#"{"type":"event-record-class","id":1,"payload-field-class":{"type":"structure","member-classes":[{"name":"n","field-class":{"type":"variable-length-signed-integer"}},{"name":"o","field-class":{"type":"optional","selector-field-location":{"path":["n"]},"selector-field-ranges":[[-5,-1],[3,9]],"field-class":{"type":"null-terminated-string","encoding":"utf-32be"}}},{"name":"b","field-class":{"type":"fixed-length-floating-point-number","length":16,"alignment":64,"byte-order":"big-endian"}}]}}"#,
        "\x1e",
        r#"{"type":"event-record-class","id":2,"payload-field-class":{"type":"structure","member-classes":[{"name":"n","field-class":{"type":"variable-length-unsigned-integer"}},{"name":"b","field-class":{"type":"dynamic-length-blob","length-field-location":{"path":["n"]}}},{"name":"a","field-class":{"type":"dynamic-length-array","length-field-location":{"path":["n"]},"element-field-class":{"type":"structure"}}},{"name":"m","field-class":{"type":"fixed-length-bit-array","length":13,"bit-order":"last-to-first","byte-order":"little-endian"}}]}}"#,
    ),
];

/// Metadata of any version, and what can be compiled of it.
pub fn metadata(data: &[u8]) {
    if let Ok(class) = metadata::parse(Path::new("fuzz"), data) {
        let _ = Program::new(class, &Arc::new(Budget::for_input(data.len() as u64)));
    }
}

/// A packet by metadata that is known: which is the first byte's say.
pub fn stream(data: &[u8]) {
    static PROGRAMS: OnceLock<Vec<Program>> = OnceLock::new();
    let programs = PROGRAMS.get_or_init(|| {
        let class =
            |text: &&str| metadata::parse(Path::new("fuzz"), text.as_bytes()).expect("it is right");
        // One for all inputs.
        let budget = Arc::new(Budget::new(Limits { bytes: u64::MAX, ..Limits::default() }));
        METADATA
            .iter()
            .map(|text| Program::new(class(text), &budget).expect("it compiles"))
            .collect()
    });
    let Some((first, bytes)) = data.split_first() else { return };
    let Some(program) = programs.get(usize::from(*first) % METADATA.len()) else { return };
    let mut decoder = program.decoder();
    let Ok(packet) = program.packet(&mut decoder, bytes) else { return };
    let whole = 8 * bytes.len() as u64;
    let part =
        PacketPart { bytes, base: 0, content_end: packet.content.unwrap_or(whole).min(whole) };
    let mut at = packet.events_at;
    while at < part.content_end {
        let Ok(event) = program.event(&mut decoder, packet.class, &part, at) else { return };
        assert!(
            event.end > at && event.end <= part.content_end,
            "an event goes on, within its packet"
        );
        let mut place = event.body;
        for scope in [Scope::CommonContext, Scope::SpecificContext, Scope::Payload] {
            let Some(code) = program.code(scope, packet.class, event.class) else { continue };
            place = program
                .visit(&mut decoder, code, &part, place, &mut Ignore)
                .expect("it was passed over before");
        }
        assert_eq!(place, event.end, "both ways over an event end at one place");
        at = event.end;
    }
}
