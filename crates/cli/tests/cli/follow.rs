//! `report --follow`: each event of a living session is printed once, in the order of time, and
//! nothing is consumed.

use crate::child::Running;
use crate::consume::{EVENTS, Had, Recorder, THREADS};
use crate::support::{Place, Ran, ran, wait_until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A follower, and the threads that read what it prints. It is killed when it is dropped.
struct Follower {
    child: Running,
    out: Option<JoinHandle<Vec<(Instant, String)>>>,
    err: Option<JoinHandle<String>>,
    /// Number of lines that were printed until now.
    lines: Arc<AtomicUsize>,
}

impl Follower {
    fn start(place: &Place, more: &[&str]) -> Self {
        let mut command = place.command();
        command.args(["report", "app", "--follow"]);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Running::start(&mut command);
        let (out, mut err) = child.pipes();
        let lines = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&lines);
        let line = move |line: std::io::Result<String>| {
            count.fetch_add(1, Ordering::Relaxed);
            (Instant::now(), line.expect("UTF-8"))
        };
        let out = std::thread::spawn(move || BufReader::new(out).lines().map(line).collect());
        let err = std::thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).expect("UTF-8");
            text
        });
        Self { child, out: Some(out), err: Some(err), lines }
    }

    /// Waits until it prints.
    fn wait(&self) {
        wait_until("something is printed", || self.lines.load(Ordering::Relaxed) > 0);
    }

    /// Waits for the end; returns the lines with the moments of their arrival, and the whole run.
    fn end(mut self) -> (Vec<(Instant, String)>, Ran) {
        let status = self.child.wait();
        let lines = self.out.take().expect("once").join().expect("lines");
        let err = self.err.take().expect("once").join().expect("text").into_bytes();
        let stdout = lines.iter().flat_map(|(_, line)| format!("{line}\n").into_bytes()).collect();
        (lines, ran(std::process::Output { status, stdout, stderr: err }))
    }
}

/// Times of day at the beginning of lines do not step back, but once at midnight, and where a
/// thread was interrupted between the moment when it took the time and the end of its event: later
/// events of other threads are printed before that one. The order of each thread's own events is
/// checked by [`Had::take`].
fn check_order(ran: &Ran) {
    let times: Vec<&str> = ran.out.lines().filter_map(|line| line.split(' ').next()).collect();
    let back = times.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let most = usize::from(times.first() > times.last()) + THREADS as usize;
    assert!(back <= most, "{back} times step back");
}

#[test]
fn every_event_is_printed_once_while_it_is_recorded() {
    for reservation in ["rseq", "lockless", "locked"] {
        let place = Place::new();
        let recorder = Recorder::start(&place, reservation, "large");
        let follower = Follower::start(&place, &[]);
        recorder.wait();
        let done = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        drop(recorder);
        let (lines, ran) = follower.end();
        let mut had = Had::default();
        had.take(&ran);
        had.check_all();
        check_order(&ran);
        ran.says(&format!("{} events printed; nothing lost", THREADS * EVENTS));
        let live = lines.iter().filter(|(at, _)| *at < done).count();
        assert!(live > 0, "{reservation}: no line before all was recorded");
        assert_eq!(
            place.ok(&["report", "app"]).lines().count() as u64,
            THREADS * EVENTS,
            "nothing is consumed"
        );
    }
}

#[test]
fn snapshots_and_consumers_take_nothing_from_a_follower_in_silence() {
    for reservation in ["rseq", "lockless", "locked"] {
        let place = Place::new();
        let recorder = Recorder::start(&place, reservation, "snapshot");
        let follower = Follower::start(&place, &["--strict"]);
        follower.wait();
        while !recorder.is_done() {
            place.ok(&["snapshot", "take", "app"]);
            std::thread::sleep(Duration::from_millis(350));
        }
        std::thread::sleep(Duration::from_millis(300));
        follower.child.signal(Signal::INT);
        let (_, ran) = follower.end();
        let mut had = Had::default();
        had.take(&ran);
        had.check_once();
        check_order(&ran);
        // A slow machine may free a snapshot before the follower has read its end. Then the
        // follower says so.
        if had.events.len() as u64 != THREADS * EVENTS {
            assert!(ran.err.contains(", before they were read: "), "{reservation}: {}", ran.err);
        }
    }
}

#[test]
fn what_was_overwritten_before_it_was_printed_is_a_loss() {
    for reservation in ["rseq", "lockless", "locked"] {
        let place = Place::new();
        let recorder = Recorder::start(&place, reservation, "overwrite");
        let follower = Follower::start(&place, &["--strict"]);
        // A follower that is stopped for a while does not come round in time.
        follower.wait();
        follower.child.signal(Signal::STOP);
        recorder.wait();
        follower.child.signal(Signal::CONT);
        drop(recorder);
        let (_, ran) = follower.end();
        assert_eq!(ran.status, 3, "{reservation}: {}", ran.err);
        ran.says(" overwritten-unread (").says("with losses");
        let mut had = Had::default();
        had.take(&Ran { status: 0, ..ran });
        had.check_once();
        assert!((had.events.len() as u64) < THREADS * EVENTS);
    }
}

#[test]
fn what_a_ring_discards_is_told_once() {
    let place = Place::new();
    let recorder = Recorder::start(&place, "rseq", "discard");
    let follower = Follower::start(&place, &[]);
    recorder.wait();
    drop(recorder);
    let (_, ran) = follower.end();
    let mut had = Had::default();
    had.take(&ran);
    had.check_once();
    assert_eq!(had.events.len() as u64 + had.discarded, THREADS * EVENTS, "{}", ran.err);
}

#[test]
fn a_selection_holds_in_each_step() {
    let place = Place::new();
    let recorder = Recorder::start(&place, "rseq", "large");
    let follower = Follower::start(&place, &["--filter", "thread == 1 && (sequence & 127) == 7"]);
    while place.ok(&["report", "app"]).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let newest = Follower::start(&place, &["--last", "0"]);
    recorder.wait();
    drop(recorder);
    let (_, ran) = follower.end();
    ran.has_status(0);
    let printed: Vec<String> = ran
        .out
        .lines()
        .map(|line| line.rsplit('=').next().unwrap_or_default().to_owned())
        .collect();
    let wanted: Vec<String> = (0..EVENTS).filter(|n| n & 127 == 7).map(|n| n.to_string()).collect();
    assert_eq!(printed, wanted);
    let (_, ran) = newest.end();
    let mut had = Had::default();
    had.take(&ran);
    had.check_once();
    assert!(
        !had.events.is_empty() && (had.events.len() as u64) < THREADS * EVENTS,
        "{} events",
        had.events.len()
    );
    assert!(had.events.contains_key(&(0, EVENTS - 1)), "the newest event of a thread");
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let place = Place::new();
    std::fs::write(place.at("file"), "no session").expect("a file");
    let ran = place.run(&["report", "file", "--follow"]);
    ran.has_status(1).says("only sessions in their folders are followed");
    for option in [&["--consume"][..], &["--since", "-1s"], &["--with-log"], &["--snapshot"]] {
        place.run(&[&["report", "app", "--follow"], option].concat()).has_status(2);
    }
    let ran = place.run(&["report", "app", "--follow", "--style", "babeltrace"]);
    ran.has_status(1).says("fields, ftrace and raw do not");
}
