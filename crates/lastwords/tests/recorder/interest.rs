//! `tracing` remembers whether a callsite is wanted. An event of a wanted callsite is recorded
//! without a question, and what a rule disables is soon not evaluated any more.
#![cfg(feature = "tracing")]

use crate::common::plain;
use crate::support;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lastwords::Session;
use lastwords::layer::{LastwordsSubscriber, subscriber};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, info};
use tracing_core::span::Current;

static QUESTIONS: AtomicU32 = AtomicU32::new(0);

/// Our subscriber, with the questions counted.
struct Counting(LastwordsSubscriber);

impl Subscriber for Counting {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.0.register_callsite(metadata)
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        QUESTIONS.fetch_add(1, Relaxed);
        self.0.enabled(metadata)
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        self.0.new_span(attributes)
    }
    fn record(&self, id: &Id, values: &Record<'_>) {
        self.0.record(id, values);
    }
    fn record_follows_from(&self, id: &Id, follows: &Id) {
        self.0.record_follows_from(id, follows);
    }
    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
    }
    fn enter(&self, id: &Id) {
        self.0.enter(id);
    }
    fn exit(&self, id: &Id) {
        self.0.exit(id);
    }
    fn clone_span(&self, id: &Id) -> Id {
        self.0.clone_span(id)
    }
    fn try_close(&self, id: Id) -> bool {
        self.0.try_close(id)
    }
    fn current_span(&self) -> Current {
        self.0.current_span()
    }
}

/// Waits until `is_so`; fails after a time in which the listener's thread had many rounds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn rules_reach_what_tracing_remembers() {
    alone!();
    tracing::subscriber::set_global_default(Counting(subscriber())).expect("the first subscriber");
    let dir = tempfile::tempdir().expect("a folder");
    let (evaluated, number) = (AtomicU32::new(0), AtomicU32::new(0));
    // Returns whether the field was evaluated, and how many questions there were.
    let event = || {
        let before = (evaluated.load(Relaxed), QUESTIONS.load(Relaxed));
        info!(
            n = {
                evaluated.fetch_add(1, Relaxed);
                number.fetch_add(1, Relaxed)
            },
            "counted"
        );
        (evaluated.load(Relaxed) - before.0, QUESTIONS.load(Relaxed) - before.1)
    };
    // The name of a callsite's events is not known before the first.
    event();
    assert_eq!(event(), (0, 1), "no session");
    let unrecorded = number.load(Relaxed);
    let main = plain("main");
    let session =
        Session::builder("interest").dir(dir.path()).channel(main).start().expect("a session");
    // The first event after a change is right, whatever `tracing` remembers.
    assert_eq!(event().0, 1, "a session has begun");
    until("a wanted event is recorded without a question", || event() == (1, 0));
    session.disable("*").expect("disabled");
    let recorded = number.load(Relaxed);
    until("a disabled event is not evaluated", || event() == (0, 1));
    let disabled = recorded..number.load(Relaxed);
    session.enable("*").expect("enabled");
    assert_eq!(event().0, 1, "enabled again");
    until("an event that is enabled again is recorded without a question", || event() == (1, 0));
    let lines = support::lines(session.folder().expect("a folder"));
    let found = lines.iter().filter(|line| line.contains("counted")).count() as u32;
    // An event that was evaluated while it was disabled is not recorded.
    assert_eq!(found, number.load(Relaxed) - disabled.len() as u32 - unrecorded);
}
