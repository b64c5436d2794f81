//! What programs read: JSON lines, and the account.

use super::*;
use lastwords_testkit::text::Text as _;

#[test]
fn json_lines_have_the_values_of_the_events() {
    let mut memory = memory();
    let fields = &mut memory.schema.channels[0].events[0].fields;
    fields.push(field("n", FieldClass::Float { size: 8 }));
    fields.push(field("flag", FieldClass::Bool));
    let labels = vec![(-1, "GONE".to_owned()), (2, "RUNNING".to_owned())];
    fields.push(field("state", FieldClass::Enum { size: 1, signed: true, labels }));
    fields.push(field("raw", FieldClass::Bytes));
    let mut bytes = vec![0; HEADER];
    event(&mut bytes, 0, 1_000_000_001, u32::MAX, b"a\"b\xff\n");
    bytes.extend(f64::NAN.to_le_bytes());
    bytes.extend([1, 0xFF]);
    bytes.extend([2, 0, 0, 0, 0xDE, 0x0D]);
    memory.packets[0].push((committed(0, 0, 1_000_000_001, bytes.len()), bytes));
    let mut out = Vec::new();
    let (all, traces) = (Selection::default(), read(&memory, Version::V2));
    let totals = json::write(&traces, &all, &mut out, &unwatched, &mut |_| {}).expect("JSON");
    assert_eq!((totals.events, totals.bytes, totals.faults), (1, out.len() as u64, 0));
    let out = String::from_utf8(out).expect("UTF-8");
    let lines: Vec<serde_json::Value> =
        out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(lines[0]["schema"], "lastwords.events.v1");
    assert_eq!(lines[0]["traces"][0]["streams"][1]["cpu"], 1);
    assert_eq!(
        lines[1],
        serde_json::json!({
            "time": "2026-11-18T11:06:41.000000001Z", "ticks": 1_000_000_001u64, "trace": 0, "stream": 0, "cpu": 0,
            "channel": "main", "event": "app:one", "level": "warn", "context": { "procname": "worker", "vtid": 77 },
            "fields": {
                "n": u32::MAX, "text": "a\"b\u{fffd}\n", "n_2": "NaN", "flag": true,
                "state": { "value": -1, "label": "GONE" }, "raw": "de0d",
            },
        })
    );
}

#[test]
fn evidence_as_text_and_data() {
    let mut memory = memory();
    let sub_buffer = |sequence, verdict, why: &str| SubBuffer {
        stream: 0,
        sequence,
        verdict,
        content: 100,
        why: why.to_owned(),
    };
    memory.evidence.sub_buffers = vec![
        sub_buffer(1, Verdict::Committed, ""),
        sub_buffer(2, Verdict::Torn, "a thread died in it"),
        sub_buffer(3, Verdict::Open, ""),
    ];
    let gap = |stream, cause, events, bytes| {
        Gap::new(stream, cause, "position 4096".to_owned()).with_events(events).with_bytes(bytes)
    };
    memory.evidence.gaps = vec![
        gap(Some(0), Cause::InFlight, Some(1), Some(32)),
        gap(Some(1), Cause::Discarded, Some(40), None),
        gap(None, Cause::Missing, None, None),
    ];
    memory.evidence.notes = vec!["registry: 1 record\u{1b} dropped".to_owned()];
    let mut out = Vec::new();
    evidence::Account::new(&memory).write(2, &mut out).expect("text");
    assert_eq!(
        String::from_utf8(out).expect("UTF-8"),
        "session: sub-buffers: 1 committed, 1 open, 1 torn; with losses\n  \
         channel main, CPU 0, sub-buffer 2: torn, 100 bytes kept: a thread died in it\n  \
         channel main, CPU 0, position 4096: in-flight (1 event, 32 bytes)\n  \
         channel main, CPU 1, position 4096: discarded (40 events)\n  \
         ... and 1 more gaps; `inspect --json` lists all\n  \
         registry: 1 record_ dropped\n"
    );
    let report = serde_json::to_value(evidence::Account::new(&memory).report()).expect("JSON");
    assert_eq!(report["schema"], "lastwords.evidence.v1");
    assert_eq!(report["lost_events"], 40);
    assert_eq!(report["verdicts"]["torn"], 1);
    assert_eq!(report["streams"][1]["gaps"][0]["cause"], "discarded");
    assert_eq!(report["gaps"][0]["events"], serde_json::Value::Null);
    ctf::metadata(&memory.schema, &memory.evidence, Version::V1_8)
        .expect("TSDL")
        .has("lost_events = 40;");
    // If the size of some gaps is unknown, the text says that there are losses.
    ctf::metadata(&memory.schema, &memory.evidence, Version::V1_8)
        .expect("TSDL")
        .has("losses = 1;");
    // A session that has lost its name is named by its UUID.
    memory.schema.name.clear();
    let mut out = Vec::new();
    evidence::Account::new(&memory).write(2, &mut out).expect("text");
    assert!(out.starts_with(b"session 30313233-3435-3637-3839-616263646566: sub-buffers"));
}
