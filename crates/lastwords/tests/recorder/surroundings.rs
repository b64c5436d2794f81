//! Tests a session against the program around it, in both directions: descriptors closed by the
//! program, limits on files, folders that are not sessions.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common;
use crate::common::{
    child_dir, is_root, limit, only_session, plain, record, spawn, start, succeeds,
    wait_for_session, with_main,
};
use lastwords::rules::RuleSpec;
use lastwords::{Level, Memory, Session};
use lastwords_control::Details;

/// Closes all descriptors from 3 on, as daemons do, and gives their numbers to `file`.
fn take_all_descriptors(file: &Path) -> Vec<File> {
    // SAFETY: the call involves no memory. Closing descriptors that other code holds is what is
    // tested.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    (0..64)
        .map(|_| File::options().read(true).write(!file.is_dir()).open(file).expect("it opens"))
        .collect()
}

#[test]
fn child_closes_all_descriptors() {
    let Some(dir) = child_dir() else { return };
    let data = dir.join("data");
    let memory =
        if std::env::var("MEMORY").as_deref() == Ok("memfd") { Memory::Memfd } else { Memory::Shm };
    let (session, path) =
        start(with_main("closed", dir.join("base")).backend(memory.clone()).snapshot(true));
    let held =
        take_all_descriptors(&std::env::var("OWN").map_or(data.clone(), |own| data.join(own)));
    record(0..10);
    session.disable_snapshots().expect("the spare is given back another way");
    let again = session.enable_snapshots();
    assert_eq!(again.is_ok(), memory == Memory::Shm, "a memfd has no other name: {again:?}");
    session.remove();
    assert!(!path.exists(), "the session's own folder is removed");
    assert!(held.iter().all(|file| file.metadata().is_ok()), "the program's descriptors stay open");
    assert!(held[0].as_raw_fd() < 8, "the numbers were those of the session");
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_files() {
    alone!();
    for memory in ["shm", "memfd"] {
        for own in ["", "db"] {
            let dir = tempfile::tempdir().expect("a folder");
            let data = dir.path().join("data");
            std::fs::create_dir(&data).expect("a folder");
            let contents = vec![0x55u8; 1 << 20];
            for name in ["db", "session"] {
                std::fs::write(data.join(name), &contents).expect("a file");
            }
            succeeds(
                "child_closes_all_descriptors",
                dir.path(),
                &[("MEMORY", memory), ("OWN", own)],
            );
            for name in ["db", "session"] {
                assert_eq!(
                    std::fs::read(data.join(name)).expect("still there"),
                    contents,
                    "{memory}, {own}: {name}"
                );
            }
        }
    }
}

#[test]
fn a_limit_on_file_sizes_is_an_error_at_the_start() {
    alone!(in dir);
    let physical = dir.path().join("physical");
    std::fs::write(&physical, vec![0u8; 8 << 20]).expect("a file");
    let base = dir.path().join("base");
    limit(libc::RLIMIT_FSIZE, 8192, libc::RLIM_INFINITY);
    let start = |memory| {
        let channel = plain("main").sub_buffers(2, 4096);
        Session::builder("limit").dir(&base).channel(channel).backend(memory).start().map(drop)
    };
    for memory in [
        Memory::Shm,
        Memory::Memfd,
        Memory::Huge,
        Memory::Dax { path: dir.path().join("dax"), reuse: true },
    ] {
        let error = start(memory.clone()).expect_err("larger than the limit").to_string();
        assert!(error.contains("ulimit -f"), "{error}");
        assert_eq!(
            std::fs::read_dir(&base).expect("the folder").count(),
            0,
            "{memory:?}: nothing is left behind"
        );
    }
    start(Memory::Heap).expect("no file is as large");
    start(Memory::Physical { path: physical, offset: 0, len: 8 << 20, reuse: true })
        .expect("the file is there");
}

#[test]
fn child_says_where_its_sessions_live() {
    let Some(dir) = child_dir() else { return };
    let places = lastwords_control::dirs::candidates();
    assert_eq!(places[0], lastwords_control::dirs::base_path());
    let shown: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    std::fs::write(dir.join("places"), shown.join(" ")).expect("told");
}

#[test]
fn the_runtime_folder_is_used_where_it_is_the_users_alone() {
    alone!(in dir);
    let runtime = dir.path().join("run");
    std::fs::create_dir(&runtime).expect("a folder");
    let path = runtime.display().to_string();
    let places = |chosen, runtime: &str| {
        let variables = [("LASTWORDS_DIR", chosen), ("XDG_RUNTIME_DIR", runtime)];
        succeeds("child_says_where_its_sessions_live", dir.path(), &variables);
        std::fs::read_to_string(dir.path().join("places")).expect("told")
    };
    // SAFETY: geteuid cannot fail.
    let uid = unsafe { libc::geteuid() };
    let shm = format!("/dev/shm/lastwords-{uid}");
    for mode in [0o755, 0o770, 0o1777] {
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(mode)).expect("chmod");
        assert_eq!(places("", &path), shm, "{mode:o}: others may enter it");
    }
    std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o700)).expect("chmod");
    assert_eq!(places("", &path), format!("{path}/lastwords {shm}"));
    assert_eq!(places("", &format!("{path}/none")), shm, "it is missing");
    assert_eq!(places("", "run"), shm, "it is relative");
    assert_eq!(places("/tmp/chosen", &path), "/tmp/chosen", "nothing else is looked at");
    if uid == 0 {
        std::os::unix::fs::chown(&runtime, Some(12345), None).expect("given away");
        assert_eq!(places("", &path), shm, "it is another user's");
    }
}

#[test]
fn child_records_in_memory_of_its_own() {
    let Some(dir) = child_dir() else { return };
    let memory = if std::env::var("MEMORY").as_deref() == Ok("memfd") {
        Memory::Memfd
    } else {
        Memory::Heap
    };
    let _session = with_main("memory", &dir).backend(memory).start().expect("it starts");
    drop(std::io::read_to_string(std::io::stdin()));
    common::kill_self();
}

#[test]
fn memory_that_went_with_its_process_is_told_from_memory_that_cannot_be_read() {
    alone!();
    for memory in ["heap", "memfd"] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut child =
            spawn("child_records_in_memory_of_its_own", dir.path(), &[("MEMORY", memory)]);
        wait_for_session(dir.path());
        let pid = child.id();
        let listed = || lastwords_control::list(Some(dir.path())).expect("the list").remove(0);
        let alive = listed();
        assert_eq!(alive.gone_with, None);
        assert_eq!(alive.details.is_ok(), memory == "memfd", "{:?}", alive.details);
        if let Err(error) = alive.details {
            assert!(error.contains(&format!("process {pid};")), "{error}");
        }
        drop(child.stdin.take());
        child.wait().expect("it ends");
        let dead = listed();
        assert_eq!(
            (dead.gone_with, dead.details.err()),
            (Some(pid), Some(format!("its memory went with process {pid}")))
        );
        lastwords_control::destroy(&dead.folder).expect("destroyed");
        assert!(!dead.folder.exists());
    }
}

#[test]
fn only_folders_of_sessions_are_removed() {
    alone!(in dir);
    for (name, file) in [
        ("keys", "session"),
        ("keys-0123456789abcdef", "id_rsa"),
        ("a-0123456789abcdef", "stream-x"),
    ] {
        let place = dir.path().join(name);
        std::fs::create_dir(&place).expect("a folder");
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700)).expect("chmod");
        for name in ["registry", file] {
            std::fs::write(place.join(name), "precious").expect("a file");
        }
        let error = lastwords_control::destroy(&place).expect_err("no session's").to_string();
        assert!(error.contains(name), "{error}");
        assert_eq!(
            std::fs::read_dir(&place).expect("it stays").count(),
            2,
            "{name}: all or nothing"
        );
    }
    let (session, path) = start(with_main("own", dir.path().join("base")));
    // Regions of later versions have names that this version does not know.
    std::fs::copy(path.join("session"), path.join("sequel")).expect("copied");
    std::fs::create_dir(path.join("notes")).expect("a folder");
    session.remove();
    assert_eq!(only_session(&dir.path().join("base")), path, "somebody's notes are in it");
    std::fs::remove_dir(path.join("notes")).expect("removed");
    lastwords_control::destroy(&path).expect("destroyed");
    assert!(!path.exists());
}

#[test]
fn a_program_with_the_rights_of_another_ignores_the_environment() {
    alone!();
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let program = dir.path().join("program");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("copied");
    // Root runs the program with the rights of another user, who may write to the folder for its
    // results.
    std::os::unix::fs::chown(&program, Some(65534), None).expect("given away");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("chmod");
    let told = dir.path().join("told");
    std::fs::create_dir(&told).expect("a folder");
    std::os::unix::fs::chown(&told, Some(65534), None).expect("given away");
    let mut command = std::process::Command::new(&program);
    command.args(common::test_of_this_module("child_says_where_its_sessions_live").get_args());
    command
        .env(common::DIR, &told)
        .env("LASTWORDS_DIR", "/tmp/chosen")
        .env("XDG_RUNTIME_DIR", dir.path());
    let status = command.stdout(std::process::Stdio::null()).status().expect("it runs");
    assert!(status.success(), "{status}");
    let places = std::fs::read_to_string(told.join("places")).expect("told");
    assert!(places.starts_with("/dev/shm/lastwords-65534"), "{places}");
}

#[test]
fn child_does_as_its_environment_asks() {
    let Some(dir) = child_dir() else { return };
    let session = with_main("asked", dir.join("base")).start().expect("it starts");
    std::fs::write(dir.join("note"), session.note()).expect("told");
}

/// Returns the details and the note of a session for which the environment has `text`.
fn asked(text: &str) -> (Details, String) {
    let dir = tempfile::tempdir().expect("a folder");
    succeeds("child_does_as_its_environment_asks", dir.path(), &[("LASTWORDS", text)]);
    let found = lastwords_control::list(Some(&dir.path().join("base"))).expect("a list");
    let note = std::fs::read_to_string(dir.path().join("note")).expect("told");
    (found[0].details.clone().expect("readable"), note)
}

#[test]
fn every_kind_of_directive() {
    alone!();
    let (details, note) =
        asked("shop=debug, net::tx ,shop:order=off,WARN,size=64M,retain=2,retain_size=3G,");
    let rules = [
        RuleSpec::disable("*"),
        RuleSpec::enable("shop:*").up_to(Level::Debug),
        RuleSpec::enable("net::tx:*"),
        RuleSpec::disable("shop:order"),
        RuleSpec::enable("*").up_to(Level::Warn),
    ];
    assert_eq!(details.rules, rules);
    assert!((16 << 20..=64 << 20).contains(&details.bytes), "{} bytes", details.bytes);
    assert!(!note.contains("LASTWORDS"), "{note}");
}

#[test]
fn the_environment_says_how_many_sessions_stay() {
    alone!(in dir);
    for (directives, left) in
        [("retain=2", [1, 2, 3, 3]), ("retain=9,retain_size=3G", [4, 5, 6, 7])]
    {
        for left in left {
            succeeds(
                "child_does_as_its_environment_asks",
                dir.path(),
                &[("LASTWORDS", directives)],
            );
            let found = lastwords_control::list(Some(&dir.path().join("base"))).expect("a list");
            assert_eq!(found.len(), left, "{directives}");
        }
    }
    succeeds("child_does_as_its_environment_asks", dir.path(), &[("LASTWORDS", "retain_size=0")]);
    only_session(&dir.path().join("base"));
}

/// Returns what a process writes on stderr that starts a session with `text` in its environment,
/// and the session.
fn said(text: &str) -> (String, lastwords_control::Summary) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = common::test_of_this_module("child_does_as_its_environment_asks");
    let out =
        command.env(common::DIR, dir.path()).env("LASTWORDS", text).output().expect("it runs");
    let found = lastwords_control::list(Some(&dir.path().join("base"))).expect("a list");
    (String::from_utf8_lossy(&out.stderr).into_owned(), found[0].clone())
}

#[test]
fn a_variable_that_means_nothing_is_reported_where_people_look() {
    alone!();
    for wrong in ["1", "on", "TRUE", "all", "0", "/dev/shm/sessions", "~/sessions"] {
        let (err, summary) = said(wrong);
        let ignored = format!("LASTWORDS: {wrong:?} is ignored: it is ");
        assert_eq!(err.matches(&ignored).count(), 1, "{wrong}: {err}");
        assert!(
            summary.notes.len() == 1 && summary.notes[0].starts_with(&ignored),
            "{wrong}: {:?}",
            summary.notes
        );
        assert!(
            summary.details.expect("readable").rules.is_empty(),
            "{wrong}: the program's own events are recorded"
        );
    }
    // Nobody can know at the start that no target has this name.
    let (err, summary) = said("shopp");
    assert!(!err.contains("LASTWORDS"), "{err}");
    assert_eq!(summary.notes, ["LASTWORDS=shopp left no event enabled"]);
    // A variable that chooses a size alone disables nothing.
    let (err, summary) = said("size=1M");
    assert!(!err.contains("LASTWORDS") && summary.notes.is_empty(), "{err} {:?}", summary.notes);
}

#[test]
fn what_is_wrong_is_told_and_the_rest_is_taken() {
    alone!();
    let problems = |note: &str| note.matches("is ignored").count();
    let words = "shop=loud size=big size=99999999999G size=G retain=-1 =info retain_size=";
    for wrong in words.split(' ') {
        let (details, note) = asked(&format!("{wrong},net=info"));
        let rules = [RuleSpec::disable("*"), RuleSpec::enable("net:*").up_to(Level::Info)];
        assert_eq!(details.rules, rules, "{wrong}");
        assert!(problems(&note) == 1 && note.contains(wrong), "{note}");
    }
    let (details, note) = asked(&vec!["a=info"; 40].join(","));
    assert_eq!((details.rules.len(), problems(&note)), (1 + 32, 8));
    assert_eq!(problems(&asked(&"x".repeat(200)).1), 1);
}
