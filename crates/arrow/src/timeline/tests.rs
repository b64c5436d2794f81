//! The rows of made traces are compared with what ran ([`lastwords_testkit::scheduling`]).

use super::{Beside, Timeline};
use crate::events::TraceFacts;
use crate::schema::Table;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array as _, RecordBatch};
use lastwords_ctf::read::open;
use lastwords_render::iter::{self, Events};
use lastwords_render::select::Selection;
use lastwords_testkit::ctf::{Stream, write_folder};
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::random::Random;
use lastwords_testkit::scheduling::{EVENTS, SPANS, ended, metadata, span_event, write};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A row of one of the two tables: what it is, its begin and its end, and whether it was open.
type Row = (String, Option<i64>, Option<i64>, Option<bool>);

fn rows_of(table: Table, batch: &RecordBatch) -> Vec<Row> {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let long = |name: &str, at: usize| {
        let column = column(name).as_primitive::<Int64Type>();
        (!column.is_null(at)).then(|| column.value(at))
    };
    let cpu = column("cpu").as_primitive::<Int32Type>();
    let is_open = column("is_open").as_boolean();
    let row = |at: usize| {
        let tid = long("tid", at).map_or_else(|| "-".to_owned(), |tid| tid.to_string());
        let name = match table {
            Table::Sched => format!("running {} {tid}", cpu.value(at)),
            _ => match column("category").as_string::<i32>().value(at) {
                "irq" => format!("irq {}", cpu.value(at)),
                _ => format!("{tid} {}", column("name").as_string::<i32>().value(at)),
            },
        };
        let (begin, end) = (long("ts", at), long("end_ts", at));
        let is_open = (!is_open.is_null(at)).then(|| is_open.value(at));
        assert_eq!(long("dur", at), begin.zip(end).map(|(begin, end)| end - begin));
        assert_eq!(is_open == Some(false), end.is_some());
        (name, begin, end, is_open)
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Returns the rows of both tables of the trace in a folder.
fn rows(folder: &Path) -> Vec<Row> {
    let traces = open(folder, &Arc::default()).unwrap().traces;
    let facts = TraceFacts { crash_id: "id".into(), is_dated: true, ..TraceFacts::default() };
    let beside = Beside { facts, symbols: None, machine: String::new(), open_spans: None };
    let mut all = Vec::new();
    let mut put = |table, batch: RecordBatch| {
        all.extend(rows_of(table, &batch));
        Ok(())
    };
    assert!(Timeline::has_any(&traces));
    let mut timeline = Timeline::new(&traces, vec![beside], &mut put);
    let selection = Selection::default();
    let mut events = Events::new(&traces, &selection, iter::Order::Time, &|_| {});
    loop {
        match events.advance_with(Some(&mut timeline)) {
            // The table of events decodes them, too.
            Some(mut event) => drop(event.fields()),
            None => {
                if events.fault().is_none() {
                    break;
                }
            }
        }
    }
    timeline.finish().unwrap();
    all
}

/// What a row says is true, and what ran while nothing was missing has a row.
#[test]
fn what_ran_has_rows_and_what_is_not_known_is_null() {
    let (mut certain, mut expected, mut unknown) = (0, 0, 0);
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let (lasted, missing) = write(folder.path(), &mut Random(seed), !seed.is_multiple_of(3));
        let rows = rows(folder.path());
        for (name, begin, end, is_open) in &rows {
            let what = format!("seed {seed}: {name} {begin:?} {end:?} {is_open:?}");
            let time = |time: &Option<i64>| time.map(i64::cast_unsigned);
            let own = time(begin).map(|begin| (name.clone(), begin));
            match (own, time(end)) {
                (Some(own), Some(end)) => assert_eq!(lasted.get(&own), Some(&end), "{what}"),
                (Some(own), None) => {
                    let until = lasted.get(&own).unwrap_or_else(|| panic!("{what}"));
                    assert!(*is_open != Some(true) || *until == u64::MAX, "{what}");
                }
                (None, Some(end)) => {
                    let mut all = lasted.iter().filter(|(own, _)| own.0 == *name);
                    assert!(all.any(|(_, until)| *until == end), "{what}");
                }
                (None, None) => panic!("{what}"),
            }
            unknown += usize::from(is_open.is_none() || begin.is_none());
        }
        let shown: BTreeSet<(&str, i64)> = rows
            .iter()
            .filter(|row| row.2.is_some())
            .filter_map(|row| Some((row.0.as_str(), row.1?)))
            .collect();
        for ((name, begin), end, is_whole) in ended(&lasted, &missing) {
            certain += usize::from(is_whole);
            expected += 1;
            let is_shown = shown.contains(&(name.as_str(), begin.cast_signed()));
            assert!(!is_whole || is_shown, "seed {seed}: {name} [{begin}, {end}] has no row");
        }
    }
    assert!(certain > expected / 2 && unknown > 100, "{certain} of {expected}, {unknown}");
}

/// A thread that begins to run, leaves and comes back while a switch is missing did not run in
/// between.
#[test]
fn nothing_is_joined_across_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let mut stream = Stream::default();
    let event = |id: u16, time: u64| Packed::new(Order::Little).u16(id).u64(time).u32(11);
    let switch = |stream: &mut Stream, time: u64, (prev, next): (u32, u32)| {
        stream.put(time, &event(0, time).u32(prev).u32(next).done());
    };
    switch(&mut stream, 10, (10, 11));
    stream.put(20, &event(3, 20).u32(0).done());
    stream.close(0);
    stream.lose();
    stream.put(50, &event(4, 50).u32(7).done());
    switch(&mut stream, 60, (11, 12));
    switch(&mut stream, 70, (13, 14));
    write_folder(folder.path(), &metadata("kernel", EVENTS), &mut [stream]);
    let mut rows = rows(folder.path());
    rows.sort();
    let row = |name: &str, begin, end, is_open| (name.to_owned(), begin, end, is_open);
    let expected = [
        row("11 read", Some(20), None, None),
        row("running 0 10", None, Some(10), Some(false)),
        row("running 0 11", None, Some(60), Some(false)),
        row("running 0 11", Some(10), None, None),
        row("running 0 12", Some(60), None, None),
        row("running 0 13", None, Some(70), Some(false)),
        row("running 0 14", Some(70), None, Some(true)),
    ];
    assert_eq!(rows, expected);
}

/// Spans of two processes may have one id, and one that was opened twice was closed unseen.
#[test]
fn spans_end_at_their_own_closing() {
    let folder = tempfile::tempdir().unwrap();
    let mut stream = Stream::default();
    for (time, id, pid, span) in [
        (10, 0, 7u32, 1),
        (20, 0, 8, 1),
        (30, 1, 8, 1),
        (40, 0, 7, 1),
        (50, 1, 7, 1),
        (60, 0, 7, 2),
    ] {
        stream.put(time, &span_event(id, time, pid, span));
    }
    write_folder(folder.path(), &metadata("ust", SPANS), &mut [stream]);
    let mut rows = rows(folder.path());
    rows.sort();
    let row = |name: &str, begin, end, is_open| (name.to_owned(), Some(begin), end, is_open);
    let expected = [
        row("7 svc::work", 10, None, None),
        row("7 svc::work", 40, Some(50), Some(false)),
        row("7 svc::work", 60, None, Some(true)),
        row("8 svc::work", 20, Some(30), Some(false)),
    ];
    assert_eq!(rows, expected);
}

const FUNCTIONS: &str = r#"
    event.header := struct { u16 id; stamp timestamp; };
    event.context := struct { i32 pid; };
};
event { name = "ftrace:funcgraph_entry"; id = 0; stream_id = 0; fields := struct { u64 func; i32 depth; }; };
event { name = "ftrace:funcgraph_exit"; id = 1; stream_id = 0; fields := struct { u64 func; i32 depth; }; };
"#;

/// Functions nest. A thread goes on with its functions on another CPU, and each CPU has an idle
/// thread of its own. A function whose exit is missing has no end.
#[test]
fn functions_end_at_their_own_exits() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = metadata("kernel", FUNCTIONS);
    let metadata = metadata.replace("domain = \"kernel\"", "tracer_name = \"ftrace\"");
    let mut cpus = [Stream::default(), Stream::default()];
    for (time, cpu, id, thread, function, depth) in [
        (10, 0, 0, 7u32, 0xa, 0u32),
        (12, 0, 0, 7, 0xb, 1),
        (15, 0, 1, 7, 0xb, 1),
        (20, 0, 1, 7, 0xa, 0),
        (30, 0, 0, 0, 0xc, 0),
        (31, 1, 0, 0, 0xc, 0),
        (33, 1, 1, 0, 0xc, 0),
        (35, 0, 1, 0, 0xc, 0),
        (40, 0, 0, 7, 0xa, 0),
        (42, 0, 0, 7, 0xb, 1),
        (50, 0, 1, 7, 0xa, 0),
        (60, 0, 0, 8, 0xa, 0),
        (70, 1, 1, 8, 0xa, 0),
        (80, 1, 0, 9, 0xa, 0),
    ] {
        let event = Packed::new(Order::Little).u16(id).u64(time).u32(thread);
        cpus[cpu].put(time, &event.u64(function).u32(depth).done());
    }
    write_folder(folder.path(), &metadata, &mut cpus);
    let mut rows = rows(folder.path());
    rows.sort();
    let row =
        |name: &str, begin, end: Option<i64>, is_open| (name.to_owned(), Some(begin), end, is_open);
    let ended = |name, begin, end| row(name, begin, Some(end), Some(false));
    let expected = [
        ended("0 0xc", 30, 35),
        ended("0 0xc", 31, 33),
        ended("7 0xa", 10, 20),
        ended("7 0xa", 40, 50),
        ended("7 0xb", 12, 15),
        row("7 0xb", 42, None, None),
        ended("8 0xa", 60, 70),
        row("9 0xa", 80, None, Some(true)),
    ];
    assert_eq!(rows, expected);
}
