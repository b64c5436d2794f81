//! The table of events, as the crates `parquet` and `arrow-ipc` read it back, against the truth.

use super::event::{Event, Value, compare};
use super::kernel::{self, Found, Printed, name_of, with_buf};
use super::sources::{Source, Truth, sources};
use crate::lttng::files;
use crate::support::Place;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array as _, RecordBatch};
use lastwords_testkit::text::Text as _;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

/// A row of `events`.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) crash_id: String,
    pub(super) trace: String,
    pub(super) ts: i64,
    /// Microseconds.
    time: Option<i64>,
    before_end: Option<i64>,
    pub(super) cpu: Option<i32>,
    pub(super) tid: Option<i64>,
    pub(super) comm: Option<String>,
    pub(super) name: String,
    /// The promoted fields that are not null.
    promoted: Vec<(String, Value)>,
    pub(super) fields: Vec<(String, Value)>,
    contexts: Vec<(String, Value)>,
}

fn members(json: Option<&str>) -> Vec<(String, Value)> {
    match json.map(serde_json::from_str) {
        Some(Ok(Value::Record(members))) => members,
        None => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// Reads the rows of a batch.
fn rows(batch: &RecordBatch) -> Vec<Row> {
    let column = |name: &str| batch.column_by_name(name).unwrap_or_else(|| panic!("{name}"));
    let text = |name: &str, at: usize| {
        let column = column(name).as_string::<i32>();
        (!column.is_null(at)).then(|| column.value(at).to_owned())
    };
    let long = |name: &str, at: usize| {
        let column = column(name).as_primitive::<Int64Type>();
        (!column.is_null(at)).then(|| column.value(at))
    };
    let time = column("time").as_primitive::<TimestampMicrosecondType>();
    let cpu = column("cpu").as_primitive::<Int32Type>();
    let schema = batch.schema();
    let promoted = |at: usize| {
        let names = schema.fields().iter().filter_map(|field| field.name().strip_prefix("f_"));
        let value = |name: &str| {
            let column = format!("f_{name}");
            let is_text =
                schema.field_with_name(&column).unwrap().data_type().to_string() == "Utf8";
            match is_text {
                true => text(&column, at).map(Value::Text),
                false => long(&column, at).map(|number| Value::Number(number.into())),
            }
        };
        names.filter_map(|name| Some((name.to_owned(), value(name)?))).collect()
    };
    let row = |at: usize| Row {
        crash_id: text("crash_id", at).unwrap(),
        trace: text("trace", at).unwrap(),
        ts: long("ts", at).unwrap(),
        time: (!time.is_null(at)).then(|| time.value(at)),
        before_end: long("before_end_ns", at),
        cpu: (!cpu.is_null(at)).then(|| cpu.value(at)),
        tid: long("tid", at),
        comm: text("comm", at),
        name: match (text("provider", at), text("name", at).unwrap()) {
            (Some(provider), name) => format!("{provider}:{name}"),
            (None, name) => name,
        },
        promoted: promoted(at),
        fields: members(text("fields", at).as_deref()),
        contexts: members(text("context", at).as_deref()),
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Reads a file of a format.
pub(crate) fn read(file: &Path, format: &str) -> Vec<RecordBatch> {
    let open = File::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    match format {
        "parquet" => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(open).unwrap().build().unwrap();
            reader.collect::<Result<_, _>>().unwrap()
        }
        _ => {
            let reader = arrow_ipc::reader::FileReader::try_new(open, None).unwrap();
            reader.collect::<Result<_, _>>().unwrap()
        }
    }
}

/// Checks what columns say beside the truth of one event.
fn check(row: &Row) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {row:?}"));
    if row.crash_id.len() != 36 {
        return wrong("no id of a crash");
    }
    if row.time.is_some_and(|time| time != row.ts.div_euclid(1000)) {
        return wrong("the time and the nanoseconds differ");
    }
    if row.before_end.is_some_and(|before| before < 0) {
        return wrong("an event after the last one");
    }
    for (name, value) in &row.promoted {
        let field = row.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
        let is_same = match (field, value) {
            // JSON has an object of an enumeration.
            (Some(Value::Record(members)), value) => {
                members.first().map(|(_, value)| value) == Some(value)
            }
            (field, value) => field == Some(value),
        };
        if !is_same {
            return wrong("a promoted field differs");
        }
    }
    // A value that fits is in its column.
    let fits = |(name, value): &(String, Value)| match (name.as_str(), value) {
        ("message" | "filename" | "comm" | "prev_comm" | "next_comm" | "name", Value::Text(_)) => {
            true
        }
        (
            "ret" | "pid" | "prev_pid" | "next_pid" | "irq" | "id" | "count" | "len",
            Value::Number(n),
        ) => i64::try_from(*n).is_ok(),
        _ => false,
    };
    let lacks = |name: &str| !row.promoted.iter().any(|(known, _)| known == name);
    match row.fields.iter().find(|field| fits(field) && lacks(&field.0)) {
        Some((name, _)) => wrong(&format!("f_{name} is null")),
        None => Ok(()),
    }
}

fn event(row: &Row) -> Event {
    Event {
        ns: row.ts.into(),
        cpu: row.cpu.and_then(|cpu| u32::try_from(cpu).ok()),
        name: row.name.clone(),
        contexts: row.contexts.clone(),
        fields: row.fields.clone(),
    }
}

fn of_kernel(row: Row) -> Found {
    let event = Printed {
        instance: row.trace,
        comm: row.comm.unwrap_or_else(|| "<...>".to_owned()),
        pid: row.tid.unwrap_or(-1).into(),
        cpu: row.cpu.and_then(|cpu| u32::try_from(cpu).ok()).unwrap_or(u32::MAX),
        ns: row.ts.into(),
        name: name_of(&row.name),
        rest: String::new(),
    };
    Found { event, fields: with_buf(row.fields) }
}

fn judge(source: &Source, all: Vec<Row>) -> Result<(), String> {
    all.iter().try_for_each(check)?;
    let of_packets = |rows: &[Row]| rows.iter().map(event).collect::<Vec<_>>();
    match &source.truth {
        Truth::Packets(parts) => {
            let truth = parts.iter().flat_map(|part| part.events.clone()).collect();
            compare(truth, &of_packets(&all), true)
        }
        Truth::Kernel(kernel) => {
            kernel::judge_rows(kernel, all.into_iter().map(of_kernel).collect())
        }
        Truth::Both(part, kernel) => {
            let (own, others): (Vec<Row>, Vec<Row>) =
                all.into_iter().partition(|row| row.trace == part.name);
            compare(part.events.clone(), &of_packets(&own), true)?;
            kernel::judge_rows(kernel, others.into_iter().map(of_kernel).collect())
        }
    }
}

/// Every source is written as a table, and has all its events with their values, whether it lost
/// some or not.
#[test]
fn tables_have_what_was_recorded() {
    let mut wrong = String::new();
    for is_lossy in [false, true] {
        let place = Place::new();
        for source in sources(&place, is_lossy) {
            for format in ["parquet", "arrow"] {
                let out = format!("{}.{format}", source.name.replace([' ', '\''], "-"));
                let inputs = source.inputs.iter().map(String::as_str);
                let args: Vec<&str> = ["convert", "-o", &out].into_iter().chain(inputs).collect();
                place.ok(&args);
                let batches = read(&place.at(&out), format);
                let all = batches.iter().flat_map(rows).collect();
                if let Err(why) = judge(&source, all) {
                    writeln!(wrong, "== {}, {format}: {why}", source.name).unwrap();
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A crash is in a data set once, however often it is added, and its tables agree.
#[test]
fn a_crash_is_in_a_data_set_once() {
    let place = Place::new();
    let all = sources(&place, true);
    let session = &all[0];
    for _ in 0..2 {
        place.ok(&["convert", "--to", "parquet", "-o", "set/", &session.inputs[0]]);
    }
    let parts = files(&place.at("set"));
    assert_eq!(parts.len(), 9, "{parts:?}");
    let part = |table: &str| {
        let is_of = |path: &&std::path::PathBuf| path.starts_with(place.at("set/v1").join(table));
        read(parts.iter().find(is_of).unwrap_or_else(|| panic!("{table}: {parts:?}")), "parquet")
    };
    let crashes = part("crashes");
    let crash = &crashes[0];
    assert_eq!(crash.num_rows(), 1);
    let text =
        |name: &str| crash.column_by_name(name).unwrap().as_string::<i32>().value(0).to_owned();
    let id = text("crash_id");
    let events: Vec<Row> = part("events").iter().flat_map(rows).collect();
    assert!(events.iter().all(|row| row.crash_id == id));
    assert!(parts.iter().all(|path| path.ends_with(format!("part-{id}.parquet"))), "{parts:?}");
    let Truth::Packets(truth) = &session.truth else { panic!("a session has packets") };
    assert_eq!(events.len(), truth[0].events.len());
    let losses: i64 = part("losses")
        .iter()
        .map(|batch| {
            let is_loss = batch.column_by_name("is_loss").unwrap().as_boolean();
            let events = batch.column_by_name("events").unwrap().as_primitive::<Int64Type>();
            let own = (0..batch.num_rows()).filter(|at| is_loss.value(*at) && !events.is_null(*at));
            own.map(|at| events.value(at)).sum::<i64>()
        })
        .sum();
    assert_eq!(losses, i64::try_from(session.lost).unwrap());
    let has_losses = crash.column_by_name("has_losses").unwrap().as_boolean().value(0);
    assert!(has_losses);
    assert_eq!(part("traces")[0].num_rows(), 1);
}

/// Data sets hold whole crashes, and options that select events are refused.
#[test]
fn a_data_set_takes_no_selection() {
    let place = Place::new();
    sources(&place, false);
    let ran = place.run(&["convert", "--to", "parquet", "-o", "set/", "--last", "1", "./session"]);
    ran.has_status(1);
    ran.says("a data set has whole crashes");
    assert!(!place.at("set").exists());
}

/// stdout has a stream of Arrow.
#[test]
fn a_stream_goes_to_stdout() {
    let place = Place::new();
    sources(&place, false);
    let args = ["convert", "--to", "arrow", "-o", "-", "./session", "--last", "2"];
    let output = place.command().args(args).output().unwrap();
    let reader = arrow_ipc::reader::StreamReader::try_new(output.stdout.as_slice(), None).unwrap();
    let batches: Vec<RecordBatch> = reader.collect::<Result<_, _>>().unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
}

/// A folder of crashes is added once. What cannot be read is listed with its reason, and is tried
/// again; the rest is not.
#[test]
fn a_folder_is_ingested_once_and_what_is_damaged_is_listed() {
    let place = Place::new();
    sources(&place, false);
    let folder = place.at("crashed");
    std::fs::create_dir(&folder).unwrap();
    for name in ["session", "ctf"] {
        std::fs::rename(place.at(name), folder.join(name)).unwrap();
    }
    let whole = std::fs::read(place.at("kernel.dat")).unwrap();
    std::fs::write(folder.join("kernel.dat"), &whole[..100]).unwrap();
    let ingest = || place.run(&["ingest", "crashed", "--into", "set", "--retries", "0"]);
    let dead = || std::fs::read_to_string(place.at("set/dead-letters.jsonl")).unwrap();
    let crashes = || files(&place.at("set/v1/crashes")).len();
    // A text, a program and unknown data have nothing to recover; an empty stream does not say so.
    std::fs::write(folder.join("notes.txt"), "of mine").unwrap();
    std::fs::write(folder.join("data"), [0xa5; 5000]).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), folder.join("program")).unwrap();
    let ran = ingest();
    ran.has_status(1).says("kernel.dat").prints("2 crashes of 2 inputs added");
    ran.says("note: 3 inputs without anything to recover passed over");
    assert_eq!(ran.err.matches("error: ").count(), 2, "{}", ran.err);
    assert!(dead().lines().count() == 1 && dead().contains("crashed/kernel.dat"), "{}", dead());
    assert_eq!(crashes(), 2);
    ingest().has_status(1).prints("0 crashes of 0 inputs added, 2 inputs known already");
    std::fs::write(folder.join("kernel.dat"), &whole).unwrap();
    // The file of a killed writer is removed, and no reader takes it for a part.
    let day = files(&place.at("set/v1/events"))[0].parent().unwrap().to_owned();
    std::fs::write(day.join(".part-x.parquet.1.partial"), "PAR1").unwrap();
    ingest().has_status(0).says("a writer that was killed").prints("1 crash of 1 input added");
    assert_eq!((crashes(), dead().as_str()), (3, ""));
    assert!(files(&day).iter().all(|file| file.extension().is_some_and(|e| e == "parquet")));
    place.run(&["ingest", "crashed", "--into", "set", "--again"]).prints("3 crashes of 3 inputs");
    assert_eq!(crashes(), 3, "each is there once");
    // A compressed file may hold a trace: it is not passed over in silence.
    for name in ["old.gz", "old.xz"] {
        let magic: &[u8] = if name == "old.gz" { b"\x1f\x8b\x08\0" } else { b"\xfd7zXZ\0" };
        std::fs::write(folder.join(name), magic).unwrap();
    }
    ingest().has_status(0).says("2 compressed files not opened, the first: ").says("old.gz");
    let ran = place.run(&["ingest", "crashed/old.xz", "--into", "set"]);
    ran.has_status(1).says("old.xz: this is xz data: decompress it first");
    assert!(dead().lines().count() == 1 && dead().contains("old.xz"), "{}", dead());
}

/// Retention removes the oldest crashes with all their rows, and they do not come back.
#[test]
fn the_oldest_crashes_of_a_data_set_are_removed() {
    let place = Place::new();
    sources(&place, false);
    std::fs::create_dir(place.at("crashed")).unwrap();
    for name in ["session", "ctf"] {
        std::fs::rename(place.at(name), place.at("crashed").join(name)).unwrap();
    }
    let ingest = |more: &[&str]| {
        let ran = place.run(&[&["ingest", "crashed", "--into", "set"], more].concat());
        ran.has_status(0);
        ran.out
    };
    ingest(&["--keep-size", "1G"]).lacks("removed");
    let count = |table: &str| files(&place.at("set/v1").join(table)).len();
    assert_eq!((count("crashes"), count("events"), count("log")), (2, 2, 2));
    ingest(&["--keep-size", "1"]).has("the 2 oldest crashes removed");
    assert_eq!(files(&place.at("set/v1")), [] as [std::path::PathBuf; 0]);
    ingest(&["--keep-days", "1"]).has("0 crashes of 0 inputs added, 2 inputs known already");
    // The made crashes are of 2023.
    ingest(&["--again", "--keep-days", "1"]).has("the 2 oldest crashes removed");
}

/// The spans that were open when a session ended are slices without an end, also those whose
/// opening was overwritten.
#[test]
fn open_spans_are_slices() {
    let place = Place::new();
    crate::support::small(&place, "small", 0);
    place.ok(&["ingest", "small", "--into", "set"]);
    let part = |table: &str| read(&files(&place.at("set/v1").join(table))[0], "parquet").remove(0);
    let slices = part("slice");
    let text = |name: &str, at: usize| {
        slices.column_by_name(name).unwrap().as_string::<i32>().value(at).to_owned()
    };
    let long = |name: &str, at: usize| {
        let column = slices.column_by_name(name).unwrap().as_primitive::<Int64Type>();
        (!column.is_null(at)).then(|| column.value(at))
    };
    let mut found: Vec<_> = (0..slices.num_rows())
        .map(|at| {
            let ids = [long("id", at), long("parent_id", at), long("tid", at), long("pid", at)];
            (text("name", at), long("ts", at), long("end_ts", at), ids)
        })
        .collect();
    found.sort();
    let span = |name: &str, id, parent| {
        let name = format!("testkit::samples::{name}");
        (name, Some(1_700_000_000_000_012_345), None, [Some(id), parent, Some(4243), Some(4242)])
    };
    assert_eq!(found, [span("inner", 2, Some(1)), span("outer", 1, None)]);
    let is_open = slices.column_by_name("is_open").unwrap().as_boolean();
    assert!((0..2).all(|at| is_open.value(at)));
}
