//! The table of open spans when it is full, and when threads and processes share it.
#![cfg(feature = "tracing")]

mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lastwords::{ChannelConfig, Session};
use support::{open_spans, open_spans_and_threads};
use tracing::info_span;
use tracing_subscriber::layer::SubscriberExt as _;

/// A session whose table has a page or two; the session takes every test's spans, so that one test runs at a time.
fn alone(dir: &Path) -> (std::sync::MutexGuard<'static, ()>, Session, PathBuf) {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let main = ChannelConfig::new("main").contexts(0).sub_buffers(4, 16 << 10);
    let session = Session::builder("spans").dir(dir).channel(main).spans(32).start().expect("a session");
    let folder = session.folder().expect("a folder").to_owned();
    (guard, session, folder)
}

fn with_layer(run: impl FnOnce()) {
    let subscriber = tracing_subscriber::registry().with(lastwords::layer::layer());
    tracing::subscriber::with_default(subscriber, run);
}

#[test]
fn what_the_dead_left_is_taken_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_alone, _session, folder) = alone(dir.path());
    with_layer(|| {
        // SAFETY: the child opens spans and leaves without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let kept: Vec<_> = (0..1000).map(|n| info_span!("left", n)).collect();
            // SAFETY: plain.
            unsafe { libc::_exit(i32::from(kept.len() != 1000)) };
        }
        // SAFETY: no status is asked for.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        let left = open_spans(&folder);
        assert!(left.len() >= 32 && left.iter().all(|text| text.starts_with("spans|left|n=")), "{left:?}");
        let until = Instant::now() + Duration::from_secs(20);
        let is_listed = || {
            let _mine = info_span!("mine");
            open_spans(&folder).iter().any(|text| text == "spans|mine|")
        };
        while !is_listed() {
            assert!(Instant::now() < until, "no room after the death of the one who left no room");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(open_spans(&folder).len(), left.len() - 1, "one entry was taken over, and given back");
    });
}

#[test]
fn who_is_in_a_span_that_is_entered_more_than_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_alone, _session, folder) = alone(dir.path());
    // SAFETY: takes nothing.
    let me = unsafe { libc::gettid() } as u32;
    with_layer(|| {
        let inside = |span: &str| {
            let all = open_spans_and_threads(&folder);
            all.into_iter().find(|(text, _)| text == &format!("spans|{span}|")).map(|(_, thread)| thread)
        };
        let (shared, again) = (info_span!("shared"), info_span!("again"));
        let in_shared = shared.enter();
        // Another thread enters and leaves.
        std::thread::scope(|scope| scope.spawn(|| shared.in_scope(|| ())).join().expect("it ends"));
        assert_eq!(inside("shared"), Some(me));
        let first = again.enter();
        again.in_scope(|| ());
        assert_eq!(inside("again"), Some(me), "left once, entered twice");
        drop(first);
        drop(in_shared);
        assert_eq!((inside("shared"), inside("again")), (Some(0), Some(0)));
    });
}
