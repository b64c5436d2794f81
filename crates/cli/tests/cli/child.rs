//! The programs that are recorded: this test program itself, started again.

use crate::support::{Place, wait_until};
use lastwords::{Memory, Reservation, Scope, Session, event, mark};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

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

/// The variable that has the task of a program that is started again.
pub(crate) const TASK: &str = "LASTWORDS_TEST_TASK";

/// Returns the task of this program, if a test has started it again. A test that is the recorded
/// program calls it, and does nothing without a task.
pub(crate) fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// The recorded program.
#[test]
fn child() {
    let Some(how) = task() else { return };
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

/// A process that was started; killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
}

/// Starts a child in a place, and waits until it has recorded. `memory`: shm, memfd, heap, or user
/// (a session of the user in shm); `end`: wait, abort, panic (of a thread, recorded by the hook,
/// before all events; then abort), last-panic (behind all events), unwound (a panic ends the
/// session in a span), tick.
pub(crate) fn start(place: &Place, memory: &str, end: &str) -> Running {
    start_test(place, "child::child", &format!("{memory} {end}"))
}

/// Like [`start`], by a shell script that gets the command as its arguments.
pub(crate) fn start_in(place: &Place, script: &str, memory: &str, end: &str) -> Running {
    let ready = place.at("ready");
    let task = format!("{memory} {end} {}", ready.display());
    let running = run_in(place, script, "child::child", &task);
    wait_for(&ready);
    running
}

/// Starts this program again as [`run`] does. The last word of its task is the path of the file
/// `ready`, for which this waits.
pub(crate) fn start_test(place: &Place, test: &str, task: &str) -> Running {
    let ready = place.at("ready");
    let running = run(place, test, &format!("{task} {}", ready.display()));
    wait_for(&ready);
    running
}

/// Starts this program again in a place, as the test of that name with a task.
pub(crate) fn run(place: &Place, test: &str, task: &str) -> Running {
    run_in(place, "ulimit -c unlimited; exec \"$@\"", test, task)
}

/// Like [`run`], by a shell script that gets the command as its arguments.
pub(crate) fn run_in(place: &Place, script: &str, test: &str, task: &str) -> Running {
    let program = std::env::current_exe().expect("this program's file");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "sh"]).arg(program).args(["--exact", test, "--nocapture"]);
    command.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions()).env(TASK, task);
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

pub(crate) fn wait_for(file: &Path) {
    wait_until(&format!("{} is there", file.display()), || file.exists());
}

impl Running {
    /// Starts a program.
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.spawn();
        Self { child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")) }
    }

    /// Starts a process that does nothing.
    pub(crate) fn sleeping() -> Self {
        Self::start(Command::new("sleep").arg("60"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes its stdout and stderr, which must be pipes.
    pub(crate) fn pipes(&mut self) -> (ChildStdout, ChildStderr) {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        out.zip(err).expect("pipes")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Kills it with SIGKILL and waits.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended, however that is.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the child ends")
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(mut self) {
        let status = self.wait();
        assert!(!status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
