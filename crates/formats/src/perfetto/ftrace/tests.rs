//! What is written is read again by a reader of protocol buffers that shares nothing with the writer.

use super::*;
use crate::ftrace::beside::Task;
use crate::ftrace::log::Relation;
use crate::ftrace::samples::{ENTRY, FUNCTION, OPEN, PRINT, page, payload, ring, tracing, wake, words};
use lastwords_trace::ftrace::Stats;

/// A field's number, its bytes (of a message or text), or its number.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

fn read(mut bytes: &[u8]) -> Vec<(u64, Value)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
        }
        panic!("a varint without an end")
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)),
            2 => {
                let len = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(len);
                bytes = rest;
                Value::Bytes(inner.to_vec())
            }
            kind => panic!("wire type {kind}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

/// All values of a field.
fn all(fields: &[(u64, Value)], number: u64) -> Vec<&Value> {
    fields.iter().filter(|(n, _)| *n == number).map(|(_, value)| value).collect()
}

fn messages(fields: &[(u64, Value)], number: u64) -> Vec<Vec<(u64, Value)>> {
    let inner = |value: &Value| match value {
        Value::Bytes(bytes) => read(bytes),
        Value::Number(_) => panic!("no message"),
    };
    all(fields, number).into_iter().map(inner).collect()
}

fn number(fields: &[(u64, Value)], of: u64) -> u64 {
    match all(fields, of)[..] {
        [Value::Number(value)] => *value,
        ref other => panic!("{of}: {other:?}"),
    }
}

fn text(fields: &[(u64, Value)], of: u64) -> String {
    match all(fields, of)[..] {
        [Value::Bytes(bytes)] => String::from_utf8(bytes.clone()).unwrap(),
        ref other => panic!("{of}: {other:?}"),
    }
}

fn sample() -> Tracing {
    let stats = Stats { entries: 6, overrun: 3, ..Stats::default() };
    let function = 0xffff_ffff_8100_0100u64;
    let first = [
        (100, wake(7)),
        (200, payload(PRINT, 0, 0, 7, &[&words(&[function])[..], b"hello\n\0\0"].concat())),
        (300, payload(OPEN, 0, 0, 7, &[&2u32.to_le_bytes()[..], &[0; 4], &words(&[65])].concat())),
    ];
    let second = [
        (400, payload(ENTRY, 0, 0, 0, &[&words(&[function])[..], &1u32.to_le_bytes()].concat())),
        (500, payload(FUNCTION, 0, 0, 9, &words(&[function, 0xffff_ffff_8100_0000]))),
    ];
    let pages = vec![page(&first, None), page(&second, Some(9))];
    tracing(ring(vec![Vec::new(), pages], stats), ring(Vec::new(), stats))
}

#[test]
fn bundles_names_and_the_log() {
    let tracing = sample();
    let tasks = vec![Task { pid: 7, tgid: 7, comm: "worker".into() }, Task { pid: 9, tgid: 7, comm: "helper".into() }];
    let beside = Beside { tasks, moment: Some((1_000, 9_000)) };
    let lines = [LogLine { time: 250, level: 3, facility: 0, text: "bad news".into() }];
    let mut out = Vec::new();
    let log = Log::new(&lines, Relation::Ahead(0));
    let summary = write(&mut out, &tracing, 0, &Choice::default(), &beside, log).unwrap();
    assert_eq!((summary.events, summary.bytes), (5, out.len() as u64));
    let packets = messages(&read(&out), 1);
    assert!(packets.iter().all(|packet| number(packet, 10) == 1));
    let of = |field| packets.iter().flat_map(|packet| messages(packet, field)).collect::<Vec<_>>();
    let clocks: Vec<(u64, u64)> = messages(&of(6)[0], 1).iter().map(|c| (number(c, 1), number(c, 2))).collect();
    assert_eq!(clocks, [(6, 1_000), (1, 9_000)]);
    let threads: Vec<(u64, u64)> = messages(&of(2)[0], 2).iter().map(|t| (number(t, 1), number(t, 3))).collect();
    assert_eq!(threads, [(9, 7), (7, 7)]);
    let mark = &of(11)[0];
    assert_eq!((number(mark, 9), text(mark, 23)), (3, "bad news".to_owned()));

    let bundles = of(1);
    assert_eq!(bundles.len(), 2);
    assert!(all(&bundles[0], 3).is_empty() && number(&bundles[1], 3) == 1, "events are missing before the second");
    let events: Vec<Vec<(u64, Value)>> = bundles.iter().flat_map(|bundle| messages(bundle, 2)).collect();
    let times: Vec<u64> = events.iter().map(|event| number(event, 1)).collect();
    assert_eq!(times, [100, 200, 300, 400, 500]);
    // `sched:wake` of the sample is none that Perfetto knows.
    let wake = &messages(&events[0], 327)[0];
    assert_eq!(text(wake, 1), "wake");
    let fields = messages(wake, 2);
    assert_eq!((text(&fields[0], 3), number(&fields[1], 4)), ("init".to_owned(), 9));
    assert_eq!(text(&messages(&events[1], 3)[0], 2), "hello\n");
    let call = &messages(&events[2], 329)[0];
    assert_eq!((number(call, 1), number(call, 2)), (2, 65));
    let entry = &messages(&events[3], 437)[0];
    let symbols = packets.iter().flat_map(|p| messages(p, 12)).flat_map(|d| messages(&d, 26)).collect::<Vec<_>>();
    assert_eq!((number(&symbols[0], 1), text(&symbols[0], 2)), (number(entry, 2), "do_work".to_owned()));
    let function = messages(&messages(&events[4], 327)[0], 2);
    assert_eq!((text(&function[0], 3), text(&function[1], 3)), ("do_work".to_owned(), "start_work".to_owned()));
}
