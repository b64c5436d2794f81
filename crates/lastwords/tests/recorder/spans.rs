//! Tests the table of open spans when it is full, and when threads and processes share it.
#![cfg(feature = "tracing")]

use lastwords_testkit::text::Text as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{in_fork, plain, start};
use crate::layer::recorders;
use crate::support::end_of_thread::at_the_very_end_of_a_thread;
use crate::support::{
    abandoned_spans, cut_values, evicted_spans, lines, open_spans, open_spans_and_threads,
    open_spans_by_time, skipped_values, with_ids_renamed,
};
use lastwords::Session;
use tracing::{info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

/// Starts a session whose table has a page or two.
fn begin(dir: &Path) -> (Session, PathBuf) {
    let main = plain("main").sub_buffers(4, 16 << 10);
    start(Session::builder("spans").dir(dir).channel(main).spans(32))
}

/// Returns the events, with ids of spans by their order of appearance.
fn events(folder: &Path) -> Vec<String> {
    with_ids_renamed(lines(folder))
}

/// Runs the test with each of the recorders, in a session of its own.
fn with_each(run: impl Fn(&Path)) {
    with_each_session(|_, folder| run(folder));
}

/// The same for a test that needs the session.
fn with_each_session(run: impl Fn(&Session, &Path)) {
    for recorder in recorders(false) {
        let dir = tempfile::tempdir().expect("a folder");
        let (session, folder) = begin(dir.path());
        tracing::dispatcher::with_default(&recorder, || run(&session, &folder));
    }
}

#[test]
fn the_longest_idle_spans_make_room_and_entered_ones_stay() {
    alone!();
    with_each(|folder| {
        let entered: Vec<_> = (0..2).map(|n| info_span!("entered", n)).collect();
        let _inside: Vec<_> = entered.iter().map(|span| span.enter()).collect();
        let used = info_span!("used");
        let crowd: Vec<_> =
            (0..500).map(|n| info_span!("crowd", n)).inspect(|_| used.in_scope(|| ())).collect();
        let newest = info_span!("newest");
        let _in_newest = newest.enter();
        let spans = open_spans(folder);
        for wanted in [
            "recorder::spans|entered|n=0 entered",
            "recorder::spans|entered|n=1 entered",
            "recorder::spans|used|",
            "recorder::spans|newest| entered",
        ] {
            assert!(spans.iter().any(|span| span == wanted), "{wanted}: {spans:?}");
        }
        let kept: Vec<_> = spans
            .iter()
            .filter_map(|span| span.strip_prefix("recorder::spans|crowd|n=")?.parse().ok())
            .collect();
        let (most, evicted) = (kept.len() as u64, evicted_spans(folder));
        assert_eq!(evicted + most, 500, "each is listed or counted");
        assert!(kept.iter().copied().min() > Some(300u64), "the oldest made room: {kept:?}");
        drop(crowd);
        assert_eq!(open_spans(folder).len(), 4);
    });
}

#[test]
fn values_that_threads_record_at_a_time_are_all_whole() {
    alone!();
    use tracing::field::Empty;
    with_each(|folder| {
        let recorder = tracing::dispatcher::get_default(Clone::clone);
        let mut missing = 0;
        for _ in 0..300 {
            let span = info_span!("shared", a = Empty, b = Empty, c = Empty);
            let barrier = std::sync::Barrier::new(3);
            std::thread::scope(|scope| {
                for (field, value) in
                    [("a", "aaaaaaaaaaaaaaa"), ("b", "bbbbbbbbbbb"), ("c", "cccccccccccccccccccc")]
                {
                    let (span, barrier, recorder) = (&span, &barrier, &recorder);
                    scope.spawn(move || {
                        barrier.wait();
                        tracing::dispatcher::with_default(recorder, || span.record(field, value));
                    });
                }
            });
            let spans = open_spans(folder);
            let fields = spans[0].strip_prefix("recorder::spans|shared|").expect("its name");
            let mut fields: Vec<_> = fields.split(' ').filter(|field| !field.is_empty()).collect();
            fields.sort_unstable();
            let all = ["a=aaaaaaaaaaaaaaa", "b=bbbbbbbbbbb", "c=cccccccccccccccccccc"];
            assert!(fields.iter().all(|field| all.contains(field)), "{spans:?}");
            // The scheduler may stop a thread while it adds its value. The others do not wait for
            // it for ever, and count the values that they left out.
            missing += (all.len() - fields.len()) as u64;
            assert_eq!(missing, skipped_values(folder), "{spans:?}");
        }
        assert!(missing < 30, "{missing} of 900 values were left out");
    });
}

/// The same whether the openings of spans are recorded beside or not.
#[test]
fn values_of_all_types_are_listed_as_they_are() {
    alone!();
    with_each_session(|session, folder| {
        for are_recorded in [true, false] {
            let error: Box<dyn std::error::Error> = "an error".into();
            let (text, nul, none) = ("né\"", "a\0b", None::<u8>);
            let (small, large) = (i64::MIN, u128::MAX);
            let span = info_span!("typed", a = u64::MAX, small, c = 0.1, d = true, text, %nul, %large, h = ?none, error);
            let expected = format!(
                "recorder::spans|typed|a={} small={small} c={:?} d=true text={text} nul={nul} large={large} h={none:?} error={error}",
                u64::MAX,
                0.1
            );
            assert_eq!(open_spans(folder), [expected], "openings are recorded: {are_recorded}");
            drop(span);
            session.disable("span:*").expect("a rule");
        }
    });
}

#[test]
fn a_text_that_is_cut_says_so() {
    alone!();
    use tracing::field::Empty;
    with_each_session(|session, folder| {
        for are_recorded in [true, false] {
            let long = "é".repeat(200);
            let _cut = info_span!("cut", long);
            let later = info_span!("later", long = Empty, more = Empty);
            later.record("long", &long).record("more", 1);
            for span in open_spans(folder) {
                assert!(span.ends_with("é…") && (178..=184).contains(&span.len()), "{span}");
            }
            // One when a span opens, two when values are recorded; but not where events have the
            // values.
            assert_eq!(cut_values(folder), if are_recorded { 0 } else { 3 });
            session.disable("span:*").expect("a rule");
        }
    });
}

#[test]
fn what_the_dead_left_is_taken_over() {
    alone!();
    with_each(|folder| {
        let ended = in_fork(|| {
            (0..1000)
                .for_each(|n| _ = std::mem::ManuallyDrop::new(info_span!("left", n).entered()));
            0
        });
        assert_eq!(ended, 0);
        let left = open_spans(folder);
        assert!(
            left.len() >= 32
                && left.iter().all(|text| text.starts_with("recorder::spans|left|n=")
                    && text.ends_with(" entered")),
            "{left:?}"
        );
        let until = Instant::now() + Duration::from_secs(20);
        let is_listed = || {
            let _mine = info_span!("mine");
            open_spans(folder).iter().any(|text| text == "recorder::spans|mine|")
        };
        while !is_listed() {
            assert!(Instant::now() < until, "no room after the death of the one who left no room");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(
            open_spans(folder).len(),
            left.len() - 1,
            "one entry was taken over, and given back"
        );
    });
}

#[test]
fn who_is_in_a_span_that_is_entered_more_than_once() {
    alone!();
    // SAFETY: the call has no arguments.
    let me = unsafe { libc::gettid() } as u32;
    with_each(|folder| {
        let inside = |span: &str| {
            let all = open_spans_and_threads(folder);
            let found =
                all.into_iter().find(|(text, ..)| text == &format!("recorder::spans|{span}|"));
            found.map(|(_, thread, count)| (thread, count))
        };
        let (shared, again) = (info_span!("shared"), info_span!("again"));
        let in_shared = shared.enter();
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        let barrier = std::sync::Barrier::new(2);
        // Another thread enters the span, and leaves after this one has left.
        std::thread::scope(|scope| {
            let (shared, barrier) = (&shared, &barrier);
            let other = scope.spawn(move || {
                // SAFETY: the call has no arguments.
                let other = unsafe { libc::gettid() } as u32;
                tracing::dispatcher::with_default(&subscriber, || {
                    shared.in_scope(|| {
                        barrier.wait();
                        barrier.wait();
                    });
                });
                other
            });
            barrier.wait();
            let both = inside("shared").expect("it is open");
            drop(in_shared);
            let alone = inside("shared");
            barrier.wait();
            let other = other.join().expect("it ends");
            assert_eq!((both, alone), ((other, 2), Some((other, 1))), "the other is still in it");
        });
        assert_eq!(inside("shared"), Some((0, 0)));
        let first = again.enter();
        again.in_scope(|| ());
        assert_eq!(inside("again"), Some((me, 1)), "left once, entered twice");
        drop(first);
        assert_eq!(inside("again"), Some((0, 0)));
    });
}

/// The note that a thread keeps of its newest span is taken neither for another thread's span nor
/// for a span that is closed.
#[test]
fn another_thread_closes_the_span() {
    alone!();
    with_each(|folder| {
        let recorder = tracing::dispatcher::get_default(Clone::clone);
        let in_other = |run: &(dyn Fn() + Sync)| {
            std::thread::scope(|scope| {
                _ = scope.spawn(|| tracing::dispatcher::with_default(&recorder, run))
            });
        };
        let made = std::sync::Mutex::new(Some(info_span!("made")));
        let id =
            made.lock().expect("no panic").as_ref().and_then(tracing::Span::id).expect("enabled");
        recorder.enter(&id);
        info!("open");
        in_other(&|| {
            let _own = info_span!("own").entered();
            info!("other");
            drop(made.lock().expect("no panic").take());
        });
        info!("closed");
        recorder.exit(&id);
        let next = info_span!("next").entered();
        info!("behind");
        drop(next);
        assert!(open_spans(folder).is_empty());
        let expected = [
            "span:new recorder::spans::made span_id=#1 parent_id=#0",
            r#"recorder::spans:open span="recorder::spans::made" span_id=#1"#,
            "span:new recorder::spans::own span_id=#2 parent_id=#0",
            r#"recorder::spans:other span="recorder::spans::own" span_id=#2"#,
            "span:close recorder::spans::made span_id=#1",
            "span:close recorder::spans::own span_id=#2",
            "recorder::spans:closed",
            "span:new recorder::spans::next span_id=#3 parent_id=#0",
            r#"recorder::spans:behind span="recorder::spans::next" span_id=#3"#,
            "span:close recorder::spans::next span_id=#3",
        ];
        assert_eq!(events(folder), expected);
    });
}

/// Two registries give their spans the same ids. A thread that is in spans of both does not take
/// one for the other.
#[test]
fn two_recorders_have_spans_of_the_same_id() {
    alone!(in dir);
    let (_session, folder) = begin(dir.path());
    let layer =
        || tracing::Dispatch::new(tracing_subscriber::registry().with(lastwords::layer::layer()));
    let (one, other) = (layer(), layer());
    let with =
        |recorder: &_, run: &mut dyn FnMut()| tracing::dispatcher::with_default(recorder, run);
    let (mut a, mut b) = (None, None);
    with(&one, &mut || a = Some(info_span!("a", n = 1).entered()));
    with(&other, &mut || b = Some(info_span!("b", n = 2)));
    assert_eq!(a.as_ref().and_then(|a| a.id()), b.as_ref().and_then(tracing::Span::id));
    with(&other, &mut || info!("outside"));
    with(&one, &mut || info!("in a"));
    let inside = b.map(tracing::Span::entered);
    with(&other, &mut || info!("in b"));
    with(&one, &mut || info!("in a"));
    assert_eq!(
        open_spans(&folder),
        ["recorder::spans|a|n=1 entered", "recorder::spans|b|n=2 entered"]
    );
    drop(a);
    with(&one, &mut || info!("outside"));
    with(&other, &mut || info!("in b"));
    assert_eq!(open_spans(&folder), ["recorder::spans|b|n=2 entered"]);
    drop(inside);
    let expected = [
        "span:new recorder::spans::a n=1 span_id=#1 parent_id=#0",
        "span:new recorder::spans::b n=2 span_id=#2 parent_id=#0",
        "recorder::spans:outside",
        r#"recorder::spans:in a span="recorder::spans::a{n=1}" span_id=#1"#,
        r#"recorder::spans:in b span="recorder::spans::b{n=2}" span_id=#2"#,
        r#"recorder::spans:in a span="recorder::spans::a{n=1}" span_id=#1"#,
        "span:close recorder::spans::a span_id=#1",
        "recorder::spans:outside",
        r#"recorder::spans:in b span="recorder::spans::b{n=2}" span_id=#2"#,
        "span:close recorder::spans::b span_id=#2",
    ];
    assert_eq!(events(&folder), expected);
}

/// A layer that the program takes out or replaces is not told when its spans end: whether they are
/// open is not known then, and no event is in them.
#[test]
fn spans_of_a_layer_that_was_replaced_are_not_said_to_be_open() {
    alone!(in dir);
    let (session, folder) = begin(dir.path());
    let (layer, handle) = tracing_subscriber::reload::Layer::new(Some(lastwords::layer::layer()));
    let program = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let other = tracing::Dispatch::new(lastwords::layer::subscriber());
    let stays = tracing::dispatcher::with_default(&other, || info_span!("stays"));
    tracing::dispatcher::with_default(&program, || {
        let idle = info_span!("idle", n = 1);
        let entered = info_span!("entered", n = 2).entered();
        assert_eq!(open_spans(&folder).len(), 3);
        handle.reload(None).expect("the layer is there");
        lastwords::event!(spans, "without a layer");
        assert_eq!(open_spans(&folder), ["recorder::spans|stays|"]);
        assert_eq!(abandoned_spans(&folder), 2);
        handle.reload(Some(lastwords::layer::layer())).expect("the layer is there");
        lastwords::event!(spans, "with another");
        let new = info_span!("new", n = 3).entered();
        lastwords::event!(spans, "in a span of it");
        drop((new, entered, idle));
        lastwords::event!(spans, "outside");
    });
    drop(stays);
    assert!(open_spans(&folder).is_empty() && abandoned_spans(&folder) == 2);
    let mut own = events(&folder).into_iter().filter(|line| line.starts_with("spans:"));
    assert_eq!(own.next().as_deref(), Some("spans:without a layer"));
    assert_eq!(own.next().as_deref(), Some("spans:with another"));
    own.next()
        .expect("an event in a span")
        .starts(r#"spans:in a span of it span="recorder::spans::new{n=3}""#);
    assert_eq!(own.next().as_deref(), Some("spans:outside"));
    drop(session);
}

/// A session ends while a thread is in a span, and another one begins, whose table does not have
/// that span.
#[test]
fn a_later_session_has_the_spans_of_a_thread_that_was_there_before() {
    alone!();
    for recorder in recorders(false) {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let (session, _) = begin(first.path());
        tracing::dispatcher::with_default(&recorder, || {
            drop(info_span!("gone"));
            let before = info_span!("before", n = 1).entered();
            info!("first");
            drop(session);
            let (_session, folder) = begin(second.path());
            info!("second");
            let after = info_span!("after", n = 2).entered();
            info!("inside");
            assert_eq!(open_spans(&folder), ["recorder::spans|after|n=2 entered"]);
            drop(after);
            info!("second");
            drop(before);
            let expected = [
                r#"recorder::spans:second span="recorder::spans::before" span_id=#1"#,
                "span:new recorder::spans::after n=2 span_id=#2 parent_id=#1",
                r#"recorder::spans:inside span="recorder::spans::after{n=2}" span_id=#2"#,
                "span:close recorder::spans::after span_id=#2",
                r#"recorder::spans:second span="recorder::spans::before" span_id=#1"#,
                "span:close recorder::spans::before span_id=#1",
            ];
            assert_eq!(events(&folder), expected);
            assert!(open_spans(&folder).is_empty());
        });
    }
}

/// Spans of a thread's last destructors, after what it kept for itself was given back. It is a
/// process of its own: the place where `tracing` keeps a thread's own recorder is gone then.
#[test]
fn spans_of_the_last_destructors_are_apart() {
    alone!();
    extern "C" fn late() {
        let outer = info_span!("outer").entered();
        let inner = info_span!("inner").entered();
        info!("in inner");
        drop(inner);
        info!("in outer");
        drop(outer);
        drop(info_span!("last"));
    }
    let ended = ended!(dir, {
        let (_session, _) = begin(&dir);
        tracing::subscriber::set_global_default(lastwords::layer::subscriber())
            .expect("there is none");
        at_the_very_end_of_a_thread(|| drop(info_span!("early")), late)
    });
    assert!(ended.status.success());
    let expected = [
        "span:new recorder::spans::early span_id=#1 parent_id=#0",
        "span:close recorder::spans::early span_id=#1",
        "span:new recorder::spans::outer span_id=#2 parent_id=#0",
        "span:new recorder::spans::inner span_id=#3 parent_id=#2",
        r#"recorder::spans:in inner span="recorder::spans::inner" span_id=#3"#,
        "span:close recorder::spans::inner span_id=#3",
        r#"recorder::spans:in outer span="recorder::spans::outer" span_id=#2"#,
        "span:close recorder::spans::outer span_id=#2",
        "span:new recorder::spans::last span_id=#4 parent_id=#0",
        "span:close recorder::spans::last span_id=#4",
    ];
    assert_eq!(events(&ended.folder), expected);
    assert!(open_spans(&ended.folder).is_empty());
}

/// A span is opened between the events before and after it, whether its opening is recorded or not.
/// An opening that is recorded has the same time, if nothing came in between.
#[test]
fn the_table_has_the_times_of_openings() {
    alone!();
    with_each_session(|session, folder| {
        let pass = |in_between: &dyn Fn() -> tracing::Span| {
            info!("before");
            let span = in_between();
            info!("after");
            span
        };
        let recorded = pass(&|| info_span!("recorded", n = 1));
        session.disable("span:*").expect("a rule");
        let not_recorded = pass(&|| info_span!("not recorded"));
        let mut events: Vec<u64> =
            common::events(folder).into_iter().map(|(_, event)| event.clock).collect();
        events.sort_unstable();
        let spans = open_spans_by_time(folder);
        let [before, new, after, before_next, after_next] = events[..] else {
            panic!("{events:?}")
        };
        let [(first, _), (second, _)] = spans[..] else { panic!("{spans:?}") };
        assert!(before < new && (new..after).contains(&first), "{first} is not in {events:?}");
        assert!((before_next + 1..after_next).contains(&second), "{second} is not in {events:?}");
        drop((recorded, not_recorded));
    });
}
