//! Tests every back-end and every reservation. A reader that shares no code with the recorder must
//! find the recorded events.

use std::os::unix::fs::MetadataExt as _;

use crate::common::{
    every, folder, numbers, numbers_in_file, only_session, plain, record, started, with_main,
};
use lastwords::{Error, Memory, Persist, Reservation, Session};
use lastwords_folders::{Place, parse_places};

fn places(folder: &std::path::Path) -> Vec<Place> {
    parse_places(&std::fs::read_to_string(folder.join("regions")).expect("the file of places"))
}

#[test]
fn every_reservation_in_shared_memory() {
    alone!();
    for reservation in [Reservation::Rseq, Reservation::Lockless, Reservation::Locked] {
        let dir = tempfile::tempdir().expect("a folder");
        let session = started(with_main("res", dir.path()).reservation(reservation));
        record(0..1000);
        assert_eq!(numbers(&folder(&session)), every(0..1000), "{reservation:?}");
        for file in std::fs::read_dir(folder(&session)).expect("the folder").map_while(Result::ok) {
            assert_eq!(file.metadata().expect("a file").mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::metadata(folder(&session)).expect("the folder").mode() & 0o777, 0o700);
    }
}

#[test]
fn a_memfd() {
    alone!(in dir);
    let session = with_main("mem", dir.path()).backend(Memory::Memfd).start().expect("it starts");
    record(0..500);
    let path = places(&folder(&session))[0].path.clone();
    assert!(path.starts_with(&format!("/proc/{}/fd/", std::process::id())));
    assert_eq!(numbers_in_file(path.as_ref()), every(0..500));
    let seen = lastwords_control::list(Some(dir.path())).expect("the list");
    assert_eq!(seen[0].details.as_ref().expect("details").backend, "memfd");
}

#[test]
fn huge_pages_or_what_the_machine_has() {
    alone!();
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let session = with_main("huge", dir.path()).backend(Memory::Huge).start().expect("it starts");
    println!("{}", session.note());
    assert!(session.note().contains("pages"), "{}", session.note());
    record(0..500);
    let path = places(&folder(&session))[0].path.clone();
    assert_eq!(numbers_in_file(path.as_ref()), every(0..500));
    session.close();
    assert_eq!(numbers_in_file(path.as_ref()), every(0..500), "it stays");
    lastwords_control::destroy(&only_session(dir.path())).expect("removed");
    assert!(!std::path::Path::new(&path).exists());
}

#[test]
fn a_dax_file_is_not_overwritten_unasked() {
    alone!(in dir);
    let file = dir.path().join("pmem");
    let start = |reuse| {
        let memory = Memory::Dax { path: file.clone(), reuse };
        with_main("dax", dir.path()).backend(memory).start()
    };
    let session = start(false).expect("it starts");
    assert_eq!(session.reservation(), lastwords_abi::session::RESERVATION_LOCKED);
    record(0..500);
    assert_eq!(numbers_in_file(&file), every(0..500));
    session.close();
    let error = start(false).expect_err("last words are there").to_string();
    assert!(error.contains("pmem") && error.contains("lastwords recover"), "{error}");
    assert_eq!(numbers_in_file(&file).len(), 500, "the refused start left them");
    start(true).expect("it starts when allowed").remove();
    drop(start(false).expect("a session that was removed leaves its place"));
}

#[test]
fn a_longer_session_before_leaves_nothing_behind() {
    alone!(in dir);
    let file = dir.path().join("pmem");
    let start = |sub_buffers| {
        let memory = Memory::Dax { path: file.clone(), reuse: true };
        let channel = plain("main").sub_buffers(sub_buffers, 4096);
        Session::builder("shorter")
            .dir(dir.path())
            .channel(channel)
            .channel(plain("more"))
            .backend(memory)
            .start()
    };
    let long = start(32).expect("it starts");
    record(0..10);
    long.close();
    let bytes = std::fs::read(&file).expect("the file");
    let short = Session::builder("shorter")
        .dir(dir.path())
        .channel(plain("main").sub_buffers(2, 4096))
        .backend(Memory::Dax { path: file.clone(), reuse: true })
        .start()
        .expect("it starts");
    record(100..110);
    let after = std::fs::read(&file).expect("the file");
    assert_eq!(after.len(), bytes.len());
    let sessions = |bytes: &[u8]| {
        let pages =
            bytes.chunks(4096).filter(|page| page.starts_with(&lastwords_abi::region::MAGIC));
        pages.map(|page| page[40..56].to_vec()).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(
        (sessions(&bytes), sessions(&after)),
        (1, 1),
        "no region of the older session is left"
    );
    assert_eq!(numbers_in_file(&file), every(100..110));
    short.remove();
}

#[test]
fn policies_of_persistence() {
    alone!(in dir);
    let start = |persist, reservation| {
        let memory = Memory::Dax { path: dir.path().join("pmem"), reuse: true };
        with_main("policy", dir.path())
            .backend(memory)
            .persist(persist)
            .reservation(reservation)
            .start()
    };
    let reservations = [Reservation::Rseq, Reservation::Lockless, Reservation::Locked];
    for persist in [Persist::None, Persist::SubBuffer, Persist::Event] {
        for reservation in reservations {
            if (persist, reservation) == (Persist::Event, Reservation::Rseq) {
                let error = start(persist, reservation).expect_err("refused").to_string();
                assert!(error.contains("choose locked or lockless"), "{error}");
                continue;
            }
            let session = start(persist, reservation).expect("it starts");
            record(0..9000);
            let numbers = numbers_in_file(&dir.path().join("pmem"));
            assert_eq!(numbers, every(0..9000), "{persist:?} {reservation:?}");
            session.remove();
        }
    }
    let error = Session::builder("policy")
        .dir(dir.path())
        .persist(Persist::SubBuffer)
        .start()
        .expect_err("refused");
    assert!(error.to_string().contains("does not survive a loss of power"), "{error}");
    Session::builder("policy")
        .dir(dir.path())
        .persist(Persist::None)
        .start()
        .expect("it starts")
        .remove();
}

#[test]
fn a_physical_range_in_a_plain_file() {
    alone!(in dir);
    let file = dir.path().join("mem");
    std::fs::write(&file, vec![0xa5u8; 8 << 20]).expect("the file");
    let start = |offset, len| {
        let memory = Memory::Physical { path: file.clone(), offset, len, reuse: false };
        with_main("phys", dir.path()).backend(memory).start()
    };
    let session = start(1 << 20, 6 << 20).expect("it starts");
    record(0..500);
    assert_eq!(numbers_in_file(&file), every(0..500));
    let bytes = std::fs::read(&file).expect("the file");
    assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0xa5), "before the range");
    session.remove();
    for (offset, len, what) in [
        (1 << 20, 8 << 20, "does not lie"),
        (5, 4 << 20, "multiple of 4096"),
        (0, 4096, "fewer or smaller"),
    ] {
        let error = start(offset, len).expect_err("refused").to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn pages_on_the_heap() {
    alone!(in dir);
    for reservation in [Reservation::Rseq, Reservation::Lockless, Reservation::Locked] {
        let session = with_main("heap", dir.path())
            .backend(Memory::Heap)
            .reservation(reservation)
            .snapshot(true)
            .start()
            .expect("it starts");
        record(0..500);
        session.snapshot(lastwords::snapshot::Rings::All).expect("a snapshot");
        record(500..600);
        let seen = lastwords_control::list(Some(dir.path())).expect("the list");
        let why = seen[0].details.as_ref().expect_err("nobody else can map it");
        assert!(why.contains("core"), "{why}");
        session.disable_snapshots().expect("the spare goes");
        record(600..700);
    }
}

#[test]
fn more_than_the_limit_is_refused() {
    alone!(in dir);
    let builder = || with_main("limit", dir.path());
    let Err(Error::TooLarge { needs, limit }) = builder().size_limit(1 << 20).start() else {
        panic!("it started")
    };
    assert!(needs > limit);
    builder().size_limit(needs).start().expect("what it needs is enough").remove();
    let Err(Error::TooLarge { needs: with_spare, .. }) =
        builder().snapshot(true).size_limit(needs).start()
    else {
        panic!("the spare counts, too")
    };
    assert!(with_spare > needs);
    assert_eq!(
        std::fs::read_dir(dir.path()).expect("the folder").count(),
        0,
        "nothing is left behind"
    );
}

#[test]
fn names_and_geometry_are_checked() {
    alone!(in dir);
    for name in ["", "a/b", "..", "-x", "a b", &"x".repeat(48)] {
        let error = Session::builder(name).dir(dir.path()).start().expect_err("refused");
        assert!(matches!(error, Error::Name { .. }), "{error}");
    }
    let zero = plain("main").sub_buffers(0, 4096);
    for channel in [zero, plain("main").sub_buffers(3, 4096), plain("main").sub_buffers(4, 100)] {
        let error =
            Session::builder("geo").dir(dir.path()).channel(channel).start().expect_err("refused");
        assert!(matches!(error, Error::Geometry { .. }), "{error}");
    }
    let many = (0..33)
        .fold(Session::builder("many").dir(dir.path()), |b, i| b.channel(plain(&format!("c{i}"))));
    assert!(matches!(many.start(), Err(Error::Full { .. })));
    let twice = Session::builder("twice").dir(dir.path()).channel(plain("a")).channel(plain("a"));
    assert!(matches!(twice.start(), Err(Error::Name { .. })));
    assert_eq!(
        std::fs::read_dir(dir.path()).expect("the folder").count(),
        0,
        "nothing is left behind"
    );
}
