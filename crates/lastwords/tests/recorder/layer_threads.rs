//! Tests the names of threads that record through `tracing`.
#![cfg(feature = "tracing")]

use lastwords_testkit::text::Text as _;
use std::path::Path;

use crate::layer::{of_channel, session, with_each};
use crate::support::end_of_thread::at_the_very_end_of_a_thread;
use tracing::{error, info, info_span};

/// Returns the ids that have this name in the registry: the bytes have `thread_ID`, the length of
/// the name and the name.
fn threads_named(folder: &Path, name: &str) -> Vec<u32> {
    let bytes = std::fs::read(folder.join("registry")).expect("the registry");
    let key = b"thread_";
    let found = bytes.windows(key.len()).enumerate().filter(|(_, window)| window == key);
    let id_before_name = |(at, _): (usize, &[u8])| {
        let rest = &bytes[at + key.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let value = &rest[digits..];
        let is_it = value[..2] == (name.len() as u16).to_ne_bytes()
            && value[2..].starts_with(name.as_bytes());
        is_it.then(|| std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()).flatten()
    };
    found.filter_map(id_before_name).collect()
}

fn in_thread(name: &str, run: impl FnOnce() + Send) -> u32 {
    std::thread::scope(|scope| {
        let spawned = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, || {
            run();
            // SAFETY: gettid has no arguments and cannot fail.
            unsafe { libc::syscall(libc::SYS_gettid) as u32 }
        });
        spawned.expect("a thread").join().expect("it ends")
    })
}

#[test]
fn threads_are_named_once_in_each_session() {
    alone!();
    with_each(|dir| {
        let (_first, first) = session("first", dir);
        let mut others = None;
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        let record = || {
            tracing::dispatcher::with_default(&subscriber, || {
                (0..100).for_each(|n| info!(n, "named"))
            })
        };
        let silent = in_thread("a thread that records nothing", || ());
        let one = in_thread("a name of more than sixteen bytes", || {
            record();
            let (session, second) = session("second", dir);
            record();
            others = Some((session, second));
        });
        let (_, second) = others.as_ref().expect("a session");
        assert_eq!(threads_named(&first, "a name of more than sixteen bytes"), [one]);
        assert_eq!(threads_named(second, "a name of more than sixteen bytes"), [one]);
        let two = in_thread("two", record);
        assert_eq!(
            (threads_named(&first, "two"), threads_named(second, "two")),
            (vec![two], vec![two])
        );
        assert_eq!(threads_named(&first, "a thread that records nothing"), [0; 0], "{silent}");
    });
}

#[test]
fn a_thread_that_records_only_when_it_is_nearly_gone_has_a_name() {
    alone!();
    with_each(|dir| {
        let (_session, folder) = session("late", dir);
        static RECORDER: std::sync::Mutex<Option<tracing::Dispatch>> = std::sync::Mutex::new(None);
        extern "C" fn record() {
            let recorder = RECORDER.lock().expect("nobody panicked").take().expect("set before");
            tracing::dispatcher::with_default(&recorder, || {
                // The registry of `tracing-subscriber` refuses spans here. The subscriber may
                // forget those that are very deep.
                if recorder.is::<lastwords::layer::LastwordsSubscriber>() {
                    let deep = info_span!("deep").id().expect("enabled");
                    (0..100).for_each(|_| recorder.enter(&deep));
                }
                info!(parent: None, "late");
            });
        }
        *RECORDER.lock().expect("nobody panicked") =
            Some(tracing::dispatcher::get_default(Clone::clone));
        at_the_very_end_of_a_thread(|| (), record);
        assert_eq!(threads_named(&folder, "ending").len(), 1);
        assert_eq!(
            of_channel(&folder, 0).last().expect("an event"),
            "recorder::layer_threads:late"
        );
    });
}

/// Returns `names_dropped` of the registry's control.
fn dropped_names(folder: &Path) -> u64 {
    let registry = std::fs::read(folder.join("registry")).expect("the registry");
    u64::from_ne_bytes(registry[128 + 24..][..8].try_into().expect("eight bytes"))
}

#[test]
fn names_of_living_threads_that_find_no_room_are_counted() {
    alone!();
    with_each(|dir| {
        let (_session, folder) = session("many", dir);
        let name = "a long name of a thread, ".repeat(40);
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        let threads = 400;
        let all = std::sync::Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let builder = std::thread::Builder::new().name(name.clone()).stack_size(1 << 18);
                let record = || {
                    tracing::dispatcher::with_default(&subscriber, || info!("one"));
                    all.wait();
                };
                builder.spawn_scoped(scope, record).expect("a thread");
            }
        });
        let (dropped, written) =
            (dropped_names(&folder), threads_named(&folder, &name).len() as u64);
        assert!(
            dropped > 0 && written > 0 && dropped + written == threads as u64,
            "{dropped} + {written}"
        );
    });
}

#[test]
fn names_of_threads_do_not_end() {
    alone!();
    with_each(|dir| {
        let (_session, folder) = session("churn", dir);
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        let record = || tracing::dispatcher::with_default(&subscriber, || info!("one"));
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let living = move || {
                record();
                _ = stopped.recv();
            };
            let living =
                std::thread::Builder::new().name("living".into()).spawn_scoped(scope, living);
            let living = living.expect("a thread");
            let threads: Vec<u32> =
                (0..5000).map(|n| in_thread(&format!("worker-{n}"), record)).collect();
            assert_eq!(dropped_names(&folder), 0);
            for n in [3000, 4998, 4999] {
                let name = format!("worker-{n}");
                // If the kernel has given all ids, an id may be that of an earlier thread whose
                // name is gone.
                let unsure = threads_named(&folder, &format!("{name}|..."));
                assert_eq!([threads_named(&folder, &name), unsure].concat(), [threads[n]], "{n}");
            }
            assert_eq!(threads_named(&folder, "living").len(), 1);
            drop(stop);
            living.join().expect("it ends");
        });
        // The descriptions of events still have room.
        error!("the last");
        of_channel(&folder, 1).last().expect("an event").starts("recorder::layer_threads:the last");
    });
}
