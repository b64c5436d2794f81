//! Tests that recording neither allocates nor calls the system, and that it works inside a signal
//! handler inside a record, and after a fork.

use crate::common;
use crate::common::{filter, fork, in_fork, plain, start, wait};
use crate::support;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lastwords::{ChannelConfig, Session, event, mark};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all calls are passed to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Starts a session with two channels, one plain and one with every context, so that each event is
/// recorded in all ways.
fn session(name: &str, dir: &std::path::Path, glob: &str) -> (Session, std::path::PathBuf) {
    let plain = plain("plain");
    let rich =
        ChannelConfig::new("rich").contexts(lastwords::Context::ALL).sub_buffers(4, 64 << 10);
    let builder = Session::builder(name)
        .dir(dir)
        .channel(plain)
        .channel(rich)
        .events(glob)
        .counters(4)
        .histograms(1);
    start(builder.listen(false))
}

fn record(n: u64, long: &str) {
    lastwords::counter!("quiet", n, label = "x");
    lastwords::histogram!("quiet", n);
    event!(quiet, "fixed", a = n as u32, b = n);
    event!(quiet, "text", a = n, s = "sixteen bytes ..");
    event!(quiet, "long", s = long, slice = &[n; 9][..]);
    mark!("quiet {} {}", n, "x");
}

#[test]
fn recording_allocates_nothing() {
    alone!(in dir);
    let (_session, _) = session("allocations", dir.path(), "*");
    let long = "l".repeat(3000);
    record(0, &long);
    let before = ALLOCATIONS.get();
    for n in 1..2000 {
        record(n, &long);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn a_first_event_allocates_nothing() {
    alone!(in dir);
    let (_session, folder) = session("first", dir.path(), "first:*");
    fn of_each_type<T: lastwords::Field>(value: T) {
        event!(first, "value", value);
    }
    // This event sets up what this thread needs for itself.
    event!(first, "thread");
    let before = ALLOCATIONS.get();
    event!(first, "fixed", n = 1u32);
    event!(first, "text", s = "of a signal handler, say, that interrupted malloc");
    event!(first, "slice", level: ERROR, s = &[7u64; 40][..]);
    of_each_type(1u8);
    of_each_type("two");
    assert_eq!(ALLOCATIONS.get() - before, 0);
    let events = common::events(&folder);
    assert_eq!(events.len(), 12, "each in two channels");
}

/// Runs `warm`, and then `run` with a filter under which a system call kills, both in a forked
/// child.
fn without_system_calls(warm: impl FnOnce(), run: impl FnOnce()) {
    let status = in_fork(|| {
        warm();
        // SAFETY: the call involves no memory. It ends a child that hangs.
        unsafe { libc::alarm(120) };
        filter(&[libc::SYS_exit_group], libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS);
        run();
        0
    });
    assert_eq!(status, 0, "{} is of a system call while recording", -libc::SIGSYS);
}

#[test]
fn recording_calls_no_system() {
    alone!(in dir);
    let (_session, folder) = session("syscalls", dir.path(), "*");
    let long = "l".repeat(3000);
    record(0, &long);
    without_system_calls(|| record(1, &long), || (2..50_000).for_each(|n| record(n, &long)));
    let newest = common::events(&folder);
    assert!(newest.len() > 100);
}

/// Opens far more spans than the table has entries. A recorder must find out without a system call
/// that there is no room.
#[cfg(feature = "tracing")]
#[test]
fn spans_without_room_call_no_system() {
    alone!();
    use tracing::info_span;

    let dir = tempfile::tempdir().expect("a folder");
    let (_session, _) = session("full", dir.path(), "*");
    for recorder in &crate::layer::recorders(true) {
        let _default = tracing::dispatcher::set_default(recorder);
        let mut kept = Vec::with_capacity(2000);
        let many = |count| (0..count).for_each(|n| drop(info_span!("short", n).entered()));
        without_system_calls(
            || {
                kept.extend((0..2000).map(|n| info_span!("kept", n)));
                many(100);
            },
            || many(5000),
        );
    }
}

/// Spans inside of spans, with values of all kinds and events, once the thread is warm.
#[cfg(feature = "tracing")]
#[test]
fn spans_allocate_nothing_and_call_no_system() {
    alone!();
    use tracing::field::Empty;
    use tracing::{info, info_span};

    let dir = tempfile::tempdir().expect("a folder");
    let (_session, folder) = session("spans", dir.path(), "*");
    for (number, recorder) in crate::layer::recorders(true).iter().enumerate() {
        let _default = tracing::dispatcher::set_default(recorder);
        let some = |count: u32| {
            for n in 0..count {
                let outer = info_span!("outer", n, text = "of some length", value = ?Some(n), later = Empty).entered();
                let inner = info_span!("inner", yes = true, half = 0.5);
                let again = inner.clone();
                inner.in_scope(|| info!(n, "inside"));
                outer.record("later", "a value");
                drop(inner);
                info!(parent: &again, at = ?(n, "x"), "told");
            }
        };
        // Other tests of this file begin sessions meanwhile. Then this thread writes its name there
        // once, and that allocates.
        let rounds = (0..50).map(|_| {
            let before = ALLOCATIONS.get();
            some(100);
            ALLOCATIONS.get() - before
        });
        assert_eq!(rounds.min(), Some(0), "recorder {number}");
        without_system_calls(|| some(100), || some(20_000));
    }
    assert!(common::events(&folder).len() > 100);
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    if HANDLED.fetch_add(1, Ordering::Relaxed) > 10_000 {
        return;
    }
    event!(nested, "handler", text = "inside");
}

#[test]
fn a_handler_records_inside_a_record() {
    alone!(in dir);
    let channel = plain("main").sub_buffers(8, 1 << 20);
    let builder = Session::builder("nested").dir(dir.path()).channel(channel).events("nested:*");
    let (_session, folder) = start(builder);
    on_signal(0);
    // SAFETY: the handler only records.
    unsafe {
        libc::signal(libc::SIGUSR2, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t)
    };
    // SAFETY: the call has no arguments.
    let me = unsafe { libc::pthread_self() };
    let done = AtomicBool::new(false);
    let mut count = 0u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the thread waits for this one at the end of the scope.
                unsafe { libc::pthread_kill(me, libc::SIGUSR2) };
                std::thread::yield_now();
            }
        });
        // This waits until the other thread is sending signals.
        while HANDLED.load(Ordering::Relaxed) < 10 {
            std::thread::yield_now();
        }
        while count < 50_000 || (HANDLED.load(Ordering::Relaxed) < 100 && count < 150_000) {
            event!(nested, "outer", n = count, s = "text of the outer");
            count += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    let shown = support::lines(&folder);
    let outer: Vec<_> = shown.iter().filter(|line| line.starts_with("nested:outer")).collect();
    assert_eq!(outer.len() as u64, count);
    assert!(
        outer
            .iter()
            .enumerate()
            .all(|(n, line)| **line == format!("nested:outer n={n} s=\"text of the outer\""))
    );
    let inside =
        shown.iter().filter(|line| *line == "nested:handler text=\"inside\"").count() as u64;
    assert_eq!(inside, HANDLED.load(Ordering::Relaxed).min(10_001));
    assert!(inside > 1);
}

#[test]
fn a_forked_child_has_ids_of_its_own() {
    alone!(in dir);
    let channel =
        ChannelConfig::new("main").contexts(lastwords::Context::PID | lastwords::Context::TID);
    let builder = Session::builder("forks").dir(dir.path()).channel(channel).events("forks:*");
    let (_session, folder) = start(builder);
    let record = |n: u32| event!(forks, "number", n);
    record(1);
    let child = fork(|| {
        record(2);
        0
    });
    wait(child);
    let mut events = common::events(&folder);
    events.sort_by_key(|(_, event)| event.clock);
    let pids: Vec<&[u8]> = events.iter().map(|(_, event)| &event.body[..4]).collect();
    assert_eq!(pids, [&std::process::id().to_ne_bytes()[..], &child.to_ne_bytes()[..]]);
    assert_eq!(events[1].1.body[4..8], child.to_ne_bytes());
    assert_eq!(support::lines_after(&folder, 8), ["forks:number n=1", "forks:number n=2"]);
}
