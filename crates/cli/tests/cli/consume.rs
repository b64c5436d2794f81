//! Consuming reads: what one has had, the next is not given; beside recorders, in each reservation.

use crate::child::{self, Running, run, task};
use crate::support::{Place, Ran, ran, small, wait_until};
use lastwords::{ChannelConfig, Session, event};
use lastwords_control::Handle;
use lastwords_testkit::text::Text as _;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

pub(crate) const THREADS: u64 = 3;
/// Events of each thread.
pub(crate) const EVENTS: u64 = 30_000;

/// The recorded program.
#[test]
fn recorder() {
    let Some(how) = task() else { return };
    let words: Vec<&str> = how.split(' ').collect();
    let [reservation, mode] = words.as_slice() else { panic!("{how}") };
    let reservation = child::reservation(reservation);
    let channel = match *mode {
        "discard" => ChannelConfig::new("main").sub_buffers(4, 4096).discard(),
        "overwrite" => ChannelConfig::new("main").sub_buffers(4, 4096),
        "flood" => ChannelConfig::new("main").sub_buffers(4, 1 << 18),
        _ => ChannelConfig::new("main").sub_buffers(64, 1 << 16),
    };
    let builder = Session::builder("app")
        .reservation(reservation)
        .channel(channel)
        .snapshot(*mode == "snapshot");
    let session = builder.start().expect("a session");
    if *mode == "flood" {
        flood();
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for sequence in 0..EVENTS {
                    event!(test, "tick", thread = thread, sequence = sequence);
                    if sequence % 64 == 63 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
    });
    std::fs::write("done", "done").expect("the file");
    std::thread::sleep(Duration::from_secs(60));
    drop(session);
}

/// Records as fast as it can, on two threads, until it is killed; `done` is there once each ring
/// has come round.
fn flood() {
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            scope.spawn(move || {
                for sequence in 0u64.. {
                    event!(test, "tick", thread = thread, sequence = sequence);
                    if sequence == 1 << 20 {
                        std::fs::write("done", "done").expect("the file");
                    }
                }
            });
        }
    });
}

/// The recorder; killed when dropped.
pub(crate) struct Recorder<'a> {
    place: &'a Place,
    _running: Running,
}

impl<'a> Recorder<'a> {
    pub(crate) fn start(place: &'a Place, reservation: &str, mode: &str) -> Self {
        let running = run(place, "consume::recorder", &format!("{reservation} {mode}"));
        wait_until("the session lives", || place.ok(&["list"]).contains("live"));
        Self { place, _running: running }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.place.at("done").exists()
    }

    /// Waits until all is recorded.
    pub(crate) fn wait(&self) {
        wait_until("all is recorded", || self.is_done());
    }
}

/// The events that were reported until now.
#[derive(Default)]
pub(crate) struct Had {
    pub(crate) events: BTreeMap<(u64, u64), usize>,
    /// The newest of each thread.
    newest: BTreeMap<u64, u64>,
    /// Events that were told as discarded.
    pub(crate) discarded: u64,
    reads: usize,
    /// The report has several traces beside each other.
    is_beside: bool,
    /// Reads that had events.
    full: usize,
    /// Lines about losses, with the number of the read.
    losses: Vec<String>,
}

pub(crate) fn field(line: &str, name: &str) -> u64 {
    let found = line
        .split([' ', '{', '}', ','])
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {line}"))
}

/// `line` calls a sub-buffer torn. Returns true if a living thread is writing an event in that
/// sub-buffer: the scheduler may stop a thread inside an event while another thread on the same CPU
/// skips the sub-buffer and fills the ring again.
fn is_being_written(line: &str, told: &str) -> bool {
    let number = line
        .split_once("sub-buffer ")
        .and_then(|(_, rest)| rest.split_once(':'))
        .map(|(number, _)| number);
    let of_it = |other: &&str| {
        number.is_some_and(|number| other.contains(&format!("sub-buffer {number}, offset ")))
    };
    told.lines().filter(of_it).any(|other| other.contains(": in-flight ("))
}

impl Had {
    /// Returns the events of consuming reads until all are recorded, and of one read after that.
    fn all_of(place: &Place, recorder: &Recorder<'_>) -> Self {
        let mut had = Self::default();
        while !recorder.is_done() {
            had.take(&place.run(&CONSUME));
        }
        had.take(&place.run(&CONSUME));
        had
    }

    /// Takes in a report, which must have gone well.
    pub(crate) fn take(&mut self, ran: &Ran) {
        ran.has_status(0);
        self.reads += 1;
        self.full += usize::from(!ran.out.is_empty());
        for line in ran.out.lines() {
            let (thread, sequence) = (field(line, "thread"), field(line, "sequence"));
            *self.events.entry((thread, sequence)).or_default() += 1;
            let before = self.newest.insert(thread, sequence);
            // Live rings and snapshot, read beside each other, have an order each.
            let is_behind = self.is_beside || before.is_none_or(|before| before < sequence);
            assert!(
                is_behind,
                "thread {thread}: {sequence} behind {before:?}, in read {}",
                self.reads
            );
        }
        for line in ran.err.lines() {
            if !line.contains("nothing lost") {
                self.losses.push(format!("{}: {line}", self.reads));
            }
            assert!(!line.contains("invalid") && !line.contains("damaged"), "{}", ran.err);
            assert!(!line.contains(": torn, ") || is_being_written(line, &ran.err), "{}", ran.err);
            let count = line
                .split_once("discarded (")
                .and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
            self.discarded += count.unwrap_or(0);
        }
    }

    pub(crate) fn check_once(&self) {
        let twice = self.events.iter().find(|(_, times)| **times != 1);
        assert!(twice.is_none(), "{twice:?} times, in {} reads", self.reads);
    }

    pub(crate) fn check_all(&self) {
        self.check_once();
        let all =
            (0..THREADS).flat_map(|thread| (0..EVENTS).map(move |sequence| (thread, sequence)));
        let missing: Vec<_> = all.filter(|event| !self.events.contains_key(event)).collect();
        // The first and the last, and what the reads said of losses, tell which part of the
        // recording is concerned.
        let ends = missing.first().zip(missing.last());
        assert!(
            missing.is_empty(),
            "{} events are missing, from {ends:?}, after {} reads; the reads said: {:#?}",
            missing.len(),
            self.reads,
            self.losses
        );
    }
}

const CONSUME: [&str; 3] = ["report", "app", "--consume"];

#[test]
fn every_event_is_had_once_beside_recorders() {
    for reservation in ["rseq", "lockless", "locked"] {
        let place = Place::new();
        let recorder = Recorder::start(&place, reservation, "large");
        let had = Had::all_of(&place, &recorder);
        assert!(had.full > 1, "{} reads", had.reads);
        had.check_all();
        // Nothing is left, for whoever reads.
        assert_eq!(place.run(&CONSUME).out, "");
        let ran = place.run(&["report", "app"]);
        assert_eq!(ran.out, "");
        ran.says(" consumed").says("nothing lost");
    }
}

#[test]
fn a_ring_that_discards_has_room_again() {
    for reservation in ["rseq", "lockless", "locked"] {
        let place = Place::new();
        let recorder = Recorder::start(&place, reservation, "discard");
        let had = Had::all_of(&place, &recorder);
        had.check_once();
        // They were filled more than once. What is not there was told as lost, once.
        assert!(had.full > 1, "{} events, {} reads", had.events.len(), had.reads);
        assert_eq!(
            had.events.len() as u64 + had.discarded,
            THREADS * EVENTS,
            "{reservation}: {} reads",
            had.reads
        );
        place.run(&["report", "app", "--consume", "--strict"]).has_status(0);
    }
}

#[test]
fn what_was_overwritten_before_it_was_consumed_is_a_loss() {
    let place = Place::new();
    let recorder = Recorder::start(&place, "rseq", "overwrite");
    recorder.wait();
    let ran = place.run(&["report", "app", "--consume", "--strict"]);
    ran.has_status(3);
    assert!(ran.err.contains(" overwritten-unread (") && !ran.out.is_empty(), "{}", ran.err);
    assert!(ran.err.contains("; with losses"), "the heading says so too: {}", ran.err);
    let again = place.run(&["report", "app", "--consume", "--strict"]);
    assert_eq!((again.status, again.out), (0, String::new()), "{}", again.err);
}

#[test]
fn at_full_load_each_read_has_what_is_in_the_rings() {
    for reservation in ["rseq", "lockless", "locked"] {
        let place = Place::new();
        let recorder = Recorder::start(&place, reservation, "flood");
        recorder.wait();
        let mut had = Had::default();
        for _ in 0..6 {
            let ran = place.run(&CONSUME);
            let heading = ran.err.lines().next().unwrap_or_default();
            let is_lost = ran.err.contains("overwritten");
            assert!(!(is_lost && heading.contains("nothing lost")), "{reservation}: {}", ran.err);
            assert!(!ran.out.is_empty() || is_lost, "{reservation}: nothing: {}", ran.err);
            had.take(&ran);
        }
        had.check_once();
        assert!(
            had.full >= 4,
            "{reservation}: only {} of {} reads had events",
            had.full,
            had.reads
        );
    }
}

#[test]
fn live_and_snapshot_are_consumed_beside_each_other() {
    for reservation in ["rseq", "lockless", "locked"] {
        let place = Place::new();
        let recorder = Recorder::start(&place, reservation, "snapshot");
        let mut had = Had { is_beside: true, ..Had::default() };
        let mut is_done = false;
        while !is_done {
            is_done = recorder.is_done();
            place.ok(&["snapshot", "take", "app"]);
            std::thread::scope(|scope| {
                let live = scope.spawn(|| place.run(&CONSUME));
                let snapshot =
                    scope.spawn(|| place.run(&["report", "app", "--snapshot", "--consume"]));
                had.take(&live.join().expect("it runs"));
                had.take(&snapshot.join().expect("it runs"));
            });
            let again = place.run(&["report", "app", "--snapshot"]);
            assert_eq!(again.status, 1, "a snapshot that was consumed is no more: {}", again.out);
        }
        had.take(&place.run(&CONSUME));
        had.check_all();
    }
}

#[test]
fn recovered_is_consumed_when_it_is_written() {
    let place = Place::new();
    let recorder = Recorder::start(&place, "rseq", "large");
    recorder.wait();
    std::fs::write(place.at("file"), "in the way").unwrap();
    place.run(&["recover", "app", "-o", "file", "--consume"]).has_status(1);
    let text = place.ok(&["recover", "app", "-o", "out", "--consume"]);
    text.has(&format!("{} events", THREADS * EVENTS));
    assert_eq!(place.ok(&["report", "out/app"]).lines().count() as u64, THREADS * EVENTS);
    place.ok(&["recover", "app", "-o", "out2", "--consume"]).has(" 0 events");
}

#[test]
fn what_was_not_read_is_not_consumed() {
    let place = Place::new();
    let recorder = Recorder::start(&place, "rseq", "large");
    recorder.wait();
    let program = env!("CARGO_BIN_EXE_lastwords");
    let pipe = format!("{program} report app --consume | head -1; exit ${{PIPESTATUS[0]}}");
    let bash = |script: &str| {
        let sessions = place.sessions();
        let mut bash = Command::new("bash");
        ran(bash.args(["-c", script]).env("LASTWORDS_DIR", sessions).output().expect("bash"))
    };
    bash(&pipe).has_status(1).says("nothing is consumed");
    bash(&format!("{program} report app --consume > /dev/full")).has_status(1);
    for (folder, option) in [("out", ""), ("out2", "--json")] {
        let folder = place.at(folder).display().to_string();
        let full = format!("{program} recover app -o {folder} --consume {option} > /dev/full");
        bash(&full).has_status(1).says("nothing is consumed");
    }
    assert_eq!(place.ok(&["report", "app"]).lines().count() as u64, THREADS * EVENTS);

    // One consumer at a time; who only reads is not kept from it, and the dead keep nobody.
    let handle = Handle::open(&place.session()).unwrap();
    let consumer = handle.consume_live().unwrap();
    place.run(&CONSUME).has_status(1).says("held by another process");
    assert_eq!(place.ok(&["report", "app"]).lines().count() as u64, THREADS * EVENTS);
    drop(consumer);
    drop(recorder);
    let mut had = Had::default();
    had.take(&place.run(&CONSUME));
    had.check_all();
    assert_eq!(place.run(&CONSUME).out, "", "a session that is left over is consumed as well");
}

#[test]
fn only_sessions_in_their_folders_are_consumed() {
    let place = Place::new();
    let image = small(&place, "copy", 0);
    image.write_arena(&place.at("memory")).unwrap();
    let ran = place.run(&["report", "memory", "--consume"]);
    ran.has_status(1).says("only sessions in their folders are consumed");
    for option in [
        &["--last", "3"][..],
        &["--cpu", "0"],
        &["-e", "test:*"],
        &["--since", "-1s"],
        &["--with-log"],
    ] {
        place.run(&[&["report", "copy", "--consume"], option].concat()).has_status(2);
    }
    place.run(&["recover", "copy", "-o", "out", "--consume", "--carve"]).has_status(2);
}
