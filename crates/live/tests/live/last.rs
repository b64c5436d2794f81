//! The last events of a session are found without reading all of it. The test counts the bytes that
//! this process reads, so that it is alone in its program.
#![allow(missing_docs, reason = "a test")]

use lastwords::{ChannelConfig, Session, event};
use lastwords_ctf::Version;
use lastwords_open::{Options, Trace, open};
use lastwords_render::select::Selection;
use lastwords_render::text;

/// Returns the number of bytes that this process has read so far.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("the kernel counts what is read");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("rchar");
    line.parse().expect("a number")
}

/// Returns up to `most` lines, the number of packets that were not read, and the number of bytes
/// that were.
fn lines(trace: &Trace, selection: &Selection, most: usize) -> (Vec<String>, Option<u64>, u64) {
    let before = bytes_read();
    let mut lines = Vec::new();
    let mut take = |_: i64, line: &[u8]| {
        lines.push(String::from_utf8_lossy(line).into_owned());
        lines.len() < most
    };
    let packets = trace.packets(Version::V2).expect("a session").expect("its description");
    let (style, zone) = (text::Style::Fields, text::Zone::utc());
    let read = match text::each(&[packets], style, selection, &zone, &mut take, &mut |_| {}) {
        Err(error) if error.is_closed_pipe() => None,
        read => Some(read.expect("events that can be decoded").unread),
    };
    (lines, read, bytes_read() - before)
}

#[test]
fn a_hundred_events_need_few_bytes() {
    const SIZE: u64 = 16 << 10;
    let place = tempfile::tempdir().expect("a folder");
    let channel = ChannelConfig::new("main").sub_buffers(512, SIZE);
    let session =
        Session::builder("long").dir(place.path()).channel(channel).start().expect("a session");
    (0..150_000u64)
        .for_each(|number| event!(demo, "request", number = number, path = "/index.html"));
    session.close();
    let options = Options { late: true, ..Options::default() };
    let opened =
        open(&[place.path().to_str().expect("UTF-8")], &options).expect("no options that fail");
    let trace = opened.traces.first().expect("the session");
    let last = Selection { last: Some(100), unread_before: true, ..Selection::default() };

    let (tail, unread, read) = lines(trace, &last, usize::MAX);
    assert_eq!(tail.len(), 100);
    assert!(read < 40 * SIZE, "{read} bytes for 100 events");
    let (head, stopped, read) = lines(trace, &Selection::default(), 100);
    assert_eq!((head.len(), stopped), (100, None));
    assert!(read < 40 * SIZE, "{read} bytes up to the event at which the reader stopped");

    let (all, none, read) = lines(trace, &Selection::default(), usize::MAX);
    assert_eq!((all.len(), none), (150_000, Some(0)));
    assert!(read > 100 * SIZE, "{read} bytes for all events");
    assert!(unread.is_some_and(|unread| unread > 100), "{unread:?} packets were not read");
    assert_eq!(tail, all[all.len() - 100..]);
    assert_eq!(head, all[..100]);
}
