//! Sessions and a stream that the program of version 0.1 (memory format 1.2) wrote. This version
//! reads them with the same result.
//!
//! `tests/stored-0.1` has two session folders whose processes were killed (`sessions.tar.zst`), the
//! bytes that `record -o tcp:...` sent to a receiver (`stream.zst`), the text that version 0.1
//! printed of each (with the spans of events in the form of today), the data set that it ingested
//! the sessions into (`data-set.tar.zst`), and the rows that DuckDB read there
//! (`data-set.jsonl.zst`, with which the tests of the Python package compare `lastwords sql`). These
//! files are never made anew.

use crate::stream::{Receiver, path};
use crate::support::{Place, tool};
use arrow_array::{RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn stored(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/stored-0.1", name].iter().collect()
}

fn same_text(place: &Place, folder: &str, text: &str) {
    let ran = place.run(&["report", "--utc", "--style", "fields", folder]);
    ran.has_status(0);
    let text = std::fs::read_to_string(stored(text)).unwrap();
    let different = text.lines().zip(ran.out.lines()).find(|(was, is)| was != is);
    assert_eq!(different, None);
    assert_eq!(text.lines().count(), ran.out.lines().count());
    ran.says("nothing lost");
}

#[test]
fn sessions_of_an_earlier_version() {
    let place = Place::new();
    unpack(&place, "sessions.tar.zst");
    same_text(&place, "./shop", "shop.txt");
    same_text(&place, "./server", "server.txt");
}

#[test]
fn stream_of_an_earlier_version() {
    let place = Place::new();
    let mut receiver = Receiver::at(&place);
    let bytes = tool_output("zstd", &["-dc", stored("stream.zst").to_str().unwrap()]);
    let address = receiver.address.strip_prefix("tcp:").expect("an address of TCP").to_owned();
    let mut sender = TcpStream::connect(address).unwrap();
    sender.write_all(&bytes).unwrap();
    sender.shutdown(Shutdown::Write).unwrap();
    let received = receiver.next("saved-session");
    same_text(&place, path(&place, &received).to_str().unwrap(), "stream.txt");
}

/// Unpacks an archive into the folder of a test.
fn unpack(place: &Place, archive: &str) {
    let archive = stored(archive);
    let folder = place.path().to_str().unwrap();
    tool("tar", &["-C", folder, "--zstd", "-xf", archive.to_str().unwrap()]);
}

/// The parts of a table of the data set in the folder of a test.
fn parts(place: &Place, table: &str) -> Vec<PathBuf> {
    let days = std::fs::read_dir(place.at("v1").join(table)).into_iter().flatten().flatten();
    let files = days.flat_map(|day| std::fs::read_dir(day.path()).unwrap());
    let mut parts: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    parts.sort();
    parts
}

/// Crashes of an earlier version are replaced by themselves, and are removed as others are.
#[test]
fn a_data_set_of_an_earlier_version() {
    let place = Place::new();
    unpack(&place, "data-set.tar.zst");
    unpack(&place, "sessions.tar.zst");
    let before = parts(&place, "crashes");
    assert_eq!(before.len(), 2);
    place.ok(&["ingest", "shop", "server", "--into", ".", "--keep-size", "1G"]);
    assert_eq!(parts(&place, "crashes"), before, "the ids and the days are the same");
    for part in parts(&place, "events") {
        let rows = |part: &Path| -> usize {
            let batches = crate::matrix::tables::read(part, "parquet");
            batches.iter().map(|batch| batch.num_rows()).sum()
        };
        let old = Place::new();
        unpack(&old, "data-set.tar.zst");
        let own = part.strip_prefix(place.path()).unwrap();
        assert_eq!(rows(&part), rows(&old.at(own.to_str().unwrap())), "{}", own.display());
    }
    // The sessions ended in 2026.
    place.run(&["ingest", "shop", "--into", ".", "--keep-days", "0"]).prints("2 oldest crashes");
    assert_eq!(parts(&place, "crashes"), [] as [PathBuf; 0]);
}

/// A table may lack columns that this version has, and have columns that it does not have.
#[test]
fn a_data_set_with_other_columns() {
    let place = Place::new();
    unpack(&place, "data-set.tar.zst");
    for part in parts(&place, "crashes") {
        let batch = crate::matrix::tables::read(&part, "parquet").remove(0);
        let keep = |at: &usize| batch.schema().field(*at).name() != "ts";
        let kept: Vec<usize> = (0..batch.num_columns()).filter(keep).collect();
        let others = batch.project(&kept).unwrap();
        let mut fields: Vec<_> = others.schema().fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new("new", DataType::Utf8, true)));
        let mut columns = others.columns().to_vec();
        columns.push(Arc::new(StringArray::from(vec!["x"; batch.num_rows()])));
        let schema = Arc::new(Schema::new(fields));
        let file = std::fs::File::create(&part).unwrap();
        let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), None).unwrap();
        writer.write(&RecordBatch::try_new(schema, columns).unwrap()).unwrap();
        writer.close().unwrap();
    }
    unpack(&place, "sessions.tar.zst");
    // Without a time, the time at which a crash was added counts.
    place.ok(&["ingest", "shop", "--into", ".", "--keep-days", "1000"]);
    assert_eq!(parts(&place, "crashes").len(), 2);
    place.run(&["ingest", "shop", "--into", ".", "--keep-size", "1"]).prints("2 oldest crashes");
    assert_eq!(parts(&place, "events"), [] as [PathBuf; 0]);
}

/// A data set of a newer version is refused whole, and nothing is added to it.
#[test]
fn a_data_set_of_a_newer_version_is_refused() {
    let place = Place::new();
    unpack(&place, "data-set.tar.zst");
    unpack(&place, "sessions.tar.zst");
    std::fs::rename(place.at("v1"), place.at("v2")).unwrap();
    for more in [&[][..], &["--keep-days", "0"]] {
        let ran = place.run(&[&["ingest", "shop", "--into", "."], more].concat());
        ran.has_status(1).says("a data set of version 2, and this program knows version 1");
    }
    place.run(&["convert", "shop", "--to", "parquet", "-o", "./"]).has_status(1).says("version 2");
    assert!(!place.at("v1").exists() && place.at("v2/crashes").exists());
    assert!(!place.at("ingest.jsonl").exists());
}

fn tool_output(name: &str, args: &[&str]) -> Vec<u8> {
    let output =
        std::process::Command::new(name).args(args).output().expect("the tool is installed");
    assert!(output.status.success());
    output.stdout
}
