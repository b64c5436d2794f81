//! Tests the thread that waits for changes when the system forbids its usual way of waiting.

use std::time::Duration;

use crate::common;
use crate::common::{filter, folder, record, wait_for, with_main};

/// Returns the processor time of this process.
fn used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call to fill.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_filter_of_system_calls_does_not_make_it_spin() {
    alone!(in dir);
    // As filters of system calls do that do not know the call.
    let error = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    filter(&[libc::SYS_futex_waitv], error, libc::SECCOMP_RET_ALLOW);
    let session = with_main("filtered", dir.path()).start().expect("it starts");
    let before = used();
    std::thread::sleep(Duration::from_secs(1));
    let idle = used() - before;
    assert!(idle < Duration::from_millis(200), "idle for 1 s: {idle:?} of a processor");
    let handle = lastwords_control::Handle::open(&folder(&session)).expect("it opens");
    handle.rule(&lastwords::rules::RuleSpec::disable("test:*")).expect("disabled");
    let recorded = || common::numbers(&folder(&session)).len();
    wait_for("the change to be noticed", || {
        let before = recorded();
        record(0..1);
        std::thread::sleep(Duration::from_millis(10));
        recorded() == before
    });
}
