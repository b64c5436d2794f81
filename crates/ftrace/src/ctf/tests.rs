//! Tests that babeltrace2 and the JSON lines show what was written.

use std::process::Command;

use super::*;
use crate::Stats;
use crate::log::{self, LogLine, Relation};
use crate::samples::*;
use crate::values::tests as values;
use lastwords_ctf::Totals;
use lastwords_ctf::read::{copy, unwatched};
use lastwords_render::events::Note;
use lastwords_render::select::Selection;
use serde_json::{Value, json};

fn traced(tracing: &Arc<Tracing>, array: usize, choice: &Choice, form: Form) -> Trace {
    let remarks = Remarks::default();
    trace(Path::new("vmcore"), tracing, array, choice, Some(10_000_000_000), form, &remarks)
        .unwrap()
}

fn write(
    folder: &Path,
    tracing: Tracing,
    choice: &Choice,
    version: Version,
) -> Result<(Totals, Vec<String>)> {
    let traces = [traced(&Arc::new(tracing), 0, choice, Form::Folder(version))];
    let mut faults = Vec::new();
    let totals =
        copy(&traces, version, folder, &unwatched, &mut |fault| faults.push(fault.to_string()))?;
    Ok((Totals::sum(&totals), faults))
}

fn sample() -> Tracing {
    let stats = Stats { entries: 5, overrun: 3, ..Stats::default() };
    let function = 0xffff_ffff_8100_0100u64;
    let first = [
        (100, wake(7)),
        (200, payload(PRINT, 0, 0, 7, &[&words(&[function])[..], b"a \"b\"\n\0\0"].concat())),
        (300, payload(OPEN, 0, 0, 7, &words(&[2, u64::MAX]))),
    ];
    let second = [
        (400, payload(STACK, 0, 0, 0, &words(&[2, function, 16]))),
        (500, payload(FUNCTION, 0, 0, 9, &words(&[function, 1]))),
        (600, payload(999, 0, 0, 9, b"abcd")),
    ];
    let pages = vec![page(&first, None), page(&second, Some(9))];
    tracing(ring(vec![Vec::new(), pages], stats), ring(Vec::new(), stats))
}

fn printed(folder: &Path) -> (String, String) {
    let ran =
        Command::new("babeltrace2").args(["--clock-cycles", "--no-delta"]).arg(folder).output();
    let ran = ran.expect("babeltrace2 is installed: cargo xtask setup");
    assert!(ran.status.success());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(ran.stdout), text(ran.stderr))
}

#[test]
fn babeltrace_reads_every_event() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("trace");
    let (totals, faults) = write(&folder, sample(), &Choice::default(), Version::V1_8).unwrap();
    assert_eq!((totals.events, totals.packets, totals.streams, faults.len()), (6, 2, 1, 0));
    let (out, err) = printed(&folder);
    let context = |flags: &str, pid: u32, comm: &str| {
        let tgid = if pid == 7 { 5 } else { 0 };
        format!(
            "{{ cpu_id = 1 }}, {{ flags = {flags}, pid = {pid}, tgid = {tgid}, comm = \"{comm}\" }}"
        )
    };
    let (worker, idle) = (
        context("0x0, preempt_count = 0x0", 7, "worker"),
        context("0x0, preempt_count = 0x0", 0, "<idle>"),
    );
    let expected = [
        format!(
            "[00000000000000000100] sched:wake: {}, {{ comm = \"init\", pid = 9 }}",
            context("0x1, preempt_count = 0x11", 7, "worker")
        ),
        format!(
            "[00000000000000000200] ftrace:print: {worker}, {{ ip = 0xFFFFFFFF81000100, msg = \"a \\\"b\\\"\\n\" }}"
        ),
        format!(
            "[00000000000000000300] syscalls:sys_enter_open: {worker}, {{ __syscall_nr = 2, flags = -1 }}"
        ),
        format!(
            "[00000000000000000400] ftrace:kernel_stack: {idle}, {{ size = 2, _caller_length = 2, caller = [ [0] = \
             0xFFFFFFFF81000100, [1] = 0x10 ] }}"
        ),
        format!(
            "[00000000000000000500] ftrace:function: {}, {{ ip = 0xFFFFFFFF81000100, parent_ip = 0x1 }}",
            context("0x0, preempt_count = 0x0", 9, "a long name here")
        ),
        // No format describes this event.
        format!(
            "[00000000000000000600] ftrace:unknown: {}, {{ type = 999, _data_length = 12, data = [ {} ] }}",
            context("0x0, preempt_count = 0x0", 9, "a long name here"),
            [
                "0xE7", "0x3", "0x0", "0x0", "0x9", "0x0", "0x0", "0x0", "0x61", "0x62", "0x63",
                "0x64"
            ]
            .iter()
            .enumerate()
            .map(|(at, byte)| format!("[{at}] = {byte}"))
            .collect::<Vec<_>>()
            .join(", ")
        ),
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    assert!(err.contains("discarded 9 events"), "{err}");
}

#[test]
fn a_choice_is_kept_to() {
    let dir = tempfile::tempdir().unwrap();
    let count = |name: &str, choice: &Choice| {
        write(&dir.path().join(name), sample(), choice, Version::V2)
            .map(|(totals, _)| totals.events)
    };
    assert_eq!(
        count("a", &Choice { events: vec!["ftrace:*".into()], ..Choice::default() }).unwrap(),
        4
    );
    assert_eq!(
        count("b", &Choice { since: Some(200), until: Some(400), ..Choice::default() }).unwrap(),
        3
    );
    assert_eq!(count("c", &Choice { cpus: vec![0], ..Choice::default() }).unwrap(), 0);
    assert!(count("a", &Choice::default()).is_err(), "it is there already");
}

/// Returns the JSON lines of these arrays with the kernel's log last, and the faults.
fn lines(
    tracing: Tracing,
    choice: &Choice,
    selection: &Selection,
    records: &[LogLine],
) -> (Vec<Value>, Vec<String>) {
    let tracing = Arc::new(tracing);
    let mut traces: Vec<Trace> = (0..tracing.arrays.len())
        .map(|array| traced(&tracing, array, choice, Form::Lines))
        .collect();
    let offset = Some(10_000_000_000);
    traces.push(
        log::trace(
            Path::new("vmcore"),
            records.to_vec(),
            Relation::Ahead(1_000_000_000),
            choice,
            offset,
        )
        .unwrap(),
    );
    let (mut out, mut faults) = (Vec::new(), Vec::new());
    lastwords_render::json::write(
        &traces,
        selection,
        &mut out,
        &unwatched,
        &mut |note| match note {
            Note::Fault(fault) => faults.push(fault.to_string()),
            Note::Read(..) => {}
            Note::Loss(..) | Note::Remark(_) => panic!("the account reports losses"),
        },
    )
    .unwrap();
    let text = String::from_utf8(out).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), faults)
}

fn two_arrays() -> Tracing {
    let stats = Stats { entries: 3, dropped: 2, ..Stats::default() };
    let first = page(&[(1_000_000_500, wake(7))], None);
    let second = page(&[(3_000_000_000, wake(0)), (3_000_000_000, wake(9))], Some(4));
    let other = page(&[(2_000_000_000, payload(999, 0, 0, 9, b"abcd"))], None);
    let top = ring(vec![vec![first, second], vec![page(&[(3_000_000_000, wake(7))], None)]], stats);
    tracing(top, ring(vec![Vec::new(), vec![other]], Stats::default()))
}

#[test]
fn lines_of_two_arrays_and_the_log_in_order() {
    let record = |time, text: &str| LogLine {
        time,
        level: 4,
        text: text.into(),
        subsystem: "pci".into(),
        ..LogLine::default()
    };
    // The log is a second ahead.
    let records = [record(3_500_000_000, "a \"warning\""), record(9_000_000_000, "two\nlines")];
    let (lines, faults) = lines(two_arrays(), &Choice::default(), &Selection::default(), &records);
    assert!(faults.is_empty(), "{faults:?}");
    let heads = lines[0]["traces"].as_array().unwrap();
    let names: Vec<_> = heads.iter().map(|head| (&head["name"], &head["losses"])).collect();
    assert_eq!(
        names,
        [
            (&json!("ftrace"), &json!(true)),
            (&json!("extra"), &json!(false)),
            (&json!("kernel log"), &json!(false))
        ]
    );
    assert_eq!(
        (&heads[0]["env"]["dropped_events"], &heads[0]["env"]["trace_clock"]),
        (&json!(4), &json!("local"))
    );
    assert_eq!(
        lines[1],
        json!({"time": "1970-01-01T00:00:11.000000500Z", "ticks": 1_000_000_500u64, "trace": 0, "stream": 0, "cpu": 0,
            "channel": "ftrace", "event": "sched:wake",
            "context": {"flags": "d..11", "pid": 7, "tgid": 5, "comm": "worker", "lost": 0, "text": "wake: comm=init pid=9"},
            "fields": {"comm": "init", "pid": 9}})
    );
    assert_eq!((&lines[2]["event"], &lines[2]["trace"]), (&json!("ftrace:unknown"), &json!(1)));
    assert_eq!(lines[2]["fields"], json!({"type": 999, "data": "e70300000900000061626364"}));
    assert_eq!(lines[2]["context"]["text"], "Unknown type 999");
    let log = json!({"time": "1970-01-01T00:00:12.500000000Z", "ticks": 3_500_000_000u64, "trace": 2, "stream": 0,
        "channel": "kernel log", "event": "kernel:log", "fields": {"level": 4, "facility": 0, "subsystem": "pci", "device": "", "text": "a \"warning\""}});
    assert_eq!(lines[3], log);
    // At equal times, events of the lower CPU come first, as in the kernel's text.
    let last: Vec<_> = lines[4..7]
        .iter()
        .map(|line| (&line["cpu"], &line["context"]["pid"], &line["context"]["lost"]))
        .collect();
    let [zero, one, four] = [0, 1, 4].map(Value::from);
    assert_eq!(last, [(&zero, &zero, &four), (&zero, &json!(9), &zero), (&one, &json!(7), &zero)]);
    assert_eq!((&lines[7]["fields"]["text"], lines.len()), (&json!("two\nlines"), 8));
}

#[test]
fn fields_of_each_kind() {
    let format = crate::format_file::parse("test", values::TEXT).unwrap();
    let mut event = values::payload();
    event[..2].copy_from_slice(&format.id.to_le_bytes());
    let pages = vec![page(&[(100, event)], None)];
    let mut made = alone(vec![pages], Stats::default());
    made.formats.insert(format.id, format);
    let (lines, faults) = lines(made, &Choice::default(), &Selection::default(), &[]);
    let fields = json!({"comm": "ab", "name": "me", "list": [5, 6], "ok": true, "mac": "090807", "low": -2,
        "pair": [1, 2], "page": u64::MAX});
    assert_eq!(
        (lines[1]["event"].as_str(), &lines[1]["fields"], faults.len()),
        (Some("test:sample"), &fields, 0)
    );
}

#[test]
fn json_lines_of_a_selection() {
    let record = |time| LogLine { time, level: 6, text: "text".into(), ..LogLine::default() };
    let of = |choice: &Choice, selection: &Selection| {
        lines(two_arrays(), choice, selection, &[record(1), record(4_500_000_000)]).0
    };
    let only = Choice { events: vec!["sched:*".into()], ..Choice::default() };
    let last = of(&only, &Selection { last: Some(2), ..Selection::default() });
    // The log is not counted; it begins at the first event.
    let pids: Vec<_> = last[1..].iter().map(|line| &line["context"]["pid"]).collect();
    assert_eq!(
        (pids, &last[3]["event"]),
        (vec![&json!(9), &json!(7), &Value::Null], &json!("kernel:log"))
    );
    // The selection does not apply to these traces, because they are marked as selected already.
    let others = Selection {
        events: vec!["none".into()],
        cpus: vec![7],
        until: Some(0),
        ..Selection::default()
    };
    assert_eq!(of(&Choice { cpus: vec![0], ..Choice::default() }, &others).len(), 6);
    let early = of(
        &Choice { until: Some(2_500_000_000), since: Some(1_000_000_000), ..Choice::default() },
        &others,
    );
    assert_eq!((early.len(), &early[2]["event"]), (3, &json!("ftrace:unknown")));
}

#[test]
fn faults_of_a_page_are_reported() {
    let mut cut = page(&[(100, wake(7)), (200, wake(9))], None);
    // The second event is longer than its page.
    let second = 16 + 4 + 4 + 20 + 4;
    cut[second..second + 4].copy_from_slice(&9999u32.to_le_bytes());
    // An event without its last field.
    let short = payload(WAKE, 0, 0, 7, b"init\0\0\0\0");
    let pages =
        vec![cut, page(&[(300, short), (310, wake(9))], None), page(&[(50, wake(7))], None)];
    let made = || alone(vec![pages.clone()], Stats::default());
    let (lines, faults) = lines(made(), &Choice::default(), &Selection::default(), &[]);
    let events: Vec<_> = lines[1..]
        .iter()
        .map(|line| (line["ticks"].as_u64().unwrap(), line["event"].as_str().unwrap()))
        .collect();
    // A time that goes back is not changed.
    assert_eq!(
        events,
        [(100, "sched:wake"), (300, "ftrace:unknown"), (310, "sched:wake"), (50, "sched:wake")]
    );
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with("cpu-0, packet 0: offset 44: 9995") && faults[0].ends_with("is lost"),
        "{faults:?}"
    );
    assert!(
        faults[1].starts_with(
            "cpu-0, packet 1: events kept as bytes, because their fields lie outside the event: 1"
        ),
        "{faults:?}"
    );
    let dir = tempfile::tempdir().unwrap();
    let (totals, faults) =
        write(&dir.path().join("trace"), made(), &Choice::default(), Version::V1_8).unwrap();
    assert_eq!((totals.events, totals.packets, totals.faults), (4, 3, 3));
    assert!(
        faults[2].contains(
            "events moved to the time of the preceding event, because theirs is earlier: 1"
        ),
        "{faults:?}"
    );
    let (out, err) = printed(&dir.path().join("trace"));
    assert_eq!((out.lines().count(), err.as_str()), (4, ""));
}

/// A sub-buffer that the image does not have is a packet that is missing.
#[test]
fn sub_buffers_that_are_missing_are_told() {
    let pages = vec![page(&[(100, wake(7))], None), Vec::new(), page(&[(300, wake(9))], None)];
    let made = alone(vec![pages], Stats::default());
    let dir = tempfile::tempdir().unwrap();
    let (totals, _) =
        write(&dir.path().join("trace"), made, &Choice::default(), Version::V1_8).unwrap();
    assert_eq!((totals.events, totals.packets), (2, 2));
    let (out, err) = printed(&dir.path().join("trace"));
    assert_eq!(out.lines().count(), 2);
    assert!(err.contains("Tracer discarded 1 packet between"), "{err}");
}
