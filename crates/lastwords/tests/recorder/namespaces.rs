//! Processes of two pid namespaces record in one session with the `locked` reservation. Neither can
//! know whether the other lives.

use std::time::{Duration, Instant};

use crate::common::{
    child_dir, details, end_of, lost_by, numbers, only_session, plain, record, stay_on_one_cpu,
    with_main,
};
use lastwords::{Reservation, Session};
use lastwords_abi::stream::LOST_LOCK;
use lastwords_control::{self, State};

/// The exit status of a child that may not make namespaces.
const NO_RIGHT: i32 = 77;

/// Stops and continues the process `of`. Most stops are shorter than the wait for a lock, some are
/// longer.
fn stop_and_go(of: i32) {
    for round in 0..60 {
        let pause = if round % 10 == 0 { 200 } else { 4 };
        // SAFETY: the call involves no memory.
        unsafe { libc::kill(of, libc::SIGSTOP) };
        std::thread::sleep(Duration::from_millis(pause));
        // SAFETY: the call involves no memory.
        unsafe { libc::kill(of, libc::SIGCONT) };
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Records numbers from `first` on until the time is over. Returns how many.
fn record_for(time: Duration, first: u64) -> u64 {
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < time && count < 1_000_000 {
        record(first + count..first + count + 16);
        count += 16;
    }
    count
}

#[test]
fn child_in_two_namespaces() {
    let Some(dir) = child_dir() else { return };
    // Both processes use one CPU, so that they record in one stream, and one is often stopped while
    // it has the lock.
    stay_on_one_cpu();
    let builder = Session::builder("two").dir(&dir).channel(plain("main").sub_buffers(64, 1 << 20));
    let _session =
        builder.reservation(Reservation::Locked).listen(false).start().expect("it starts");
    // SAFETY: the calls involve no memory. The children end by `_exit`, and record and write files
    // in between. This process has no other thread that holds a lock of the C library.
    unsafe {
        let me = libc::getpid();
        if libc::fork() == 0 {
            stop_and_go(me);
            libc::_exit(0);
        }
        if libc::unshare(libc::CLONE_NEWPID) != 0 {
            libc::_exit(NO_RIGHT);
        }
        let other = libc::fork();
        let first = if other == 0 { 1 << 40 } else { 0 };
        let count = record_for(Duration::from_millis(1500), first);
        std::fs::write(dir.join(format!("count-{first}")), count.to_string()).expect("told");
        if other == 0 {
            libc::_exit(0);
        }
        while libc::wait(core::ptr::null_mut()) > 0 {}
    }
}

#[test]
fn every_event_is_there_or_was_counted() {
    alone!(in dir);
    let status = end_of("child_in_two_namespaces", dir.path(), &[]);
    if status.code() == Some(NO_RIGHT) {
        return;
    }
    assert!(status.success(), "{status}");
    let folder = only_session(dir.path());
    let found = numbers(&folder);
    let tried = |first: u64| -> u64 {
        let text =
            std::fs::read_to_string(dir.path().join(format!("count-{first}"))).expect("told");
        text.parse().expect("a number")
    };
    let (mine, theirs) = (tried(0), tried(1 << 40));
    assert_eq!(found.len() as u64 + lost_by(&folder, LOST_LOCK..=LOST_LOCK), mine + theirs);
    let all = |first: u64, count: u64| {
        let mut own: Vec<u64> = found.iter().copied().filter(|n| n >> 40 == first >> 40).collect();
        let before = own.len();
        own.sort_unstable();
        own.dedup();
        before == own.len() && own.last() < Some(&(first + count))
    };
    assert!(all(0, mine) && all(1 << 40, theirs), "each once");
}

#[test]
fn child_ends_a_session_of_the_same_id() {
    let Some(dir) = child_dir() else { return };
    // SAFETY: the calls involve no memory. The children end by `_exit`, and this process has no
    // other thread that holds a lock of the C library. Each child is the first process of a
    // namespace.
    unsafe {
        if libc::unshare(libc::CLONE_NEWPID) != 0 {
            libc::_exit(NO_RIGHT);
        }
        let first = libc::fork();
        if first != 0 {
            libc::waitpid(first, core::ptr::null_mut(), 0);
            libc::_exit(0);
        }
        let session = with_main("same", &dir).listen(false).start();
        let session = session.expect("it starts");
        record(0..10);
        assert_eq!(libc::unshare(libc::CLONE_NEWPID), 0);
        let second = libc::fork();
        if second == 0 {
            drop(session);
            libc::_exit(0);
        }
        libc::waitpid(second, core::ptr::null_mut(), 0);
        record(10..20);
        libc::_exit(0);
    }
}

#[test]
fn a_child_of_the_same_id_in_its_namespace_does_not_end_the_session() {
    alone!(in dir);
    let status = end_of("child_ends_a_session_of_the_same_id", dir.path(), &[]);
    if status.code() == Some(NO_RIGHT) {
        return;
    }
    assert!(status.success(), "{status}");
    let folder = only_session(dir.path());
    assert_eq!(numbers(&folder), (0..20).collect::<Vec<_>>());
    let details = details(&folder);
    assert!(details.recording && details.state != State::Finished, "{details:?}");
}
