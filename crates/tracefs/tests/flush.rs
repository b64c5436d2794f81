//! A sub-buffer that is not full is sent at an interval, and each of its events once. It needs
//! root.
#![allow(missing_docs, reason = "a test")]

use lastwords_stream::{Address, Limits, Receiver, Told};
use lastwords_tracefs::{Plan, Recording, Rule};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Writes marks into the instance from one process for each of two halves of the numbers.
fn write_marks(instance: &str, numbers: std::ops::Range<u32>) {
    let marker = format!("/sys/kernel/tracing/instances/{instance}/trace_marker");
    let middle = numbers.start.midpoint(numbers.end);
    let writer = |from: u32, to: u32| {
        let script =
            format!("for ((i = {from}; i < {to}; i++)); do echo \"mark $i.\" > {marker}; done");
        Command::new("bash").args(["-c", &script]).spawn().expect("bash")
    };
    let children = [writer(numbers.start, middle), writer(middle, numbers.end)];
    children.into_iter().for_each(|mut child| assert!(child.wait().expect("it ends").success()));
}

#[test]
fn what_was_flushed_is_at_the_receiver_once() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0
        || lastwords_open::tracefs_folder().is_err()
    {
        eprintln!("only root can record with the kernel's tracer");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let address: Address = format!("unix:{}/socket", folder.path().display()).parse().unwrap();
    let limits = Limits {
        size: 1 << 30,
        senders: 4,
        silence: HOUR,
        head: HOUR,
        per_peer: 4,
        peer_bytes: u64::MAX,
        peer_files: u64::MAX,
        trusts_network: false,
    };
    let receiver = Receiver::new(&address, folder.path(), limits).unwrap();
    let ((ended, end), (tell, told)) = (UnixStream::pair().unwrap(), mpsc::channel());
    let run = move || receiver.run(ended.as_fd(), &|what| tell.send(what).unwrap()).unwrap();
    let thread = std::thread::spawn(run);
    let instance = format!("lastwords_flush_{}", std::process::id());
    let recording = Recording::begin(&Plan {
        instance: Some(instance.clone()),
        events: vec![Rule { pattern: "ftrace:print".to_owned(), ..Rule::default() }],
        receiver: Some(address),
        flush: Duration::from_millis(20),
        output: folder.path().join("broken.dat"),
        journals: folder.path().to_owned(),
        ..Plan::default()
    });
    let recording = recording.or_else(|_| {
        // Kernels that do not list the event record marks all the same.
        Recording::begin(&Plan {
            instance: Some(instance.clone()),
            receiver: Some(format!("unix:{}/socket", folder.path().display()).parse().unwrap()),
            flush: Duration::from_millis(20),
            output: folder.path().join("broken.dat"),
            journals: folder.path().to_owned(),
            ..Plan::default()
        })
    });
    let mut recording = recording.expect("the recording");
    recording.start(Box::new(|news| panic!("{news:?}"))).unwrap();
    // Few events, then as many as fill sub-buffers between flushes, then few.
    write_marks(&instance, 0..30);
    std::thread::sleep(Duration::from_millis(100));
    write_marks(&instance, 30..4030);
    std::thread::sleep(Duration::from_millis(200));
    // The receiver keeps what has arrived by now, as where a sender is killed.
    drop(end);
    thread.join().unwrap();
    let saved = told.iter().find_map(|told| match told {
        Told::Saved(saved) => Some(saved),
        _ => None,
    });
    drop(recording);
    let saved = saved.expect("the stream is saved");
    assert!(saved.ended_early.is_some());
    let report = Command::new("trace-cmd").args(["report", "-i"]).arg(&saved.path).output();
    let report = report.expect("trace-cmd is needed: cargo xtask setup");
    let text = String::from_utf8_lossy(&report.stdout);
    let number =
        |line: &str| line.rsplit_once("mark ")?.1.trim_end().strip_suffix('.')?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = text.lines().filter_map(number).collect();
    numbers.sort_unstable();
    let wrong = numbers.iter().zip(0..).find(|(number, expected)| *number != expected);
    assert!(
        numbers.len() == 4030 && wrong.is_none(),
        "{} marks, the first that is wrong: {wrong:?}",
        numbers.len()
    );
    assert_eq!(saved.events, 4030);
}
