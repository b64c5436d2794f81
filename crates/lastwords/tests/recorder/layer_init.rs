//! Tests who becomes the subscriber of a program, and of one thread.
#![cfg(feature = "tracing")]

use crate::layer_values::{lines, on_a_registry, session};
use tracing::{Dispatch, info};

struct Silent;

impl log::Log for Silent {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, _: &log::Record<'_>) {}
    fn flush(&self) {}
}

#[test]
fn init_with_a_logger_installs_nothing() {
    alone!(in dir);
    let _session = session(dir.path());
    log::set_logger(&Silent).expect("the first logger");
    lastwords::layer::init().expect_err("there is a logger");
    tracing::subscriber::set_global_default(tracing_subscriber::registry())
        .expect("there is no subscriber");
}

#[test]
fn init_with_a_subscriber_installs_nothing() {
    alone!(in dir);
    let _session = session(dir.path());
    tracing::subscriber::set_global_default(tracing_subscriber::registry())
        .expect("there is no subscriber");
    lastwords::layer::init().expect_err("there is a subscriber");
    log::set_logger(&Silent).expect("there is no logger");
}

#[test]
fn init_inside_another_subscriber_takes_the_program() {
    alone!(in dir);
    let _session = session(dir.path());
    let own = on_a_registry();
    tracing::dispatcher::with_default(&own, || {
        lastwords::layer::init().expect("the program has none")
    });
}

/// The listener's thread has no dispatcher. A renewal there must not make `tracing` cache that
/// nobody records.
#[test]
fn the_only_dispatcher_may_be_one_threads() {
    alone!(in dir);
    let (_session, folder) = session(dir.path());
    let dispatch = Dispatch::new(lastwords::layer::subscriber());
    tracing::dispatcher::with_default(&dispatch, || {
        for n in 0..6 {
            info!(n, "scoped");
            // The thread has a round each second, and one after a callsite was first reached.
            std::thread::sleep(std::time::Duration::from_millis(400));
        }
    });
    assert_eq!(lines(&folder).len(), 6);
}
