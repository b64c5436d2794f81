//! Tests the thread that waits for changes when the system forbids its usual way of waiting.

use std::time::Duration;

use crate::common;
use crate::common::{child_dir, folder, record, succeeds, wait_for, with_main};

/// Makes `futex_waitv` fail with EPERM, as filters of system calls do that do not know the call.
fn forbid_waiting() {
    let code = |code: u32| code as u16;
    let statement = |of, k| libc::sock_filter { code: code(of), jt: 0, jf: 0, k };
    let number = libc::SYS_futex_waitv as u32;
    let filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number)
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program and its filter live until the calls return.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const program
            ),
            0
        );
    }
}

/// Returns the processor time of this process.
fn used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call to fill.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn child_that_may_not_wait() {
    let Some(dir) = child_dir() else { return };
    forbid_waiting();
    let session = with_main("filtered", &dir).start().expect("it starts");
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

#[test]
fn a_filter_of_system_calls_does_not_make_it_spin() {
    alone!(in dir);
    succeeds("child_that_may_not_wait", dir.path(), &[]);
}
