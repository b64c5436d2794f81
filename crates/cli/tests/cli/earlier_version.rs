//! Sessions and a stream that the program of version 0.1 (memory format 1.2) wrote. This version
//! reads them with the same result.
//!
//! `tests/stored-0.1` has two session folders whose processes were killed (`sessions.tar.zst`), the
//! bytes that `record -o tcp:...` sent to a receiver (`stream.zst`), and the text that version 0.1
//! printed of each. These files are never written anew. This version prints the spans of an event
//! in another form, which the test makes of the old text.

use crate::stream::{Receiver, path};
use crate::support::{Place, tool};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;

fn stored(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/stored-0.1", name].iter().collect()
}

/// Returns lines of version 0.1 as this version prints them: with the chain of spans in place of
/// the span and its id. The spans in these sessions have no parents.
fn in_todays_form(text: &str) -> String {
    let time = |line: &str| -> u64 {
        let number = |from: usize, to: usize| line[from..to].parse::<u64>().expect("a time");
        let seconds = number(0, 2) * 3600 + number(3, 5) * 60 + number(6, 8);
        seconds * 1_000_000_000 + number(9, 18)
    };
    // The texts of spans, and when they were opened, by their ids.
    let mut spans: BTreeMap<&str, (String, u64)> = BTreeMap::new();
    let mut out = String::new();
    for line in text.lines() {
        let Some((before, id)) = line.split_once(" span_id=") else {
            out.extend([line, "\n"]);
            continue;
        };
        let (id, parent) = id.split_once(" parent_id=").unwrap_or((id, "0"));
        assert_eq!(parent, "0");
        let shown = if let Some((before, span)) = before.split_once(" span=\"server::") {
            let (head, event) = before.split_once(" server:").expect("an event");
            format!("{head} {}: server:{event}", span.trim_end_matches('"'))
        } else if let Some((head, new)) = before.split_once(" span:new server::request: ") {
            spans.insert(id, (format!("request{{{new}}}"), time(line)));
            format!("{head} request{{{new}}}: span:new")
        } else {
            let (head, _) = before.split_once(" span:close server::request:").expect("a closing");
            let (span, opened) = &spans[id];
            let age = time(line) - opened;
            let age = match age {
                0..10_000_000 => format!("{}.{:03} ms", age / 1_000_000, age / 1000 % 1000),
                _ => format!("{}.{:03} s", age / 1_000_000_000, age / 1_000_000 % 1000),
            };
            format!("{head} {span}: span:close after {age}")
        };
        out.extend([shown.as_str(), "\n"]);
    }
    out
}

fn same_text(place: &Place, folder: &str, text: &str) {
    let ran = place.run(&["report", "--utc", "--style", "fields", folder]);
    ran.has_status(0);
    let text = in_todays_form(&std::fs::read_to_string(stored(text)).unwrap());
    let different = text.lines().zip(ran.out.lines()).find(|(was, is)| was != is);
    assert_eq!(different, None);
    assert_eq!(text.lines().count(), ran.out.lines().count());
    ran.says("nothing lost");
}

#[test]
fn sessions_of_an_earlier_version() {
    let place = Place::new();
    let archive = stored("sessions.tar.zst");
    tool(
        "tar",
        &["-C", place.path().to_str().unwrap(), "--zstd", "-xf", archive.to_str().unwrap()],
    );
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

fn tool_output(name: &str, args: &[&str]) -> Vec<u8> {
    let output =
        std::process::Command::new(name).args(args).output().expect("the tool is installed");
    assert!(output.status.success());
    output.stdout
}
