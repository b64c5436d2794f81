//! Tests death, forks and other processes: the events of each are found, and no process stops the
//! others.

use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common;
use crate::common::{
    StopAtEnd, child_dir, end_of, every, folder, fork, kill_self, numbers, only_session, plain,
    record, spawn, started, wait, wait_for, wait_for_session, with_main,
};
use lastwords::rules::RuleSpec;
use lastwords::{Reservation, Scope, Session};
use lastwords_control::Life;
use lastwords_control::{self, Handle, State};
use lastwords_testkit::random::setting;

fn start(dir: &Path) -> Session {
    with_main("proc", dir).start().expect("it starts")
}

fn start_users(dir: &Path) -> Session {
    let builder = with_main("users", dir).scope(Scope::User);
    match std::env::var("RESERVATION").as_deref() {
        Ok("lockless") => builder.reservation(Reservation::Lockless),
        Ok("locked") => builder.reservation(Reservation::Locked),
        _ => builder,
    }
    .start()
    .expect("it starts")
}

fn details(dir: &Path) -> lastwords_control::Details {
    common::details(&only_session(dir))
}

#[test]
fn child_killed() {
    let Some(dir) = child_dir() else { return };
    let _session = start(&dir);
    record(0..2000);
    kill_self();
}

#[test]
fn a_killed_process_leaves_its_events() {
    alone!(in dir);
    let status = end_of("child_killed", dir.path(), &[]);
    assert!(!status.success());
    let folder = only_session(dir.path());
    assert_eq!(numbers(&folder), every(0..2000));
    let details = details(dir.path());
    assert_eq!(details.state, State::LeftOver);
    assert_eq!(details.processes[0].life, Life::Dead);
    assert_eq!(details.channels[0].events, 1);
    lastwords_control::destroy(&folder).expect("it is removed");
    assert!(!folder.exists());
}

#[test]
fn closed_removed_or_dropped_by_a_panic() {
    alone!(in dir);
    let session = start(dir.path());
    let path = folder(&session);
    assert_eq!(details(dir.path()).state, State::Live);
    session.remove();
    assert!(!path.exists());
    drop(start(dir.path()));
    assert_eq!(details(dir.path()).state, State::Finished);
    lastwords_control::destroy(&only_session(dir.path())).expect("it is removed");
    let panicked = std::panic::catch_unwind(|| {
        let _session = start(dir.path());
        record(0..10);
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    assert_eq!(numbers(&only_session(dir.path())).len(), 10);
    assert_eq!(details(dir.path()).state, State::LeftOver);
}

#[test]
fn forked_children_record_in_the_same_session() {
    alone!(in dir);
    for reservation in [Reservation::Rseq, Reservation::Lockless, Reservation::Locked] {
        let session = started(with_main("fork", dir.path()).reservation(reservation));
        record(0..100);
        let pid = fork(|| {
            record(100..200);
            kill_self()
        });
        wait(pid);
        record(200..300);
        assert_eq!(numbers(&folder(&session)), every(0..300), "{reservation:?}");
        let processes = details(dir.path()).processes;
        assert_eq!(processes.len(), 2);
        let dead: Vec<_> = processes.iter().filter(|process| process.life == Life::Dead).collect();
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].pid, pid as u32);
        session.remove();
    }
}

/// Reads the answer of a forked child when it is done.
fn answer(pipe: &mut std::io::PipeReader) -> u8 {
    let mut byte = [0];
    pipe.read_exact(&mut byte).expect("an answer");
    byte[0]
}

#[test]
fn child_leaves_a_session_to_its_children() {
    let Some(dir) = child_dir() else { return };
    let executed = std::env::var_os("EXECUTED").is_some();
    let mut session = Some(start(&dir));
    let path = folder(session.as_ref().expect("the session"));
    let (mut done, told) = std::io::pipe().expect("a pipe");
    let (mut go, mut tell) = std::io::pipe().expect("a pipe");
    let mut child = |session: &mut Option<Session>| {
        use std::io::Write as _;
        // SAFETY: the call involves no memory. It ends the child if its parent fails.
        unsafe { libc::alarm(20) };
        record(0..10);
        if executed {
            use std::os::unix::process::CommandExt as _;
            drop(std::process::Command::new("sleep").arg("10").exec());
        }
        answer(&mut go);
        record(10..20);
        (&told).write_all(&[1]).expect("told");
        answer(&mut go);
        if let Some(session) = session.take() {
            session.remove();
        }
    };
    let pid = fork(|| {
        child(&mut session);
        kill_self()
    });
    if executed {
        let name = format!("/proc/{pid}/comm");
        wait_for("the other program", || {
            std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n")
        });
    }
    if let Some(session) = session.take() {
        session.remove();
    }
    assert_eq!(
        path.exists(),
        !executed,
        "the child still records, but for one that is another program"
    );
    if !executed {
        use std::io::Write as _;
        tell.write_all(&[1]).expect("told");
        answer(&mut done);
        assert_eq!(numbers(&path), every(0..20));
        assert_eq!(details(&dir).state, State::Live);
        tell.write_all(&[1]).expect("told");
        wait(pid);
        assert!(!path.exists(), "the last to leave removes it");
    }
    // SAFETY: the call involves no memory. The child was not waited for yet, or is gone.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

#[test]
fn a_session_is_not_removed_while_a_child_records() {
    alone!();
    for variables in [&[][..], &[("EXECUTED", "1")]] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut child = spawn("child_leaves_a_session_to_its_children", dir.path(), variables);
        assert!(child.wait().expect("it ends").success(), "{variables:?}");
    }
}

#[test]
fn child_records_until_killed() {
    let Some(dir) = child_dir() else { return };
    let _session = start_users(&dir);
    for number in 0.. {
        record(number..number + 1);
    }
}

#[test]
fn events_are_switched_from_another_process() {
    alone!(in dir);
    let mut child = spawn("child_records_until_killed", dir.path(), &[]);
    let folder = wait_for_session(dir.path());
    let newest = || numbers(&folder).last().copied();
    // The recorder continues while it is read. A copy may catch it in the middle, so only the
    // change counts.
    wait_for("events", || newest().is_some());
    let handle = Handle::open(&folder).expect("it opens");
    handle.rule(&RuleSpec::disable("test:*")).expect("disabled");
    let quiet = || {
        let before = newest();
        std::thread::sleep(std::time::Duration::from_millis(20));
        before == newest()
    };
    wait_for("silence", quiet);
    handle.rule(&RuleSpec::enable("test:num*")).expect("enabled");
    wait_for("events again", || !quiet());
    handle.set_recording(None, false);
    wait_for("silence again", quiet);
    handle.set_recording(None, true);
    wait_for("events at last", || !quiet());
    lastwords_control::destroy(&folder).expect("destroyed while it lives");
    assert!(!folder.exists());
    child.kill().expect("killed");
    child.wait().expect("it ends");
}

#[test]
fn child_joins_and_records_when_told() {
    let Some(dir) = child_dir() else { return };
    let session = start_users(&dir);
    let mut first = [0u8; 8];
    let mut input = std::io::stdin();
    while input.read_exact(&mut first).is_ok() {
        let number = u64::from_ne_bytes(first);
        record(number..number + 100);
        std::fs::write(dir.join(format!("done-{number}")), "").expect("told");
    }
    drop(session);
}

/// Kills writers in tight loops, and checks that the others' events are all there.
/// `LASTWORDS_KILLS` sets how many are killed for each reservation; the default is 15.
#[test]
fn killed_writers_do_not_stop_the_others() {
    alone!();
    let kills = setting("LASTWORDS_KILLS", 15);
    for reservation in ["rseq", "lockless", "locked"] {
        let dir = tempfile::tempdir().expect("a folder");
        let variables = [("RESERVATION", reservation)];
        let mut other = spawn("child_joins_and_records_when_told", dir.path(), &variables);
        let folder = wait_for_session(dir.path());
        for round in 1..=kills {
            let mut writer = spawn("child_records_until_killed", dir.path(), &variables);
            let joined = || {
                common::details(&folder).processes.iter().any(|process| process.pid == writer.id())
            };
            wait_for("the writer", joined);
            std::thread::sleep(std::time::Duration::from_millis(5 + round % 20));
            writer.kill().expect("killed");
            writer.wait().expect("it ends");
            let first: u64 = round << 40;
            tell(&mut other, first);
            wait_for("the other's answer", || dir.path().join(format!("done-{first}")).exists());
            let found = numbers(&folder);
            let theirs: Vec<u64> =
                found.into_iter().filter(|number| number >> 40 == round).collect();
            assert_eq!(theirs, every(first..first + 100), "{reservation}, after {round} kills");
        }
        drop(other.stdin.take());
        assert!(other.wait().expect("it ends").success());
        assert!(folder.exists(), "processes died in it: their last words stay");
        assert_eq!(common::details(&folder).state, State::LeftOver);
    }
}

fn tell(child: &mut std::process::Child, number: u64) {
    use std::io::Write as _;
    let input = child.stdin.as_mut().expect("a pipe");
    input.write_all(&number.to_ne_bytes()).expect("told");
    input.flush().expect("told");
}

#[test]
fn the_last_to_leave_ends_a_users_session() {
    alone!(in dir);
    let mine = start_users(dir.path());
    let again = start_users(dir.path());
    assert_eq!(mine.uuid(), again.uuid(), "joined");
    assert_eq!(again.note(), "joined");
    record(0..10);
    drop(mine);
    record(10..20);
    let mine = start_users(dir.path());
    record(20..30);
    assert_eq!(numbers(&folder(&mine)), every(0..30), "each once, however often it was joined");
    let mut other = spawn("child_joins_and_records_when_told", dir.path(), &[]);
    wait_for("the other", || details(dir.path()).processes.len() == 2);
    let path = folder(&mine);
    drop(again);
    mine.remove();
    assert!(path.exists(), "the other records in it");
    drop(other.stdin.take());
    assert!(other.wait().expect("it ends").success());
    assert_eq!(common::details(&path).state, State::Finished);
    start_users(dir.path()).remove();
    assert!(
        path.exists(),
        "one that ended is not joined, and what is begun in its place is another"
    );
}

#[test]
fn who_joins_is_told_what_the_session_does_not_have() {
    alone!(in dir);
    let first = start_users(dir.path());
    let joining = || Session::builder("users").dir(dir.path()).scope(Scope::User);
    assert_eq!(joining().start().expect("it joins").note(), "joined");
    assert_eq!(joining().channel(plain("main")).start().expect("it joins").note(), "joined");
    let error = joining().channel(plain("rare")).start().expect_err("no such channel").to_string();
    assert!(error.contains("\"rare\"") && error.contains("another session name"), "{error}");
    assert!(first.snapshot(lastwords::snapshot::Rings::All).is_err());
    let other = joining()
        .channel(plain("main").sub_buffers(2, 4096).discard())
        .snapshot(true)
        .events("rare:*");
    let other = other.reservation(Reservation::Locked).start().expect("it joins");
    let said = "channel main: 4 sub-buffers of 65536 bytes, overwriting; reservation rseq; rules (those of rare:* are not added)";
    assert_eq!(other.note(), format!("joined; it keeps its {said}"));
    first.snapshot(lastwords::snapshot::Rings::All).expect("who joined asked for snapshots");
    drop(other);
    record(0..10);
    assert_eq!(
        numbers(&folder(&first)).len(),
        10,
        "the filter of one is not imposed on the others"
    );
    first.remove();
    assert_eq!(
        std::fs::read_dir(dir.path()).expect("the folder").count(),
        1,
        "the lock file: all have left"
    );
}

#[test]
fn a_flood_does_not_evict_an_error() {
    alone!(in dir);
    let session = Session::builder("flood")
        .dir(dir.path())
        .channel(plain("main").sub_buffers(2, 4096))
        .channel(lastwords::ChannelConfig::errors().contexts(lastwords::Context::NONE))
        .start()
        .expect("it starts");
    lastwords::event!(test, "failed", level: ERROR, number = u64::MAX);
    record(0..300_000);
    session.enable("*").expect("a rule for all channels");
    record(300_000..310_000);
    let found = numbers(&folder(&session));
    assert!(found.contains(&u64::MAX), "the error is still there");
    assert_eq!(
        found.iter().filter(|number| **number == 309_999).count(),
        1,
        "the newest is in main alone"
    );
}

#[test]
fn sessions_and_targets_have_a_limit_that_is_told() {
    alone!(in dir);
    let tiny = || {
        Session::builder("many")
            .dir(dir.path())
            .channel(plain("main").sub_buffers(2, 4096))
            .spans(0)
    };
    let sessions: Vec<_> = (0..32).map(|_| tiny().start().expect("it starts")).collect();
    record(0..10);
    for session in &sessions {
        assert_eq!(numbers(&folder(session)).len(), 10);
    }
    let error = tiny().start().expect_err("one too many").to_string();
    assert!(error.contains("32") && error.contains("close"), "{error}");
    sessions.into_iter().for_each(Session::remove);
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder").count(), 0);
    drop(tiny().start().expect("slots are free again"));
}

#[test]
fn sessions_come_and_go_under_fire() {
    alone!(in dir);
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(done);
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    record(0..100);
                }
            });
        }
        for round in 0..60u32 {
            let reservation =
                [Reservation::Rseq, Reservation::Lockless, Reservation::Locked][round as usize % 3];
            let memory =
                if round % 2 == 0 { lastwords::Memory::Shm } else { lastwords::Memory::Heap };
            let session = Session::builder("fire")
                .dir(dir.path())
                .channel(plain("main").sub_buffers(2, 4096))
                .reservation(reservation)
                .backend(memory)
                .start()
                .expect("it starts");
            std::thread::sleep(std::time::Duration::from_millis(2));
            drop(session);
        }
    });
}

/// Runs a program in a namespace like that of a container. From outside, it is seen alive and dead,
/// switched, and recovered.
#[test]
fn a_process_in_another_pid_namespace() {
    alone!(in dir);
    let Ok(mut child) = common::in_namespace("child_records_until_killed", dir.path()).spawn()
    else {
        return;
    };
    let listed = || lastwords_control::list(Some(dir.path())).is_ok_and(|found| found.len() == 1);
    for _ in 0..2000 {
        // Without the right to make namespaces, the test cannot run.
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        if listed() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let path = only_session(dir.path());
    wait_for("events", || numbers(&path).len() > 100);
    let seen = details(dir.path());
    assert_eq!(seen.state, State::Live, "{seen:?}");
    assert_eq!(seen.processes[0].pid, 1, "it is the first process of a namespace of its own");
    let mine = start_users(dir.path());
    assert_ne!(mine.uuid(), seen.uuid, "a session of another pid namespace is not joined");
    mine.remove();
    let handle = Handle::open(&path).expect("it opens");
    handle.enable_snapshots().expect("enabled");
    handle.snapshot(lastwords::snapshot::Rings::All).expect("taken");
    wait_for("events behind the snapshot", || !numbers(&path).is_empty());
    handle.rule(&RuleSpec::disable("*")).expect("disabled");
    let newest = || numbers(&path).last().copied();
    wait_for("silence", || {
        let before = newest();
        std::thread::sleep(std::time::Duration::from_millis(20));
        before == newest()
    });
    child.kill().expect("killed");
    child.wait().expect("it ends");
    wait_for("its end", || !matches!(details(dir.path()).state, State::Live));
    let found = common::snapshot_numbers(&path);
    let last = found.last().copied().expect("a snapshot");
    let live = numbers(&path);
    assert!(live[0] > last, "live goes on behind the snapshot: {} and {last}", live[0]);
    let oldest = common::oldest_of_streams(&path);
    for pair in live.windows(2).filter(|pair| pair[1] != pair[0] + 1) {
        assert!(
            oldest.contains(&pair[1]),
            "{} and {} are neighbours in a stream",
            pair[0],
            pair[1]
        );
    }
}
