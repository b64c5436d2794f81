//! Tests snapshots: events before are in, events after are not; one reader at a time; from this
//! process and from another.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{
    StopAtEnd, areas, child_dir, every, folder, numbers, only_session, plain, record,
    snapshot_numbers, spawn, start, started, stay_on, wait_for, wait_for_session, with_main,
};
use lastwords::snapshot::Rings;
use lastwords::{Error, Memory, Reservation, Session};
use lastwords_control::{self, Handle};

const ALL: [Reservation; 3] = [Reservation::Rseq, Reservation::Lockless, Reservation::Locked];

/// Records in a thread that stays on a CPU.
fn record_on(cpu: u32, numbers: std::ops::Range<u64>) {
    let body = move || {
        stay_on(cpu as usize);
        record(numbers);
    };
    std::thread::spawn(body).join().expect("it records");
}

/// Returns the CPUs on which this process may run.
fn cpus() -> Vec<u32> {
    let all = rustix::thread::sched_getaffinity(None).expect("the CPUs");
    let is_set = |cpu: &u32| all.is_set(*cpu as usize);
    (0..rustix::thread::CpuSet::MAX_CPU as u32).filter(is_set).collect()
}

#[test]
fn one_cpu_is_swapped_in_all_channels() {
    alone!();
    let cpus = cpus();
    let (cpu, other) = (cpus[0], cpus[cpus.len() - 1]);
    let dir = tempfile::tempdir().expect("a folder");
    let twice = |numbers: std::ops::Range<u64>| {
        numbers.flat_map(|number| [number, number]).collect::<Vec<_>>()
    };
    for reservation in ALL {
        let (session, path) = start(
            Session::builder("cpu")
                .dir(dir.path())
                .reservation(reservation)
                .snapshot(true)
                .channel(plain("main"))
                .channel(plain("rare")),
        );
        record_on(cpu, 0..10);
        record_on(other, 10..20);
        session.snapshot(Rings::Cpu(cpu)).expect("taken");
        record_on(cpu, 20..30);
        let in_snapshot = if cpu == other { 20 } else { 10 };
        assert_eq!(snapshot_numbers(&path), twice(0..in_snapshot), "{reservation:?}");
        assert_eq!(numbers(&path), twice(in_snapshot..30), "{reservation:?}");
        let handle = Handle::open(&path).expect("it opens");
        let consumer = handle.consume_snapshot().expect("it was taken");
        assert_eq!(consumer.bounds().iter().flatten().count(), 2, "one a channel");
        drop(consumer);
        for absent in [Rings::Cpu(1 << 20), Rings::Cpu(u32::MAX), Rings::Stream(1 << 20)] {
            assert!(matches!(session.snapshot(absent), Err(Error::Unsupported { .. })));
        }
        assert_eq!(
            snapshot_numbers(&path).len() as u64,
            2 * in_snapshot,
            "a snapshot that was refused takes none away"
        );
    }
}

#[test]
fn before_is_in_and_after_is_not() {
    alone!(in dir);
    for reservation in ALL {
        let session = started(with_main("snap", dir.path()).reservation(reservation));
        record(0..100);
        assert!(matches!(session.snapshot(Rings::All), Err(Error::Snapshot { .. })), "not enabled");
        session.enable_snapshots().expect("enabled");
        assert!(session.read_snapshot().is_err(), "none was taken");
        let path = folder(&session);
        for round in 0..5u64 {
            record(round * 1000 + 100..round * 1000 + 200);
            let taken = session.snapshot(Rings::All).expect("taken");
            assert_eq!((u64::from(taken.number), taken.rest.in_flight), (round + 1, 0));
            record(round * 1000 + 200..round * 1000 + 300);
            let snapshot = snapshot_numbers(&path);
            assert_eq!(snapshot.last(), Some(&(round * 1000 + 199)), "{reservation:?}");
            assert_eq!(snapshot.len(), 200);
            assert_eq!(numbers(&path), every(round * 1000 + 200..round * 1000 + 300));
        }
        session.disable_snapshots().expect("disabled");
        assert!(snapshot_numbers(&path).is_empty());
        assert_eq!(numbers(&path).len(), 100, "the live half is untouched");
        record(9000..9010);
        session.clear().expect("nobody swaps");
        assert!(numbers(&path).is_empty());
        record(9010..9020);
        assert_eq!(numbers(&path), every(9010..9020));
    }
}

/// Returns the bytes that were dropped before the halves of a session's rings, as the halves record
/// them.
fn dropped(path: &std::path::Path) -> u64 {
    use lastwords_testkit::layout::stream as st;
    let entries = std::fs::read_dir(path).expect("the folder").flatten();
    let streams =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("stream-"));
    let of_half = |bytes: &[u8], half: usize| {
        let at = st::CONTROL_AT + st::HALVES_AT + half * st::HALF_LEN + st::DROPPED_AT;
        u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
    };
    let of_stream = |entry: std::fs::DirEntry| {
        let bytes = std::fs::read(entry.path()).expect("readable");
        of_half(&bytes, 0) + of_half(&bytes, 1)
    };
    streams.map(of_stream).sum()
}

/// A snapshot is replaced or freed before it was consumed. The next reader must learn how much it
/// contained.
#[test]
fn a_snapshot_that_nobody_consumed_is_missed() {
    alone!(in dir);
    for reservation in ALL {
        let (session, path) =
            start(with_main("gone", dir.path()).reservation(reservation).snapshot(true));
        let take = || session.snapshot(Rings::All).expect("taken").dropped;
        record(0..100);
        assert_eq!((take(), dropped(&path)), (0, 0), "{reservation:?}");
        record(100..110);
        let first = take();
        assert!(first > 100 * 8, "{reservation:?}: {first}");
        assert_eq!(dropped(&path), first);
        record(110..120);
        let second = take();
        assert!((10 * 8..first).contains(&second), "{reservation:?}: {second}");
        assert_eq!(dropped(&path), first + second, "both are gone");
        record(120..130);
        session.disable_snapshots().expect("disabled");
        let left = dropped(&path);
        assert!(left > first + second, "{reservation:?}: {left}");
        let handle = Handle::open(&path).expect("it opens");
        handle.consume_live().expect("nobody else does").consume().expect("consumed");
        assert_eq!(dropped(&path), 0, "{reservation:?}: told once");
        session.enable_snapshots().expect("enabled");
        record(130..140);
        assert_eq!(take(), 0);
        handle.consume_snapshot().expect("it was taken").consume().expect("consumed");
        assert_eq!((take(), dropped(&path)), (0, 0), "{reservation:?}: it was consumed");
    }
}

#[test]
fn a_full_ring_that_discards_records_again_when_it_is_cleared() {
    alone!(in dir);
    for reservation in ALL {
        let channel = plain("main").sub_buffers(2, 4096).discard();
        let (session, path) = start(
            Session::builder("full").dir(dir.path()).channel(channel).reservation(reservation),
        );
        for round in 1..4u64 {
            let first = round * 10_000;
            // The last of these events fill more than one sub-buffer on any number of CPUs.
            record(first..first + 5000);
            assert!(!numbers(&path).contains(&(first + 4999)), "{reservation:?}: it is full");
            session.clear().expect("cleared");
            assert!(numbers(&path).is_empty());
            record(first + 5000..first + 5010);
            assert_eq!(
                numbers(&path),
                every(first + 5000..first + 5010),
                "{reservation:?}, {round}"
            );
            record(first + 5010..first + 5100);
            Handle::open(&path).expect("it opens").clear().expect("cleared");
            assert!(numbers(&path).is_empty());
        }
    }
}

#[test]
fn while_one_is_read_another_is_refused() {
    alone!(in dir);
    let session = with_main("busy", dir.path()).snapshot(true).start().expect("it starts");
    record(0..10);
    session.snapshot(Rings::All).expect("taken");
    let reader = session.read_snapshot().expect("marked");
    for error in [session.snapshot(Rings::All).err(), session.disable_snapshots().err()] {
        let Some(Error::Busy { owner, .. }) = error else { panic!("not refused") };
        assert_eq!(owner, std::process::id());
    }
    drop(reader);
    session.read_snapshot().expect("it is still there").release();
    assert!(session.read_snapshot().is_err(), "it was released");
    session.snapshot(Rings::All).expect("taken again");
}

#[test]
fn child_reads_and_dies() {
    let Some(dir) = child_dir() else { return };
    let handle = Handle::open(&only_session(&dir)).expect("it opens");
    let _reader = handle.read_snapshot().expect("marked");
    std::fs::write(dir.join("marked"), "").expect("told");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_dead_reader_does_not_hold_it() {
    alone!(in dir);
    let session = with_main("dead", dir.path()).snapshot(true).start().expect("it starts");
    record(0..10);
    session.snapshot(Rings::All).expect("taken");
    let mut child = spawn("child_reads_and_dies", dir.path(), &[]);
    wait_for("the mark", || dir.path().join("marked").exists());
    assert!(
        matches!(session.snapshot(Rings::All), Err(Error::Busy { owner, .. }) if owner == child.id())
    );
    child.kill().expect("killed");
    child.wait().expect("it ends");
    session.snapshot(Rings::All).expect("its reader is dead");
}

#[test]
fn child_records() {
    let Some(dir) = child_dir() else { return };
    let builder =
        Session::builder("remote").dir(&dir).channel(plain("main").sub_buffers(8, 1 << 20));
    let reservation = ALL[std::env::var("WHICH").expect("set").parse::<usize>().expect("a number")];
    let _session = builder.reservation(reservation).start().expect("it starts");
    for number in 0.. {
        record(number..number + 1);
        if number % 64 == 0 {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
}

#[test]
fn another_process_takes_it() {
    alone!();
    for which in ["0", "1", "2"] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut child = spawn("child_records", dir.path(), &[("WHICH", which)]);
        let path = wait_for_session(dir.path());
        let handle = Handle::open(&path).expect("it opens");
        handle.enable_snapshots().expect("enabled");
        wait_for("events", || numbers(&path).len() > 500);
        let mut next = 0;
        for _ in 0..8 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            handle.snapshot(Rings::All).expect("taken");
            let snapshot = snapshot_numbers(&path);
            assert_eq!(snapshot, every(next..next + snapshot.len() as u64), "nothing is missing");
            next += snapshot.len() as u64;
        }
        handle.disable_snapshots().expect("disabled");
        child.kill().expect("killed");
        child.wait().expect("it ends");
        let rest = numbers(&path);
        assert_eq!(rest.first(), Some(&next), "after the last snapshot");
    }
}

#[test]
fn threads_record_while_it_is_taken() {
    alone!(in dir);
    for reservation in ALL {
        let session = Session::builder("fire")
            .dir(dir.path())
            .channel(plain("main").sub_buffers(8, 1 << 20))
            .reservation(reservation)
            .snapshot(true)
            .start()
            .expect("it starts");
        let (done, recorded) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 3]);
        let path = folder(&session);
        std::thread::scope(|scope| {
            for (thread, count) in recorded.iter().enumerate() {
                let done = &done;
                scope.spawn(move || {
                    let mut number = 0;
                    while !done.load(Ordering::Relaxed) {
                        let tagged = (thread as u64) << 56 | number;
                        record(tagged..tagged + 1);
                        number += 1;
                        count.store(number, Ordering::Release);
                        if number % 32 == 0 {
                            std::thread::sleep(std::time::Duration::from_micros(300));
                        }
                    }
                });
            }
            let _stop = StopAtEnd(&done);
            let mut seen = [0u64; 3];
            for _ in 0..10 {
                std::thread::sleep(std::time::Duration::from_millis(3));
                let before: Vec<u64> =
                    recorded.iter().map(|count| count.load(Ordering::Acquire)).collect();
                session.snapshot(Rings::All).expect("taken");
                let after: Vec<u64> =
                    recorded.iter().map(|count| count.load(Ordering::Acquire)).collect();
                let snapshot = snapshot_numbers(&path);
                for thread in 0..3u64 {
                    let mut own: Vec<u64> = snapshot
                        .iter()
                        .filter(|n| **n >> 56 == thread)
                        .map(|n| n & ((1 << 56) - 1))
                        .collect();
                    own.sort_unstable();
                    let first = seen[thread as usize];
                    assert_eq!(own, every(first..first + own.len() as u64), "{reservation:?}");
                    let next = first + own.len() as u64;
                    assert!(next >= before[thread as usize], "what was recorded before is in");
                    assert!(next <= after[thread as usize] + 1, "what was recorded after is not");
                    seen[thread as usize] = next;
                }
            }
        });
    }
}

/// While true, the signal's handler does not return.
static HELD: AtomicBool = AtomicBool::new(false);
/// True once the signal's handler was entered.
static ENTERED: AtomicBool = AtomicBool::new(false);

extern "C" fn hold(_signal: i32) {
    ENTERED.store(true, Ordering::Release);
    while HELD.load(Ordering::Acquire) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Releases the threads that are held, however the test ends.
struct LetGo;

impl Drop for LetGo {
    fn drop(&mut self) {
        HELD.store(false, Ordering::Release);
    }
}

#[test]
fn a_spare_in_which_a_thread_records_is_not_freed() {
    alone!(in dir);
    let channel = plain("main").sub_buffers(4, 1 << 20);
    let session = Session::builder("held")
        .dir(dir.path())
        .channel(channel)
        .reservation(Reservation::Lockless)
        .backend(Memory::Heap)
        .snapshot(true)
        .start()
        .expect("it starts");
    let handler = hold as extern "C" fn(i32);
    // SAFETY: the handler stores, loads and sleeps.
    unsafe { libc::signal(libc::SIGUSR1, handler as usize) };
    let (done, thread) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&done);
        let _let_go = LetGo;
        scope.spawn(|| {
            let data = vec![7u8; 200_000];
            // SAFETY: the call has no arguments.
            thread.store(unsafe { libc::pthread_self() } as u64, Ordering::Release);
            while !done.load(Ordering::Relaxed) {
                lastwords::event!(test, "large", data = &data[..]);
            }
        });
        wait_for("the thread", || thread.load(Ordering::Acquire) != 0);
        wait_for("a thread that is held while it records", || {
            HELD.store(false, Ordering::Release);
            std::thread::sleep(std::time::Duration::from_millis(2));
            ENTERED.store(false, Ordering::Release);
            HELD.store(true, Ordering::Release);
            // SAFETY: the thread lives, because `done` is not set.
            unsafe {
                libc::pthread_kill(thread.load(Ordering::Acquire) as libc::pthread_t, libc::SIGUSR1)
            };
            wait_for("the handler", || ENTERED.load(Ordering::Acquire));
            session.snapshot(Rings::All).is_ok_and(|taken| taken.rest.in_flight > 0)
        });
        for _ in 0..2 {
            let refused = session.disable_snapshots();
            assert!(
                matches!(refused, Err(Error::Busy { owner, .. }) if owner == std::process::id()),
                "{refused:?}"
            );
        }
        HELD.store(false, Ordering::Release);
        wait_for("the thread to leave the spare", || session.disable_snapshots().is_ok());
        session.enable_snapshots().expect("enabled again");
        session.snapshot(Rings::All).expect("taken again");
    });
}

#[test]
fn nothing_is_cleared_while_rings_may_be_swapped() {
    alone!(in dir);
    let session = started(Session::builder("clear").dir(dir.path()).listen(false));
    let areas = areas(&folder(&session));
    let lock =
        areas.control + std::mem::offset_of!(lastwords_abi::session::Control, snapshot_lock) as u64;
    areas.put::<8>(lock, 1 << 32);
    assert!(matches!(session.clear(), Err(Error::Busy { owner: 1, .. })));
    areas.put::<8>(lock, 0);
    session.clear().expect("nobody swaps");
}
