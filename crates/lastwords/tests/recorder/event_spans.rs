//! Tests that events of `event!` and `mark!` have the span of `tracing` in which they happen, as
//! events of `tracing` have it.
#![cfg(feature = "tracing")]

use crate::common::{folder, with_main};
use crate::support::{lines, with_ids_renamed};
use lastwords::{Session, event, mark};
use tracing::dispatcher::with_default;
use tracing::{Dispatch, info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

fn of_type<T: lastwords::Field>(value: T) {
    event!(test, "typed", value);
}

/// Records an event of each kind, from the same callsites each time.
fn all(n: u32) {
    event!(test, "event", n, text = "a\0b");
    event!(test, "long", level: ERROR, bytes = &[n as u8; 1500][..], last = "text");
    mark!("mark {}", n);
    of_type(n as u8);
    of_type("text");
    info!("traced");
}

/// Returns the lines of [`all`] with this span, if there is one.
fn expected(n: u32, span: Option<(&str, &str)>, is_traced: bool) -> Vec<String> {
    let bytes = format!("{n:02x}").repeat(1500);
    let own = [
        format!("test:event n={n} text=\"a\\u{{1a}}b\""),
        format!("test:long bytes={bytes} last=\"text\""),
        format!("marker:mark {{}} arg0={n}"),
        format!("test:typed value={n}"),
        "test:typed value=\"text\"".to_owned(),
        "recorder::event_spans:traced".to_owned(),
    ];
    let rest = span.map_or(String::new(), |(text, id)| {
        format!(" span=\"recorder::event_spans::{text}\" span_id={id}")
    });
    own.into_iter().take(if is_traced { 6 } else { 5 }).map(|line| line + &rest).collect()
}

fn recorded(session: &Session) -> Vec<String> {
    let lines = lines(&folder(session)).into_iter().filter(|line| !line.starts_with("span:"));
    with_ids_renamed(lines)
}

#[test]
fn events_have_the_innermost_span_of_any_recorder() {
    alone!(in dir);
    let session = with_main("spans", dir.path());
    let session = session.start().expect("a session");
    let layer = Dispatch::new(registry().with(lastwords::layer()));
    let subscriber = Dispatch::new(lastwords::layer::subscriber());
    // Outside of spans first and last, so that neither decides what the other has.
    all(1);
    let outer = with_default(&layer, || info_span!("outer", id = 7));
    with_default(&layer, || {
        outer.in_scope(|| {
            all(2);
            with_default(&subscriber, || info_span!("inner", name = "é").in_scope(|| all(3)));
            all(4);
        });
    });
    // A thread that has not made the span.
    let elsewhere = || with_default(&layer, || outer.in_scope(|| all(5)));
    std::thread::scope(|scope| drop(scope.spawn(elsewhere).join()));
    all(6);
    let (outer, inner) = (Some(("outer{id=7}", "#1")), Some(("inner{name=é}", "#2")));
    let cases = [
        (1, None, false),
        (2, outer, true),
        (3, inner, true),
        (4, outer, true),
        (5, outer, true),
        (6, None, false),
    ];
    let expected: Vec<String> =
        cases.into_iter().flat_map(|(n, span, is_traced)| expected(n, span, is_traced)).collect();
    assert_eq!(recorded(&session), expected);
}

/// In a session without a table of open spans, the span that the thread itself has made and entered
/// is known by its name, and that of another thread is not known.
#[test]
fn a_span_in_no_table() {
    alone!(in dir);
    let session = with_main("spans", dir.path()).spans(0);
    let session = session.start().expect("a session");
    let layer = Dispatch::new(registry().with(lastwords::layer()));
    with_default(&layer, || {
        let span = info_span!("outer", id = 7);
        span.in_scope(|| event!(test, "here"));
        let elsewhere = || with_default(&layer, || span.in_scope(|| event!(test, "there")));
        std::thread::scope(|scope| drop(scope.spawn(elsewhere).join()));
    });
    let named = "test:here span=\"recorder::event_spans::outer\" span_id=#1";
    assert_eq!(recorded(&session), [named, "test:there"]);
}
