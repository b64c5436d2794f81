//! Tests what is recorded of `tracing`, by the layer and by the subscriber: events, spans, types,
//! levels, the log crate, spans open at death.
#![cfg(feature = "tracing")]

use std::path::Path;

use crate::common::{child_dir, plain, start};
use crate::support;
use crate::support::{child, open_spans};
use lastwords::{ChannelConfig, Session};
use tracing::{debug, error, error_span, info, info_span, warn, warn_span};
use tracing_subscriber::layer::SubscriberExt as _;

pub(crate) fn session(name: &str, dir: &Path) -> (Session, std::path::PathBuf) {
    let main = plain("main").sub_buffers(4, 16 << 10);
    let errors = ChannelConfig::errors().contexts(lastwords::Context::NONE);
    let builder = Session::builder(name)
        .dir(dir)
        .channel(main)
        .channel(errors)
        .events("*layer*:*")
        .events("span:*");
    start(builder)
}

/// Returns the recorders of `tracing`: the layer and the subscriber.
pub(crate) fn recorders(enter_and_exit: bool) -> [tracing::Dispatch; 2] {
    let layer = lastwords::layer::layer().with_enter_and_exit(enter_and_exit);
    let subscriber = lastwords::layer::subscriber().with_enter_and_exit(enter_and_exit);
    [
        tracing::Dispatch::new(tracing_subscriber::registry().with(layer)),
        tracing::Dispatch::new(subscriber),
    ]
}

/// Runs the test with each of the recorders, in a folder of its own.
pub(crate) fn with_each(run: impl Fn(&Path)) {
    with_each_of(recorders(false), run);
}

fn with_each_of(recorders: [tracing::Dispatch; 2], run: impl Fn(&Path)) {
    for recorder in recorders {
        let dir = tempfile::tempdir().expect("a folder");
        tracing::dispatcher::with_default(&recorder, || run(dir.path()));
    }
}

/// Returns the lines of a channel. Ids of spans are replaced by their order of appearance.
pub(crate) fn of_channel(folder: &Path, channel: u32) -> Vec<String> {
    let lines =
        support::channel_lines(folder, 0).into_iter().filter(|e| e.0 == channel).map(|e| e.2);
    support::with_ids_renamed(lines)
}

#[derive(Debug)]
#[allow(dead_code, reason = "shown by Debug")]
struct Point {
    x: i32,
}

#[test]
fn events_with_every_type() {
    alone!();
    with_each(|dir| {
        let (_session, folder) = session("events", dir);
        info!(
            a = 1u8,
            b = -2i64,
            c = 0.5,
            d = true,
            e = "text",
            "message {}",
            std::hint::black_box(7)
        );
        info!(point = ?Point { x: 3 }, shown = %"displayed", "plain");
        for round in 0..3 {
            let maybe = (round == 1).then_some(5u64);
            debug!(maybe, "one callsite, two types");
        }
        info!(name: "named", target: "layer_target", big = u128::MAX);
        info!(text = "with\0nul");
        for text in [String::from("one"), String::from("two")] {
            info!("{text}");
        }
        for text in ["the first", "the second"] {
            info!("{text}");
        }
        warn!("careful");
        error!(code = 5, "bad");
        let line = line!() - 1;
        let main = of_channel(&folder, 0);
        let place = |back: u32| format!("recorder::layer:layer.rs:{}", line - back);
        let expected = [
            format!("{} message=\"message 7\" a=1 b=-2 c=0.5 d=true e=\"text\"", place(23)),
            "recorder::layer:plain point=\"Point { x: 3 }\" shown=\"displayed\"".into(),
            "recorder::layer:one callsite, two types".into(),
            "recorder::layer:one callsite, two types maybe=5".into(),
            "recorder::layer:one callsite, two types".into(),
            "layer_target:named big=\"340282366920938463463374607431768211455\"".into(),
            format!("{} text=\"with\\u{{1a}}nul\"", place(8)),
            format!("{} message=\"one\"", place(6)),
            format!("{} message=\"two\"", place(6)),
            format!("{} message=\"the first\"", place(3)),
            format!("{} message=\"the second\"", place(3)),
            "recorder::layer:careful".into(),
            "recorder::layer:bad code=5".into(),
        ];
        assert_eq!(main, expected);
        assert_eq!(of_channel(&folder, 1), expected[11..]);
    });
}

#[test]
fn spans_and_events_inside() {
    alone!();
    with_each_of(recorders(true), |dir| {
        let (_session, folder) = session("spans", dir);
        let outer = info_span!("outer", n = 1, later = tracing::field::Empty);
        outer.in_scope(|| {
            let inner = info_span!("inner", s = "x");
            let _inside = inner.enter();
            info!("inside");
            outer.record("later", 9);
        });
        info!(parent: &outer, "told so");
        info!(parent: None, "alone");
        // This uses another thread, and a span that is in no table.
        let (inside, subscriber) = (&outer, tracing::dispatcher::get_default(Clone::clone));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                tracing::dispatcher::with_default(
                    &subscriber,
                    || info!(parent: inside, "elsewhere"),
                )
            });
        });
        drop(outer);
        let expected = [
            "span:new recorder::layer::outer n=1 span_id=#1 parent_id=#0",
            "span:enter recorder::layer::outer span_id=#1",
            "span:new recorder::layer::inner s=\"x\" span_id=#2 parent_id=#1",
            "span:enter recorder::layer::inner span_id=#2",
            "recorder::layer:inside span=\"recorder::layer::inner{s=x}\" span_id=#2",
            "span:record recorder::layer::outer later=9 span_id=#1",
            "span:exit recorder::layer::inner span_id=#2",
            "span:close recorder::layer::inner span_id=#2",
            "span:exit recorder::layer::outer span_id=#1",
            "recorder::layer:told so span=\"recorder::layer::outer{n=1 later=9}\" span_id=#1",
            "recorder::layer:alone",
            "recorder::layer:elsewhere span=\"recorder::layer::outer{n=1 later=9}\" span_id=#1",
            "span:close recorder::layer::outer span_id=#1",
        ];
        assert_eq!(of_channel(&folder, 0), expected);
        assert_eq!(open_spans(&folder), [""; 0]);
    });
}

#[test]
fn entering_and_leaving_is_recorded_on_request() {
    alone!();
    with_each(|dir| {
        let main = ChannelConfig::new("main").contexts(lastwords::Context::NONE);
        let builder = Session::builder("entered").dir(dir).channel(main).spans(0);
        let session =
            builder.events("span:*").events("recorder::layer:*").start().expect("a session");
        info_span!("unseen", n = 1).in_scope(|| info!("inside"));
        let expected = [
            "span:new recorder::layer::unseen n=1 span_id=#1 parent_id=#0",
            // The fields of this span are in no table.
            "recorder::layer:inside span=\"recorder::layer::unseen\" span_id=#1",
            "span:close recorder::layer::unseen span_id=#1",
        ];
        assert_eq!(of_channel(session.folder().expect("a folder"), 0), expected);
    });
}

#[test]
fn filters_of_the_layer_alone() {
    alone!();
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};
    use tracing_subscriber::layer::Layer as _;
    let dir = tempfile::tempdir().expect("a folder");
    let (_session, folder) = session("filters", dir.path());
    let both = || {
        let outer = info_span!(target: "layer_out", "outer");
        let _outer = outer.enter();
        let inner = error_span!("inner");
        let _inner = inner.enter();
        info!(target: "layer_out", "left out");
        info!("a detail");
        error!("bad");
        error!(parent: &outer, "bad outside");
    };
    let all = || tracing_subscriber::registry().with(LevelFilter::TRACE);
    let filter = EnvFilter::new("recorder::layer=error,layer_out=off");
    tracing::subscriber::with_default(
        all().with(lastwords::layer::layer().with_filter(filter)),
        both,
    );
    let expected = [
        "span:new recorder::layer::inner span_id=#1 parent_id=#0",
        "recorder::layer:bad span=\"recorder::layer::inner\" span_id=#1",
        "recorder::layer:bad outside",
        "span:close recorder::layer::inner span_id=#1",
    ];
    assert_eq!(of_channel(&folder, 0), expected);
    let filter = lastwords::layer::layer().with_filter(LevelFilter::ERROR);
    tracing::subscriber::with_default(all().with(filter), both);
    assert_eq!(of_channel(&folder, 0).len(), 2 * expected.len());
}

#[test]
fn spans_open_at_death_outlive_floods() {
    alone!();
    spans_open_at_death("spans_open_at_death_outlive_floods", 0);
}

#[test]
fn spans_of_the_subscriber_open_at_death_outlive_floods() {
    alone!();
    spans_open_at_death("spans_of_the_subscriber_open_at_death_outlive_floods", 1);
}

fn spans_open_at_death(test: &str, recorder: usize) {
    if let Some(dir) = child_dir() {
        let (_session, _) = session("death", &dir);
        tracing::dispatcher::with_default(&recorders(false)[recorder], || {
            let outer =
                info_span!("outer", request = 17, user = "eve", later = tracing::field::Empty);
            let _outer = outer.enter();
            let waiting = info_span!("waiting");
            outer.record("later", true);
            error!("rare");
            for n in 0..200_000 {
                let span = info_span!("short", n);
                let _short = span.enter();
                info!(n, "flood");
            }
            let _still_open = &waiting;
            // SAFETY: the call involves no memory.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        });
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (_, folder) = child(test, dir.path());
    assert_eq!(
        open_spans(&folder),
        [
            "recorder::layer|outer|request=17 user=eve later=true entered",
            "recorder::layer|waiting|"
        ]
    );
    // The error is in a channel of its own, so the flood has not evicted it.
    assert_eq!(
        of_channel(&folder, 1),
        [
            "recorder::layer:rare span=\"recorder::layer::outer{request=17 user=eve later=true}\" span_id=#1"
        ]
    );
    assert!(of_channel(&folder, 0).iter().all(|line| !line.contains("rare")));
}

#[test]
fn spans_of_all_levels_leave_the_errors_alone() {
    alone!();
    with_each(|dir| {
        let (_session, folder) = session("levels", dir);
        error!("rare");
        for n in 0..1000 {
            let _request = error_span!("request", n, later = tracing::field::Empty).entered();
            let _part = warn_span!("part", n).entered();
        }
        assert_eq!(of_channel(&folder, 1), ["recorder::layer:rare"]);
        assert!(
            of_channel(&folder, 0)
                .iter()
                .any(|line| line.starts_with("span:new recorder::layer::request n="))
        );
    });
}

/// Logs a record, and returns the line where it does.
fn again() -> u32 {
    log::warn!(target: "old_code", "again");
    line!() - 1
}

#[test]
fn the_log_crate() {
    alone!();
    let ended = ended!(dir, {
        let main = ChannelConfig::new("main").contexts(lastwords::Context::NONE);
        let builder =
            Session::builder("log").dir(&dir).channel(main).events("old_*").events("log:*");
        let _session = builder.start().expect("a session");
        lastwords::layer::init().expect("the first subscriber");
        log::warn!(target: "old_code", "said by {}", "log");
        log::warn!(target: "other_code", "not asked for");
        log::info!(target: "old_code::part", "more");
        again();
        log::warn!(target: "old_code", "{}", std::hint::black_box(String::new()));
        // There are more targets than sites: the excess ones share a site, and no event is lost.
        for n in 0..1100 {
            log::info!(target: &format!("old_{n}"), "made up");
        }
        // SAFETY: the call involves no memory.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    });
    let lines = support::channel_lines(&ended.folder, 0);
    assert_eq!((lines.len(), lines[0].1), (4 + 1100, 2));
    let starts = [
        // The compiler puts a literal into the format string.
        "old_code:said by log log.module_path=\"recorder::layer\"",
        "old_code::part:more log.module_path=\"recorder::layer\"",
        "old_code:again log.module_path=\"recorder::layer\"",
        "old_code:layer.rs:",
        "old_0:made up log.module_path=\"recorder::layer\"",
    ];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.2.starts_with(start) && !line.2.contains("log.target"), "{line:?}");
    }
    assert!(
        lines[3].2.ends_with("message=\"\" log.module_path=\"recorder::layer\""),
        "{:?}",
        lines[3]
    );
    let places: Vec<_> =
        support::places(&ended.folder).into_iter().filter(|(name, _)| name == "again").collect();
    assert!(places[0].1.ends_with(&format!("recorder/layer.rs:{}", again())), "{places:?}");
    let last = &lines[lines.len() - 1].2;
    let start = "log:record message=\"made up\" log.target=\"old_1099\" log.module_path=\"recorder::layer\" log.file=";
    assert!(last.starts_with(start), "{last}");
}

/// A value that counts how often it is evaluated and formatted.
struct Costly(std::cell::Cell<u32>, std::cell::Cell<u32>);

impl Costly {
    fn evaluated(&self) -> &Self {
        self.0.set(self.0.get() + 1);
        self
    }

    fn taken(&self) -> (u32, u32) {
        (self.0.take(), self.1.take())
    }
}

impl std::fmt::Debug for Costly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.1.set(self.1.get() + 1);
        f.write_str("costly")
    }
}

#[test]
fn what_nobody_records_is_not_formatted() {
    alone!();
    use lastwords::layer::{Wanted, layer, subscriber};
    let dir = tempfile::tempdir().expect("a folder");
    let costly = Costly(0.into(), 0.into());
    // Returns the counts for an event and for a span with a costly field.
    let both = || {
        info!(x = ?costly.evaluated(), "event");
        let event = costly.taken();
        let _span = info_span!("span", x = ?costly.evaluated());
        (event, costly.taken())
    };
    let open = tracing_subscriber::registry().with(layer());
    let gated = tracing_subscriber::registry().with(layer()).with(Wanted);
    let own = tracing::Dispatch::new(subscriber());
    let subscribers =
        [(1, tracing::Dispatch::new(open)), (0, tracing::Dispatch::new(gated)), (0, own)];
    for (evaluated, subscriber) in &subscribers {
        tracing::dispatcher::with_default(subscriber, || {
            let nothing = ((*evaluated, 0), (1, 0));
            assert_eq!(both(), nothing, "no session");
            let main = plain("main").sub_buffers(4, 16 << 10);
            let builder = Session::builder("costs").dir(dir.path()).channel(main).spans(0);
            let session =
                builder.events("recorder::layer:*").events("span:*").start().expect("a session");
            assert_eq!(both(), ((1, 1), (1, 1)));
            session.disable("recorder::layer:*").expect("disabled");
            assert_eq!(both(), ((*evaluated, 0), (1, 1)), "spans are another matter");
            session.disable("*").expect("disabled");
            assert_eq!(both(), nothing);
            session.enable("*").expect("enabled");
            assert_eq!(both(), ((1, 1), (1, 1)));
            let lines = support::lines(session.folder().expect("a folder"));
            assert_eq!(
                lines.iter().filter(|line| line.contains("x=\"costly\"")).count(),
                5,
                "{lines:?}"
            );
        });
    }
}

#[test]
fn many_threads_find_their_classes() {
    alone!();
    with_each(|dir| {
        let main = plain("main").sub_buffers(8, 1 << 20);
        let session = Session::builder("threads")
            .dir(dir)
            .channel(main)
            .events("recorder::layer:*")
            .start()
            .expect("a session");
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let recorder = tracing::dispatcher::get_default(Clone::clone);
                scope.spawn(move || {
                    tracing::dispatcher::with_default(&recorder, || {
                        for n in 0..1000u64 {
                            let mixed: (Option<u64>, Option<&str>) =
                                (Some(n).filter(|n| n % 2 == 0), Some("s").filter(|_| n % 3 == 0));
                            info!(thread, even = mixed.0, third = mixed.1, "x");
                        }
                    });
                });
            }
        });
        let lines = support::lines(session.folder().expect("a folder"));
        assert_eq!(lines.len(), 4000);
        assert_eq!(lines.iter().filter(|line| line.contains("even=")).count(), 2000);
        assert_eq!(lines.iter().filter(|line| line.contains("third=\"s\"")).count(), 4 * 334);
    });
}

#[derive(Debug, Clone, Copy)]
enum State {
    Idle,
    Busy,
}

#[test]
fn names_of_messages() {
    alone!();
    with_each(|dir| {
        let (_session, folder) = session("names", dir);
        let (user, kind, bytes) =
            (String::from("eve"), std::hint::black_box("constant"), std::hint::black_box(7));
        info!("ready");
        // Neither a value nor its place among others is a part of the name.
        info!("served {bytes} bytes to {user}");
        info!("{user} came");
        info!("{user}");
        info!("a {kind}");
        info!("{kind}: bad");
        info!("at {:?}", Some(bytes));
        info!("");
        info!("two\nlines");
        info!("{}", "long".repeat(31));
        // Values that are constants of the program.
        for state in [State::Idle, State::Busy] {
            info!("{state:?}");
            info!("{kind}{}", kind.len());
            info!(message = ?state);
            info!(message = kind);
        }
        let lines = of_channel(&folder, 0);
        let names: Vec<_> = lines
            .iter()
            .map(|line| line.split_once(" message=").map_or(&**line, |parts| parts.0))
            .collect();
        assert_eq!(names[0], "recorder::layer:ready");
        assert!(
            names.len() == 18
                && names[1..].iter().all(|name| name.starts_with("recorder::layer:layer.rs:")),
            "{names:?}"
        );
    });
}

#[test]
fn spans_left_out_of_order_and_very_deep() {
    alone!();
    with_each(|dir| {
        let (_session, folder) = session("deep", dir);
        let spans: Vec<_> = (0..200).map(|n| info_span!("span", n)).collect();
        let first = spans[0].enter();
        let (twice, other, again) = (spans[1].enter(), spans[2].enter(), spans[1].enter());
        drop(twice);
        info!("in 2");
        let is_entered =
            |n: u32| open_spans(&folder).contains(&format!("recorder::layer|span|n={n} entered"));
        assert!(is_entered(1) && is_entered(2));
        drop(again);
        assert!(!is_entered(1) && is_entered(2));
        info!("in 2");
        drop(other);
        info!("in 0");
        let never_entered = spans[9].id().expect("an id");
        tracing::dispatcher::get_default(|subscriber| subscriber.exit(&never_entered));
        info!("in 0");
        let deep: Vec<_> = spans[10..].iter().map(tracing::Span::enter).collect();
        info!("in 199");
        deep.into_iter().rev().for_each(drop);
        info!("in 0");
        drop(first);
        info!("in none");
        let lines =
            of_channel(&folder, 0).into_iter().filter(|line| line.starts_with("recorder::layer:"));
        let lines: Vec<_> =
            lines.map(|line| line.split(" span_id=").take(1).collect::<String>()).collect();
        let inside = [2, 2, 0, 0, 199, 0]
            .map(|n| format!("recorder::layer:in {n} span=\"recorder::layer::span{{n={n}}}\""));
        assert_eq!(lines[..6], inside);
        assert_eq!(lines[6..], ["recorder::layer:in none"]);
    });
}
