//! `record -o ADDRESS` with sessions of applications: every event that arrives is right, every loss
//! is told, whatever the recorder overwrites while it is sent, and whoever dies. Nothing here needs
//! root.

use crate::child::{self, Running, TASK, task};
use crate::consume::field;
use crate::copies::calls;
use crate::record::names;
use crate::stream::{Receiver, path};
use crate::support::{Place, Ran, assert_members, entries, ran, wait_until};
use lastwords::{ChannelConfig, Session, event};
use lastwords_testkit::text::Text as _;
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const THREADS: u64 = 2;
/// Events of each thread that are recorded in the time that the sender needs for them.
const PACED: u64 = 20_000;

/// The recorded program.
#[test]
fn application() {
    let Some(how) = task() else { return };
    let words: Vec<&str> = how.split(' ').collect();
    let [reservation, mode, folder] = words.as_slice() else { panic!("{how}") };
    let reservation = child::reservation(reservation);
    let channel = match *mode {
        "discard" => ChannelConfig::new("main").sub_buffers(4, 4096).discard(),
        "flood" => ChannelConfig::new("main").sub_buffers(8, 4096),
        // Threads that share no CPU record five times the room of a ring.
        "lives" => ChannelConfig::new("main").sub_buffers(32, 4096),
        _ => ChannelConfig::new("main").sub_buffers(64, 1 << 14),
    };
    let session = Session::builder("app")
        .reservation(reservation)
        .channel(channel)
        .start()
        .expect("a session");
    let folder = Path::new(folder);
    let at = |name: &str| folder.join(name);
    if *mode == "flood" {
        record(0, 300, 64);
        fs::write(at("ready"), "").expect("the file");
        wait_until("the test goes on", || at("go").exists());
        record(300, 200_000, u64::MAX);
        fs::write(at("flooded"), "").expect("the file");
        wait_until("the test goes on", || at("end").exists());
        record(200_000, 201_000, 64);
    } else if *mode == "few" {
        record(0, 30, 64);
    } else {
        record(0, PACED, if *mode == "discard" { 100 } else { 64 });
    }
    fs::write(at("done"), "").expect("the file");
    if matches!(*mode, "lives" | "few") {
        std::thread::sleep(Duration::from_secs(60));
    }
    drop(session);
}

/// A value of the application's own by which an event is known to be whole.
fn check(thread: u64, sequence: u64) -> u64 {
    (sequence ^ thread << 60).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Records events on all threads. After `rest` events, a thread sleeps for a moment.
fn record(begin: u64, end: u64, rest: u64) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for sequence in begin..end {
                    event!(
                        test,
                        "tick",
                        thread = thread,
                        sequence = sequence,
                        check = check(thread, sequence)
                    );
                    if sequence % rest == rest - 1 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
    });
}

/// The application as a command, in a place.
fn application_command(place: &Place, reservation: &str, mode: &str) -> Vec<String> {
    let how = format!("{TASK}={reservation} {mode} {}", place.path().display());
    let program = std::env::current_exe().expect("this program's file").display().to_string();
    ["env", &how, &program, "--exact", "user_stream::application", "--nocapture"]
        .map(str::to_owned)
        .to_vec()
}

/// Starts a recorder that sends the sessions of the application.
fn recorder(place: &Place, to: &str, reservation: &str, mode: &str) -> Child {
    let mut command = place.command();
    command.args(["record", "-o", to, "--user", "--strict", "--"]).args(application_command(
        place,
        reservation,
        mode,
    ));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
}

pub(crate) fn ended(child: Child) -> Ran {
    ran(child.wait_with_output().expect("it ends"))
}

/// The numbers of the events of each thread in a received session, in order. Each must have the
/// application's own value, and be there once.
fn events(place: &Place, folder: &Path) -> (BTreeMap<u64, Vec<u64>>, Ran) {
    let report = place.run(&["report", folder.to_str().unwrap(), "--strict"]);
    let mut threads: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in report.out.lines().filter(|line| line.contains("sequence=")) {
        let (thread, sequence) = (field(line, "thread"), field(line, "sequence"));
        assert_eq!(field(line, "check"), check(thread, sequence), "{line}");
        threads.entry(thread).or_default().push(sequence);
    }
    for (thread, numbers) in &threads {
        let back = numbers.windows(2).find(|pair| pair[0] >= pair[1]);
        assert!(back.is_none(), "thread {thread}: {back:?}");
    }
    (threads, report)
}

/// Counts the packets in a spool.
fn packets(mut spool: &[u8]) -> usize {
    let mut count = 0;
    spool = &spool[16.min(spool.len())..];
    while spool.len() >= 16 {
        count += usize::from(spool[..4] == 10u32.to_le_bytes());
        let length = u64::from_le_bytes(spool[8..16].try_into().unwrap()) as usize;
        spool = &spool[(16 + length).min(spool.len())..];
    }
    count
}

#[test]
fn each_event_of_a_session_arrives_once() {
    let place = Place::new();
    let mut receiver = Receiver::at(&place);
    for reservation in ["rseq", "lockless", "locked"] {
        ended(recorder(&place, &receiver.address, reservation, "paced"))
            .has_status(0)
            .says("nothing lost");
        let saved = receiver.next("saved-session");
        assert_members(&saved, &json!({ "lost_sub_buffers": 0, "lost_events": 0 }));
        assert_eq!(saved["session"], "app");
        let folder = path(&place, &saved);
        let (threads, report) = events(&place, &folder);
        assert_eq!(report.status, 0, "{reservation}: {}", report.err);
        let all: Vec<u64> = (0..PACED).collect();
        assert!(
            threads.len() as u64 == THREADS && threads.values().all(|numbers| *numbers == all),
            "{reservation}"
        );
        // More than the rings have at a time.
        assert!(saved["bytes"].as_u64().unwrap() > 1 << 20, "{saved}");
        // Nothing is left here, and what arrived is as any session.
        assert!(
            !names(place.path()).iter().any(|name| name.ends_with(".user")),
            "{:?}",
            names(place.path())
        );
        let recovered = place.at(&format!("{reservation}.ctf"));
        place.ok(&["recover", folder.to_str().unwrap(), "-o", recovered.to_str().unwrap()]);
        fs::remove_dir_all(&folder).unwrap();
        fs::remove_file(place.at("done")).unwrap();
    }
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

/// The receiver takes nothing while the recorder comes round many times, so that pages are
/// overwritten that are in the socket already.
#[test]
fn what_is_overwritten_while_it_is_sent_is_told_and_never_wrong() {
    let place = Place::new();
    let mut receiver = Receiver::at(&place);
    let recorder = recorder(&place, &receiver.address, "rseq", "flood");
    let spool = place.at(receiver.next("started")["spool"].as_str().unwrap());
    wait_until("the application is ready", || place.at("ready").exists());
    wait_until("the first sub-buffers have arrived", || packets(&fs::read(&spool).unwrap()) >= 3);
    // The confirmations are on their way.
    std::thread::sleep(Duration::from_millis(200));
    receiver.child.signal(Signal::STOP);
    fs::write(place.at("go"), "").unwrap();
    wait_until("the rings have come round", || place.at("flooded").exists());
    receiver.child.signal(Signal::CONT);
    fs::write(place.at("end"), "").unwrap();
    let ended = ended(recorder);
    let saved = receiver.next("saved-session");
    let lost = saved["lost_sub_buffers"].as_u64().unwrap();
    assert!(ended.status == 3 && lost > 10, "{} {saved}", ended.err);
    ended.says(&format!("{lost} sub-buffers were overwritten before they had arrived"));
    let (threads, report) = events(&place, &path(&place, &saved));
    report.has_status(3);
    let received: usize = threads.values().map(Vec::len).sum();
    let recorded = THREADS as usize * 201_000;
    // The newest events are never overwritten.
    assert!(threads.values().all(|numbers| numbers.last() == Some(&200_999)), "{}", report.err);
    // An event has 32 bytes: 4 of header, the thread, and three values of 8 bytes. A sub-buffer has
    // room for 4096 - 84 - 16 bytes.
    let missing = (recorded - received) as u64;
    let per_buffer = missing / lost;
    assert!((90..=150).contains(&per_buffer), "{missing} events in {lost} sub-buffers");
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

#[test]
fn a_ring_that_discards_counts_what_did_not_arrive() {
    let place = Place::new();
    let mut receiver = Receiver::at(&place);
    let ended = ended(recorder(&place, &receiver.address, "rseq", "discard"));
    let saved = receiver.next("saved-session");
    let lost = saved["lost_events"].as_u64().unwrap();
    ended.has_status(3);
    assert!(lost > 0 && saved["lost_sub_buffers"] == 0, "{saved}");
    let (threads, report) = events(&place, &path(&place, &saved));
    let received: u64 = threads.values().map(|numbers| numbers.len() as u64).sum();
    assert_eq!(received + lost, THREADS * PACED, "{}", report.err);
    let told =
        |line: &str| line.split_once("discarded (")?.1.split(' ').next()?.parse::<u64>().ok();
    assert_eq!(
        (report.status, report.err.lines().filter_map(told).sum::<u64>()),
        (3, lost),
        "{}",
        report.err
    );
    // The room of what arrived was used again: a ring has 4 sub-buffers.
    // Besides the two other regions, a stream is not bound to a CPU.
    let cpus = entries(&path(&place, &saved)).len() as u64 - 3;
    assert!(saved["sub_buffers"].as_u64().unwrap() > cpus * 4, "{saved}");
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

/// Starts the application without a sender.
fn start_application(place: &Place, reservation: &str, end: &str) -> Running {
    let words = application_command(place, reservation, end);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("LASTWORDS_DIR", place.sessions());
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Starts to send the application's session.
pub(crate) fn start_sender(place: &Place, address: &str) -> Child {
    let mut command = place.command();
    command.args(["record", "--session", "app", "-o", address]).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

#[test]
fn a_sender_of_a_session_that_is_killed_keeps_what_arrived() {
    let place = Place::new();
    let mut receiver = Receiver::at(&place);
    let mut application = start_application(&place, "rseq", "lives");
    wait_until("the session lives", || place.ok(&["list"]).contains("live"));
    let mut sender = start_sender(&place, &receiver.address);
    receiver.next("started");
    wait_until("everything is recorded", || place.at("done").exists());
    sender.kill().unwrap();
    sender.wait().unwrap();
    let saved = receiver.next("saved-session");
    assert!(saved["ended_early"].as_str().unwrap().contains("the connection"), "{saved}");
    let (threads, report) = events(&place, &path(&place, &saved));
    report.has_status(3).says("the stream ended early");
    assert!(threads.values().all(|numbers| numbers.len() > 1000), "{}", report.err);
    // The session still has its events, and another stream of it ends with it.
    let sender = start_sender(&place, &receiver.address);
    receiver.next("started");
    application.kill();
    let ended = ended(sender);
    // What the rings had overwritten before is not part of this stream.
    ended.has_status(0).says("nothing lost");
    let saved = receiver.next("saved-session");
    assert_members(&saved, &json!({ "lost_sub_buffers": 0, "ended_early": null }));
    let (threads, report) = events(&place, &path(&place, &saved));
    assert!(threads.values().all(|numbers| numbers.last() == Some(&(PACED - 1))), "{}", report.err);
    let kept: usize = threads.values().map(Vec::len).sum();
    assert!(kept < (THREADS * PACED) as usize, "the rings had overwritten nothing");
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

#[test]
fn the_sender_of_a_session_neither_reads_nor_writes_its_events() {
    let place = Place::new();
    let mut receiver = Receiver::at(&place);
    let list = "trace=read,write,pread64,pwrite64,readv,writev,splice,copy_file_range,sendfile,sendto,sendmsg,recvfrom";
    let mut strace = Command::new("strace");
    strace.args(["-D", "-ff", "-y", "-s", "0", "-e", list, "-o"]).arg(place.at("from"));
    strace.args([env!("CARGO_BIN_EXE_lastwords"), "record", "-o", &receiver.address]);
    strace.args(["--user", "--"]);
    strace.args(application_command(&place, "rseq", "paced"));
    strace.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions()).stdout(Stdio::null());
    ran(strace.stderr(Stdio::piped()).output().expect("strace is needed: cargo xtask setup"))
        .has_status(0);
    let saved = receiver.next("saved-session");
    let bytes = saved["bytes"].as_u64().unwrap();
    let logs = names(place.path()).into_iter().filter(|name| name.starts_with("from."));
    let text: String = logs.map(|name| fs::read_to_string(place.at(&name)).unwrap()).collect();
    let sum = |is: &dyn Fn(&str, &str) -> bool| -> u64 {
        calls(&text).iter().filter(|(call, args, _)| is(call, args)).map(|(.., bytes)| bytes).sum()
    };
    assert_eq!(sum(&|call, _| call == "sendfile"), bytes);
    // The begins of the streams' regions are read: twice 768 bytes each.
    let read = sum(&|call, args| call.contains("read") && args.contains("/stream-"));
    assert!(read < 100_000 && bytes > 1 << 20, "{read} of {bytes}");
    assert_eq!(receiver.end(Signal::INT), Some(0));
}

/// Committed events of a sub-buffer that is not full are sent each second.
#[test]
fn few_events_of_a_session_outlive_the_sender() {
    for reservation in ["rseq", "lockless", "locked"] {
        let place = Place::new();
        let mut receiver = Receiver::at(&place);
        let mut application = start_application(&place, reservation, "few");
        wait_until("everything is recorded", || place.at("done").exists());
        let mut sender = start_sender(&place, &receiver.address);
        receiver.next("started");
        std::thread::sleep(Duration::from_millis(1500));
        sender.kill().unwrap();
        sender.wait().unwrap();
        let saved = receiver.next("saved-session");
        let (threads, report) = events(&place, &path(&place, &saved));
        let all: Vec<u64> = (0..30).collect();
        assert!(threads.len() as u64 == THREADS, "{reservation}: {}", report.err);
        assert!(
            threads.values().all(|numbers| *numbers == all),
            "{reservation}: {threads:?} {}",
            report.err
        );
        report.has_status(3).says("the stream ended early");
        application.kill();
        assert_eq!(receiver.end(Signal::INT), Some(0));
    }
}

/// A receiver's options set its limits, and an error names the option to raise.
#[test]
fn the_limits_of_a_receiver_are_its_options() {
    let place = Place::new();
    let session = Session::builder("app").dir(place.sessions()).start().expect("a session");
    event!(test, "tick");
    let receiver = |option: &str, value: &str| {
        let args =
            ["--dir", option.trim_matches('-'), "--listen", "tcp:127.0.0.1:0", option, value];
        Receiver::start(place.command(), &args)
    };
    for (option, value) in
        [("--max-peer-files", "1"), ("--max-peer-bytes", "1K"), ("--max-size", "1K")]
    {
        let mut receiver = receiver(option, value);
        ended(start_sender(&place, &receiver.address)).has_status(1).says(option);
        assert_eq!(receiver.end(Signal::INT), Some(0));
    }
    for option in ["--max-senders", "--max-per-peer"] {
        let mut receiver = receiver(option, "1");
        let mut first = start_sender(&place, &receiver.address);
        receiver.next("started");
        ended(start_sender(&place, &receiver.address)).has_status(1).says(option);
        receiver.next("refused")["why"].as_str().unwrap().has(option);
        first.kill().unwrap();
        first.wait().unwrap();
        receiver.next("saved-session");
        assert_eq!(receiver.end(Signal::INT), Some(0));
    }
    let mut receiver = receiver("--head-timeout", "1");
    let address = receiver.address.strip_prefix("tcp:").unwrap();
    let mut silent = TcpStream::connect(address).unwrap();
    let mut said = Vec::new();
    silent.read_to_end(&mut said).unwrap();
    String::from_utf8_lossy(&said).has("--head-timeout");
    receiver.next("refused")["why"].as_str().unwrap().has("--head-timeout");
    assert_eq!(receiver.end(Signal::INT), Some(0));
    drop(session);
}
