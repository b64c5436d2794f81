//! Tests what remains of an ended session: all recorded events, and how and when it ended, until
//! retention removes it.

use std::path::Path;
use std::process::ExitStatus;

use crate::common::{
    areas, child_dir, details, end_of, every, folder, kill_self, limit, numbers, only_session,
    record, spawn, started, succeeds, wait_for, with_main,
};
use lastwords::{Ended, Ending, Memory, Retention, Scope, Session, crash};
use lastwords_control::{self, Details, State};

pub(crate) fn start(name: &str, dir: &Path) -> Session {
    with_main(name, dir).start().expect("it starts")
}

fn users(dir: &Path) -> Session {
    with_main("end", dir).scope(Scope::User).start().expect("it starts")
}

/// Imitates a program of tokio whose task fails: the session is dropped, and `main` returns the
/// error.
fn work(dir: &Path) -> Result<(), String> {
    let _session = start("end", dir);
    record(0..10);
    Err("the work failed".to_owned())
}

fn child(how: &str, dir: &Path) {
    let exit = |status| std::process::exit(status);
    match how {
        "error" => exit(i32::from(work(dir).is_err())),
        "finish" => {
            let session = start("end", dir);
            record(0..10);
            exit(i32::from(session.finish(Err::<(), _>("the work failed")).is_err()));
        }
        "task" => {
            let session = start("end", dir);
            crash::install_panic_hook();
            let task = std::thread::spawn(|| {
                record(0..10);
                panic!("on purpose");
            });
            let failed = task.join().is_err();
            drop(session);
            exit(i32::from(failed));
        }
        "unwind" => {
            let _session = start("end", dir);
            record(0..10);
            panic!("on purpose");
        }
        "exit" => {
            let _session = start("end", dir);
            record(0..10);
            exit(0);
        }
        "fork" => {
            let _session = start("end", dir);
            record(0..10);
            // SAFETY: the child only exits; the parent waits for it without a status.
            unsafe {
                match libc::fork() {
                    0 => libc::exit(3),
                    pid => libc::waitpid(pid, core::ptr::null_mut(), 0),
                };
            }
            kill_self();
        }
        "abort" => {
            let _session = start("end", dir);
            crash::install_signal_handlers(&crash::FATAL).expect("handlers");
            record(0..10);
            std::process::abort();
        }
        "panic-abort" => {
            let _session = start("end", dir);
            crash::install_panic_hook();
            record(0..10);
            extern "C" fn no_way_out() {
                panic!("on purpose");
            }
            no_way_out();
        }
        "kill" => {
            let _session = start("end", dir);
            record(0..10);
            kill_self();
        }
        other => child_that_is_odd(other, dir),
    }
}

fn child_that_is_odd(how: &str, dir: &Path) {
    let exit = |status| std::process::exit(status);
    match how {
        "limit" => {
            let session = start("end", dir);
            record(0..10);
            limit(libc::RLIMIT_FSIZE, 0, 0);
            drop(session);
            exit(3);
        }
        "user-kill" => {
            let _session = users(dir);
            record(10..20);
            std::fs::write(dir.with_extension("joined"), "").expect("told");
            std::io::read_to_string(std::io::stdin()).expect("told to go on");
            kill_self();
        }
        "user" => {
            let _session = users(dir);
            record(10..20);
            exit(0);
        }
        "user-finish" => {
            let session = users(dir);
            record(10..20);
            exit(i32::from(session.finish(Err::<(), _>("the work failed")).is_err()));
        }
        "user-unwind" => {
            let _session = users(dir);
            record(0..10);
            panic!("on purpose");
        }
        "anew" => {
            use std::os::unix::process::CommandExt as _;
            let round = std::env::var("ROUND").map_or(0, |round| round.parse().expect("a number"));
            let session = with_main("end", dir)
                .retention(Retention { sessions: 2, ..Retention::default() })
                .start();
            let _session = session.expect("it starts");
            record(0..10);
            if round < 6 {
                let this = std::env::current_exe().expect("this program");
                let mut anew = std::process::Command::new(this);
                let error = anew
                    .args(std::env::args().skip(1))
                    .env("ROUND", (round + 1u32).to_string())
                    .exec();
                panic!("{error}");
            }
            exit(0);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn child_ends() {
    if let Some(dir) = child_dir() {
        child(&std::env::var("HOW").expect("how"), &dir);
    }
}

/// Starts a child that ends in this way. Returns its status and its session, and checks that the
/// session has all its events.
fn ended(how: &str) -> (ExitStatus, Details) {
    let dir = tempfile::tempdir().expect("a folder");
    let before = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a time")
        .as_nanos();
    let status = end_of("child_ends", dir.path(), &[("HOW", how)]);
    let folder = only_session(dir.path());
    // A record of the crash may follow them.
    assert_eq!(numbers(&folder)[..10], every(0..10), "{how}");
    let details = details(&folder);
    let at = u128::from(details.ended.expect("it ended").at);
    assert!((before..before + 60_000_000_000).contains(&at), "{how}: {at}, begun after {before}");
    (status, details)
}

#[test]
fn every_end_leaves_the_session_and_says_how_it_ended() {
    alone!();
    let cases = [
        ("error", Ending::Closed(Some(1)), State::Finished, 0),
        ("finish", Ending::Error, State::Finished, 0),
        ("task", Ending::Closed(Some(1)), State::Finished, 1),
        ("unwind", Ending::Panic, State::LeftOver, 0),
        ("exit", Ending::Exit(Some(0)), State::LeftOver, 0),
        ("fork", Ending::Killed, State::LeftOver, 0),
        ("limit", Ending::Closed(Some(3)), State::Finished, 0),
        ("abort", Ending::Signal(Some(libc::SIGABRT as u8)), State::LeftOver, 0),
        ("kill", Ending::Killed, State::LeftOver, 0),
    ];
    for (how, ending, state, panics) in cases {
        let (exited, details) = ended(how);
        assert!(how != "limit" || exited.code() == Some(3), "{exited}");
        let status_known = cfg!(target_env = "gnu");
        let ending = match ending {
            Ending::Closed(_) if !status_known => Ending::Closed(None),
            Ending::Exit(_) if !status_known => Ending::Exit(None),
            known => known,
        };
        assert_eq!(
            (details.ended.map(|ended| ended.how), details.state),
            (Some(ending), state),
            "{how}"
        );
        assert_eq!(details.panics, panics, "{how}");
    }
    let (status, details) = ended("panic-abort");
    assert!(!status.success());
    assert_eq!(details.ended.map(|ended| ended.how), Some(Ending::Panic));
    assert!(details.panics > 0);
}

#[test]
fn a_word_that_its_session_outlived_is_not_its_last() {
    alone!();
    use lastwords_abi::session::{ClockArea, ClockSample, Control, ENDING_NUMBER, ENDING_SIGNAL};
    use std::mem::offset_of;
    let dir = tempfile::tempdir().expect("a folder");
    end_of("child_ends", dir.path(), &[("HOW", "kill")]);
    let folder = only_session(dir.path());
    let areas = areas(&folder);
    let control = |field: usize| areas.control + field as u64;
    let clock = |field: usize| areas.clock + field as u64;
    let newest = areas.get::<4>(clock(offset_of!(ClockArea, newest))) as usize;
    let sample = offset_of!(ClockArea, samples) + newest * size_of::<ClockSample>();
    let seen = clock(sample + offset_of!(ClockSample, realtime));
    let ended = || details(&folder).ended.expect("it ended");
    let killed = Ended { how: Ending::Killed, at: areas.get::<8>(seen), pid: 0 };
    assert_eq!(ended(), killed);
    areas.put::<8>(control(offset_of!(Control, ended)), killed.at);
    areas.put::<4>(control(offset_of!(Control, ended_by)), 77);
    areas.put::<4>(
        control(offset_of!(Control, ending)),
        u64::from(ENDING_SIGNAL | ENDING_NUMBER | 11 << 8),
    );
    assert_eq!(ended(), Ended { how: Ending::Signal(Some(11)), at: killed.at, pid: 77 });
    let killed = Ended { at: killed.at + 4_000_000_000, ..killed };
    areas.put::<8>(seen, killed.at);
    assert_eq!(
        ended(),
        killed,
        "a child died of the signal, or a handler of the application went on"
    );
    areas.put::<4>(control(offset_of!(Control, panics)), 1);
    areas.put::<8>(control(offset_of!(Control, panicked)), killed.at - 1);
    assert_eq!(ended(), killed, "the panic was survived");
    areas.put::<8>(control(offset_of!(Control, panicked)), killed.at + 1);
    assert_eq!(ended(), Ended { at: killed.at + 1, ..killed }, "it lived when it panicked");
    areas.put::<4>(control(offset_of!(Control, ending)), 0xff);
    assert_eq!(ended().how, Ending::Killed, "what this version does not know says nothing");
}

#[test]
fn the_newest_five_of_a_name_stay() {
    alone!(in dir);
    drop(start("other", dir.path()));
    let live = start("five", dir.path());
    let folders: Vec<_> = (0..7)
        .map(|n| {
            let session = start("five", dir.path());
            record(n..n + 1);
            folder(&session)
        })
        .collect();
    // The seventh session began when six had ended, so the first is gone.
    let left = || folders.iter().map(|folder| folder.exists()).collect::<Vec<_>>();
    assert_eq!(left(), [false, true, true, true, true, true, true]);
    let session = start("five", dir.path());
    assert_eq!(left(), [false, false, true, true, true, true, true]);
    assert!(session.note().contains("retention removed 1 ended session,"), "{}", session.note());
    assert_eq!(details(&folder(&session)).removed, 1);
    assert_eq!(numbers(&folders[6]), [6]);
    let found = lastwords_control::list(Some(dir.path())).expect("the list");
    assert_eq!(
        found.iter().filter(|summary| summary.name == "other").count(),
        1,
        "of another name"
    );
    assert_eq!(details(&folder(&live)).state, State::Live);
    drop(session);
    let session = with_main("five", dir.path())
        .retention(Retention { sessions: 0, ..Retention::default() })
        .start()
        .expect("it starts");
    assert!(folders.iter().all(|folder| !folder.exists()));
    assert_eq!(details(&folder(&session)).removed, 6);
    assert!(folder(&live).exists(), "what lives is not touched");
}

#[test]
fn a_users_session_that_a_panic_ended_is_joined_and_records() {
    alone!(in dir);
    for how in ["user-unwind", "user"] {
        end_of("child_ends", dir.path(), &[("HOW", how)]);
    }
    assert_eq!(numbers(&only_session(dir.path())), every(0..20));
}

#[test]
fn an_error_is_the_end_of_the_process_that_had_it_alone() {
    alone!(in dir);
    let session = users(dir.path());
    let status = end_of("child_ends", dir.path(), &[("HOW", "user-finish")]);
    assert_eq!(status.code(), Some(1));
    let folder = folder(&session);
    drop(session);
    let ended = details(&folder).ended.expect("it ended");
    assert_eq!((ended.how, ended.pid), (Ending::Closed(None), std::process::id()));
}

#[test]
fn a_session_that_was_closed_by_one_and_lost_another_was_not_closed() {
    alone!(in place);
    let dir = place.path().join("base");
    let session = users(&dir);
    let mut child = spawn("child_ends", &dir, &[("HOW", "user-kill")]);
    wait_for("the child has joined", || dir.with_extension("joined").exists());
    let folder = folder(&session);
    drop(session);
    drop(child.stdin.take());
    child.wait().expect("it ends");
    let ended = details(&folder).ended.expect("it ended");
    assert_eq!((ended.how, ended.pid), (Ending::Killed, 0));
}

#[test]
fn a_process_that_executes_itself_anew_keeps_as_few_as_others() {
    alone!(in dir);
    succeeds("child_ends", dir.path(), &[("HOW", "anew")]);
    assert_eq!(
        lastwords_control::list(Some(dir.path())).expect("the list").len(),
        3,
        "two that had ended, and the last"
    );
}

/// Returns the bytes that the files of a session take.
fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let files =
        std::fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").metadata());
    files.map(|meta| meta.expect("its size").blocks() * 512).sum()
}

#[test]
fn ended_sessions_of_all_names_take_so_many_bytes_at_most() {
    alone!(in dir);
    let live = start("bytes-live", dir.path());
    let folders: Vec<_> =
        (0..4).map(|n| folder(&start(&format!("bytes-{n}"), dir.path()))).collect();
    let one = disk_bytes(&folders[0]);
    let session = with_main("bytes", dir.path())
        .retention(Retention { sessions: 5, bytes: 2 * one + one / 2 })
        .start()
        .expect("it starts");
    assert_eq!(
        folders.iter().map(|folder| folder.exists()).collect::<Vec<_>>(),
        [false, false, true, true]
    );
    assert!(
        folder(&live).exists() && session.note().contains(&format!("{} bytes", 2 * one)),
        "{}",
        session.note()
    );
}

#[test]
fn one_start_removes_all_that_is_above_the_number() {
    alone!(in dir);
    let builder = || with_main("many", dir.path()).listen(false);
    for _ in 0..30 {
        drop(builder().retention(Retention::ALL).start().expect("it starts"));
    }
    let left = || std::fs::read_dir(dir.path()).expect("the folder").filter_map(Result::ok).count();
    let before = left();
    let session = builder().start().expect("it starts");
    assert_eq!(details(&folder(&session)).removed, 25);
    assert_eq!(left(), before - 25 + 1);
    for _ in 0..4 {
        drop(builder().start().expect("it starts"));
    }
    drop(session);
    let found = lastwords_control::list(Some(dir.path())).expect("the list");
    assert_eq!(
        found.len(),
        5 + 2,
        "five that had ended, the last, and the one that lived meanwhile"
    );
}

#[test]
fn what_is_no_session_stays_and_hinders_nobody() {
    alone!(in dir);
    let kept = folder(&start("odd", dir.path()));
    std::fs::create_dir(kept.join("notes")).expect("a folder in it");
    let strange = dir.path().join("odd-0123456789abcdef");
    std::fs::create_dir(&strange).expect("a folder");
    std::fs::write(strange.join("session"), "precious").expect("a file");
    let session =
        started(with_main("odd", dir.path()).retention(Retention { sessions: 0, bytes: 0 }));
    assert!(kept.join("session").exists() && strange.join("session").exists());
    assert!(session.note().contains("retention could not remove"), "{}", session.note());
    drop(session);
}

#[test]
fn many_that_begin_at_a_time_all_begin() {
    alone!(in dir);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let session = start("race", dir.path());
                    assert!(!session.note().contains("could not"), "{}", session.note());
                    assert!(folder(&session).join("session").exists(), "it lives");
                }
            });
        }
    });
    // One of the sessions that begin at the same time removes others. Later sessions remove the
    // rest.
    for _ in 0..12 {
        drop(start("race", dir.path()));
    }
    let found = lastwords_control::list(Some(dir.path())).expect("the list").len();
    assert_eq!(found, 6, "five that had ended, and the last");
}

#[test]
fn a_session_goes_at_its_end_where_that_was_asked_for() {
    alone!(in dir);
    let builder = || with_main("gone", dir.path()).remove_at_end(true);
    let path = folder(&builder().start().expect("it starts"));
    assert!(!path.exists(), "it ended in good order");
    let (session, path) = crate::common::start(builder());
    session.finish(Err::<(), ()>(())).expect_err("the error that was given");
    assert!(path.exists(), "it ended with an error");
    let session = start("gone", dir.path());
    let path = folder(&session);
    session.remove();
    assert!(!path.exists(), "it was removed at once");
    let memory = [Memory::Heap, Memory::Memfd];
    for memory in memory {
        let session = with_main("memory", dir.path()).backend(memory).start();
        let path = folder(&session.expect("it starts"));
        assert!(!path.exists(), "its memory is gone");
    }
}

#[test]
fn a_users_session_that_ended_is_not_joined_again() {
    alone!(in dir);
    let start = || with_main("users", dir.path()).scope(Scope::User).start();
    let first = start().expect("it starts");
    let uuid = first.uuid();
    drop(first);
    let second = start().expect("it starts");
    assert_ne!(second.uuid(), uuid);
    assert_eq!(lastwords_control::list(Some(dir.path())).expect("the list").len(), 2);
}
