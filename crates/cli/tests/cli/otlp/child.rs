//! The program that is recorded: two threads record spans and events, and note what they do in
//! files of their own, which outlive them.

use super::account::Value;
use crate::child::{Running, run, task, wait_for};
use crate::support::Place;
use lastwords::{Session, mark};
use lastwords_testkit::random::Random;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tracing::span::EnteredSpan;

/// Threads that record.
pub(super) const THREADS: u64 = 2;
/// The most events and spans of a thread. The rings have room for all.
const MOST: u64 = 2000;
/// The deepest nesting of spans.
const DEEP: usize = 4;

/// Starts the program: `END SEED`. END: kill (it waits to be killed), abort, fpe, exit, panic,
/// closed.
pub(super) fn died(place: &Place, how: &str) -> Running {
    let running = run(place, "otlp::child::recorder", how);
    wait_for(&place.at("ready"));
    running
}

/// The account of a thread.
pub(super) fn account(place: &Path, thread: u64) -> std::path::PathBuf {
    place.join(format!("account-{thread}"))
}

/// The recorded program.
#[test]
fn recorder() {
    let Some(how) = task() else { return };
    let (end, seed) = how.split_once(' ').expect("an end and a seed");
    let seed: u64 = seed.parse().expect("a seed");
    lastwords::crash::install_panic_hook();
    lastwords::crash::install_default_signal_handlers().expect("handlers");
    let session = Session::builder("orders").start().expect("a session");
    lastwords::layer::init().expect("a subscriber");
    let worker = std::thread::spawn(move || {
        let mut thread = Thread::new(1, seed);
        thread.work(MOST);
        // A thread that dies closes no span.
        let _: &mut Thread = Box::leak(Box::new(thread));
    });
    let mut random = Random(seed ^ 0xdead);
    let most = if end == "kill" { MOST } else { 30 + random.below(200) };
    let mut thread = Thread::new(0, seed);
    thread.work(most);
    if end == "kill" {
        std::thread::sleep(Duration::from_secs(60));
    }
    std::fs::write("ready", "").expect("the ready file");
    let _: &mut Thread = Box::leak(Box::new(thread));
    if !matches!(end, "abort" | "fpe") {
        worker.join().expect("the worker");
    }
    match end {
        "closed" => return drop(session),
        "abort" => std::process::abort(),
        "fpe" => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::FPE)
                .expect("a signal")
        }
        "exit" => std::process::exit(3),
        _ => panic!("the order has no items"),
    }
    std::thread::sleep(Duration::from_secs(60));
}

/// A thread and its account.
struct Thread {
    number: u64,
    done: u64,
    random: Random,
    account: File,
    stack: Vec<EnteredSpan>,
}

fn now() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos()
}

impl Thread {
    fn new(number: u64, seed: u64) -> Self {
        let account = File::create(account(Path::new("."), number)).expect("an account");
        Self { number, done: 0, random: Random(seed ^ number << 40), account, stack: Vec::new() }
    }

    fn work(&mut self, most: u64) {
        while self.done < most {
            match self.random.below(8) {
                0 | 1 if self.stack.len() < DEEP => self.open(),
                2 if !self.stack.is_empty() => self.close(),
                kind => self.event(kind),
            }
            if self.done == 20 && self.number == 0 {
                std::fs::write("ready", "").expect("the ready file");
            }
            if self.done.is_multiple_of(16) {
                std::thread::sleep(Duration::from_micros(self.random.below(400)));
            }
        }
    }

    /// Notes what is done next; its number.
    fn begin(&mut self, what: &str) -> u64 {
        self.done += 1;
        let n = self.number << 32 | self.done;
        let line = format!("begin {n} {} {what}\n", now());
        self.account.write_all(line.as_bytes()).expect("the account");
        n
    }

    /// Notes that it was done.
    fn end(&mut self, n: u64, id: u64) {
        let line = format!("end {n} {} {id}\n", now());
        self.account.write_all(line.as_bytes()).expect("the account");
    }

    fn open(&mut self) {
        let is_root = self.stack.is_empty();
        let n = self.begin(if is_root { "order" } else { "charge" });
        let span = if is_root {
            let Value { share, user, trace, .. } = Value::new(n);
            tracing::info_span!("order", n, share, user, trace_id = trace)
        } else {
            let Value { cents, yes, .. } = Value::new(n);
            tracing::info_span!("charge", n, cents, yes)
        };
        let id = span.id().map_or(0, |id| id.into_u64());
        self.stack.push(span.entered());
        self.end(n, id);
    }

    fn close(&mut self) {
        let n = self.begin("close");
        let id = self.stack.last().and_then(|span| span.id()).map_or(0, |id| id.into_u64());
        drop(self.stack.pop());
        self.end(n, id);
    }

    fn event(&mut self, kind: u64) {
        let kind = ["ready", "step", "mark"][(kind % 3) as usize];
        let n = self.begin(kind);
        let Value { big, cents, share, yes, user, .. } = Value::new(n);
        match kind {
            "ready" => tracing::info!(n, big, cents, share, yes, user, "ready"),
            "step" => tracing::warn!(n, "step {n} of {user}"),
            _ => mark!("mark {n} of {user}", n = n, user = user.as_str()),
        }
        let id = self.stack.last().and_then(|span| span.id()).map_or(0, |id| id.into_u64());
        self.end(n, id);
    }
}
