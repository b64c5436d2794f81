//! Tests hosts that give a session no memory, or take it back. The application must continue as it
//! would without a recorder.

use crate::common;
use crate::common::{
    child_dir, end_of, folder, limit, limit_address_space, lost, plain, record, started, succeeds,
    with_main,
};
use lastwords::{Memory, Session, event};

fn run(child: &str, variables: &[(&str, &str)]) {
    let dir = tempfile::tempdir().expect("a folder");
    succeeds(child, dir.path(), variables);
}

/// Records an event in a generic function, which has one callsite for the values of all types.
fn generic(value: impl lastwords::Field + Copy) {
    event!(test, "generic", value);
}

#[test]
fn an_event_without_memory_for_its_callsite_is_counted_as_lost() {
    alone!(in dir);
    let session = started(with_main("full", dir.path()));
    generic(1u64);
    limit_address_space(0);
    generic(1u8);
    generic(1.5f64);
    generic("text");
    record(0..3);
    limit(libc::RLIMIT_AS, libc::RLIM_INFINITY, libc::RLIM_INFINITY);
    assert_eq!(common::events(&folder(&session)).len(), 4, "what could be recorded was");
    assert_eq!(lost(&folder(&session)), 3, "what could not be recorded was counted");
}

#[test]
fn a_heap_session_without_memory_is_an_error() {
    alone!(in dir);
    limit_address_space(2 << 20);
    let builder = || Session::builder("heap").dir(dir.path()).listen(false).backend(Memory::Heap);
    let error = builder()
        .channel(plain("main").sub_buffers(64, 1 << 20))
        .start()
        .expect_err("too little memory");
    assert!(error.to_string().contains("ulimit -v"), "{error}");
}

#[test]
fn child_loses_the_files_of_its_session() {
    let Some(dir) = child_dir() else { return };
    let builder = with_main("lost", &dir).channel(plain("other"));
    let builder = match std::env::var("RESERVATION").as_deref() {
        Ok("locked") => builder.reservation(lastwords::Reservation::Locked),
        Ok("lockless") => builder.reservation(lastwords::Reservation::Lockless),
        _ => builder,
    };
    let session = builder.start().expect("it starts");
    if std::env::var_os("CRASH").is_some() {
        lastwords::crash::install_signal_handlers(&lastwords::crash::FATAL).expect("installed");
    }
    let path = folder(&session);
    record(0..100);
    let files: Vec<_> = std::fs::read_dir(&path)
        .expect("a folder")
        .map(|entry| entry.expect("one").path())
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| record(0..50_000));
        }
        for len in [100_000, 4096, 0] {
            for file in &files {
                let file = std::fs::File::options().write(true).open(file).expect("it opens");
                file.set_len(len).expect("truncated");
            }
            record(0..1000);
        }
    });
    session.disable("x:*").ok();
    session.enable_snapshots().ok();
    session.snapshot(lastwords::snapshot::Rings::All).ok();
    let forked = std::process::Command::new("true").status().expect("it runs");
    assert!(forked.success());
    drop(session);
}

#[test]
fn truncated_files_do_not_end_the_application() {
    alone!();
    for reservation in ["rseq", "lockless", "locked"] {
        run("child_loses_the_files_of_its_session", &[("RESERVATION", reservation)]);
    }
    run("child_loses_the_files_of_its_session", &[("CRASH", "1")]);
}

#[test]
fn child_dies_of_a_bus_error_of_its_own() {
    let Some(dir) = child_dir() else { return };
    let builder = with_main("own", &dir);
    let _session = std::env::var_os("RECORDED").map(|_| builder.start().expect("it starts"));
    if std::env::var_os("SENT").is_some() {
        // SAFETY: the call involves no memory.
        unsafe { libc::raise(libc::SIGBUS) };
        std::process::exit(3);
    }
    let file = tempfile::tempfile().expect("a file");
    file.set_len(4096).expect("its length");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: the mapping is new. Its file has no data when it is read, which is what is tested.
    unsafe {
        let map = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        file.set_len(0).expect("truncated");
        map.cast::<u8>().read_volatile();
    }
    std::process::exit(4);
}

#[test]
fn a_bus_error_of_the_application_ends_it_as_before() {
    alone!(in dir);
    for sent in [None, Some(("SENT", "1"))] {
        let ended = |recorded: Option<(&str, &str)>| {
            let variables: Vec<_> = sent.into_iter().chain(recorded).collect();
            end_of("child_dies_of_a_bus_error_of_its_own", dir.path(), &variables)
        };
        let without = ended(None);
        assert!(!without.success());
        assert_eq!(ended(Some(("RECORDED", "1"))), without, "{sent:?}");
    }
}

#[test]
fn a_memfd_of_a_session_cannot_be_truncated() {
    alone!(in dir);
    let builder = with_main("sealed", dir.path()).backend(Memory::Memfd);
    let session = builder.listen(false).start().expect("it starts");
    let regions =
        std::fs::read_to_string(folder(&session).join("regions")).expect("where they are");
    let path = regions.lines().next().and_then(|line| line.split(' ').nth(3)).expect("a path");
    let file = std::fs::File::options().write(true).open(path).expect("it opens");
    let error = file.set_len(4096).expect_err("it is sealed");
    assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
}
