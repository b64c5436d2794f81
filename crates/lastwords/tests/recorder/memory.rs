//! Tests of how much memory sessions take: at the start, when their rings are used, under memory
//! limits of control groups, and in file systems that are full.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

use std::mem::ManuallyDrop;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{
    check, child_dir, end_of, folder, in_fork, is_root, kill_at_each, lost, mount, numbers, plain,
    record, started, stay_on_one_cpu, unmount, with_main,
};
use lastwords::{Session, event};

const MIB: u64 = 1 << 20;

/// Returns the bytes of memory that the files in a folder take.
fn resident(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("the folder").flatten();
    entries.map(|entry| entry.metadata().map_or(0, |file| file.blocks() * 512)).sum()
}

/// Returns the numbers in a session whose events have the id of their thread, which is in front of
/// them.
fn numbers_with_threads(folder: &Path) -> Vec<u64> {
    numbers(folder).into_iter().map(|words| words >> 32).collect()
}

/// Makes a folder in memory.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder")
}

#[test]
fn a_session_with_one_event_takes_little_memory() {
    alone!();
    let dir = in_memory();
    let session = Session::builder("one").dir(dir.path()).start().expect("it starts");
    record(7..8);
    event!(test, "failed", level: ERROR, code = 7u64);
    let taken = resident(&folder(&session));
    println!("a session with an event and an error takes {} KiB", taken >> 10);
    assert!(taken <= 5 * MIB / 4, "{taken} bytes");
    assert_eq!(numbers_with_threads(&folder(&session)), [7, 7, 7], "errors are in two rings");
    session.remove();
}

#[test]
fn a_session_takes_little_memory_on_many_cpus() {
    alone!();
    for (cpus, most) in [(64, 2 * MIB), (128, 4 * MIB)] {
        let dir = in_memory();
        let session = started(Session::builder("idle").dir(dir.path()).for_cpus(cpus));
        let idle = resident(&folder(&session));
        record(0..200_000);
        let busy = resident(&folder(&session));
        println!(
            "{cpus} CPUs: {} KiB idle, {} KiB after many events on one CPU",
            idle >> 10,
            busy >> 10
        );
        assert!(idle <= most, "{cpus} CPUs: {idle} bytes");
        assert_eq!(numbers_with_threads(&folder(&session)).last(), Some(&199_999));
        let files = std::fs::read_dir(folder(&session)).expect("the folder").flatten();
        let len: u64 = files.map(|file| file.metadata().map_or(0, |file| file.len())).sum();
        // Each ring has a spare half without memory.
        assert!(len / 2 <= 18 * MIB, "{cpus} CPUs: {len} bytes when all rings are full");
        session.remove();
    }
}

#[test]
fn a_ring_has_all_its_memory_at_the_start_if_the_program_wants_that() {
    alone!();
    let dir = in_memory();
    let builder = with_main("whole", dir.path());
    let session = builder.clone().start().expect("it starts");
    let growing = resident(&folder(&session));
    session.remove();
    let session = builder.preallocate(true).start().expect("it starts");
    let whole = resident(&folder(&session));
    assert!(whole >= growing + 256 * 1024, "{whole} bytes, {growing} without");
    record(0..100_000);
    assert_eq!(resident(&folder(&session)), whole, "nothing was allocated later");
    session.remove();
}

/// A thread that blocks SIGBUS could not survive a file system that became full, and its children
/// inherit that.
#[test]
fn a_ring_has_all_its_memory_at_the_start_where_the_signal_of_a_full_file_system_is_blocked() {
    alone!();
    let block = |how| {
        // SAFETY: the set is a local variable that the first two calls fill.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGBUS);
            assert_eq!(libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()), 0);
        }
    };
    let dir = in_memory();
    let start = || with_main("blocked", dir.path()).start();
    let taken = |session: Session| {
        let bytes = resident(&folder(&session));
        session.remove();
        bytes
    };
    let growing = taken(start().expect("it starts"));
    block(libc::SIG_BLOCK);
    let whole = taken(start().expect("it starts"));
    block(libc::SIG_UNBLOCK);
    assert!(whole >= growing + 256 * 1024, "{whole} bytes, {growing} without");
}

#[test]
fn a_freed_spare_gets_its_memory_again() {
    alone!();
    let dir = in_memory();
    let session = with_main("spare", dir.path()).snapshot(true).start().expect("it starts");
    stay_on_one_cpu();
    for round in 0..6 {
        record(round * 1000..(round + 1) * 1000);
        session.snapshot(lastwords::snapshot::Rings::All).expect("a snapshot");
        assert_eq!(
            common::snapshot_numbers(&folder(&session)).last(),
            Some(&((round + 1) * 1000 - 1))
        );
        if round % 2 == 1 {
            let before = resident(&folder(&session));
            session.disable_snapshots().expect("disabled");
            assert!(resident(&folder(&session)) < before, "its memory was freed");
            session.enable_snapshots().expect("enabled");
        }
    }
    session.remove();
}

/// Records in a full tmpfs, with all signals blocked but SIGBUS.
#[test]
fn child_records_in_a_full_file_system() {
    let Some(dir) = child_dir() else { return };
    let session = Session::builder("full")
        .dir(&dir)
        .channel(plain("main").sub_buffers(8, 256 << 10))
        .start()
        .expect("it starts");
    record(0..10);
    let _ = std::fs::write(dir.join("filling"), vec![1; 64 << 20]);
    record(10..200_000);
    drop(std::fs::remove_file(dir.join("filling")));
    // SAFETY: the process ends here, and the session stays as after a crash.
    unsafe { libc::_exit(if session.problem().is_none() { 7 } else { 8 }) };
}

/// Runs a child in a tmpfs that it fills, and checks that it lost none of the newest events.
fn fills(child: &str, size: &str, variables: &[(&str, &str)]) {
    let dir = tempfile::tempdir().expect("a folder");
    mount(dir.path(), 0, size);
    let status = end_of(child, dir.path(), variables);
    let folder = common::only_session(dir.path());
    let (found, lost) = (numbers(&folder), lost(&folder));
    unmount(dir.path());
    assert_eq!(status.code(), Some(7), "{variables:?}, {size}: {status}");
    let newest = (found.last(), lost);
    assert_eq!(newest, (Some(&199_999), 0), "{variables:?}: the ring for all CPUs has memory");
    // The ring that could not grow keeps what it had.
    assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{variables:?}: no event twice");
}

#[test]
fn a_full_file_system_costs_no_newest_event_and_not_the_process() {
    alone!();
    if !is_root() {
        return;
    }
    fills("child_records_in_a_full_file_system", "size=16m,mode=0700", &[]);
}

/// Ends the process with a status of its own: the application's handler of SIGBUS.
extern "C" fn give_up(_: libc::c_int) {
    // SAFETY: the process ends here.
    unsafe { libc::_exit(9) };
}

/// Makes SIGBUS fatal for the thread, or for the process.
fn make_fatal(how: &str) {
    // SAFETY: the set is a local variable that the first call fills; `give_up` has the type of a
    // handler.
    unsafe {
        match how {
            "blocked" => {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigfillset(&raw mut set);
                check(libc::pthread_sigmask(
                    libc::SIG_SETMASK,
                    &raw const set,
                    std::ptr::null_mut(),
                ));
            }
            "default" => assert_ne!(libc::signal(libc::SIGBUS, libc::SIG_DFL), libc::SIG_ERR),
            _ => {
                assert_ne!(libc::signal(libc::SIGBUS, give_up as *const () as usize), libc::SIG_ERR)
            }
        }
    }
}

/// Records in a tmpfs that has become full. The thread has made SIGBUS fatal before its first
/// event, or after it.
#[test]
fn child_relies_on_no_signal() {
    let (Some(dir), Ok(how)) = (child_dir(), std::env::var("HOW")) else { return };
    let is_late = std::env::var_os("LATE").is_some();
    let session = Session::builder("fatal")
        .dir(&dir)
        .channel(plain("main").sub_buffers(8, 256 << 10))
        .start()
        .expect("it starts");
    let work = || {
        if !is_late {
            make_fatal(&how);
        }
        record(0..10);
        if is_late {
            make_fatal(&how);
        }
        let _ = std::fs::write(dir.join("filling"), vec![1; 200 << 20]);
        if std::env::var_os("FILTER").is_some() {
            kill_at_each(&[
                libc::SYS_madvise,
                libc::SYS_rt_sigprocmask,
                libc::SYS_rt_sigaction,
                libc::SYS_mmap,
            ]);
        }
        record(10..200_000);
        drop(std::fs::remove_file(dir.join("filling")));
        // SAFETY: the process ends here, and the session stays as after a crash.
        unsafe { libc::_exit(if session.problem().is_none() { 7 } else { 8 }) };
    };
    std::thread::scope(|scope| _ = scope.spawn(work).join());
}

#[test]
fn a_full_file_system_ends_no_process_that_does_not_handle_its_signal() {
    alone!();
    if !is_root() {
        return;
    }
    for (size, order) in [("size=16m,mode=0700", "LATE"), ("size=160m,mode=0700", "EARLY")] {
        for how in ["blocked", "default", "own"] {
            for filter in ["FILTER", "NO_FILTER"] {
                let variables = [("HOW", how), (order, "1"), (filter, "1")];
                fills("child_relies_on_no_signal", size, &variables);
            }
        }
    }
}

/// A control group of version 1 with a memory limit, removed at the end.
struct Group(PathBuf);

impl Group {
    /// Makes a group; none if this is not root, or if the machine has no memory controller of
    /// version 1.
    fn new(limit: u64) -> Option<Self> {
        let name = format!("lastwords-test-{}-{limit}", std::process::id());
        let group = Self(Path::new("/sys/fs/cgroup/memory").join(name));
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join("memory.limit_in_bytes"), limit.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended. The kernel may take a moment to notice.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Enters a control group, records in a session of default size, if one is wanted, and ends as in a
/// crash.
#[test]
fn child_lives_in_a_group() {
    let (Some(dir), Some(group)) = (child_dir(), std::env::var_os("GROUP")) else { return };
    std::fs::write(Path::new(&group).join("cgroup.procs"), std::process::id().to_string())
        .expect("entered");
    if std::env::var_os("RECORDED").is_some() {
        // The session stays open, as in a crash.
        let session = ManuallyDrop::new(Session::builder("limited").dir(&dir).start_or_disabled());
        record(0..100_000);
        // A reader of the note is told why the rings are small, or why there are none.
        let is_told = session.note().contains("memory limit");
        // SAFETY: the process ends here.
        unsafe { libc::_exit(if is_told { 7 } else { 8 }) };
    }
    // SAFETY: the process ends here.
    unsafe { libc::_exit(7) };
}

#[test]
fn a_memory_limit_ends_no_process() {
    alone!();
    for mib in [8, 16, 24, 64] {
        let Some(group) = Group::new(mib * MIB) else {
            eprintln!("no memory controller of cgroup v1 for this user");
            return;
        };
        let dir = tempfile::tempdir().expect("a folder");
        let place = dir.path().join("sessions");
        std::fs::create_dir(&place).expect("a folder");
        mount(&place, 0, "size=64m,mode=0700");
        let name = group.0.to_string_lossy().into_owned();
        let run = |more: &[(&str, &str)]| {
            let variables = [&[("GROUP", name.as_str())], more].concat();
            end_of("child_lives_in_a_group", &place, &variables)
        };
        let without = run(&[]);
        let runs: Vec<_> = (0..9).map(|_| run(&[("RECORDED", "1")])).collect();
        let sessions: Vec<_> = lastwords_control::list(Some(&place)).unwrap_or_default();
        let bytes: u64 = sessions.iter().map(|session| resident(&session.folder)).sum();
        let newest = sessions
            .iter()
            .map(|session| numbers_with_threads(&session.folder).last().copied())
            .max();
        unmount(&place);
        println!("{mib} MB: {} sessions kept, {} KiB in all", sessions.len(), bytes >> 10);
        assert!(
            runs.iter().all(|run| *run == without && run.signal().is_none()),
            "{mib} MB: {without}, {runs:?}"
        );
        assert!(bytes <= mib * MIB / 8, "{mib} MB: {bytes} bytes of sessions");
        assert_eq!(newest, Some(Some(99_999)), "{mib} MB: the newest event is there");
    }
}

/// Returns the bytes of this process's address space, and the number of its mappings.
fn address_space() -> (u64, usize) {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("sizes");
    let pages: u64 = statm.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    (pages * 4096, common::mappings())
}

/// Returns the bytes of the heap that are in use.
fn heap() -> usize {
    // SAFETY: the call involves no memory of the caller.
    unsafe { libc::mallinfo2() }.uordblks
}

/// Begins and ends sessions in a process that has no thread but its own, and the listener's.
#[test]
fn ended_sessions_give_their_address_space_back() {
    alone!();
    let dir = in_memory();
    let many = |from: u64, to: u64| {
        for n in from..to {
            let session = Session::builder("churn")
                .dir(dir.path())
                .channel(plain("main").sub_buffers(2, 4096))
                .start()
                .expect("it starts");
            record(n..n + 1);
            session.remove();
        }
    };
    let status = in_fork(|| {
        many(0, 30);
        let (before, heap_before) = (address_space(), heap());
        many(30, 400);
        let (after, heap) = (address_space(), heap().saturating_sub(heap_before));
        let is_given_back =
            after.0.saturating_sub(before.0) <= 48 * MIB && after.1 <= before.1 + 40;
        eprintln!("each session that ended keeps {} bytes of the heap", heap / 370);
        // Only the addresses of the session's recorders stay.
        assert!(is_given_back && heap / 370 <= 1024, "{before:?} {after:?}");
        0
    });
    assert_eq!(status, 0);
}
