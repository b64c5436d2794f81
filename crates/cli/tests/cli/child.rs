//! The programs that are recorded: this test program itself, started again.

use crate::support::Place;
use lastwords::{Memory, Reservation, Scope, Session, event, mark};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Events of each thread.
pub(crate) const EVENTS: u64 = 500;
/// Threads.
pub(crate) const THREADS: u64 = 2;

/// The reservation with this word.
pub(crate) fn reservation(word: &str) -> Reservation {
    match word {
        "rseq" => Reservation::Rseq,
        "lockless" => Reservation::Lockless,
        _ => Reservation::Locked,
    }
}

/// The variable that has the child's task.
const HOW: &str = "LASTWORDS_TEST_CHILD";

/// Started again with [`HOW`] set, this is the recorded program; else it is nothing.
#[test]
fn child() {
    let Ok(how) = std::env::var(HOW) else { return };
    let words: Vec<&str> = how.split(' ').collect();
    let [memory, end, ready] = words.as_slice() else { panic!("{how}") };
    let scope = if *memory == "user" { Scope::User } else { Scope::Process };
    let memory = match *memory {
        "heap" => Memory::Heap,
        "memfd" => Memory::Memfd,
        "huge" => Memory::Huge,
        // An ordinary file: no machine needs memory that keeps its contents for that.
        "dax" => Memory::Dax { path: Path::new(ready).with_extension("dax"), reuse: true },
        _ => Memory::Shm,
    };
    let session = Session::builder("app").backend(memory).scope(scope).start().expect("a session");
    if *end == "panic" {
        lastwords::crash::install_panic_hook();
        let _ = std::thread::spawn(|| panic!("a thread gave up")).join();
    }
    if *end == "tick" {
        tick(ready);
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || (0..EVENTS).for_each(|sequence| one(thread, sequence)));
        }
    });
    std::fs::write(ready, "ready").expect("the ready file");
    if *end == "last-panic" {
        lastwords::crash::install_panic_hook();
        let _ = std::thread::spawn(|| panic!("a thread gave up")).join();
    }
    if *end == "unwound" {
        lastwords::crash::install_panic_hook();
        let _span = Closing;
        panic!("the program gave up");
    }
    match *end {
        "abort" | "panic" | "last-panic" => std::process::abort(),
        "wait" => std::thread::sleep(Duration::from_secs(60)),
        _ => panic!("{how}"),
    }
    drop(session);
}

/// Records the end of a span, also while a panic unwinds.
struct Closing;

impl Drop for Closing {
    fn drop(&mut self) {
        event!(span, "close app::main", span_id = 1u64);
    }
}

fn one(thread: u64, sequence: u64) {
    match sequence % 3 {
        0 => mark!("thread {thread} step {sequence}", thread = thread, sequence = sequence),
        1 => event!(test, "tick", thread = thread, sequence = sequence),
        _ => event!(
            test,
            "text",
            thread = thread,
            sequence = sequence,
            text = "\u{1b}[31mred\n",
            share = 0.5f64
        ),
    }
}

/// Ticks every millisecond until it is killed.
fn tick(ready: &str) {
    for sequence in 0u64.. {
        event!(test, "tick", thread = 0u64, sequence = sequence);
        event!(test, "tock", thread = 0u64, sequence = sequence);
        if sequence == 10 {
            std::fs::write(ready, "ready").expect("the ready file");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child that is there; killed when dropped.
pub(crate) struct Running {
    child: Child,
}

/// Starts a child in a place, and waits until it has recorded. `memory`: shm, memfd, heap, or user
/// (a session of the user in shm); `end`: wait, abort, panic (of a thread, recorded by the hook,
/// before all events; then abort), last-panic (behind all events), unwound (a panic ends the
/// session in a span), tick.
pub(crate) fn start(place: &Place, memory: &str, end: &str) -> Running {
    let ready = place.at("ready");
    let running = run(place, "child::child", HOW, &format!("{memory} {end} {}", ready.display()));
    wait_for(&ready);
    running
}

/// Like [`start`], by a shell script that gets the command as its arguments.
pub(crate) fn start_in(place: &Place, script: &str, memory: &str, end: &str) -> Running {
    let ready = place.at("ready");
    let running =
        run_in(place, script, "child::child", HOW, &format!("{memory} {end} {}", ready.display()));
    wait_for(&ready);
    running
}

/// Starts this program again in a place, as the test of that name, which is told by the variable
/// `how` what to do.
pub(crate) fn run(place: &Place, test: &str, how: &str, what: &str) -> Running {
    run_in(place, "ulimit -c unlimited; exec \"$@\"", test, how, what)
}

/// Like [`run`], by a shell script that gets the command as its arguments.
pub(crate) fn run_in(place: &Place, script: &str, test: &str, how: &str, what: &str) -> Running {
    let program = std::env::current_exe().expect("this program's file");
    let child = Command::new("/bin/sh")
        .args(["-c", script, "sh"])
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .current_dir(place.path())
        .env("LASTWORDS_DIR", place.sessions())
        .env(how, what)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts");
    Running { child }
}

pub(crate) fn wait_for(file: &Path) {
    let begun = Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the child did not record in 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Running {
    /// A process that a test has started in another way.
    pub(crate) fn new(child: Child) -> Self {
        Self { child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL and waits.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended, however that is.
    pub(crate) fn wait(&mut self) {
        self.child.wait().expect("the child ends");
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(mut self) {
        let status = self.child.wait().expect("the child ends");
        assert!(!status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
