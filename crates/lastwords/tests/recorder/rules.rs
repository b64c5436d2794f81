//! Tests which rules take which events.
#![allow(missing_docs, reason = "a test")]

use crate::common;
use crate::common::{plain, started};
use std::path::Path;

use lastwords::__private::is_enabled;
use lastwords::rules::RuleSpec;
use lastwords::{Level, Session, event, event_enabled};

fn begin(dir: &Path) -> Session {
    let channel = |name| plain(name).sub_buffers(2, 4096);
    Session::builder("rules")
        .dir(dir)
        .channel(channel("zero"))
        .channel(channel("one"))
        .start()
        .expect("it starts")
}

/// Makes the session take only events that the pattern matches.
fn choose(session: &Session, pattern: &str) {
    session.disable("*").expect("a rule");
    session.enable(pattern).expect("a rule");
}

#[test]
fn globs() {
    alone!(in dir);
    let session = begin(dir.path());
    macro_rules! cases {
        ($($pattern:literal, $provider:literal, $name:literal, $expected:literal;)*) => { $(
            choose(&session, $pattern);
            assert_eq!(event_enabled!($provider, $name), $expected, "{} on {}:{}", $pattern, $provider, $name);
        )* };
    }
    cases! {
        "*", "a", "b", true;
        "a:*", "a", "b", true;
        "a:*", "ab", "b", false;
        "*:b?", "x", "bc", true;
        "*:b?", "x", "b", false;
        "net:[rt]x", "net", "tx", true;
        "net:[!rt]x", "net", "tx", false;
        "net:[a-m]*", "net", "open", false;
        "net:[a-o]*", "net", "open", true;
        "a*b*c", "aX", "bYbZc", true;
        "a*b*c", "aX", "bYbZ", false;
        "[x:y", "[x", "y", true;
        "a", "a", "b", false;
        "a:b", "a", "b", true;
    }
    for wrong in ["", "a\0b", &"x".repeat(113)] {
        assert!(session.enable(wrong).is_err(), "{wrong:?}");
    }
    session.remove();
    let nothing = started(Session::builder("nothing").dir(dir.path()).events(""));
    assert!(!event_enabled!("a", "b"), "an empty pattern matches no event");
    nothing.remove();
}

#[test]
fn a_hostile_pattern_ends() {
    alone!();
    const BYTES: [u8; 5000] = [b'b'; 5000];
    const NAME: &str = match std::str::from_utf8(&BYTES) {
        Ok(name) => name,
        Err(_) => panic!("letters"),
    };
    lastwords::__site!(("long"), NAME, "", INFO, []);
    let dir = tempfile::tempdir().expect("a folder");
    let session = begin(dir.path());
    choose(&session, &"*a".repeat(56));
    assert!(!is_enabled(&__LwSite, &__LW_CALLSITE));
    choose(&session, &"*b".repeat(56));
    assert!(is_enabled(&__LwSite, &__LW_CALLSITE));
    session.remove();
}

/// Returns the channels that got an event since the last call.
fn channels(session: &Session) -> Vec<u32> {
    let read = common::read(&common::folder(session));
    let channel = |(stream, _): &(u32, _)| read.streams[*stream as usize].channel;
    let mut channels: Vec<u32> = read.events().iter().map(channel).collect();
    channels.sort_unstable();
    session.clear().expect("cleared");
    channels
}

#[test]
fn the_last_match_decides_and_levels_hold() {
    alone!(in dir);
    let session = begin(dir.path());
    event!(p, "b", level: TRACE);
    assert_eq!(channels(&session), [0, 1], "without rules all events are taken");
    choose(&session, "p:a");
    event!(p, "a");
    assert_eq!(channels(&session), [0, 1]);
    event!(p, "b");
    assert!(channels(&session).is_empty());
    session.rule(&RuleSpec::enable("*").in_channel(1).up_to(Level::Warn)).expect("a rule");
    event!(p, "b", level: WARN);
    assert_eq!(channels(&session), [1]);
    event!(p, "a");
    assert_eq!(channels(&session), [0], "the channel's own level holds");
    session.enable("*").expect("a rule");
    event!(p, "b", level: TRACE);
    assert_eq!(channels(&session), [0]);
    session.remove();
}
