//! Tests that read Perfetto's traces of a kernel with a separate decoder of protocol buffers, which
//! shares no code with the writer.

use crate::ctf::{Form, Remarks, trace};
use crate::log::{self, LogLine, Relation};
use crate::samples::*;
use crate::{Choice, Recording, Stats, Tracing};
use lastwords_ctf::Totals;
use lastwords_ctf::read::{Trace, unwatched};
use lastwords_render::events::Note;
use lastwords_render::perfetto::{Kernel, Process, Task, can_hold, write};
use lastwords_render::select::Selection;
use lastwords_testkit::wire::{Wire, fields};
use std::path::Path;
use std::sync::Arc;

/// The fields of a message with their numbers.
type Message<'a> = Vec<(u64, Wire<'a>)>;

fn read(bytes: &[u8]) -> Message<'_> {
    fields(bytes).unwrap()
}

/// Returns all values of a field.
fn all<'a>(fields: &[(u64, Wire<'a>)], number: u64) -> Vec<Wire<'a>> {
    fields.iter().filter(|(n, _)| *n == number).map(|(_, value)| *value).collect()
}

fn messages<'a>(fields: &[(u64, Wire<'a>)], number: u64) -> Vec<Message<'a>> {
    all(fields, number).into_iter().map(|value| read(value.bytes())).collect()
}

/// Returns the messages that a field of all these messages has.
fn within<'a>(outer: &[Message<'a>], field: u64) -> Vec<Message<'a>> {
    outer.iter().flat_map(|message| messages(message, field)).collect()
}

/// Returns the only value of a field.
fn one<'a>(fields: &[(u64, Wire<'a>)], of: u64) -> Wire<'a> {
    let [value] = all(fields, of)[..] else { panic!("{of}: {fields:?}") };
    value
}

fn number(fields: &[(u64, Wire<'_>)], of: u64) -> u64 {
    one(fields, of).number()
}

fn text(fields: &[(u64, Wire<'_>)], of: u64) -> String {
    one(fields, of).text()
}

/// Returns all events of these traces as Perfetto has them, with what the writer tells.
fn written(traces: &[Trace], kernel: &Kernel<'_>) -> (Totals, Vec<u8>, Vec<Note>) {
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let totals = write(
        (traces, Some(kernel), &[]),
        &Selection::default(),
        &mut out,
        &unwatched,
        &mut |note| notes.push(note),
    );
    (totals.unwrap(), out, notes)
}

fn sample() -> Tracing {
    let stats = Stats { entries: 6, overrun: 3, ..Stats::default() };
    let function = 0xffff_ffff_8100_0100u64;
    let first = [
        (100, wake(7)),
        (200, payload(PRINT, 0, 0, 7, &[&words(&[function])[..], b"hello\n\0\0"].concat())),
        (300, payload(OPEN, 0, 0, 7, &words(&[2, 65]))),
    ];
    let second = [
        (400, payload(ENTRY, 0, 0, 0, &[&words(&[function])[..], &1u32.to_le_bytes()].concat())),
        (500, payload(FUNCTION, 0, 0, 9, &words(&[function, 0xffff_ffff_8100_0000]))),
    ];
    let pages = vec![page(&first, None), page(&second, Some(9))];
    tracing(ring(vec![Vec::new(), pages], stats), ring(Vec::new(), stats))
}

/// Returns the first array as the one of a kernel.
fn tracer(tracing: &Tracing) -> Recording<'_> {
    Recording { tracing, ring: &*tracing.arrays[0].live }
}

/// Returns a kernel whose packets are the first of a file and the only ones of a trace.
fn alone_in_a_file<'a>(tracer: &'a Recording<'a>, boot: Option<i64>) -> Kernel<'a> {
    Kernel { trace: 0, is_alone: true, tracer, tasks: &[], clock: "local", boot }
}

/// Returns the packets of the first array.
fn packets(tracing: &Arc<Tracing>) -> Trace {
    let (path, choice) = (Path::new("vmcore"), Choice::default());
    trace(path, tracing, 0, &choice, Some(8_000), Form::Plain, &Remarks::default()).unwrap()
}

/// Returns the packets of a log of these lines: time, level and text.
fn log_of(lines: &[(u64, u8, &str)], offset: i64) -> Trace {
    let line = |(time, level, text): &(u64, u8, &str)| LogLine {
        time: *time,
        level: *level,
        text: (*text).into(),
        ..LogLine::default()
    };
    let (lines, choice) = (lines.iter().map(line).collect(), Choice::default());
    log::trace(Path::new("vmcore"), lines, Relation::Ahead(0), &choice, Some(offset)).unwrap()
}

#[test]
fn bundles_names_and_the_log() {
    let tracing = Arc::new(sample());
    let process = Process { parent: 1, uid: 33, is_kernel_thread: false, started: 77 };
    let tasks = vec![
        Task { pid: 7, tgid: 7, comm: "worker".into(), process: Some(process) },
        Task { pid: 9, tgid: 7, comm: "helper".into(), process: None },
    ];
    let traces = [packets(&tracing), log_of(&[(250, 3, "bad news")], 8_000)];
    let tracer = &tracer(&tracing);
    let kernel = Kernel { tasks: &tasks, ..alone_in_a_file(tracer, Some(-40)) };
    let (totals, out, remarks) = written(&traces, &kernel);
    assert!(remarks.is_empty(), "{remarks:?}");
    assert_eq!((totals.events, totals.bytes), (5, out.len() as u64));
    let packets = messages(&read(&out), 1);
    assert!(packets.iter().all(|packet| number(packet, 10) == 1));
    let of = |field| within(&packets, field);
    let clocks: Vec<(u64, u64)> =
        messages(&of(6)[0], 1).iter().map(|c| (number(c, 1), number(c, 2))).collect();
    assert_eq!(clocks, [(6, 0), (1, 8_040)], "the boot was 40 ns after time 0 of the clock");
    let threads: Vec<(u64, u64)> =
        messages(&of(2)[0], 2).iter().map(|t| (number(t, 1), number(t, 3))).collect();
    assert_eq!(threads, [(9, 7), (7, 7)]);
    let first = &messages(&of(2)[0], 1)[0];
    let words = [1, 2, 5, 7, 8, 9].map(|word| number(first, word));
    assert_eq!((words, text(first, 3)), ([7, 1, 33, 77, 0, 1], "worker".to_owned()));
    let entry = &of(132)[0];
    assert_eq!(
        (number(entry, 5), text(entry, 6), text(entry, 7)),
        (3, "kernel".to_owned(), "bad news".to_owned())
    );
    let entered = packets.iter().find(|packet| !all(packet, 132).is_empty()).unwrap();
    assert_eq!((number(entered, 8), number(entered, 58)), (210, 6), "the time since the boot");
    assert!(of(11).is_empty(), "no panic");

    judge_bundles(&packets, &of(1));
}

/// Judges the two bundles of [`sample`].
fn judge_bundles(packets: &[Message<'_>], bundles: &[Message<'_>]) {
    assert_eq!(bundles.len(), 2);
    let relations: Vec<_> =
        bundles.iter().map(|bundle| [5, 6, 7].map(|field| number(bundle, field))).collect();
    assert_eq!(relations, [[3, 41, 1]; 2]);
    assert!(
        all(&bundles[0], 3).is_empty() && number(&bundles[1], 3) == 1,
        "events are missing before the second"
    );
    let events = within(bundles, 2);
    let times: Vec<u64> = events.iter().map(|event| number(event, 1)).collect();
    assert_eq!(times, [100, 200, 300, 400, 500]);
    // Perfetto has no message for the sample's event `sched:wake`.
    let wake = &messages(&events[0], 327)[0];
    assert_eq!(text(wake, 1), "wake");
    let fields = messages(wake, 2);
    assert_eq!((text(&fields[0], 3), number(&fields[1], 4)), ("init".to_owned(), 9));
    // A text that is not in the form of atrace.
    let print = &messages(&events[1], 327)[0];
    let buf = &messages(print, 2)[1];
    assert_eq!(
        (text(print, 1), text(buf, 1), text(buf, 3)),
        ("print".into(), "buf".to_owned(), "hello\n".to_owned())
    );
    let call = &messages(&events[2], 329)[0];
    assert_eq!((number(call, 1), number(call, 2)), (2, 65));
    let entry = &messages(&events[3], 437)[0];
    let symbols = within(&within(packets, 12), 26);
    assert_eq!(
        (number(&symbols[0], 1), text(&symbols[0], 2)),
        (number(entry, 2), "do_work".to_owned())
    );
    let function = messages(&messages(&events[4], 327)[0], 2);
    assert_eq!(
        (text(&function[0], 3), text(&function[1], 3)),
        ("do_work".to_owned(), "start_work".to_owned())
    );
}

#[test]
fn a_kernel_and_others_have_one_clock() {
    let tracing = Arc::new(sample());
    let traces = [log_of(&[(250, 3, "x")], 9_000), packets(&tracing)];
    let tracer = &tracer(&tracing);
    let kernel =
        Kernel { trace: 1, is_alone: false, clock: "global", ..alone_in_a_file(tracer, Some(60)) };
    let (_, out, remarks) = written(&traces, &kernel);
    assert!(remarks.is_empty(), "{remarks:?}");
    let packets = messages(&read(&out), 1);
    let snapshots = within(&packets, 6);
    assert_eq!(
        (snapshots.len(), number(&snapshots[0], 2)),
        (1, 1),
        "the clock of the file is real time"
    );
    let clocks: Vec<(u64, u64)> =
        messages(&snapshots[0], 1).iter().map(|c| (number(c, 1), number(c, 2))).collect();
    assert_eq!(clocks, [(6, 0), (1, 7_940)]);
    let entered = packets.iter().find(|packet| !all(packet, 132).is_empty()).unwrap();
    assert_eq!((number(entered, 8), number(entered, 58)), (9_250, 1));
    let bundles = within(&packets, 1);
    assert_eq!([5, 6, 7].map(|field| number(&bundles[0], field)), [2, 1, 61]);
    let times: Vec<u64> = within(&bundles, 2).iter().map(|event| number(event, 1)).collect();
    assert_eq!(times, [100, 200, 300, 400, 500]);
}

#[test]
fn clocks_of_one_file_are_related() {
    let tracing = Arc::new(sample());
    let made = |offset| {
        let (path, choice) = (Path::new("vmcore"), Choice::default());
        [0, 1].map(|array| {
            trace(path, &tracing, array, &choice, offset, Form::Plain, &Remarks::default()).unwrap()
        })
    };
    let tracer = &tracer(&tracing);
    let kernel = |is_alone| Kernel { is_alone, ..alone_in_a_file(tracer, None) };
    assert!(
        can_hold(&made(Some(5)), Some(&kernel(false)))
            && can_hold(&made(None), Some(&kernel(true)))
    );
    assert!(!can_hold(&made(None), Some(&kernel(false))));
}

#[test]
fn lines_of_the_log_that_stretch_the_view_are_left_out_and_told() {
    let tracing = Arc::new(sample());
    let lines = [
        (10, 0, "old"),
        (20, 0, "older than the first event"),
        (300, 0, "Kernel panic - not syncing: x"),
        (501 + 10_000_000, 0, "much later"),
    ];
    let traces = [packets(&tracing), log_of(&lines, 8_000)];
    let tracer = &tracer(&tracing);
    let kernel = Kernel { clock: "boot", ..alone_in_a_file(tracer, Some(0)) };
    let (_, out, remarks) = written(&traces, &kernel);
    let packets = messages(&read(&out), 1);
    let entries = within(&packets, 132);
    let texts: Vec<_> = entries.iter().map(|entry| text(entry, 7)).collect();
    assert_eq!(texts, ["Kernel panic - not syncing: x"]);
    let marks = within(&packets, 11);
    assert_eq!((marks.len(), text(&marks[0], 23)), (1, "Kernel panic - not syncing: x".to_owned()));
    assert!(
        matches!(&remarks[..], [Note::Remark(remark)] if remark.starts_with("3 lines")),
        "{remarks:?}"
    );

    // Without events, the log is all there is.
    let mut out = Vec::new();
    write((&traces[1..], None, &[]), &Selection::default(), &mut out, &unwatched, &mut |note| {
        panic!("{note:?}")
    })
    .unwrap();
    assert_eq!(within(&messages(&read(&out), 1), 132).len(), 4);
}

#[test]
fn times_before_the_boot_are_not_dropped() {
    let tracing = Arc::new(sample());
    let traces = [packets(&tracing)];
    let tracer = &tracer(&tracing);
    for (boot, is_related) in [(-100, true), (-101, false)] {
        let (_, out, remarks) = written(&traces, &alone_in_a_file(tracer, Some(boot)));
        let packets = messages(&read(&out), 1);
        let bundle = &within(&packets, 1)[0];
        assert_eq!(
            (!all(bundle, 5).is_empty(), remarks.is_empty()),
            (is_related, is_related),
            "{remarks:?}"
        );
    }
}
