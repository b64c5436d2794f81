//! Tests which events the channels of a session take without explicit rules.
#![allow(missing_docs, reason = "a test")]

use std::path::Path;

use crate::common;
use crate::common::start;
use lastwords::rules::RuleSpec;
use lastwords::{Session, event};

/// One event of each provider and level.
fn record_all() {
    event!(mine, "informed", number = 1u64);
    event!(mine, "warned", level: WARN, number = 2u64);
    event!(mine, "failed", level: ERROR, number = 3u64);
    event!(other, "informed", number = 4u64);
    event!(other, "warned", level: WARN, number = 5u64);
}

/// Returns the numbers of the events in all streams of a session, sorted.
fn recorded(folder: &Path) -> Vec<u64> {
    let number =
        |body: &[u8]| u64::from_ne_bytes(body[body.len() - 8..].try_into().expect("a number"));
    let mut numbers: Vec<u64> =
        common::events(folder).iter().map(|(_, event)| number(&event.body)).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn warnings_and_errors_of_what_is_enabled_are_recorded_twice() {
    alone!(in dir);
    let session = Session::builder("all").dir(dir.path()).start().expect("it starts");
    assert!(session.channel("main").is_some() && session.channel("errors").is_some());
    record_all();
    let folder = session.folder().expect("a folder").to_owned();
    assert_eq!(recorded(&folder), [1, 2, 2, 3, 3, 4, 5, 5]);
    session.disable("other:*").expect("a rule");
    record_all();
    assert_eq!(recorded(&folder), [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 5, 5]);
    drop(session);

    // Events that no glob enables go nowhere. Events that a glob enables go to channels by their
    // level, whatever rules for all channels follow.
    let (session, folder) = start(Session::builder("some").dir(dir.path()).events("mine:*"));
    record_all();
    assert_eq!(recorded(&folder), [1, 2, 2, 3, 3]);
    session.enable("*").expect("a rule");
    record_all();
    assert_eq!(recorded(&folder), [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 5, 5]);
    let errors = session.channel("errors").expect("a channel");
    session.rule(&RuleSpec::disable("*").in_channel(errors)).expect("a rule");
    session.clear().expect("cleared");
    record_all();
    assert_eq!(recorded(&folder), [1, 2, 3, 4, 5]);
}
