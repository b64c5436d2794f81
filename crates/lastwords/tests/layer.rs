//! The tracing layer: events, spans, types, levels, the log crate, spans open at death.
#![cfg(feature = "tracing")]

mod support;

use std::path::Path;

use lastwords::{ChannelConfig, Session};
use support::{child, child_dir, open_spans};
use tracing::{debug, error, error_span, info, info_span, warn, warn_span};
use tracing_subscriber::layer::SubscriberExt as _;

/// The sessions here take every test's events: one test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn session(name: &str, dir: &Path) -> (Session, std::path::PathBuf) {
    let main = ChannelConfig::new("main").contexts(0).sub_buffers(4, 16 << 10);
    let errors = ChannelConfig::errors().contexts(0);
    let builder = Session::builder(name).dir(dir).channel(main).channel(errors).events("layer*:*").events("span:*");
    let session = builder.start().expect("a session");
    let folder = session.folder().expect("a folder").to_owned();
    (session, folder)
}

fn with_layer(run: impl FnOnce()) {
    let subscriber = tracing_subscriber::registry().with(lastwords::layer::layer());
    tracing::subscriber::with_default(subscriber, run);
}

/// Lines of a channel whose ids of spans are replaced by their order of appearance.
fn of_channel(folder: &Path, channel: u32) -> Vec<String> {
    let lines = support::channel_lines(folder, 0).into_iter().filter(|e| e.0 == channel).map(|e| e.2);
    let mut ids: Vec<String> = vec!["0".to_owned()];
    let mut renamed = Vec::new();
    for line in lines {
        let words: Vec<String> = line
            .split(' ')
            .map(|word| match word.split_once('=') {
                Some((key @ ("span" | "parent"), id)) => {
                    let known = ids.iter().position(|known| known == id);
                    let at = known.unwrap_or_else(|| {
                        ids.push(id.to_owned());
                        ids.len() - 1
                    });
                    format!("{key}=#{at}")
                }
                _ => word.to_owned(),
            })
            .collect();
        renamed.push(words.join(" "));
    }
    renamed
}

#[derive(Debug)]
#[allow(dead_code, reason = "shown by Debug")]
struct Point {
    x: i32,
}

#[test]
fn events_with_every_type() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let (_session, folder) = session("events", dir.path());
    with_layer(|| {
        info!(a = 1u8, b = -2i64, c = 0.5, d = true, e = "text", "message {}", 7);
        info!(point = ?Point { x: 3 }, shown = %"displayed", "plain");
        for round in 0..3 {
            let maybe = (round == 1).then_some(5u64);
            debug!(maybe, "one callsite, two types");
        }
        info!(name: "named", target: "layer_target", big = u128::MAX);
        info!(text = "with\0nul");
        warn!("careful");
        error!(code = 5, "bad");
    });
    let main = of_channel(&folder, 0);
    let expected = [
        "layer:event span=#0 message=\"message 7\" a=1 b=-2 c=0.5 d=true e=\"text\"",
        "layer:event span=#0 message=\"plain\" point=\"Point { x: 3 }\" shown=\"displayed\"",
        "layer:event span=#0 message=\"one callsite, two types\"",
        "layer:event span=#0 message=\"one callsite, two types\" maybe=5",
        "layer:event span=#0 message=\"one callsite, two types\"",
        "layer_target:named span=#0 big=\"340282366920938463463374607431768211455\"",
        "layer:event span=#0 text=\"with\\u{1a}nul\"",
        "layer:event span=#0 message=\"careful\"",
        "layer:event span=#0 message=\"bad\" code=5",
    ];
    assert_eq!(main, expected);
    assert_eq!(of_channel(&folder, 1), expected[7..]);
}

#[test]
fn spans_and_events_inside() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let (_session, folder) = session("spans", dir.path());
    with_layer(|| {
        let outer = info_span!("outer", n = 1, later = tracing::field::Empty);
        outer.in_scope(|| {
            let inner = info_span!("inner", s = "x");
            let _inside = inner.enter();
            info!("inside");
            outer.record("later", 9);
        });
        info!(parent: &outer, "told so");
    });
    let expected = [
        "span:new span=#1 parent=#0 name=\"layer::outer\" n=1",
        "span:enter span=#1 name=\"layer::outer\"",
        "span:new span=#2 parent=#1 name=\"layer::inner\" s=\"x\"",
        "span:enter span=#2 name=\"layer::inner\"",
        "layer:event span=#2 message=\"inside\"",
        "span:record span=#1 name=\"layer::outer\" later=9",
        "span:exit span=#2 name=\"layer::inner\"",
        "span:close span=#2 name=\"layer::inner\"",
        "span:exit span=#1 name=\"layer::outer\"",
        "layer:event span=#1 message=\"told so\"",
        "span:close span=#1 name=\"layer::outer\"",
    ];
    assert_eq!(of_channel(&folder, 0), expected);
    assert_eq!(open_spans(&folder), [""; 0]);
}

#[test]
fn spans_open_at_death_outlive_floods() {
    let _alone = alone();
    if let Some(dir) = child_dir() {
        let (_session, _) = session("death", &dir);
        with_layer(|| {
            let outer = info_span!("outer", request = 17, user = "eve", later = tracing::field::Empty);
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
            // SAFETY: no memory is involved.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        });
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (_, folder) = child("spans_open_at_death_outlive_floods", dir.path());
    assert_eq!(open_spans(&folder), ["layer|outer|request=17 user=eve later=true entered", "layer|waiting|"]);
    // The error outlives the flood in a channel of its own.
    assert_eq!(of_channel(&folder, 1), ["layer:event span=#1 message=\"rare\""]);
    assert!(of_channel(&folder, 0).iter().all(|line| !line.contains("rare")));
}

#[test]
fn spans_of_all_levels_leave_the_errors_alone() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let (_session, folder) = session("levels", dir.path());
    with_layer(|| {
        error!("rare");
        for n in 0..1000 {
            let _request = error_span!("request", n, later = tracing::field::Empty).entered();
            let _part = warn_span!("part", n).entered();
        }
    });
    assert_eq!(of_channel(&folder, 1), ["layer:event span=#0 message=\"rare\""]);
    assert!(of_channel(&folder, 0).iter().any(|line| line.starts_with("span:new") && line.contains("layer::request")));
}

#[test]
fn the_log_crate() {
    let _alone = alone();
    if let Some(dir) = child_dir() {
        let main = ChannelConfig::new("main").contexts(0);
        let builder = Session::builder("log").dir(&dir).channel(main).events("old_*").events("log:*");
        let _session = builder.start().expect("a session");
        lastwords::layer::init().expect("the first subscriber");
        log::warn!(target: "old_code", "said by {}", "log");
        log::warn!(target: "other_code", "not asked for");
        log::info!(target: "old_code::part", "more");
        log::warn!(target: "old_code", "again");
        // Targets without end: those that are too many are not told apart, and not lost.
        for n in 0..1100 {
            log::info!(target: &format!("old_{n}"), "made up");
        }
        // SAFETY: no memory is involved.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    let dir = tempfile::tempdir().expect("a folder");
    let (_, folder) = child("the_log_crate", dir.path());
    let lines = support::channel_lines(&folder, 0);
    assert_eq!((lines.len(), lines[0].1), (3 + 1100, 2));
    let starts = [
        "old_code:event span=0 message=\"said by log\" log.target=\"old_code\" log.module_path=\"layer\"",
        "old_code::part:event span=0 message=\"more\" log.target=\"old_code::part\"",
        "old_code:event span=0 message=\"again\"",
        "old_0:event span=0 message=\"made up\" log.target=\"old_0\"",
    ];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.2.starts_with(start), "{line:?}");
    }
    let last = &lines[lines.len() - 1].2;
    assert!(last.starts_with("log:event span=0 message=\"made up\" log.target=\"old_1099\""), "{last}");
}

/// Notes when it is evaluated and when it is formatted.
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
    use lastwords::layer::{Wanted, layer};
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let costly = Costly(0.into(), 0.into());
    // What happens to an event and a span with a costly field, each.
    let both = || {
        info!(x = ?costly.evaluated(), "event");
        let event = costly.taken();
        let _span = info_span!("span", x = ?costly.evaluated());
        (event, costly.taken())
    };
    let open = tracing_subscriber::registry().with(layer());
    let gated = tracing_subscriber::registry().with(layer()).with(Wanted);
    let subscribers = [(1, tracing::Dispatch::new(open)), (0, tracing::Dispatch::new(gated))];
    for (evaluated, subscriber) in &subscribers {
        tracing::dispatcher::with_default(subscriber, || {
            let nothing = ((*evaluated, 0), (1, 0));
            assert_eq!(both(), nothing, "no session");
            let main = ChannelConfig::new("main").contexts(0).sub_buffers(4, 16 << 10);
            let builder = Session::builder("costs").dir(dir.path()).channel(main).spans(0);
            let session = builder.events("layer:*").events("span:*").start().expect("a session");
            assert_eq!(both(), ((1, 1), (1, 1)));
            session.disable("layer:*").expect("disabled");
            assert_eq!(both(), ((*evaluated, 0), (1, 1)), "spans are another matter");
            session.disable("*").expect("disabled");
            assert_eq!(both(), nothing);
            session.enable("*").expect("enabled");
            assert_eq!(both(), ((1, 1), (1, 1)));
            let lines = support::lines(session.folder().expect("a folder"));
            assert_eq!(lines.iter().filter(|line| line.ends_with("x=\"costly\"")).count(), 5, "{lines:?}");
        });
    }
}

#[test]
fn many_threads_find_their_classes() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    let main = ChannelConfig::new("main").contexts(0).sub_buffers(8, 1 << 20);
    let session =
        Session::builder("threads").dir(dir.path()).channel(main).events("layer:*").start().expect("a session");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                with_layer(|| {
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
}
