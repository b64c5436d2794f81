//! Channels whose creation fails: the creator is killed, or the file system has no room.
#![allow(missing_docs, reason = "a test")]

use std::path::Path;

use crate::common::{
    child_dir, end_of, fork, is_root, mount, plain, start, stay_on_one_cpu, unmount, wait, wait_for,
};
use crate::created_channels::{channels_of, emit, found, send};
use lastwords::{Error, Session};
use lastwords_control::Handle;
use lastwords_testkit::naive;
use lastwords_testkit::random::{Random, seed};

/// Runs a forked child up to its system call `calls` in `create_channel`, and kills it there.
/// Returns true if the child had ended before.
fn killed_at(path: &Path, calls: u64) -> bool {
    let handle = Handle::open(path).expect("opened");
    let pid = fork(|| {
        // SAFETY: the calls involve no memory of ours. The parent traces the child from here.
        unsafe {
            libc::alarm(30);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        let made = handle.create_channel(&plain("late").sub_buffers(2, 4096), None);
        i32::from(made.is_err())
    });
    wait(pid);
    for _ in 0..calls {
        // SAFETY: the child is stopped, and traced by this thread.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, 0) };
        let status = wait(pid);
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0, "the channel is created");
            return true;
        }
    }
    // SAFETY: the child is ours.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    wait(pid);
    false
}

/// A creator is killed before and after each of its system calls. The session has no channel of the
/// name, or a whole one; the next creator makes it, or finds it; events go there.
#[test]
fn a_killed_creator_leaves_no_channel_or_a_whole_one() {
    alone!();
    let (mut none, mut whole) = (0, 0);
    let mut calls = Random(seed()).below(3);
    loop {
        let dir = tempfile::tempdir().expect("a folder");
        let (session, path) = start(
            Session::builder("killed").dir(dir.path()).channel(plain("main").sub_buffers(2, 4096)),
        );
        emit(0, 1);
        let is_over = killed_at(&path, calls);
        naive::read(&path).expect("readable");
        let handle = Handle::open(&path).expect("it opens after any step");
        let id = match session.create_channel(&plain("late").sub_buffers(2, 4096), None) {
            Ok(id) => {
                none += 1;
                id
            }
            Err(Error::Exists { .. }) => {
                whole += 1;
                session.channel("late").expect("a channel")
            }
            Err(error) => panic!("after {calls} calls: {error}"),
        };
        let left = std::fs::read_dir(&path)
            .expect("listed")
            .flatten()
            .filter(|file| file.file_name().to_string_lossy().starts_with(".new"));
        assert_eq!(left.count(), 0, "after {calls} calls");
        send(0, id, &[0], true, |rule| handle.rule(rule).expect("a rule"));
        wait_for("the channel", || {
            emit(0, 2);
            channels_of(
                &found(&path)
                    .into_iter()
                    .map(|((number, channel), _)| ((number, channel), 1))
                    .collect(),
                2,
            )
            .contains(&id)
        });
        session.remove();
        if is_over {
            break;
        }
        calls += 3;
    }
    assert!(none > 5 && whole > 1, "{none} without, {whole} with the channel");
}

/// Bytes that are free in the file system of a folder.
fn free(dir: &Path) -> u64 {
    let space = rustix::fs::statvfs(dir).expect("statvfs");
    space.f_bfree * space.f_frsize
}

#[test]
fn child_on_a_small_disk() {
    let Some(dir) = child_dir() else { return };
    mount(&dir, 0, "size=16m,mode=0700");
    stay_on_one_cpu();
    let seed = seed();
    let mut random = Random(seed);
    let (mut made, mut refused) = (0, 0);
    for round in 0..12u64 {
        let main = plain("main").sub_buffers(2, 16 << 10);
        let (session, path) =
            start(Session::builder("small").dir(&dir).channel(main).snapshot(round % 2 == 1));
        let left = 4096 * random.below(1024);
        std::fs::write(dir.join("filling"), vec![1; free(&dir).saturating_sub(left) as usize])
            .expect("written");
        let sub_buffers = 2 << random.below(3);
        let config = plain("late").sub_buffers(sub_buffers, 64 << 10);
        let streams = naive::read(&path).expect("readable")[0].streams.len() as u64;
        let needed = streams * u64::from(sub_buffers) * (64 << 10) * (1 + round % 2);
        // The ring of this CPU gets its memory with its first event.
        emit(0, 1);
        let (files, room) = (std::fs::read_dir(&path).expect("listed").count(), free(&dir));
        let created = session.create_channel(&config, None);
        emit(0, 2);
        match &created {
            Ok(_) => {
                assert!(room >= needed, "seed {seed}, round {round}: {needed} bytes in {room}")
            }
            Err(error) => {
                assert!(
                    matches!(error, Error::Backend { .. }),
                    "seed {seed}, round {round}: {error}"
                );
                // Beside the data, each stream has a begin of a few pages.
                assert!(
                    room < needed + streams * (256 << 10),
                    "seed {seed}, round {round}: {room} bytes for {needed}: {error}"
                );
                assert_eq!(
                    std::fs::read_dir(&path).expect("listed").count(),
                    files,
                    "seed {seed}, round {round}"
                );
                assert_eq!(
                    free(&dir),
                    room,
                    "seed {seed}, round {round}: what was written is removed"
                );
            }
        }
        std::fs::remove_file(dir.join("filling")).expect("removed");
        match created {
            Ok(_) => made += 1,
            Err(_) => {
                refused += 1;
                session.create_channel(&config, None).expect("there is room now");
            }
        }
        emit(0, 3);
        let numbers: Vec<u64> =
            found(&path).into_keys().filter(|key| key.1 == 0).map(|key| key.0).collect();
        assert_eq!(numbers, [1, 2, 3], "seed {seed}, round {round}");
        session.remove();
    }
    assert!(made > 0 && refused > 0, "seed {seed}: {made} were created, {refused} refused");
}

/// Where a file system has no room for a channel, nothing stays of it, and the session records as
/// before.
#[test]
fn a_channel_without_room_leaves_nothing() {
    alone!();
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let status = end_of("child_on_a_small_disk", dir.path(), &[]);
    unmount(dir.path());
    assert!(status.success(), "{status}");
}
