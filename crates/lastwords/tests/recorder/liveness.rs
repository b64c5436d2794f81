//! Tests that a session shows whether its processes live: in containers, without /proc, after
//! `chroot`, `exec` and `closefrom`, and whichever of its threads and relatives ended first.
//! Retention then holds for all of them.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common;
use crate::common::{
    child_dir, end_of, every, folder, in_fork, kill_self, numbers, only_session, plain, record,
    spawn, wait_for, with_main,
};
use lastwords::{Ending, Retention, Session};
use lastwords_control::{self, Details, State};
use lastwords_control::{Evidence, Life};

/// The exit status of a child that lacks a right.
const NO_RIGHT: i32 = 77;

fn start(dir: &Path) -> Session {
    with_main("life", dir).start().expect("it starts")
}

/// Ends the process so that it cannot write how it ends.
fn die() -> ! {
    if std::process::id() == 1 {
        // The first process of a namespace cannot kill itself.
        // SAFETY: the call ends the process.
        unsafe { libc::_exit(9) }
    }
    kill_self()
}

/// Tells the test that the child is as the test wants it, and waits until the test ends it.
fn stay(dir: &Path) -> ! {
    std::fs::write(dir.with_extension("ready"), "").expect("told");
    let _ = std::io::read_to_string(std::io::stdin());
    die()
}

/// Exits unless a call of the system succeeded.
fn must(result: i32) {
    if result != 0 {
        std::process::exit(NO_RIGHT);
    }
}

/// Closes all descriptors but the standard ones, as `closefrom(3)` does.
fn close_all() {
    // SAFETY: the descriptors of the session are not used by other threads. The recorder expects
    // such programs.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
}

/// Removes /proc from this process's view.
fn unmount_proc() {
    let (root, proc) = (c"/".as_ptr(), c"/proc".as_ptr());
    // SAFETY: the paths are NUL-terminated, and the calls involve no other memory.
    unsafe {
        must(libc::unshare(libc::CLONE_NEWNS));
        must(libc::mount(
            c"none".as_ptr(),
            root,
            core::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            root.cast(),
        ));
        must(libc::umount2(proc, libc::MNT_DETACH));
    }
}

/// Makes a folder the root of this process.
fn enter(jail: &Path) {
    let jail = std::ffi::CString::new(jail.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: the path is NUL-terminated.
    must(unsafe { libc::chroot(jail.as_ptr()) });
}

#[test]
fn child_lives() {
    let Some(dir) = child_dir() else { return };
    match std::env::var("HOW").expect("how").as_str() {
        "killed" => {
            let _session = start(&dir);
            record(0..10);
            die();
        }
        "plain" => {
            let _session = start(&dir);
            record(0..10);
            stay(&dir);
        }
        "without-thread" => {
            let _session = with_main("life", &dir).listen(false).start().expect("it starts");
            record(0..10);
            stay(&dir);
        }
        "closed-without-thread" => {
            let _session = with_main("life", &dir).listen(false).start().expect("it starts");
            close_all();
            stay(&dir);
        }
        "closefrom" => {
            let _session = start(&dir);
            close_all();
            stay(&dir);
        }
        "exec" => {
            let _session = start(&dir);
            std::fs::write(dir.with_extension("ready"), "").expect("told");
            panic!("{}", Command::new("cat").exec());
        }
        "main-thread" => drop(in_fork(|| {
            let _session = start(&dir);
            let place = dir.clone();
            std::thread::spawn(move || {
                record(0..10);
                stay(&place);
            });
            // SAFETY: the call ends this thread, which is the first of its process, and no other.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
            kill_self()
        })),
        how @ ("orphan" | "silent-orphan") => {
            let _session = start(&dir);
            // SAFETY: the child records, writes a file and waits. This process has no other thread
            // that holds a lock of the C library.
            if unsafe { libc::fork() } != 0 {
                kill_self();
            }
            if how == "orphan" {
                record(0..10);
            }
            stay(&dir);
        }
        "no-proc" => {
            unmount_proc();
            let _session = start(&dir);
            record(0..10);
            stay(&dir);
        }
        "chroot" => {
            let session = start(&dir);
            record(0..10);
            enter(&dir.with_extension("jail"));
            drop(session);
        }
        other => panic!("{other}"),
    }
}

/// Starts a child, in a pid namespace of its own if `contained`. `None` without the right to make
/// namespaces.
fn child(how: &str, dir: &Path, contained: bool) -> Option<Child> {
    if !contained {
        return Some(spawn("child_lives", dir, &[("HOW", how)]));
    }
    let can =
        Command::new("unshare").args(["--pid", "--fork", "true"]).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut lives = common::in_namespace("child_lives", dir);
    Some(lives.env("HOW", how).stdin(Stdio::piped()).spawn().expect("it starts"))
}

/// Returns the inode of the pid namespace of the process that `unshare` runs, once it runs.
fn namespace_in(unshare: &Child) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let pid = unshare.id();
    let inside = || -> Option<u64> {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let child = children.split_whitespace().next()?;
        Some(std::fs::metadata(format!("/proc/{child}/ns/pid")).ok()?.ino())
    };
    wait_for("the namespace", || inside().is_some());
    inside().expect("it runs")
}

/// A folder for sessions, and the child that records there, once it is as the test wants it.
struct Case {
    _place: tempfile::TempDir,
    dir: PathBuf,
    child: Child,
}

impl Case {
    fn new(how: &str, contained: bool) -> Option<Self> {
        let place = tempfile::tempdir().expect("a folder");
        let dir = place.path().join("base");
        let mut child = child(how, &dir, contained)?;
        let mut has_right = true;
        wait_for("the child", || {
            let status = child.try_wait().expect("a state");
            has_right = status.is_none_or(|status| status.code() != Some(NO_RIGHT));
            dir.with_extension("ready").exists() || !has_right
        });
        has_right.then_some(Self { _place: place, dir, child })
    }

    fn details(&self) -> Details {
        common::details(&only_session(&self.dir))
    }

    /// The processes of the session, as they are seen from here.
    fn seen(&self) -> Vec<(Life, Evidence)> {
        self.details().processes.iter().map(|process| (process.life, process.evidence)).collect()
    }

    /// Ends the child, which waits for that.
    fn end(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends");
        wait_for("its end", || self.details().state != State::Live);
    }
}

#[test]
fn a_guard_shows_life_and_death_in_any_namespace() {
    alone!();
    for how in ["plain", "closefrom", "main-thread", "no-proc"] {
        for contained in [false, true] {
            let Some(mut case) = Case::new(how, contained) else { continue };
            assert_eq!(case.seen(), [(Life::Alive, Evidence::Guard)], "{how} {contained}");
            assert_eq!(case.details().state, State::Live, "{how} {contained}");
            case.end();
            assert_eq!(case.seen(), [(Life::Dead, Evidence::Guard)], "{how} {contained}");
            let details = case.details();
            assert_eq!(details.state, State::LeftOver, "{how} {contained}");
            assert_eq!(
                details.ended.map(|ended| ended.how),
                Some(Ending::Killed),
                "{how} {contained}"
            );
        }
    }
}

#[test]
fn a_child_lives_after_its_parent() {
    alone!();
    let mut case = Case::new("orphan", false).expect("a child");
    wait_for("the parent's end", || case.child.try_wait().is_ok_and(|status| status.is_some()));
    assert_eq!(case.seen(), [(Life::Dead, Evidence::Guard), (Life::Alive, Evidence::Guard)]);
    assert_eq!(case.details().state, State::Live);
    case.end();
    assert_eq!(case.details().state, State::LeftOver);
    // A child that has not recorded has no guard yet, but a lock.
    let mut case = Case::new("silent-orphan", false).expect("a child");
    wait_for("the parent's end", || case.child.try_wait().is_ok_and(|status| status.is_some()));
    assert_eq!(case.seen(), [(Life::Dead, Evidence::Guard), (Life::Alive, Evidence::Lock)]);
    case.end();
    assert_eq!(case.details().state, State::LeftOver);
}

#[test]
fn a_process_that_lost_its_lock_is_not_dead() {
    alone!();
    for contained in [false, true] {
        let Some(mut case) = Case::new("closed-without-thread", contained) else { continue };
        assert_eq!(case.seen(), [(Life::Alive, Evidence::Proc)], "{contained}");
        case.end();
        assert_ne!(case.details().state, State::Live);
    }
}

#[test]
fn a_program_that_executes_another_one_has_left() {
    alone!();
    let mut case = Case::new("exec", false).expect("a child");
    wait_for("the other program", || case.details().state == State::LeftOver);
    assert_eq!(case.seen(), [(Life::Dead, Evidence::Guard)]);
    assert!(
        case.child.try_wait().expect("a state").is_none(),
        "a process with its id and start time runs"
    );
    drop(case.child.stdin.take());
    case.child.wait().expect("it ends");
}

#[test]
fn a_guard_that_is_held_in_a_copy_says_nothing() {
    alone!();
    let mut case = Case::new("plain", true).expect("a child");
    let folder = only_session(&case.dir);
    let copies = case.dir.with_extension("copies");
    let copy = copies.join(folder.file_name().expect("a name"));
    assert!(
        Command::new("mkdir")
            .args(["-p", "-m", "700"])
            .arg(&copies)
            .status()
            .expect("it runs")
            .success()
    );
    assert!(
        Command::new("cp").arg("-a").arg(&folder).arg(&copies).status().expect("it runs").success()
    );
    case.end();
    let of_copy = common::details(&copy);
    assert_eq!(of_copy.processes.len(), 1);
    assert_ne!(of_copy.processes[0].life, Life::Alive, "{of_copy:?}");
    assert_ne!(of_copy.processes[0].evidence, Evidence::Guard, "{of_copy:?}");
}

#[test]
fn a_namespace_whose_inode_is_used_again_is_another_one() {
    alone!();
    let Some(mut case) = Case::new("without-thread", true) else { return };
    let namespace = namespace_in(&case.child);
    assert_eq!(case.seen(), [(Life::Alive, Evidence::Lock)]);
    case.end();
    for _ in 0..20 {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child", "sleep", "60"]);
        let mut other = unshare.spawn().expect("it starts");
        let reused = namespace_in(&other) == namespace;
        let seen = case.seen();
        other.kill().expect("killed");
        other.wait().expect("it ends");
        // From inside of a container, not all processes are seen.
        assert_ne!(seen[0].0, Life::Alive, "inode used again: {reused}");
        if reused {
            break;
        }
    }
}

#[test]
fn a_session_that_is_closed_after_chroot_was_closed() {
    alone!(in place);
    let dir = place.path().join("base");
    std::fs::create_dir(dir.with_extension("jail")).expect("a folder");
    let status = end_of("child_lives", &dir, &[("HOW", "chroot")]);
    if status.code() == Some(NO_RIGHT) {
        return;
    }
    assert!(status.success(), "{status}");
    let details = common::details(&only_session(&dir));
    assert_eq!(
        (details.state, details.ended.expect("ended").how),
        (State::Finished, Ending::Closed(None))
    );
    assert_eq!(details.processes, []);
}

/// Returns how many sessions are in the folder.
fn count(dir: &Path) -> usize {
    lastwords_control::list(Some(dir)).expect("the list").len()
}

#[test]
fn retention_holds_for_containers() {
    alone!(in place);
    let dir = place.path().join("base");
    for _ in 0..12 {
        let Some(mut child) = child("killed", &dir, true) else { return };
        child.wait().expect("it ends");
    }
    assert_eq!(count(&dir), 6, "five, and the last");
    // All of them begin before one ends.
    let mut children: Vec<Child> = (0..12).filter_map(|_| child("plain", &dir, true)).collect();
    wait_for("all", || count(&dir) >= 12);
    for child in &mut children {
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
    child("killed", &dir, true).expect("a child").wait().expect("it ends");
    assert_eq!(count(&dir), 6, "five, and the last");
}

#[test]
fn the_first_death_of_a_crash_loop_stays() {
    alone!(in dir);
    let mut first = None;
    for _ in 0..9 {
        end_of("child_lives", dir.path(), &[("HOW", "killed")]);
        first.get_or_insert_with(|| only_session(dir.path()));
    }
    let first = first.expect("a session");
    assert_eq!((count(dir.path()), first.exists()), (6, true));
    assert_eq!(numbers(&first), every(0..10));
}

/// Returns the bytes that the files of ended sessions take.
fn bytes_of_ended(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let over = |s: &lastwords_control::Summary| {
        s.details.as_ref().is_ok_and(|details| details.ended.is_some())
    };
    let ended = lastwords_control::list(Some(dir)).expect("the list").into_iter().filter(over);
    let files = ended.flat_map(|summary| std::fs::read_dir(summary.folder).expect("a folder"));
    files.map(|file| file.expect("a file").metadata().expect("its size").blocks() * 512).sum()
}

#[test]
fn one_start_gets_below_the_limit_of_bytes() {
    alone!(in dir);
    let builder = |name: String| {
        Session::builder(name)
            .dir(dir.path())
            .channel(plain("main").sub_buffers(2, 4096))
            .listen(false)
    };
    for n in 0..200 {
        drop(builder(format!("many-{n}")).retention(Retention::ALL).start().expect("it starts"));
    }
    let one = bytes_of_ended(dir.path()) / 200;
    let session = builder("last".into())
        .retention(Retention { sessions: 5, bytes: 20 * one })
        .start()
        .expect("it starts");
    assert!(bytes_of_ended(dir.path()) <= 20 * one, "{} of {one} each", bytes_of_ended(dir.path()));
    assert!(count(dir.path()) > 15, "not more than needed is removed");
    assert!(folder(&session).exists());
}
